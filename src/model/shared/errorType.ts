/**
 * The type of an error for logs and traces, never what it contains.
 */
import * as Predicate from "effect/Predicate"

/** The `_tag` of an error, or the name of its class; that of the reason for a `ProviderError`. */
export const errorTypeOf = (error: unknown): string => {
  if (!Predicate.isObject(error)) return typeof error
  const { _tag, constructor, reason } = error as {
    readonly _tag?: unknown
    readonly constructor?: unknown
    readonly reason?: unknown
  }
  if (_tag === "ProviderError" && Predicate.isObject(reason)) return errorTypeOf(reason)
  if (typeof _tag === "string") return _tag
  // The `name` of anything else may be what it contains.
  if (error instanceof Error && error.name !== "Error") return error.name
  return typeof constructor === "function" ? constructor.name || "Error" : "Error"
}
