// An orchestration that continues as new, with one activity in each execution.
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

const Round = Activity.make("Round")

export const Rounds = Orchestration.make("Rounds", { payload: Schema.Int, success: Schema.String })

export const RoundsLive = Runtime.layer({ orchestrations: [Rounds], activities: [Round] }).pipe(
  Layer.provide([
    Round.toLayer(() => Effect.void),
    Rounds.toLayer(Effect.fn(function*(left) {
      yield* Round.execute()
      return left === 0 ? "done" : yield* Rounds.continueAsNew(left - 1)
    }))
  ])
)
