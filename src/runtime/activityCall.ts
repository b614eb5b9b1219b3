/**
 * A call of an activity, as its handler sees it and as the runtime runs it.
 */
import * as Context from "effect/Context"
import type * as Option from "effect/Option"
import type { Held } from "./heldActivities.ts"

/** Leads from a call to the claim that its handler runs under. */
export const held: unique symbol = Symbol.for("duroxide-prisma/held")

/**
 * What a handler can read about the call it serves.
 *
 * @category context
 * @since 0.2.0
 */
export class Call extends Context.Service<Call, {
  readonly activityName: string
  readonly instanceId: string
  readonly executionId: number
  /** Event id of this try in its execution. */
  readonly activityId: number
  /** Which try of the call this is, from 1: more than 1 only with the `retry` option. */
  readonly tryNumber: number
  /**
   * Which delivery of this try this is, from 1. Deliveries that a shutdown ended do not count, so an earlier delivery
   * may have had its effects even when the number is 1.
   */
  readonly deliveryNumber: number
  /**
   * Identifies the call: all its tries and deliveries have this key, and every other call has another one, also one of
   * another instance, of another execution, or of an instance that was deleted and started again.
   *
   * It is the instance's id, the execution's number and start time, and the event id of the first try, joined by `/`.
   * It has no start time in calls that Duroxide in Rust makes.
   */
  readonly idempotencyKey: string
  readonly sessionId: Option.Option<string>
  readonly tag: Option.Option<string>
  /** Id of the process: `RuntimeConfig.workerId`, or the id that its runtime gave itself. */
  readonly workerId: string
  /** @internal */
  readonly [held]?: Held
}>()("duroxide-prisma/Activity/Call") {}
