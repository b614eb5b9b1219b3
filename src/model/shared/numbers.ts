import * as Schema from "effect/Schema"

/** A whole number as Rust's `u64` writes it: never negative, never beyond 2^53 - 1. */
export const U64 = Schema.Int.check(Schema.isGreaterThanOrEqualTo(0))
