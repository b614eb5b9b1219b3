/**
 * The recipes of docs/signals.md, and a worker that runs them: `node batcher.js <database URL>`. It writes each batch
 * into the table `batches`, once for each idempotency key. Prints `ready` when it serves.
 */
import { Activity, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Clock from "effect/Clock"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import { shortLocks } from "./shortLocks.ts"

export const Clicks = Signal.make("Clicks", { payload: Schema.Int })

export const Count = Orchestration.make("Count")

export const Store = Activity.make("Store", { payload: Schema.Array(Schema.Int) })

/** Takes at most `most` clicks, in order: the next one, and those that come within `within` of it. */
export const batch = Effect.fnUntraced(function*(most: number, within: Duration.Input) {
  const clicks = [yield* Clicks.wait]
  const more = Effect.gen(function*() {
    while (clicks.length < most) clicks.push(yield* Clicks.wait)
  })
  yield* Effect.timeoutOption(more, within)
  return clicks
})

export const CountLive = Count.toLayer(Effect.fn(function*() {
  for (let batches = 0; batches < 20; batches++) yield* Store.execute(yield* batch(50, "10 seconds"))
  return yield* Count.continueAsNew()
}))

/** Takes clicks until none has come for `quiet`, or `longest` after the first one. Returns the last. */
export const settled = Effect.fnUntraced(function*(quiet: Duration.Input, longest: Duration.Input) {
  let last = yield* Clicks.wait
  const more = Effect.gen(function*() {
    while (true) last = yield* Effect.timeout(Clicks.wait, quiet)
  })
  yield* more.pipe(Effect.timeout(longest), Effect.ignore)
  return last
})

/** Stores batches of at most 7 clicks until it has stored so many; a few batches an execution. */
export const CountTo = Orchestration.make("CountTo", { payload: { clicks: Schema.Int, done: Schema.Int } })

const CountToLive = CountTo.toLayer(Effect.fn(function*({ clicks, done }) {
  let stored = done
  for (let batches = 0; batches < 5 && stored < clicks; batches++) {
    const next = yield* batch(7, "100 millis")
    yield* Store.execute(next)
    stored += next.length
  }
  if (stored < clicks) return yield* CountTo.continueAsNew({ clicks, done: stored })
}))

const main = (url: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  const StoreLive = Store.toLayer(Effect.fnUntraced(function*(clicks) {
    const { idempotencyKey, instanceId } = yield* Activity.Call
    const now = yield* Clock.currentTimeMillis
    yield* Effect.promise(() =>
      pool.query(
        "INSERT INTO batches (key, instance_id, at_ms, clicks) VALUES ($1, $2, $3, $4) ON CONFLICT DO NOTHING",
        [
          idempotencyKey,
          instanceId,
          now,
          clicks
        ]
      )
    )
  }))
  const App = Runtime.layer({ orchestrations: [CountTo], activities: [Store] }).pipe(
    Layer.provide([CountToLive, StoreLive]),
    Layer.provide(RuntimeConfig.layer(shortLocks("1 second"))),
    Layer.provide(PrismaProvider.layer({ url, migrate: "verify" })),
    Layer.provide(Logger.layer([]))
  )
  const running = Effect.runFork(Effect.scoped(Effect.gen(function*() {
    yield* Layer.build(App)
    process.stdout.write("ready\n")
    return yield* Effect.never
  })))
  process.on("SIGTERM", () => {
    void Effect.runPromise(Fiber.interrupt(running)).then(() => process.exit(0))
  })
  running.addObserver((exit) => {
    if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
  })
}

const [, script, url] = process.argv
if (script?.endsWith("/batcher.js") === true) main(url!)
