/**
 * A worker of a hotel, in one of two builds: `node hotel.js <url> <build>`. A build that is edited checks a booking
 * first, which blocks those that the original one has begun.
 */
import {
  Activity,
  KeyValue,
  Orchestration,
  ProgressStream,
  Request,
  Runtime,
  RuntimeConfig,
  Signal
} from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { Task } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

export type Build = "original" | "edited"

export const Approved = Signal.make("Approved", {
  payload: {
    by: Schema.String,
    limit: Schema.Int,
    urgent: Schema.Boolean,
    level: Schema.Literals(["manager", "director"]),
    note: Schema.optionalKey(Schema.String)
  }
})

export const Booking = Orchestration.make("Booking", {
  payload: { guest: Schema.String, room: Schema.Int, amount: Schema.Int },
  success: Schema.String,
  error: Schema.String
})

/** As many activities, a hundred at a time. */
export const Audit = Orchestration.make("Audit", { payload: Schema.Struct({ activities: Schema.Int }) })

const Reserve = Activity.make("Reserve", { payload: { room: Schema.Int }, success: Schema.String })
const Charge = Activity.make("Charge", {
  payload: { amount: Schema.Int },
  success: Schema.String,
  error: Schema.String
})
const Check = Activity.make("Check")
const Compare = Activity.make("Compare", { payload: Schema.Int, error: Schema.String })
const Total = KeyValue.make("total", Schema.Int)
export const Clean = Orchestration.make("Clean", { payload: { room: Schema.Int } })

export const Quote = Request.make("Quote", {
  payload: { nights: Schema.Int, breakfast: Schema.Boolean },
  success: Schema.Struct({ euros: Schema.Int }),
  error: Schema.String
})

/** Talks, and answers requests, until it is terminated. */
export const Concierge = Orchestration.make("Concierge")
export const Ring = Signal.make("Ring")
const Talk = ProgressStream.make("talk", { chunk: Schema.String })
const Floors = ProgressStream.make("floors", { chunk: Schema.Struct({ floor: Schema.Int, note: Schema.String }) })

/** As many deliveries for a guest, none of which ends. */
export const Errands = Orchestration.make("Errands", { payload: { guest: Schema.String, count: Schema.Int } })
const Deliver = Activity.make("Deliver", { payload: { guest: Schema.String }, limitKey: ({ guest }) => guest })

const Invoice = Task.make("invoice", { payload: { month: Schema.String } })

/** What every worker fires. */
export const schedules = [
  Schedules.make("clean-rooms", {
    timing: Schedules.cron("0 11 * * *", { timeZone: "Europe/Vienna" }),
    start: Clean,
    payload: { room: 7 },
    overlap: "queue",
    jitter: "10 minutes"
  }),
  Schedules.make("monthly-invoices", {
    timing: Schedules.cron("30 6 1 * *"),
    start: Invoice,
    payload: ({ at }) => ({ month: at.toISOString().slice(0, 7) }),
    catchUp: { within: "3 days" }
  })
]

const worker = (url: string, build: Build) =>
  Layer.merge(
    Runtime.layer({
      orchestrations: [Booking, Clean, Audit, Concierge, Errands],
      activities: [Reserve, Charge, Check, Compare, Deliver]
    }),
    Schedules.layer(schedules)
  ).pipe(
    Layer.provide([
      Booking.toLayer(({ amount, room }) =>
        Effect.gen(function*() {
          if (build === "edited") yield* Check.execute()
          yield* Orchestration.setCustomStatus("reserving")
          yield* Reserve.execute({ room })
          yield* Total.set(amount)
          if (amount > 500) {
            yield* Orchestration.setCustomStatus("waits for approval")
            yield* Approved.wait
          }
          yield* Orchestration.setCustomStatus(null)
          const receipt = yield* Charge.execute({ amount }).pipe(Effect.retry(Schedule.recurs(2)))
          yield* Clean.execute({ room })
          return receipt
        })
      ),
      Clean.toLayer(() => Effect.sleep("100 millis")),
      Concierge.toLayer(() =>
        Effect.gen(function*() {
          yield* Quote.serve(({ breakfast, nights }) =>
            nights > 30 ? Effect.fail("we are full") : Effect.succeed({ euros: nights * (breakfast ? 100 : 90) })
          )
          yield* Talk.appendAll(["Good ", "evening, ", "</script><b>guest</b>.\n"])
          yield* Floors.appendAll([{ floor: 1, note: "clean" }, { floor: 2, note: "<img src=x>" }])
          while (true) {
            yield* Ring.wait
            yield* Talk.append("Someone rings.\n")
          }
        })
      ),
      Errands.toLayer(({ count, guest }) =>
        Effect.forEach(Array.from({ length: count }), () => Deliver.execute({ guest }), {
          concurrency: "unbounded",
          discard: true
        })
      ),
      Deliver.toLayer(() => Effect.never),
      Audit.toLayer(({ activities }) =>
        Effect.forEach(
          Array.from({ length: activities }, (_, n) => n),
          (n) => Effect.ignore(Compare.execute(n)),
          { concurrency: 100, discard: true }
        )
      ),
      Reserve.toLayer(({ room }) => Effect.succeed(`room ${room}`)),
      Charge.toLayer(({ amount }) =>
        amount === 13 ? Effect.fail("card declined") : Effect.as(Effect.sleep("20 millis"), `paid ${amount}`)
      ),
      Check.toLayer(() => Effect.void),
      Compare.toLayer((n) => n === 777 ? Effect.fail("the books differ") : Effect.void)
    ]),
    Layer.provide(RuntimeConfig.layer({ build, workerConcurrency: 64, unreadableSignalTimeout: 0 })),
    Layer.provide(PrismaProvider.layer({ url, migrate: "verify" })),
    Layer.provide(Logger.layer([]))
  )

if (import.meta.url === `file://${process.argv[1]}`) {
  const [, , url, build] = process.argv
  const fiber = Effect.runFork(
    Effect.gen(function*() {
      yield* Layer.build(worker(url!, build as Build))
      console.log("started")
      return yield* Effect.never
    }).pipe(Effect.scoped)
  )
  process.once("SIGTERM", () => Effect.runFork(Fiber.interrupt(fiber)))
}
