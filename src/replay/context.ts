/**
 * The services of an orchestration: one for its program, and one through which durable operations reach the turn.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import type * as Scope from "effect/Scope"
import type * as Event from "../model/Event.ts"
import type { EncodedAttributes } from "../model/shared/attributes.ts"
import type { PayloadMismatch } from "../model/shared/payload.ts"
import type { NewChunk } from "../provider/ProviderDriver.ts"
import type { Awaited, Immediate } from "./action.ts"
import type { Decode } from "./difference.ts"

interface Answers {
  readonly CallActivity: Event.Of<"ActivityCompleted"> | Event.Of<"ActivityFailed">
  readonly CreateTimer: Event.Of<"TimerFired">
  readonly WaitExternal: Event.Of<"ExternalEvent">
  readonly DequeueEvent: Event.Of<"ExternalEventPersistent">
  readonly StartSubOrchestration: Event.Of<"SubOrchestrationCompleted"> | Event.Of<"SubOrchestrationFailed">
}

/** The event that answers a request. */
export type Answer<A extends Awaited> = Answers[A["_tag"]]

/** What a program can read about its instance. Every durable operation requires it. */
export class OrchestrationContext extends Context.Service<OrchestrationContext, {
  readonly instanceId: string
  /** Counts up from 1 with every continue-as-new. */
  readonly executionId: number
  readonly orchestrationName: string
  readonly orchestrationVersion: string
  /** True while recorded events are replayed: what the code does then is not new. */
  readonly isReplaying: Effect.Effect<boolean>
}>()("duroxide-prisma/OrchestrationContext") {}

/** A chunk that a program appends. */
export interface AppendedChunk extends NewChunk {
  readonly decode: Decode
}

/** The port through which durable operations reach the turn. */
export interface Engine {
  /**
   * Records the request and waits for its answer. Interruption gives up the answer, and cancels activities. It
   * interrupts a child and waits for its end, whose answer `onLate` gets; or terminates the child, as the action says.
   */
  readonly perform: <A extends Awaited>(
    action: A,
    onLate?: (answer: Answer<A>) => Effect.Effect<void>
  ) => Effect.Effect<Answer<A>>
  /** Records a request that needs no answer. */
  readonly request: (action: Immediate) => Effect.Effect<void>
  /** Appends a chunk to a stream, with the turn that stores it. Not recorded: a replay appends nothing. */
  readonly append: (chunk: AppendedChunk) => Effect.Effect<void>
  /** Whether the change with this id applies to this execution; see `Orchestration.changed`. */
  readonly changed: (id: string) => Effect.Effect<boolean>
  /**
   * What was decided about a question when it was taken: `Rejected` by this answer, `Accepted`, or nothing yet. Asked
   * once for each question that is taken.
   */
  readonly verdict: (requestId: string) => Effect.Effect<Verdict>
  /** Ends this execution; the next one begins with `input`. A null version takes the newest program. */
  readonly continueAsNew: (input: string, version: string | null) => Effect.Effect<never>
  /** How many events of this execution the code has seen. */
  readonly historySize: Effect.Effect<number>
  /**
   * Stored data that its Schema refuses: it was written under another definition. The program runs no further until a
   * build with a fitting Schema replays it; where a turn may not block, it dies.
   */
  readonly unreadable: (mismatch: PayloadMismatch) => Effect.Effect<never>
  /** The custom status as the code has set it. */
  readonly customStatus: Effect.Effect<string | null>
  /** The attributes as the code has set them. */
  readonly attributes: Effect.Effect<EncodedAttributes>
  /** The instance's values as the code has set them. */
  readonly keyValues: Effect.Effect<ReadonlyMap<string, string>>
  /** When each of them was set, milliseconds since the Unix epoch. */
  readonly keyValueTimes: Effect.Effect<ReadonlyMap<string, number>>
}

export type Verdict = { readonly _tag: "Rejected"; readonly answer: string } | { readonly _tag: "Accepted" | "New" }

/** A reference, so that the types of programs do not name it. It is provided together with `OrchestrationContext`. */
export const Engine = Context.Reference<Engine>("duroxide-prisma/Engine", {
  defaultValue: () => {
    throw new Error("a durable operation runs outside an orchestration")
  }
})

/**
 * What programs and handlers append to streams with. It stands in the types of both; a handler's layer provides that of
 * its activity, and without it the chunk goes to the engine of the calling orchestration.
 */
export interface StreamWriter {
  readonly _: unique symbol
}

/** How a chunk reaches its stream. */
export interface ChunkPort {
  readonly append: (chunks: ReadonlyArray<AppendedChunk>) => Effect.Effect<void>
}

export const ChunkPort = Context.Reference<ChunkPort>("duroxide-prisma/ChunkPort", {
  defaultValue: () => ({
    append: (chunks) => Effect.flatMap(Engine, ({ append }) => Effect.forEach(chunks, append, { discard: true }))
  })
})

/** The engine of the calling orchestration. */
export const engine: Effect.Effect<Engine, never, OrchestrationContext> = Effect.flatMap(
  OrchestrationContext,
  () => Engine
)

/**
 * Intersected with the type of a program that requires the services `R`. Accepts programs that require only
 * `Orchestration.Instance`; for others it is a text, which the compiler shows in its error.
 */
export type WithoutServices<R> = [Exclude<R, OrchestrationContext | StreamWriter>] extends [never] ? unknown
  : [Exclude<R, OrchestrationContext | StreamWriter | Scope.Scope>] extends [never]
    ? "an orchestration has no scope of its own: close this one with Effect.scoped"
  : `an orchestration has no services: use ${NameOf<
    Exclude<R, OrchestrationContext | StreamWriter | Scope.Scope>
  >} in an activity`

/** The value of a stored text. */
export const decoded = <A>(stored: Exit.Exit<A, PayloadMismatch>): Effect.Effect<A, never, OrchestrationContext> =>
  Effect.catch(stored, (mismatch) => Effect.flatMap(engine, ({ unreadable }) => unreadable(mismatch)))

/** Refuses the operations of orchestrations in the handler of an activity. */
export type WithoutOrchestration<R> = [Extract<R, OrchestrationContext>] extends [never] ? unknown
  : "activities, children, signals and values are for orchestrations: an activity uses Client instead"

// internal

type NameOf<Service> = Service extends { readonly key: infer Name extends string } ? Name : "it"
