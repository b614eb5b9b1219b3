/**
 * Instances that can receive something.
 */
import * as Effect from "effect/Effect"
import { Admin } from "../provider/Admin.ts"
import { isUnderWay, outcomeOf } from "./outcome.ts"
import { Refusal } from "./Refusal.ts"

/** Fails if the instance is unknown or has ended: no process would read what is sent to it. */
export const findRunning = Effect.fnUntraced(function*(id: string) {
  const state = yield* (yield* Admin).getInstanceInfo(id)
  const { status } = outcomeOf(state)
  if (!isUnderWay(status)) {
    return yield* new Refusal({ code: "InstanceEnded", message: `instance ${id} has ended: ${status}` })
  }
  return state
})
