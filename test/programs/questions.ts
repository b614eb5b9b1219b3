// An instance that gives out numbers: each question gets the next one, once. It continues as new every 40 answers.
import { Activity, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Ref from "effect/Ref"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

export const Draw = Request.make("Draw", { payload: Schema.String, success: Schema.Int })

export const Close = Signal.make("Close")

const Stamp = Activity.make("Stamp", { payload: Schema.String })

export const Office = Orchestration.make("Office", { payload: Schema.Int, success: Schema.Int })

const office = Effect.fn(function*(before: number) {
  const given = yield* Ref.make(before)
  yield* Draw.serve(
    Effect.fn(function*(name) {
      yield* Stamp.execute(name)
      return yield* Ref.updateAndGet(given, (count) => count + 1)
    }),
    { concurrency: 8 }
  )
  const isFull = Effect.repeat(Ref.get(given), {
    until: (count) => count - before >= 40,
    schedule: Schedule.spaced("200 millis")
  })
  yield* Effect.raceFirst(
    Close.wait,
    Effect.flatMap(isFull, () => Effect.flatMap(Ref.get(given), Office.continueAsNew))
  )
  return yield* Ref.get(given)
})

export const RuntimeLive = Runtime.layer({ orchestrations: [Office], activities: [Stamp] }).pipe(
  Layer.provide([Office.toLayer(office), Stamp.toLayer(() => Effect.sleep("20 millis"))])
)
