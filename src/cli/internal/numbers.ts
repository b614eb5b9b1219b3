/**
 * Flags that take numbers.
 */
import * as Flag from "effect/cli/Flag"

/** Refuses a smaller number. */
export const noLessThan = (least: number) =>
  Flag.filter((n: number) => n >= least, (n) => `a number of at least ${least}, not ${n}`)
