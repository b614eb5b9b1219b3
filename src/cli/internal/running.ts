/**
 * Instances that can receive something.
 */
import * as Effect from "effect/Effect"
import { Admin } from "../../provider/Admin.ts"
import { CommandError } from "./failure.ts"
import { outcomeOf } from "./instances.ts"

/** Fails if the instance is unknown or has ended: no process would read what is sent to it. */
export const findRunning = Effect.fnUntraced(function*(id: string) {
  const state = yield* (yield* Admin).getInstanceInfo(id)
  const { status } = outcomeOf(state)
  if (status !== "Running" && status !== "ContinuedAsNew") {
    return yield* new CommandError({
      code: "InstanceEnded",
      message: `instance ${id} has ended: ${status}`,
      exit: "no"
    })
  }
  return state
})
