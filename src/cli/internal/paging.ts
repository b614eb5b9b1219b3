/**
 * Flags of commands that list something in pages.
 */
import * as Flag from "effect/cli/Flag"

export const cursor = Flag.String("cursor").pipe(
  Flag.withMetavar("<cursor>"),
  Flag.withDescription("Continue where an earlier list with the same flags has ended"),
  Flag.optional
)

/** The flag for how many of `things` to show. */
export const limitOf = (things: string) =>
  Flag.Int("limit").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription(`Most ${things} to list, 1 to 1000. Defaults to 20`),
    Flag.filter((n) => n >= 1 && n <= 1000, (n) => `a number from 1 to 1000, not ${n}`),
    Flag.withDefault(20)
  )
