/**
 * Limits of an instance, as in Duroxide's core: readers in other languages rely on them.
 */
import { maxTagBytes } from "../model/internal/identifiers.ts"
import type { Request } from "./conclude.ts"
import type { Interpreter } from "./interpreter.ts"

const maxCustomStatusBytes = 262_144
const maxValueBytes = 65_536
const maxKeys = 150

/** The first limit that this turn exceeds, in words; undefined when it exceeds none. */
export const limitExceeded = (
  requests: ReadonlyArray<Request>,
  interpreter: Pick<Interpreter, "customStatus" | "keyValues">
): string | undefined => {
  const status = interpreter.customStatus()
  if (status !== null && bytes(status) > maxCustomStatusBytes) {
    return `Custom status size (${bytes(status)} bytes) exceeds limit (${maxCustomStatusBytes} bytes)`
  }
  for (const { action } of requests) {
    if (action._tag === "CallActivity" && action.tag !== undefined && bytes(action.tag) > maxTagBytes) {
      return `Activity '${action.name}' tag size (${bytes(action.tag)} bytes) exceeds limit (${maxTagBytes} bytes)`
    }
  }
  for (const { action } of requests) {
    if (action._tag !== "SetKeyValue") continue
    const size = valueBytes(action.value)
    if (size > maxValueBytes) {
      return `KV value for key '${action.key}' (${size} bytes) exceeds limit (${maxValueBytes} bytes)`
    }
  }
  const keys = interpreter.keyValues().size
  return keys > maxKeys ? `KV key count (${keys}) exceeds limit (${maxKeys})` : undefined
}

// internal

const encoder = new TextEncoder()

const bytes = (text: string) => encoder.encode(text).length

/** A string counts without the quotes and escapes of JSON, because Duroxide's typed API stores strings bare. */
const valueBytes = (text: string): number => bytes(text.startsWith(`"`) ? stringOf(text) : text)

const stringOf = (text: string): string => {
  try {
    const value: unknown = JSON.parse(text)
    return typeof value === "string" ? value : text
  } catch {
    return text
  }
}
