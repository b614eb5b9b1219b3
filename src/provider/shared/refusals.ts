/**
 * Claims that the store refuses for lack of rights: the process may have the role of another kind, or its rights are
 * being granted again.
 */
import * as Cause from "effect/Cause"
import type * as Clock from "effect/Clock"
import * as Option from "effect/Option"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { PermissionDenied, ProviderError } from "../ProviderError.ts"

export interface Refusals {
  /** Notes a claim that the store has answered. */
  readonly answered: (foundWork: boolean) => void
  /**
   * Notes a failed claim. Returns the refusal if the store has refused all claims for 10 seconds and has never given
   * work: the process has the role of another kind.
   */
  readonly failed: (cause: Cause.Cause<ProviderError>) => ProviderError | undefined
  /** The refusal of the last claim, with what to do about it. */
  readonly last: () => ProviderError | undefined
}

/** `claimant` is what needs the rights, for people: `a runtime`. */
export const make = (clock: Clock.Clock, claimant: string): Refusals => {
  let hasClaimed = false
  let sinceMs: number | undefined
  let last: ProviderError | undefined
  return {
    answered: (foundWork) => {
      hasClaimed ||= foundWork
      sinceMs = last = undefined
    },
    failed: (cause) => {
      last = refusalOf(cause, claimant)
      const nowMs = monotonicMs(clock)
      // Not since the claim began: it may have waited for work long before it was refused.
      sinceMs = last === undefined ? undefined : sinceMs ?? nowMs
      return !hasClaimed && sinceMs !== undefined && nowMs - sinceMs >= longestRefusalMs ? last : undefined
    },
    last: () => last
  }
}

// internal

const longestRefusalMs = 10_000

const refusalOf = (cause: Cause.Cause<ProviderError>, claimant: string): ProviderError | undefined => {
  const error = Option.getOrUndefined(Cause.findErrorOption(cause))
  return error?.reason._tag !== "PermissionDenied" ? undefined : new ProviderError({
    operation: error.operation,
    reason: new PermissionDenied({
      problem:
        `${error.reason.problem}. A process with ${claimant} needs the role of workers (docs/postgresql.md#roles)`
    })
  })
}
