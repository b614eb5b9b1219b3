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
import type { NewSchedule, RunKind, ScheduleDriver } from "../ScheduleDriver.ts"
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

/**
 * A schedule to store. Its payload is sealed differently each time: a stored one that says the same stays, so that the
 * definition is the one that is there.
 */
export const stored = Effect.fnUntraced(function*(
  { code, definition, name, payload }: Schedule,
  { isStored, seal }: Sealing,
  { list }: Pick<ScheduleDriver["Service"], "list">,
  replaces: boolean
): Effect.fn.Return<NewSchedule, PayloadMismatch | PayloadTooLarge | ProviderError> {
  if (code !== undefined) return { name, definition, payload: null, code }
  const text = yield* payload({ schedule: name, at: new Date(0), kind: "Scheduled" })
  if (isStored !== undefined) {
    const { schedules: [found] } = yield* list({ name, after: null, limit: 1 })
    const before = found?.payload ?? undefined
    if (before !== undefined && (yield* isStored(definition.target, text, before, replaces))) {
      return { name, definition, payload: before, code: null }
    }
  }
  return { name, definition, payload: yield* seal(definition.target, text), code: null }
})

/** The payloads of what schedules start, through the `PayloadCodec` in the context. */
export interface Sealing {
  readonly seal: (target: Target, text: string) => Effect.Effect<string, ProviderError>
  /** Whether `stored` says `text`, and stays: a new key is a reason to replace it. Undefined without a codec. */
  readonly isStored:
    | ((target: Target, text: string, stored: string, replaces: boolean) => Effect.Effect<boolean, ProviderError>)
    | undefined
}

export const sealing: Effect.Effect<Sealing> = Effect.map(Effect.serviceOption(PayloadCodec), (codec): Sealing => {
  if (Option.isNone(codec)) return { seal: (_, text) => Effect.succeed(text), isStored: undefined }
  const { open, seal } = sealingOf(codec.value, "instance_id")
  return {
    seal: (target, text) =>
      // Processes of Rust know no codec.
      target._tag === "Orchestration" && target.servedBy === "rust"
        ? Effect.succeed(text)
        : seal("fireSchedules", target.name)(text),
    isStored: (target, text, stored, replaces) =>
      replaces && !codec.value.isCurrent(stored)
        ? Effect.succeed(false)
        : Effect.map(open("storeSchedules", target.name)(stored), (opened) => opened === text)
  }
})
