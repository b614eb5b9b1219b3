/**
 * Time for intervals. The wall clock may be set back or forward at any moment, so it is used for dates only.
 */
import type * as Clock from "effect/Clock"

/** Milliseconds since some moment in the past; never goes back. */
export const monotonicMs = (clock: Clock.Clock): number => Number(clock.monotonicTimeNanosUnsafe()) / 1_000_000
