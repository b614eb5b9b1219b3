/**
 * The status of an instance, as clients see it.
 */
import * as Option from "effect/Option"
import type { Block } from "../model/Block.ts"
import * as ErrorDetails from "../model/ErrorDetails.ts"
import type { InstanceState } from "../model/Instance.ts"
import type { Pause } from "../model/Pause.ts"
import type { End } from "../provider/calls/reads.ts"
import { endOf } from "../provider/shared/endOf.ts"

/**
 * How an instance has ended. `output` is JSON text, as encoded by the orchestration's Schema.
 *
 * @category models
 * @since 0.3.0
 */
export type Ended =
  | { readonly _tag: "Completed"; readonly output: string }
  | { readonly _tag: "Failed"; readonly details: ErrorDetails.ErrorDetails }
  | { readonly _tag: "Cancelled"; readonly reason: string }

/**
 * The current status of an instance.
 *
 * @category models
 * @since 0.1.0
 */
export type Status =
  | { readonly _tag: "NotFound" }
  | {
    readonly _tag: "Running"
    readonly executionId: number
    readonly customStatus: Option.Option<string>
    /** Why no process can run its next turn, unless it is on its way. */
    readonly block: Option.Option<Block>
    /** What an operator has paused, as long as it keeps the instance from its next turn. */
    readonly pause: Option.Option<Pause>
    /** When it begins, if it was started for later: milliseconds since the Unix epoch. */
    readonly startsAtMs: Option.Option<number>
  }
  | Ended & { readonly customStatus: Option.Option<string> }

export const statusOf = (state: InstanceState): Status => {
  const customStatus = Option.fromNullOr(state.customStatus)
  const end = endOf(state)
  return end === undefined
    ? {
      _tag: "Running",
      executionId: state.executionId,
      customStatus,
      block: Option.fromNullOr(state.block),
      pause: Option.fromNullOr(state.pause),
      startsAtMs: Option.fromNullOr(state.startsAtMs)
    }
    : { ...statusOfEnd(end), customStatus }
}

export const statusOfEnd = (end: End): Ended => {
  if (end._tag === "Completed") return end
  const reason = ErrorDetails.cancellationOf(end.details)
  return reason === undefined ? end : { _tag: "Cancelled", reason }
}
