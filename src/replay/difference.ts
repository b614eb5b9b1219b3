/**
 * Compares encoded values, because a Schema may encode the same value differently each time, as encryption does.
 */
import * as Equal from "effect/Equal"
import * as Exit from "effect/Exit"

/** Decodes a text by the Schema that has encoded it. */
export type Decode = (text: string) => Exit.Exit<unknown, unknown>

/**
 * Where two texts differ: the path of a field, never its value, and empty for the whole; undefined if both stand for
 * the same value.
 */
export const whereDifferent = (one: string, other: string, decode: Decode | undefined): string | undefined => {
  if (one === other) return undefined
  const [a, b] = [decoded(one, decode), decoded(other, decode)]
  if (a === undefined || b === undefined) return path(parsed(one), parsed(other)) ?? ""
  return Equal.equals(a.value, b.value) ? undefined : path(a.value, b.value) ?? ""
}

// internal

const decoded = (text: string, decode: Decode | undefined): { readonly value: unknown } | undefined => {
  try {
    const exit = decode?.(text)
    return exit !== undefined && Exit.isSuccess(exit) ? { value: exit.value } : undefined
  } catch {
    return undefined
  }
}

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return text
  }
}

/** The first field that differs; undefined where the fields are equal. */
const path = (a: unknown, b: unknown): string | undefined => {
  if (Equal.equals(a, b)) return undefined
  if (!isPlain(a) || !isPlain(b) || Array.isArray(a) !== Array.isArray(b)) return ""
  for (const key of new Set([...Object.keys(a), ...Object.keys(b)])) {
    const below = path(a[key], b[key])
    if (below === undefined) continue
    const field = Array.isArray(a) ? `[${key}]` : key
    return below === "" || below.startsWith("[") ? `${field}${below}` : `${field}.${below}`
  }
  return ""
}

const isPlain = (value: unknown): value is { readonly [key: string]: unknown } =>
  Array.isArray(value) ||
  (typeof value === "object" && value !== null &&
    (Object.getPrototypeOf(value) === Object.prototype || Object.getPrototypeOf(value) === null))
