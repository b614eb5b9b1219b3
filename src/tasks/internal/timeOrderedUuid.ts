import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { randomUUID } from "node:crypto"

/** A UUID of version 7: it begins with the time, so that new rows share pages of the index. */
export const timeOrderedUuid: Effect.Effect<string> = Effect.map(Clock.currentTimeMillis, (nowMs) => {
  const time = nowMs.toString(16).padStart(12, "0")
  return `${time.slice(0, 8)}-${time.slice(8)}-7${randomUUID().slice(15)}`
})
