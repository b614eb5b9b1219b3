// A worker of calls that have limits: `node limited.js <database URL>`. Each begin of the handler is a row of `calls`,
// which has its end if the process lives so long. Runs until SIGTERM; prints `ready` when it serves.
import { Activity, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import { shortLocks } from "./shortLocks.ts"

export const Call = Activity.make("Call", {
  payload: { tenant: Schema.String, n: Schema.Int },
  limitKey: ({ tenant }) => tenant
})

/** Calls as many times, all at once. */
export const Calls = Orchestration.make("Calls", { payload: { tenant: Schema.String, count: Schema.Int } })

const worker = (url: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  const begin = (tenant: string, instance: string, key: string) =>
    pool.query<{ id: string }>(
      "INSERT INTO calls (tenant, instance, key, pid) VALUES ($1, $2, $3, $4) RETURNING id",
      [tenant, instance, key, process.pid]
    )
  const CallLive = Call.toLayer(Effect.fn(function*({ tenant }) {
    const { idempotencyKey, instanceId } = yield* Activity.Call
    const { rows } = yield* Effect.promise(() => begin(tenant, instanceId, idempotencyKey))
    yield* Effect.sleep("60 millis")
    yield* Effect.promise(() => pool.query("UPDATE calls SET ended = clock_timestamp() WHERE id = $1", [rows[0]!.id]))
  }))
  const CallsLive = Calls.toLayer(({ count, tenant }) =>
    Effect.forEach(
      Array.from({ length: count }, (_, n) => n),
      (n) => Call.execute({ tenant, n }),
      { concurrency: "unbounded", discard: true }
    )
  )
  return Runtime.layer({ orchestrations: [Calls], activities: [Call] }).pipe(
    Layer.provide([CallLive, CallsLive]),
    Layer.provide(RuntimeConfig.layer(shortLocks("2 seconds"))),
    Layer.provide(PrismaProvider.layer({ url, migrate: "none" })),
    Layer.provide(Logger.layer([]))
  )
}

const [, program, url] = process.argv
if (program?.endsWith("limited.js") === true) {
  const main = Effect.runFork(Effect.scoped(
    Effect.andThen(
      Layer.build(worker(url!)),
      Effect.andThen(Effect.sync(() => process.stdout.write("ready\n")), Effect.never)
    )
  ))
  process.on("SIGTERM", () => {
    void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
  })
}
