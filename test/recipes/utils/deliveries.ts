/**
 * Endpoints that answer as a test wants, and a process that delivers to them.
 */
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import { createServer, type IncomingMessage, type ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import * as PgServer from "../../utils/PgServer.ts"
import { waitUntil } from "../../utils/waitUntil.ts"

export const secret = Redacted.make(`whsec_${Buffer.alloc(32, 1).toString("base64")}`)

const endpoints = new Map<string, Delivery.Endpoint>()

/** Addresses that the process has sent requests to. */
export const fetched: Array<string> = []

/** Lines that the process logs. */
export const logs: Array<string> = []

/** A process that delivers. `/forbidden` is not allowed. */
export const Deliveries = Layer.unwrap(
  Effect.map(PgServer.PgServer, ({ url }) =>
    TaskWorker.layer({ tasks: [Delivery.Webhook] }).pipe(
      Layer.provide(Delivery.layer({
        endpoints: (name) => Effect.sync(() => Option.fromUndefinedOr(endpoints.get(name))),
        allow: ({ pathname }) => pathname !== "/forbidden",
        timeout: "2 seconds",
        fetch: (url, init) => {
          fetched.push(url instanceof Request ? url.url : url.toString())
          return fetch(url, init)
        }
      })),
      Layer.provide(Outbox.publisher()),
      Layer.provide(PgQueue.layer({ queues: { deliveries: {} } })),
      Layer.provideMerge(Tasks.layer),
      Layer.provideMerge(PrismaProvider.layerDatabase({ url }))
    ))
).pipe(
  Layer.provideMerge(PgServer.layer),
  Layer.provide(Logger.layer([Logger.make(({ message }) => {
    logs.push(JSON.stringify(message))
  })]))
)

export interface Received {
  readonly path: string
  readonly headers: IncomingMessage["headers"]
  readonly body: string
}

type Answer = (response: ServerResponse) => void

export const status = (code: number, headers: Record<string, string> = {}): Answer => (response) =>
  response.writeHead(code, headers).end("a body that is not read")

export const never: Answer = () => {}

/** An endpoint that gives these answers, then the last one again and again. */
export const endpoint = Effect.fnUntraced(function*(answers: ReadonlyArray<Answer>, path = "/hook") {
  const received: Array<Received> = []
  const server = yield* Effect.acquireRelease(
    Effect.promise(() =>
      new Promise<ReturnType<typeof createServer>>((resolve) => {
        const server = createServer((request, response) => {
          let body = ""
          request.setEncoding("utf8").on("data", (part: string) => (body += part)).on("end", () => {
            received.push({ path: request.url!, headers: request.headers, body })
            answers[Math.min(received.length, answers.length) - 1]!(response)
          })
        })
        server.listen(0, "127.0.0.1", () => resolve(server))
      })
    ),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
  const { port } = server.address() as AddressInfo
  const url = `http://127.0.0.1:${port}${path}`
  const name = `endpoint-${port}${path}`
  endpoints.set(name, { url, secret })
  return { name, url, received, change: (endpoint: Delivery.Endpoint) => endpoints.set(name, endpoint) }
})

/** A task as it is stored. */
export const task = Effect.fnUntraced(function*(id: string) {
  const { sql } = yield* PgServer.PgServer
  const [row] = yield* sql<{ status: string; attempt: number; pause: number; failure: string | null }>(
    `SELECT status, attempt, (extract(epoch FROM run_at - updated_at) * 1000)::int AS pause, error AS failure
     FROM queue_tasks WHERE id = $1`,
    [id]
  )
  return row!
})

/** Waits until an attempt has ended that is not the last. */
export const attempted = Effect.fnUntraced(function*(id: string, attempt: number) {
  yield* waitUntil(Effect.map(task(id), (row) => row.attempt >= attempt && row.status !== "Running"))
  return yield* task(id)
})

/** The pause before the next attempt is over. */
export const hurry = Effect.fnUntraced(function*(id: string) {
  const { sql } = yield* PgServer.PgServer
  yield* sql("UPDATE queue_tasks SET run_at = now() WHERE id = $1", [id])
  yield* sql(
    `INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
     VALUES ('deliveries', jsonb_build_object('kind', 'delivery', 'task_id', $1::text), now(), now())`,
    [id]
  )
})
