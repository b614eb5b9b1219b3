/**
 * Limits.
 */
import * as Effect from "effect/Effect"
import type { Bound, Limit, LimitChanges, LimitKind } from "../../model/Limit.ts"
import { shownBound } from "../../model/shared/limits.ts"
import { Admin } from "../../provider/Admin.ts"
import { Refused } from "../Api.ts"
import type * as Api from "../Api.ts"

type Scope = typeof Api.LimitScope.Type

export const read = Effect.flatMap(Admin, (admin) => admin.getLimits)

export const set = Effect.fnUntraced(function*(
  kind: LimitKind,
  name: string,
  scope: Scope,
  { concurrency, rate }: typeof Api.Bound.Type
) {
  const bound: Bound = {
    ...(concurrency !== null && { concurrency }),
    ...(rate !== null && { rate: { count: rate.count, per: rate.perMs, burst: rate.burst } })
  }
  yield* (yield* Admin).setLimit(kind, name, changes(scope, bound))
  return { message: `set the limit of ${named(kind, name, scope)}: ${shownBound({ concurrency, rate })}` }
})

/** One bound; without a scope, all of the definition. */
export const remove = Effect.fnUntraced(function*(kind: LimitKind, name: string, scope: Scope | undefined) {
  const admin = yield* Admin
  const before = scope === undefined ? null : yield* admin.getLimit(kind, name, scope.key ?? undefined)
  const wasThere = scope === undefined
    ? yield* admin.removeLimit(kind, name)
    : before !== null && boundOf(before, scope) !== null && (yield* admin.setLimit(kind, name, changes(scope, null)))
  if (!wasThere) {
    return yield* new Refused({ code: "LimitNotFound", message: `there is no limit of ${named(kind, name, scope)}` })
  }
  return { message: `removed the limit of ${named(kind, name, scope)}` }
})

export const named = (kind: LimitKind, name: string, scope: Scope | undefined): string => {
  const whole = `${kind} ${name}`
  return scope === undefined || scope.kind === "total"
    ? whole
    : scope.kind === "eachKey"
    ? `each key of ${whole}`
    : `key ${JSON.stringify(scope.key ?? "")} of ${whole}`
}

export const shown = shownBound

// internal

const boundOf = ({ eachKey, keys, total }: Limit, scope: Scope) =>
  scope.kind === "total"
    ? total
    : scope.kind === "eachKey"
    ? eachKey
    : keys.find(({ key }) => key === (scope.key ?? ""))?.own ?? null

const changes = ({ key, kind }: Scope, bound: Bound | null): LimitChanges =>
  kind === "total" ? { total: bound } : kind === "eachKey" ? { eachKey: bound } : { keys: { [key ?? ""]: bound } }
