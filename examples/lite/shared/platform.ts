/**
 * The layers that the profile decides; the rest of the code is the same in both.
 */
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { SqsQueue } from "duroxide-prisma/queue/sqs"
import { Effect, Layer, Option } from "effect"
import * as Settings from "./settings.ts"

/** Tasks, outbox and datasets: the same PostgreSQL in both profiles. */
export const stateStore = (migrate: "apply" | "verify") =>
  Layer.unwrap(
    Effect.map(Settings.stateUrl, (url) =>
      PrismaProvider.layerDatabase({ url, migrate, maxConnections: 5, applicationName: `lite ${process.pid}` }))
  )

const queues = { batches: {}, platform: {}, deliveries: {} }

/** With `create`, for development, queues of SQS that are missing are created; those of PostgreSQL need no preparation. */
export const queue = (options?: { readonly create: boolean }) =>
  Layer.unwrap(Effect.gen(function*() {
    if ((yield* Settings.profile) === "postgresql") return PgQueue.layer({ queues })
    const endpoint = yield* Settings.sqsEndpoint
    return SqsQueue.layer({
      queues,
      create: options?.create,
      client: Option.isSome(endpoint) ? { endpoint: endpoint.value } : undefined
    })
  }))

/** The id of a worker: of this process. */
export const workerId = (service: string) => `${service} ${process.pid}`
