/**
 * Messages whose payloads pass through a `PayloadCodec`: sealed from the outbox to the consumer, except for their kind.
 */
import * as Effect from "effect/Effect"
import * as sealed from "../../model/shared/sealed.ts"
import type { PayloadCodec } from "../../provider/PayloadCodec.ts"
import { InvalidInput, ProviderError } from "../../provider/ProviderError.ts"
import * as texts from "../../provider/shared/sealing.ts"
import { maxPayloadBytes } from "../../queue/shared/declarations.ts"
import type { NewMessage, OutboxDriver } from "../OutboxDriver.ts"

type Adding = Pick<OutboxDriver["Service"], "add">

/** Writes messages with sealed payloads. */
export const adding = (self: Adding, codec: PayloadCodec["Service"] | undefined): Adding => {
  if (codec === undefined) return self
  const seal = sealing(codec)
  return { add: (messages) => Effect.flatMap(Effect.forEach(messages, seal), self.add) }
}

/** The message with its payload sealed. */
export const sealing = (codec: PayloadCodec["Service"]) => {
  const seal = texts.make(codec, "task_id").seal("addToOutbox", "")
  return (message: NewMessage): Effect.Effect<NewMessage, ProviderError> =>
    Effect.flatMap(seal(message.payload), (text) => {
      if (!sealed.isSealed(text)) return Effect.succeed(message)
      const { kind } = JSON.parse(message.payload) as { readonly kind: unknown }
      const payload = JSON.stringify({ kind, ...JSON.parse(text) as object })
      const bytes = Buffer.byteLength(payload)
      return bytes <= maxPayloadBytes ? Effect.succeed({ ...message, payload }) : Effect.fail(
        new ProviderError({
          operation: "addToOutbox",
          reason: new InvalidInput({
            field: "payload",
            problem: `it has ${bytes} bytes as the PayloadCodec stores it, the limit is ${maxPayloadBytes}`
          })
        })
      )
    })
}
