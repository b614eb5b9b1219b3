/**
 * A small but complete orchestration: an activity, a durable timer, a child and a signal, and what its run must store.
 */
import { assert } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import type * as PgServer from "./PgServer.ts"
import { waitUntil } from "./waitUntil.ts"

const Greet = Activity.make("Greet", { payload: Schema.String, success: Schema.String })
const Shout = Orchestration.make("Shout", { payload: Schema.String, success: Schema.String })
const Answer = Signal.make("Answer", { payload: Schema.String })
const Result = Schema.Struct({ greeting: Schema.String, answer: Schema.String, sleptMs: Schema.Number })
const Errand = Orchestration.make("Errand", { payload: Schema.String, success: Result })
const Tomorrow = Orchestration.make("Tomorrow")

/** Runtime of its definitions, whose activities return the sender. */
export const runtime = (sender: string) =>
  Runtime.layer({ orchestrations: [Errand, Shout, Tomorrow], activities: [Greet] }).pipe(Layer.provide([
    Greet.toLayer((name) => Effect.succeed(`${sender} greets ${name}`)),
    Shout.toLayer((text) => Effect.succeed(text.toUpperCase())),
    Tomorrow.toLayer(() => Effect.sleep("1 day")),
    Errand.toLayer(Effect.fn(function*(name) {
      const greeting = yield* Shout.execute(yield* Greet.execute(name))
      const before = yield* Clock.currentTimeMillis
      yield* Effect.sleep("300 millis")
      const sleptMs = (yield* Clock.currentTimeMillis) - before
      return { greeting, answer: yield* Answer.wait, sleptMs }
    }))
  ]))

/** The application: migrated schema, runtime and client. Its activities return which process ran them. */
export const app = (sender: string, options: PrismaProvider.Options | PrismaProvider.PoolOptions) =>
  runtime(sender).pipe(
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer(options)),
    Layer.provideMerge(Logger.layer([]))
  )

/** Runs `Errand` until it ends, sending the answer until it is received. */
export const run = Effect.fnUntraced(function*(name: string, answer: string) {
  const client = yield* Client.Client
  yield* client.start(Errand, { instanceId: name, payload: name })
  const result = yield* Effect.raceFirst(
    client.wait(Errand, name),
    Effect.andThen(
      Effect.repeat(client.send(Answer, name, answer), Schedule.spaced("100 millis")),
      Effect.never
    )
  )
  assert.isAtLeast(result.sleptMs, 300)
  assert.isBelow(result.sleptMs, 600_000) // a wrong zone would be off by hours, or fire at once
  return { greeting: result.greeting, answer: result.answer }
})

/** Starts `Tomorrow` and returns how far its timer's row is from the time the program asked for, in milliseconds. */
export const timerError = Effect.fnUntraced(function*(test: Pick<PgServer.TestDatabase, "sql">) {
  const client = yield* Client.Client
  const startedAtMs = Date.now()
  yield* client.start(Tomorrow, { instanceId: "tomorrow" })
  const timer = test.sql<{ due: number; row: number }>(
    `SELECT (work_item::json->'TimerFired'->>'fire_at_ms')::float AS due,
       extract(epoch FROM visible_at)::float * 1000 AS row
     FROM orchestrator_queue WHERE instance_id = 'tomorrow' AND strpos(work_item, 'TimerFired') > 0`
  )
  yield* waitUntil(Effect.map(timer, (rows) => rows.length === 1))
  const [{ due, row }] = (yield* timer) as readonly [{ due: number; row: number }]
  const expected = startedAtMs + 24 * 3600 * 1000
  return { due: due - expected, row: row - due }
})
