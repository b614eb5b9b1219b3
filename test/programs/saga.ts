/**
 * A worker of a travel agency: `node saga.js <url>`. A trip is a saga over three children, each of which undoes its own
 * effect. What happens outside is in the tables `effects` and `undone`, by idempotency key.
 */
import { Activity, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import { shortLocks } from "./shortLocks.ts"

const text = { payload: Schema.String, success: Schema.String }

export const Trip = Orchestration.make("Trip")
/** Books one thing, and returns the key of that effect. */
const Step = Orchestration.make("Step", text)
const Book = Activity.make("Book", text)
const Undo = Activity.make("Undo", { payload: Schema.String })

const moment = Effect.flatMap(Random.nextIntBetween(0, 1_500), (millis) => Effect.sleep(millis))

/** Undoes the effect if the scope fails, or is interrupted. */
const undoOnFailure = (key: string) =>
  Effect.addFinalizer((exit) => exit._tag === "Failure" ? Undo.execute(key) : Effect.void)

const step = (what: string) => Step.with({ onLateSuccess: Undo.execute }).execute(what).pipe(Effect.tap(undoOnFailure))

const handlers = (pool: pg.Pool) =>
  Layer.mergeAll(
    Trip.toLayer(() =>
      Effect.scoped(Effect.andThen(Effect.forEach(["car", "room", "seat"], step), Effect.sleep("1 day")))
    ),
    Step.toLayer((what) =>
      Effect.scoped(Effect.gen(function*() {
        yield* moment
        const key = yield* Effect.uninterruptible(Effect.tap(Book.execute(what), undoOnFailure))
        yield* moment
        return key
      }))
    ),
    Book.toLayer((what) =>
      Effect.flatMap(Activity.Call, ({ idempotencyKey, instanceId }) =>
        Effect.as(
          Effect.promise(() =>
            pool.query("INSERT INTO effects VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", [
              idempotencyKey,
              instanceId,
              what
            ])
          ),
          idempotencyKey
        ))
    ),
    Undo.toLayer((key) =>
      Effect.flatMap(Activity.Call, ({ idempotencyKey }) =>
        Effect.promise(() =>
          pool.query("INSERT INTO undone VALUES ($1, $2) ON CONFLICT DO NOTHING", [idempotencyKey, key])
        ))
    )
  )

const worker = (url: string) =>
  Runtime.layer({ orchestrations: [Trip, Step], activities: [Book, Undo] }).pipe(
    Layer.provide(handlers(new pg.Pool({ connectionString: url, max: 4 }))),
    Layer.provide(RuntimeConfig.layer(shortLocks("2 seconds"))),
    Layer.provide(PrismaProvider.layer({ url, migrate: "none" })),
    Layer.provide(Logger.layer([]))
  )

const [, program, url] = process.argv
if (program?.endsWith("saga.js") === true) {
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
