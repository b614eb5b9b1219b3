/**
 * Numbers of instances, which may be estimates.
 */
import { count } from "../model/shared/quantities.ts"
import type { InstanceCount } from "../provider/AdminDriver.ts"

export type Count = Pick<InstanceCount, "instances" | "isEstimate">

/** Such as `12` or `about 9,950,000`. */
export const shown = ({ instances, isEstimate }: Count): string => `${isEstimate ? "about " : ""}${count(instances)}`

export const sum = (counts: ReadonlyArray<Count>): Count => ({
  instances: counts.reduce((sum, { instances }) => sum + instances, 0),
  isEstimate: counts.some(({ isEstimate }) => isEstimate)
})

/** One count for each key, in the order of the keys. */
export const grouped = <A extends Count>(counts: ReadonlyArray<A>, keyOf: (count: A) => string) =>
  [...new Set(counts.map(keyOf))].sort().map((key) => ({
    key,
    ...sum(counts.filter((count) => keyOf(count) === key))
  }))
