/**
 * The service through which durable operations reach the turn that runs them.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Event from "../../Event.ts"
import type { Action } from "./action.ts"

/** The event that answers an action. */
export type Answer<A extends Action> = A["_tag"] extends "CallActivity"
  ? Event.Of<"ActivityCompleted"> | Event.Of<"ActivityFailed">
  : A["_tag"] extends "CreateTimer" ? Event.Of<"TimerFired">
  : Event.Of<"ExternalEvent">

export class OrchestrationContext extends Context.Service<OrchestrationContext, {
  readonly instanceId: string
  /** Counts up from 1 with every continue-as-new. */
  readonly executionId: number
  readonly orchestrationName: string
  readonly orchestrationVersion: string
  /** True while recorded events are gone through again: nothing of what the code does now is new. */
  readonly isReplaying: Effect.Effect<boolean>
  /** Records the action and waits for its answer; interruption gives the answer up and cancels what it can. */
  readonly perform: <A extends Action>(action: A) => Effect.Effect<Answer<A>>
}>()("duroxide-prisma/OrchestrationContext") {}
