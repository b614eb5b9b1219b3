/**
 * How a scheduler learns that a run has ended, so that the next occurrence can start.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { Provider } from "../../provider/Provider.ts"
import * as waits from "../../tasks/shared/waits.ts"
import { TaskDriver } from "../../tasks/TaskDriver.ts"
import type { Topics } from "../../waking/Topics.ts"
import type { RunningRun } from "../ScheduleDriver.ts"

/** Waits for the end of a run, or returns earlier; undefined if this process does not learn it. */
export type Ends = (run: RunningRun) => Effect.Effect<void> | undefined

/** By the `Provider` and the `TaskDriver` in the context, as far as they are there. */
export const make: Effect.Effect<Ends, never, Topics | Scope.Scope> = Effect.gen(function*() {
  const provider = yield* Effect.serviceOption(Provider)
  const tasks = yield* Effect.serviceOption(TaskDriver)
  const waitForTask = Option.isSome(tasks) ? (yield* waits.make(tasks.value)).wait : undefined
  return ({ instanceId, taskId }) =>
    instanceId !== null
      ? Option.match(provider, {
        onNone: () => undefined,
        onSome: ({ awaitEnd }) => patient(awaitEnd({ instanceId }))
      })
      : taskId === null || waitForTask === undefined
      ? undefined
      : patient(waitForTask(taskId))
})

// internal

/** After a failure it returns so late that a caller who looks and asks again does not spin. */
const patient = <A, E>(end: Effect.Effect<A, E>): Effect.Effect<void> =>
  Effect.matchEffect(end, { onFailure: () => Effect.sleep("1 second"), onSuccess: () => Effect.void })
