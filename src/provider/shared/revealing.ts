/**
 * Values as they are stored, with the payloads in them decoded.
 */
import * as Effect from "effect/Effect"
import * as sealed from "../../model/shared/sealed.ts"
import type { PayloadCodec } from "../PayloadCodec.ts"

/** A value with the sealed texts in it decoded. What cannot be decoded stays as it is. */
export const reveal = <A>(value: A, codec: Pick<PayloadCodec["Service"], "decode">): Effect.Effect<A> => {
  const texts = [...sealed.textsIn(value)]
  if (texts.length === 0) return Effect.succeed(value)
  return Effect.map(
    Effect.forEach(texts, (text) => Effect.orElseSucceed(codec.decode(text), () => text), { concurrency: 8 }),
    (plain) => sealed.replace(value, (text) => plain[texts.indexOf(text)]!) as A
  )
}
