/**
 * A definition of the code, and how it is stored.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { createHash } from "node:crypto"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import { PayloadCodec } from "../../provider/PayloadCodec.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { make as sealingOf } from "../../provider/shared/sealing.ts"
import type { NewSchedule, RunKind } from "../ScheduleDriver.ts"
import type { Definition, Target } from "./definition.ts"

/**
 * One moment at which a schedule starts something.
 *
 * @category models
 * @since 0.3.0
 */
export interface Occurrence {
  readonly schedule: string
  /** The time of the timing, without jitter or delays; of a run by hand the time of the request. */
  readonly at: Date
  readonly kind: RunKind
}

/** Makes the JSON text of a payload. */
export type PayloadOf = (occurrence: Occurrence) => Effect.Effect<string, PayloadMismatch | PayloadTooLarge>

/**
 * A schedule that the code defines. `make` makes it.
 *
 * @category models
 * @since 0.3.0
 */
export interface Schedule {
  readonly name: string
  /** @internal */
  readonly definition: Definition
  /** @internal */
  readonly payload: PayloadOf
  /** Names the code that makes payloads; undefined if all occurrences have the same. @internal */
  readonly code: string | undefined
}

/** The code of a schedule. A changed definition has another one, because a payload fits what its definition starts. */
export const codeOf = (name: string, definition: Definition): string =>
  `${name}/${createHash("sha256").update(JSON.stringify(definition)).digest("hex").slice(0, 16)}`

export const stored = Effect.fnUntraced(function*(
  { code, definition, name, payload }: Schedule,
  seal: Seal
): Effect.fn.Return<NewSchedule, PayloadMismatch | PayloadTooLarge | ProviderError> {
  if (code !== undefined) return { name, definition, payload: null, code }
  const text = yield* payload({ schedule: name, at: new Date(0), kind: "Scheduled" })
  return { name, definition, payload: yield* seal(definition.target, text), code: null }
})

/** Seals the payload of what a schedule starts, if there is a `PayloadCodec` in the context. */
export type Seal = (target: Target, text: string) => Effect.Effect<string, ProviderError>

export const sealing: Effect.Effect<Seal> = Effect.map(Effect.serviceOption(PayloadCodec), (codec): Seal => {
  if (Option.isNone(codec)) return (_, text) => Effect.succeed(text)
  const { seal } = sealingOf(codec.value, "instance_id")
  return (target, text) =>
    // Processes of Rust know no codec.
    target._tag === "Orchestration" && target.servedBy === "rust"
      ? Effect.succeed(text)
      : seal("fireSchedules", target.name)(text)
})
