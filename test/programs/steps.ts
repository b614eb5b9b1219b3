// What the chaos tests run: an orchestration of five activities in a row and side by side.
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

export const Step = Activity.make("Step", { payload: Schema.Int, success: Schema.Int })

export const FiveSteps = Orchestration.make("FiveSteps", { payload: Schema.Int, success: Schema.Int })

const StepLive = Step.toLayer((n) => Effect.as(Effect.sleep(5 + n % 20), n + 1))

const FiveStepsLive = FiveSteps.toLayer(Effect.fn(function*(n) {
  const first = yield* Step.execute(n)
  const three = yield* Effect.all([Step.execute(first), Step.execute(first + 1), Step.execute(first + 2)], {
    concurrency: "unbounded"
  })
  return yield* Step.execute(three[2])
}))

export const RuntimeLive = Runtime.layer({ orchestrations: [FiveSteps], activities: [Step] }).pipe(
  Layer.provide([StepLive, FiveStepsLive])
)
