/**
 * Triggers, and a dispatcher of them with its database.
 */
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Task, Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as PgServer from "../../utils/PgServer.ts"

export const Book = Task.make("Book", { payload: Schema.Struct({ amount: Schema.Int }), success: Schema.Void })

export const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

export const payments = Trigger.webhook("payments", {
  task: Book,
  secret: Redacted.make(secret),
  payload: ({ body }) => {
    const { amount } = body as { readonly amount: number }
    if (amount === 13) throw new Error("unlucky s3cret")
    return { amount }
  }
})

export const decoded = Trigger.webhook("decoded", {
  task: Book,
  secret: Redacted.make(secret),
  payload: ({ body }) => Schema.decodeUnknownSync(Book.payload)(body, { reportInput: true })
})

/** A dispatcher and its database. */
export const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  const services = yield* Layer.build(
    Layer.provideMerge(Tasks.layer, PrismaProvider.layerDatabase({ url: test.url, migrate: "none" }))
  )
  const handle = yield* Effect.provide(
    Trigger.handler({ webhooks: [payments] }),
    services
  )
  const tasks = test.sql<{ readonly name: string; readonly key: string; readonly payload: string }>(
    "SELECT name, key, payload FROM queue_tasks ORDER BY key"
  )
  return {
    ...test,
    services,
    handle,
    tasks,
    keys: Effect.map(tasks, (all) => all.map(({ key }) => key)),
    wakeups: Effect.map(
      test.sql<{ count: number }>("SELECT count(*)::int AS count FROM queue_outbox"),
      ([row]) => row!.count
    ),
    /** The status and the body of an answer. */
    ask: (path: string, init: RequestInit) =>
      Effect.promise(async () => {
        const response = await handle(new Request(`https://dispatcher/triggers/${path}`, init))
        return { status: response.status, body: await response.json() as Readonly<Record<string, unknown>> }
      })
  }
})
