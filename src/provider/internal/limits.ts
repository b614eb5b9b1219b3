/**
 * The limits of activities, as operators and programs set and read them.
 */
import * as Effect from "effect/Effect"
import type { LimitChanges } from "../../model/Limit.ts"
import * as limits from "../../model/shared/limits.ts"
import { Hint } from "../../waking/Notifier.ts"
import type { Notifier } from "../../waking/Notifier.ts"
import type { Admin } from "../Admin.ts"
import type { AdminDriver } from "../AdminDriver.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"

type Service = Admin["Service"]

export const make = (
  driver: AdminDriver["Service"],
  notifier: Notifier["Service"] | undefined
): Pick<Service, "setLimit" | "removeLimit" | "getLimits" | "getLimit"> => {
  /** The store says it to those that listen to it. */
  const announce = Effect.suspend(() =>
    notifier === undefined ? Effect.void : notifier.announce([Hint.Work({ queue: "worker", visibleAtMs: 0 })])
  ).pipe(Effect.ignore)

  const announced = <E, R>(change: Effect.Effect<boolean, E, R>) =>
    Effect.tap(change, (hasChanged) => hasChanged ? announce : Effect.void)

  const decoded = (rows: ReadonlyArray<limits.LimitRow>) => rows.map(limits.decode)

  return {
    setLimit: (activity, changes, options) =>
      checked("setLimit", [check.given("activity", activity, check.name), problemOf(changes)], () =>
        announced(
          driver.setLimit({ activity, changes: limits.encode(changes), replaces: options?.replaces ?? true })
        )),

    removeLimit: (activity) =>
      checked(
        "removeLimit",
        [check.given("activity", activity, check.name)],
        () => announced(driver.removeLimit(activity))
      ),

    getLimits: Effect.map(driver.readLimits({ activity: null, key: null, mostKeys }), decoded),

    getLimit: (activity, key) =>
      checked(
        "getLimit",
        [check.given("activity", activity, check.name), check.text("key", key)],
        () =>
          Effect.map(
            driver.readLimits({ activity, key: key ?? null, mostKeys }),
            (rows) => decoded(rows)[0] ?? null
          )
      )
  }
}

// internal

/** Keys that are shown without bounds of their own. */
const mostKeys = 100

const problemOf = (changes: LimitChanges): check.Problem => limits.problemOfChanges(changes)
