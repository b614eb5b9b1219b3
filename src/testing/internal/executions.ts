/**
 * The whole history of an instance.
 */
import * as Effect from "effect/Effect"
import type * as Event from "../../model/Event.ts"
import type { Admin } from "../../provider/Admin.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"

/** Oldest execution first, without executions that have no events yet or were pruned. */
export const readExecutions = (
  admin: Admin["Service"],
  instanceId: string
): Effect.Effect<ReadonlyArray<ReadonlyArray<Event.Event>>, ProviderError> =>
  Effect.flatMap(admin.listExecutions(instanceId), (ids) =>
    Effect.map(
      Effect.forEach(ids, (executionId) => admin.readHistoryWithExecutionId(instanceId, executionId)),
      (all) => all.filter((events) => events.length > 0)
    ))
