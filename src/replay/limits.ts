/**
 * Limits of an instance, as in Duroxide's core: readers in other languages rely on them.
 */
import { maxTagBytes } from "../model/shared/identifiers.ts"
import * as requestSignal from "../model/shared/requestSignal.ts"
import { bytesOf, valueBytes } from "../model/shared/valueBytes.ts"
import type { Request } from "./conclude.ts"
import type { Interpreter } from "./interpreter.ts"

const maxCustomStatusBytes = 262_144
export const maxValueBytes = 65_536
const maxKeys = 150

/** The first limit that this turn exceeds, in words; undefined when it exceeds none. */
export const limitExceeded = (
  requests: ReadonlyArray<Request>,
  interpreter: Pick<Interpreter, "customStatus" | "keyValues">
): string | undefined => {
  const status = interpreter.customStatus()
  if (status !== null && bytesOf(status) > maxCustomStatusBytes) {
    return `Custom status size (${bytesOf(status)} bytes) exceeds limit (${maxCustomStatusBytes} bytes)`
  }
  for (const { action } of requests) {
    if (action._tag === "CallActivity" && action.tag !== undefined && bytesOf(action.tag) > maxTagBytes) {
      return `Activity '${action.name}' tag size (${bytesOf(action.tag)} bytes) exceeds limit (${maxTagBytes} bytes)`
    }
  }
  for (const { action } of requests) {
    if (action._tag !== "SetKeyValue") continue
    const size = valueBytes(action.value)
    if (size > maxValueBytes) {
      return `KV value for key '${action.key}' (${size} bytes) exceeds limit (${maxValueBytes} bytes)`
    }
  }
  const values = interpreter.keyValues()
  if (values.size <= maxKeys) return undefined
  const keys = [...values.keys()].filter((key) => !requestSignal.isAnswerKey(key)).length
  return keys > maxKeys ? `KV key count (${keys}) exceeds limit (${maxKeys})` : undefined
}
