/**
 * The layers that the profile decides; the rest of the code is the same in both.
 */
import { PgQueue, QueueDatabase } from "duroxide-prisma/queue"
import { Effect, Layer } from "effect"
import * as Settings from "./settings.ts"

/** Tasks, outbox and datasets: the same PostgreSQL in both profiles. */
export const stateStore = (migrate: "apply" | "verify") =>
  Layer.unwrap(
    Effect.map(Settings.stateUrl, (url) =>
      QueueDatabase.layer({ url, migrate, maxConnections: 5, applicationName: `lite ${process.pid}` }))
  )

const queues = { batches: {}, platform: {}, deliveries: {} }

export const queue = () =>
  Layer.unwrap(Effect.gen(function*() {
    if ((yield* Settings.profile) === "sqs") return yield* Effect.die(new Error("SqsQueue is not in this version yet"))
    return PgQueue.layer({ queues })
  }))

/** The id of a worker: of this process. */
export const workerId = (service: string) => `${service} ${process.pid}`
