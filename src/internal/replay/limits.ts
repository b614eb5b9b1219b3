/**
 * What one instance may hold, as in Duroxide's core: readers in other languages rely on it.
 */
import { maxTagBytes } from "../identifiers.ts"
import type { Request } from "./conclude.ts"
import type { Replay } from "./replay.ts"

const maxCustomStatusBytes = 262_144
const maxValueBytes = 65_536
const maxKeys = 150

/** The first limit this turn exceeds, in words, or undefined. */
export const limitExceeded = (
  requests: ReadonlyArray<Request>,
  engine: Pick<Replay, "customStatus" | "keyValues">
): string | undefined => {
  const status = engine.customStatus()
  if (status !== null && bytes(status) > maxCustomStatusBytes) {
    return `Custom status size (${bytes(status)} bytes) exceeds limit (${maxCustomStatusBytes} bytes)`
  }
  for (const { action } of requests) {
    if (action._tag === "CallActivity" && action.tag !== undefined && bytes(action.tag) > maxTagBytes) {
      return `Activity '${action.name}' tag size (${bytes(action.tag)} bytes) exceeds limit (${maxTagBytes} bytes)`
    }
  }
  for (const { action } of requests) {
    if (action._tag === "SetKeyValue" && bytes(action.value) > maxValueBytes) {
      return `KV value for key '${action.key}' (${bytes(action.value)} bytes) exceeds limit (${maxValueBytes} bytes)`
    }
  }
  const keys = engine.keyValues().size
  return keys > maxKeys ? `KV key count (${keys}) exceeds limit (${maxKeys})` : undefined
}

// internal

const encoder = new TextEncoder()

const bytes = (text: string) => encoder.encode(text).length
