/**
 * Processes that serve something, without running it.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Scope from "effect/Scope"
import { Admin } from "../../../provider/Admin.ts"
import { Provider } from "../../../provider/Provider.ts"
import type { ProcessDuties } from "../../../provider/ProviderDriver.ts"
import type { SlotsInUse } from "../../../waking/Notifier.ts"
import { elapse } from "./time.ts"

export const duties = (build: string, others: Partial<ProcessDuties> = {}): ProcessDuties => ({
  build,
  orchestrations: [],
  activities: [],
  tags: { _tag: "DefaultOnly" },
  orchestrationSlots: 16,
  activitySlots: 16,
  ...others
})

export const listProcesses = Effect.flatMap(Admin, (admin) => admin.listProcesses)

/** Waits until so many are listed. */
export const listedProcesses = Effect.fnUntraced(function*(count: number) {
  for (let tries = 0; tries < 500; tries++) {
    const found = yield* listProcesses
    if (found.length === count) return found
    yield* elapse(20)
  }
  return assert.fail(`${count} processes are never listed`)
})

/** Announces a process, until the returned effect. */
export const announce = Effect.fnUntraced(function*(
  process: ProcessDuties,
  slotsInUse: SlotsInUse = { orchestrations: 0, activities: 0 }
) {
  const { announceProcess } = yield* Provider
  const scope = yield* Scope.make()
  yield* Scope.provide(announceProcess(process, () => slotsInUse), scope)
  return Scope.close(scope, Exit.void)
})
