// A process whose activities write a row each, in one transaction with their result:
// `node transactional.js <database URL> <schema>`. Runs until SIGTERM; prints `ready` when it serves.
import { Activity, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider, Transaction } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import { shortLocks } from "./shortLocks.ts"

export class Refused extends Schema.TaggedError<Refused>()("Refused", { n: Schema.Int }) {}

const Write = Activity.make("Write", { payload: Schema.Int, success: Schema.Int, error: Refused })

/** Ten activities, some at once; each seventh of all is refused. Returns how many were not. */
export const Writing = Orchestration.make("Writing", { payload: Schema.Int, success: Schema.Int })

export const activitiesEach = 10

const isRefused = (n: number) => n % 7 === 0

export const writesOf = (instance: number) =>
  Array.from({ length: activitiesEach }, (_, i) => instance * activitiesEach + i).filter((n) => !isRefused(n)).length

const WritingLive = Writing.toLayer(Effect.fn(function*(instance) {
  const numbers = Array.from({ length: activitiesEach }, (_, i) => instance * activitiesEach + i)
  const [, written] = yield* Effect.partition(numbers, (n) => Effect.flip(Write.execute(n)), { concurrency: 3 })
  return written.length
}))

/** Stands for a process that hangs: it renews no lock meanwhile, so its locks run out. */
const hang = (ms: number) => Effect.sync(() => Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms))

const main = (url: string, schema: string) => {
  const pool = new pg.Pool({
    connectionString: url.replace(/\?.*$/, ""),
    options: `-c search_path=${schema}`,
    max: 6,
    connectionTimeoutMillis: 5_000,
    query_timeout: 5_000
  })
  pool.on("error", () => {})
  const WriteLive = Write.toLayer(Activity.transactional(Transaction.ofPool(pool), (n, tx) =>
    Effect.gen(function*() {
      const { activityId, instanceId } = yield* Activity.Call
      yield* Effect.promise(() =>
        tx.query("INSERT INTO effects (instance_id, activity_id) VALUES ($1, $2)", [instanceId, activityId])
      )
      const fate = yield* Random.nextIntBetween(0, 500)
      if (fate === 0) yield* hang(1_500)
      else if (fate < 100) yield* Effect.sleep(fate / 5)
      return isRefused(n) ? yield* new Refused({ n }) : n
    })))
  const App = Runtime.layer({ orchestrations: [Writing], activities: [Write] }).pipe(
    Layer.provide([WritingLive, WriteLive]),
    Layer.provide(RuntimeConfig.layer({
      ...shortLocks("1 second"),
      workerConcurrency: 6
    })),
    Layer.provide(PrismaProvider.layer({ url, schema, migrate: "none" }))
  )
  const fiber = Effect.runFork(Effect.scoped(
    Layer.build(App).pipe(
      Effect.tap(() => Effect.sync(() => process.stdout.write("ready\n"))),
      Effect.andThen(Effect.never)
    )
  ))
  process.on("SIGTERM", () => {
    void Effect.runPromise(Fiber.interrupt(fiber)).then(() => process.exit(0))
  })
  fiber.addObserver((exit) => {
    if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
  })
}

// The definitions are imported by the test.
if (process.argv[1]?.endsWith("transactional.js")) main(process.argv[2]!, process.argv[3]!)
