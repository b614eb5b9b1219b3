/**
 * The services through which the layers of handlers and programs reach the runtime: one for each definition.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import type { PayloadMismatch } from "../model/shared/payload.ts"
import type { TransactionConnection } from "../model/shared/transactionConnection.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { Code } from "../replay/interpreter.ts"
import type { Call } from "./activityCall.ts"

/**
 * Marks, in the type of a layer, that it provides a handler of the activity `Name`.
 *
 * @category models
 * @since 0.2.0
 */
export interface ActivityHandler<Name extends string> {
  readonly _: unique symbol
  readonly name: Name
}

/**
 * Marks, in the type of a layer, that it provides a program of the orchestration `Name` in this version, or in any
 * version. Its name says handler; elsewhere only activities have handlers.
 *
 * @category models
 * @since 0.2.0
 */
export interface OrchestrationHandler<Name extends string, Version extends string = any> {
  readonly _: unique symbol
  readonly name: Name
  readonly version: Version
}

/**
 * How the claim of an activity ends in a transaction: by its result, or because it is no longer that of this process.
 */
export class Within {
  readonly _tag = "Within"
  readonly outcome: "Stored" | "Lost"

  constructor(outcome: "Stored" | "Lost") {
    this.outcome = outcome
  }
}

/** The transaction was not committed, for a reason that may pass: the activity is to run again. */
export class NotCommitted {
  readonly _tag = "NotCommitted"
  readonly problem: string
  /** Whether the delivery counts: the activity may be at fault. */
  readonly counts: boolean

  constructor(problem: string, counts: boolean) {
    this.problem = problem
    this.counts = counts
  }
}

/** How a transaction settles the claim of its activity. */
export interface Settlement {
  /** Stores the result by a statement of the transaction. */
  readonly store: (connection: TransactionConnection, result: string) => Effect.Effect<Stored, ProviderError>
  /** Waits until the store knows whether the claim is still held. Fails when the store refuses to answer. */
  readonly isHeld: Effect.Effect<boolean, ProviderError>
  /** Says whether the transaction was rolled back: then a loss of the lock ends the handler again. */
  readonly rolledBack: Effect.Effect<void>
}

/** What a statement has stored, if its transaction commits. */
export interface Stored {
  readonly committed: Effect.Effect<void>
}

/**
 * What the runtime runs for an activity.
 */
export interface ActivityCode {
  /** The limits of its definition, in milliseconds; calls may have others. */
  readonly limits: { readonly timeout?: number | undefined; readonly totalTimeout?: number | undefined }
  /** The services of its layer. */
  readonly services: Context.Context<never>
  /**
   * Runs the handler in `context`: `services` and what the call adds. Fails with the details to record, or if the
   * Schema refuses the input; interruption is passed on. A transactional handler settles its claim by `settlement`.
   */
  readonly run: (
    input: string,
    context: Context.Context<Call>,
    settlement: () => Settlement
  ) => Effect.Effect<string | Within, ErrorDetails | PayloadMismatch | NotCommitted>
  readonly isTransactional: boolean
}

export const activityKey = <Name extends string>(name: Name): Context.Key<ActivityHandler<Name>, ActivityCode> =>
  Context.Service<ActivityHandler<Name>, ActivityCode>(`duroxide-prisma/Activity/${name}`)

export const orchestrationKey = <Name extends string, Version extends string>(
  name: Name,
  version: Version
): Context.Key<OrchestrationHandler<Name, Version>, Code> =>
  Context.Service<OrchestrationHandler<Name, Version>, Code>(`duroxide-prisma/Orchestration/${name}@${version}`)
