/**
 * What a caller that waits for a status or a value is answered.
 */
import * as Option from "effect/Option"
import type { Progress, ProgressAnswer } from "../calls/reads.ts"
import type { InstanceProgress } from "../ProviderDriver.ts"

/** The progress of an id under which nothing is stored. */
export const unknown: InstanceProgress = {
  executionId: 1,
  lastEventId: 0,
  customStatus: null,
  customStatusVersion: 0,
  value: null,
  hasEnded: false,
  isOfRust: false
}

/** The answer to the caller; none: not yet. */
export const answer = <A>(until: (progress: Progress) => Option.Option<A>) =>
(
  state: InstanceProgress
): Option.Option<ProgressAnswer<A>> => {
  const found = until({
    status: Option.fromNullOr(state.customStatus),
    statusVersion: state.customStatusVersion,
    value: Option.fromNullOr(state.value)
  })
  if (Option.isSome(found)) return Option.some({ _tag: "Found", found: found.value })
  return state.hasEnded ? Option.some({ _tag: "Ended" }) : Option.none()
}
