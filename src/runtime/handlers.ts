/**
 * The services through which the layers of handlers and programs reach the runtime: one for each definition.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import type { PayloadMismatch } from "../model/shared/payload.ts"
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
 * What the runtime runs for an activity.
 */
export interface ActivityCode {
  /** The limits of its definition, in milliseconds; calls may have others. */
  readonly limits: { readonly timeout?: number | undefined; readonly totalTimeout?: number | undefined }
  /** The services of its layer. */
  readonly services: Context.Context<never>
  /**
   * Runs the handler in `context`: `services` and what the call adds. Fails with the details to record, or if the
   * Schema refuses the input; interruption is passed on.
   */
  readonly run: (
    input: string,
    context: Context.Context<Call>
  ) => Effect.Effect<string, ErrorDetails | PayloadMismatch>
}

export const activityKey = <Name extends string>(name: Name): Context.Key<ActivityHandler<Name>, ActivityCode> =>
  Context.Service<ActivityHandler<Name>, ActivityCode>(`duroxide-prisma/Activity/${name}`)

export const orchestrationKey = <Name extends string, Version extends string>(
  name: Name,
  version: Version
): Context.Key<OrchestrationHandler<Name, Version>, Code> =>
  Context.Service<OrchestrationHandler<Name, Version>, Code>(`duroxide-prisma/Orchestration/${name}@${version}`)
