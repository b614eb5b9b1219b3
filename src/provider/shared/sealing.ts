/**
 * Payload texts on their way through a `PayloadCodec`.
 *
 * Sealing fails if the codec does. Opening leaves a text sealed that the codec cannot read: its Schema refuses it, so
 * that what needs it waits for a process that can. It fails only if the codec may be able to read it later.
 */
import * as Effect from "effect/Effect"
import { ours } from "../../model/shared/logging.ts"
import * as sealed from "../../model/shared/sealed.ts"
import type { PayloadCodec, PayloadCodecError } from "../PayloadCodec.ts"
import { PayloadUnavailable, ProviderError } from "../ProviderError.ts"

/** What one payload text becomes. */
export type Through = (text: string) => Effect.Effect<string, ProviderError>

export interface Texts {
  /** To store texts of this instance or task. */
  readonly seal: (operation: string, owner: string) => Through
  /** Never the same text twice: of many small payloads, it must not show which are equal. */
  readonly sealAnew: (operation: string) => Through
  readonly open: (operation: string, owner: string) => Through
}

/** `label` is the annotation of log lines that names the owner. */
export const make = (
  codec: PayloadCodec["Service"],
  label: "instance_id" | "task_id"
): Texts => {
  const known = new Known()
  const warned = new Set<string>()
  return {
    seal: (operation, owner) => (text) =>
      Effect.suspend(() => {
        if (sealed.isSealed(text)) return Effect.succeed(text)
        const before = known.get(owner, text)
        if (before !== undefined) return Effect.succeed(before)
        return Effect.map(Effect.mapError(codec.encode(text), unavailable(operation)), (stored) => {
          known.add(owner, text, stored)
          return stored
        })
      }),
    sealAnew: (operation) => (text) =>
      sealed.isSealed(text)
        ? Effect.succeed(text)
        : Effect.mapError(codec.encode(text), unavailable(operation)),
    open: (operation, owner) => (text) => {
      if (!sealed.isSealed(text)) return Effect.succeed(text)
      return Effect.matchEffect(codec.decode(text), {
        onSuccess: (opened) => {
          if (codec.isCurrent(text)) known.add(owner, opened, text)
          return Effect.succeed(opened)
        },
        onFailure: (error) => {
          if (error.isRetryable) return Effect.fail(unavailable(operation)(error))
          if (warned.has(error.problem) || warned.size >= mostWarned) return Effect.succeed(text)
          warned.add(error.problem)
          return Effect.as(
            Effect.logError("Provider: a payload cannot be decoded; what needs it waits for a process that can").pipe(
              ours({ [label]: owner, payload: sealed.describe(text), error: error.problem })
            ),
            text
          )
        }
      })
    }
  }
}

/** Opens sealed texts that stand in a JSON text, such as the end of a task that SQL has written. */
export const nested = (text: string, through: Through): Effect.Effect<string, ProviderError> => {
  const texts = [...sealed.textsIn(text)]
  return texts.length === 0 ? Effect.succeed(text) : Effect.map(
    Effect.forEach(texts, through),
    (opened) => sealed.replace(text, (one) => opened[texts.indexOf(one)]!) as string
  )
}

// internal

const unavailable = (operation: string) => ({ problem }: PayloadCodecError) =>
  new ProviderError({ operation, reason: new PayloadUnavailable({ problem }) })

const mostWarned = 100

/**
 * Sealed texts of what this process has lately sealed or opened, by owner. A payload is stored in several places one
 * after another, as a result in a message, then in the history: it is sealed once, and put into an object store once.
 */
class Known {
  private readonly texts = new Map<string, string>()
  private size = 0

  get(owner: string, text: string): string | undefined {
    return this.texts.get(keyOf(owner, text))
  }

  add(owner: string, text: string, stored: string): void {
    if (stored === text) return
    const key = keyOf(owner, text)
    this.remove(key)
    this.texts.set(key, stored)
    this.size += key.length + stored.length
    for (const oldest of this.texts.keys()) {
      if (this.texts.size <= mostKnown && this.size <= mostKnownLength) break
      this.remove(oldest)
    }
  }

  private remove(key: string): void {
    const stored = this.texts.get(key)
    if (stored === undefined) return
    this.texts.delete(key)
    this.size -= key.length + stored.length
  }
}

const keyOf = (owner: string, text: string) => `${owner}\0${text}`

const mostKnown = 1_000
/** UTF-16 code units. */
const mostKnownLength = 16 * 1024 * 1024
