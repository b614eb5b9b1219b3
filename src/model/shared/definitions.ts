/**
 * Checks definitions. A name or version that cannot work is a mistake in the code, so it throws immediately.
 */
import * as Result from "effect/Result"
import * as SemVer from "effect/SemVer"
import { maxNameBytes, problemOfName } from "./identifiers.ts"

/**
 * Which processes run a definition: those of this package, or Duroxide's Rust processes that share the schema.
 *
 * @category models
 * @since 0.2.0
 */
export type ServedBy = "typescript" | "rust"

/**
 * What happens to a child when its call is interrupted: `interrupt` runs its finalizers, and the call ends with the
 * child; `interruptAndContinue` runs them as well, and the call ends at once; `terminate` ends the child without
 * finalizers, and the call at once.
 *
 * @category models
 * @since 0.2.0
 */
export type OnInterrupt = "interrupt" | "interruptAndContinue" | "terminate"

/** How a definition derives the instance id from a payload; undefined if every start gives its own id. */
export type Ids = ((payload: never) => string) | undefined

/**
 * The id a start asks for: its own, else the one the definition derives. Without either it is empty, and is refused.
 */
export const idOf = (
  definition: { readonly instanceId: Ids },
  start: { readonly instanceId?: string | undefined; readonly payload?: unknown }
): string => start.instanceId ?? definition.instanceId?.(start.payload as never) ?? ""

/** How a definition derives the key of an instance for its limits; undefined without one. */
export type LimitKey = ((payload: never) => string) | undefined

/** The key of a start, unchecked; nothing without one. */
export const limitKeyOf = (definition: { readonly limitKey: LimitKey }, payload: unknown): { limitKey?: string } =>
  definition.limitKey === undefined ? {} : { limitKey: definition.limitKey(payload as never) }

/** Throws a `RangeError` if the name cannot be stored. `kind` says what it names, such as `signal`. */
export const checkNameUnsafe = (kind: string, name: string): void => {
  const problem = problemOfName(name, maxNameBytes)
  if (problem !== undefined) throw new RangeError(`name of ${kind} ${JSON.stringify(name)} is refused: ${problem}`)
}

/** Throws a `RangeError` if `version` is not a semantic version. */
export const checkVersionUnsafe = (name: string, version: string): void => {
  if (version.length <= maxNameBytes && Result.isSuccess(SemVer.parse(version))) return
  throw new RangeError(
    `version ${JSON.stringify(version)} of orchestration "${name}" is refused: it is not a semantic version like 1.0.0`
  )
}
