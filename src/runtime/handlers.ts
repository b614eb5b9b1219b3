/**
 * How layers of handlers and programs meet the runtime that serves them: a service for each definition.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { ErrorDetails } from "../model/ErrorDetails.ts"
import type { Code } from "../replay/interpreter.ts"
import type { Call } from "./activityCall.ts"

/**
 * Marks, in the type of a layer, that a handler of the activity `Name` is there.
 *
 * @category models
 * @since 0.1.0
 */
export interface ActivityHandler<Name extends string> {
  readonly _: unique symbol
  readonly name: Name
}

/**
 * Marks, in the type of a layer, that a program of the orchestration `Name` is there, in this version; without one, in
 * any.
 *
 * @category models
 * @since 0.1.0
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
  /** Fails with what is recorded; only interruption stays what it is. */
  readonly run: (input: string) => Effect.Effect<string, ErrorDetails, Call>
}

export const activityKey = <Name extends string>(name: Name): Context.Key<ActivityHandler<Name>, ActivityCode> =>
  Context.Service<ActivityHandler<Name>, ActivityCode>(`duroxide-prisma/Activity/${name}`)

export const orchestrationKey = <Name extends string, Version extends string>(
  name: Name,
  version: Version
): Context.Key<OrchestrationHandler<Name, Version>, Code> =>
  Context.Service<OrchestrationHandler<Name, Version>, Code>(`duroxide-prisma/Orchestration/${name}@${version}`)
