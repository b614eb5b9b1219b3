// An instance that gives out numbers: each question gets the next one, once. It continues as new every 40 answers.
import { Activity, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

export const Draw = Request.make("Draw", { payload: Schema.String, success: Schema.Int })

export const Close = Signal.make("Close")

const Stamp = Activity.make("Stamp", { payload: Schema.String })

export const Office = Orchestration.make("Office", { payload: Schema.Int, success: Schema.Int })

const office = Effect.fn(function*(before: number) {
  let given = before
  const full = Signal.make("Full")
  yield* Draw.serve(
    Effect.fn(function*(name) {
      yield* Stamp.execute(name)
      return ++given
    }),
    { concurrency: 8 }
  )
  const isFull = Effect.gen(function*() {
    while (given - before < 40) yield* Effect.sleep("200 millis")
  })
  yield* Effect.raceFirst(
    Close.wait,
    Effect.flatMap(Effect.raceFirst(isFull, full.wait), () => Effect.suspend(() => Office.continueAsNew(given)))
  )
  return given
})

export const RuntimeLive = Runtime.layer({ orchestrations: [Office], activities: [Stamp] }).pipe(
  Layer.provide([Office.toLayer(office), Stamp.toLayer(() => Effect.sleep("20 millis"))])
)
