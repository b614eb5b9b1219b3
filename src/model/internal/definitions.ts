/**
 * Checks of what is defined: a name or version that cannot work is a mistake in the code, and throws at once.
 */
import * as Result from "effect/Result"
import * as SemVer from "effect/SemVer"
import { maxNameBytes, problemOfName } from "./identifiers.ts"

/**
 * Whose processes run a definition: those of this package, or those of Duroxide in Rust that share the schema.
 *
 * @category models
 * @since 0.1.0
 */
export type ServedBy = "typescript" | "rust"

/** How a definition names the instance of a payload; undefined where every start names its own. */
export type Ids = ((payload: never) => string) | undefined

/** The id a start asks for: its own, or the one the definition derives. Empty, and so refused, without either. */
export const idOf = (
  definition: { readonly instanceId: Ids },
  start: { readonly instanceId?: string | undefined; readonly payload?: unknown }
): string => start.instanceId ?? definition.instanceId?.(start.payload as never) ?? ""

/** Throws a `RangeError` on a name that cannot be stored. `kind` is what is named: `signal`. */
export const checkNameUnsafe = (kind: string, name: string): void => {
  const problem = problemOfName(name, maxNameBytes)
  if (problem !== undefined) throw new RangeError(`name of ${kind} ${JSON.stringify(name)} is refused: ${problem}`)
}

/** Throws a `RangeError` on a version of the orchestration that cannot be compared with others. */
export const checkVersionUnsafe = (name: string, version: string): void => {
  if (version.length <= maxNameBytes && Result.isSuccess(SemVer.parse(version))) return
  throw new RangeError(
    `version ${JSON.stringify(version)} of orchestration "${name}" is refused: it is not a semantic version like 1.0.0`
  )
}
