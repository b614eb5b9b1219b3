/**
 * Payloads of messages that a `PayloadCodec` has sealed: an object with the kind, and the fields of the sealed text.
 */
import * as Effect from "effect/Effect"
import * as sealed from "../../model/shared/sealed.ts"
import type { PayloadCodec } from "../../provider/PayloadCodec.ts"
import { PayloadCodecError } from "../../provider/PayloadCodec.ts"
import type { Payload } from "./received.ts"

/** Undefined for a payload that is not sealed. */
export type Opening = (payload: Payload) => Effect.Effect<Payload, PayloadCodecError> | undefined

export const opening = (codec: PayloadCodec["Service"] | undefined): Opening => (payload) => {
  if (!(sealed.field in payload)) return undefined
  const read = sealed.readObject(payload)
  if (read === undefined) return undefined
  const text = sealed.write(read)
  return codec === undefined
    ? Effect.fail(new PayloadCodecError({ problem: sealed.problemOf(text), isRetryable: false }))
    : Effect.map(codec.decode(text), (text) => JSON.parse(text) as Payload)
}
