/**
 * A worker of a hotel, in one of several builds: `node booking.js <url> <build>`. Each effect is a row of `effects`.
 */
import { Activity, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as pg from "pg"

export const builds = ["original", "edited", "renamed", "field", "version", "activity"] as const

export type Build = (typeof builds)[number]

const Room = Schema.Struct({ room: Schema.Int })
/** What the build `field` requires of a room. */
const RoomOnFloor = Schema.Struct({ room: Schema.Int, floor: Schema.Int })

/** All of a build. */
export const definitions = (build: Build) => {
  const room: Schema.Codec<{ readonly room: number }> = build === "field" ? RoomOnFloor : Room
  return {
    Booking: Orchestration.make("Booking", {
      version: build === "version" ? "2.0.0" : "1.0.0",
      payload: room,
      success: Schema.String
    }),
    Reserve: Activity.make(build === "renamed" ? "Hold" : "Reserve", { payload: room, success: Schema.String }),
    Charge: Activity.make("Charge", { payload: room }),
    Check: Activity.make("Check")
  }
}

/** How long a booking waits before it is charged. */
const pause = "4 seconds"

const worker = (url: string, build: Build) => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  const { Booking, Charge, Check, Reserve } = definitions(build)
  const effect = (what: string) =>
    Effect.flatMap(
      Activity.Call,
      ({ instanceId }) => Effect.promise(() => pool.query("INSERT INTO effects VALUES ($1, $2)", [instanceId, what]))
    )
  const handlers = Layer.mergeAll(
    Booking.toLayer((room) =>
      Effect.gen(function*() {
        if (build === "edited") yield* Check.execute()
        const where = yield* Reserve.execute(room)
        yield* Effect.sleep(pause)
        yield* Charge.execute(room)
        return where
      })
    ),
    Reserve.toLayer(({ room }) => Effect.as(effect("reserve"), `room ${room}`)),
    Charge.toLayer(() => Effect.asVoid(effect("charge"))),
    Check.toLayer(() => Effect.void)
  )
  return Runtime.layer({
    orchestrations: [Booking],
    activities: build === "activity" ? [Reserve, Check] : [Reserve, Check, Charge]
  }).pipe(
    Layer.provide(handlers),
    Layer.provide(RuntimeConfig.layer({ build })),
    Layer.provide(PrismaProvider.layer({ url, migrate: "none" })),
    Layer.provide(Logger.layer([]))
  )
}

const [, program, url, build] = process.argv
if (program?.endsWith("booking.js") === true) {
  const main = Effect.runFork(Effect.scoped(
    Effect.andThen(
      Layer.build(worker(url!, build as Build)),
      Effect.andThen(Effect.sync(() => process.stdout.write("ready\n")), Effect.never)
    )
  ))
  process.on("SIGTERM", () => {
    void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
  })
}
