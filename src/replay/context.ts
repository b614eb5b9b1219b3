/**
 * The services of an orchestration: one for its program, and one through which durable operations reach the turn.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type * as Event from "../model/Event.ts"
import type { Awaited, Immediate } from "./action.ts"

interface Answers {
  readonly CallActivity: Event.Of<"ActivityCompleted"> | Event.Of<"ActivityFailed">
  readonly CreateTimer: Event.Of<"TimerFired">
  readonly WaitExternal: Event.Of<"ExternalEvent">
  readonly DequeueEvent: Event.Of<"ExternalEventPersistent">
  readonly StartSubOrchestration: Event.Of<"SubOrchestrationCompleted"> | Event.Of<"SubOrchestrationFailed">
}

/** The event that answers a request. */
export type Answer<A extends Awaited> = Answers[A["_tag"]]

/** What the program may know of the instance it runs for. Every durable operation needs it. */
export class OrchestrationContext extends Context.Service<OrchestrationContext, {
  readonly instanceId: string
  /** Counts up from 1 with every continue-as-new. */
  readonly executionId: number
  readonly orchestrationName: string
  readonly orchestrationVersion: string
  /** True while the code runs over recorded events: nothing it does is new. */
  readonly isReplaying: Effect.Effect<boolean>
}>()("duroxide-prisma/OrchestrationContext") {}

/** The port through which durable operations reach the turn. */
export interface Engine {
  /** Records the request and waits for its answer; interruption gives the answer up and cancels what it can. */
  readonly perform: <A extends Awaited>(action: A) => Effect.Effect<Answer<A>>
  /** Records the request; it is done. */
  readonly request: (action: Immediate) => Effect.Effect<void>
  /** Ends this execution; the next one begins with `input`. A null version takes the newest program. */
  readonly continueAsNew: (input: string, version: string | null) => Effect.Effect<never>
  /** The status text as the code has left it. */
  readonly customStatus: Effect.Effect<string | null>
  /** The instance's values as the code has left them. */
  readonly keyValues: Effect.Effect<ReadonlyMap<string, string>>
  /** When each of them was set, milliseconds since the Unix epoch. */
  readonly keyValueTimes: Effect.Effect<ReadonlyMap<string, number>>
}

/** A reference, so that no type of a program names it: whoever provides `OrchestrationContext` provides both. */
export const Engine = Context.Reference<Engine>("duroxide-prisma/Engine", {
  defaultValue: () => {
    throw new Error("a durable operation runs outside an orchestration")
  }
})

/** The engine of the orchestration that asks. */
export const engine: Effect.Effect<Engine, never, OrchestrationContext> = Effect.flatMap(
  OrchestrationContext,
  () => Engine
)

/**
 * What a program must also be, `R` being the services it requires: nothing more, or, when it requires any but
 * `Orchestration.Instance`, a text no program is, which says so in the compiler's error.
 */
export type WithoutServices<R> = [Exclude<R, OrchestrationContext>] extends [never] ? unknown
  : [Exclude<R, OrchestrationContext | Scope.Scope>] extends [never]
    ? "an orchestration has no scope of its own: close this one with Effect.scoped"
  : `an orchestration has no services: use ${NameOf<Exclude<R, OrchestrationContext | Scope.Scope>>} in an activity`

/** The same for a handler that asks for what only an orchestration can do. */
export type WithoutOrchestration<R> = [Extract<R, OrchestrationContext>] extends [never] ? unknown
  : "activities, timers, signals, mailboxes and values are for orchestrations: an activity uses Client instead"

// internal

type NameOf<Service> = Service extends { readonly key: infer Name extends string } ? Name : "it"
