/**
 * Limits, as operators and programs set and read them.
 */
import * as Effect from "effect/Effect"
import type { LimitChanges, LimitKind } from "../../model/Limit.ts"
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
  const announce = (kind: LimitKind) =>
    notifier === undefined || kind === "task" ? Effect.void : Effect.ignore(
      notifier.announce([Hint.Work({ queue: kind === "activity" ? "worker" : "orchestrator", visibleAtMs: 0 })])
    )

  const announced = <E, R>(kind: LimitKind, change: Effect.Effect<boolean, E, R>) =>
    Effect.tap(change, (hasChanged) => hasChanged ? announce(kind) : Effect.void)

  const decoded = (rows: ReadonlyArray<limits.LimitRow>) => rows.map(limits.decode)

  return {
    setLimit: (kind, name, changes, options) =>
      checked(
        "setLimit",
        [problemOfKind(kind), check.given(kind, name, check.name), problemOf(changes)],
        () =>
          announced(
            kind,
            driver.setLimit({ kind, name, changes: limits.encode(changes), replaces: options?.replaces ?? true })
          )
      ),

    removeLimit: (kind, name) =>
      checked(
        "removeLimit",
        [problemOfKind(kind), check.given(kind, name, check.name)],
        () => announced(kind, driver.removeLimit({ kind, name }))
      ),

    getLimits: Effect.map(driver.readLimits({ of: null, key: null, mostKeys }), decoded),

    getLimit: (kind, name, key) =>
      checked(
        "getLimit",
        [problemOfKind(kind), check.given(kind, name, check.name), check.text("key", key)],
        () =>
          Effect.map(
            driver.readLimits({ of: { kind, name }, key: key ?? null, mostKeys }),
            (rows) => decoded(rows)[0] ?? null
          )
      )
  }
}

// internal

/** Keys that are shown without bounds of their own. */
const mostKeys = 100

const problemOfKind = (kind: LimitKind): check.Problem =>
  limits.kinds.includes(kind) ? undefined : ["kind", `must be one of ${limits.kinds.join(", ")}`]

const problemOf = (changes: LimitChanges): check.Problem => limits.problemOfChanges(changes)
