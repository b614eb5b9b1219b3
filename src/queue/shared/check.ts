/**
 * The rules for arguments that all queues share. Each breach is one reason of `QueueError`, before anything is sent.
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import { noDuration, notPositive, wholeMs } from "../../model/shared/durations.ts"
import * as text from "../../model/shared/text.ts"
import type { Queue } from "../Queue.ts"
import {
  DelayTooLong,
  InvalidInput,
  PayloadInvalid,
  PayloadTooLarge,
  QueueError,
  QueueNotFound
} from "../QueueError.ts"
import type { Reason } from "../QueueError.ts"

export const fail = (operation: string, queue: string, reason: Reason) =>
  Effect.fail(new QueueError({ operation, queue: shown(queue), reason }))

/**
 * Why a queue cannot have this name, or undefined if it can. SQS accepts the same names, and those of FIFO queues,
 * which end in `.fifo`. Their order means nothing here, and a message that fails would hold up its group.
 */
export const queueName = (name: string): string | undefined =>
  /^[A-Za-z0-9_-]{1,75}$/.test(name)
    ? undefined
    : name.endsWith(".fifo")
    ? `"${shown(name)}" is a FIFO queue; use a standard one`
    : `"${shown(name)}" is not a queue name: 1 to 75 letters, digits, hyphens and underscores`

/** The settings of a queue of this name. */
export const declared = <Settings>(
  operation: string,
  queues: Readonly<Record<string, Settings>>,
  queue: string
): Effect.Effect<Settings, QueueError> =>
  typeof queue === "string" && Object.hasOwn(queues, queue)
    ? Effect.succeed(queues[queue]!)
    : fail(operation, queue, new QueueNotFound({ queue: shown(queue) }))

/** The JSON text of a payload. */
export const payload = (
  operation: string,
  queue: string,
  payload: unknown,
  maxBytes: number
): Effect.Effect<string, QueueError> =>
  Effect.suspend(() => {
    const json = payloadJson(payload, maxBytes)
    return typeof json === "string" ? Effect.succeed(json) : fail(operation, queue, json)
  })

/** The JSON text of a payload, or why no queue takes it. */
export const payloadJson = (payload: unknown, maxBytes: number): string | PayloadInvalid | PayloadTooLarge => {
  if (!Predicate.isObject(payload)) return invalidPayload(null, "it is not an object")
  if (typeof payload.kind !== "string" || payload.kind === "") {
    return invalidPayload(null, "it has no kind, which is a text of at least one character")
  }
  const kind = shown(payload.kind)
  let json: string
  try {
    json = JSON.stringify(payload)
    // A `toJSON` decides what is sent.
    if (json === undefined || JSON.parse(json)?.kind !== payload.kind) {
      return invalidPayload(kind, "as JSON it is not an object with its kind")
    }
  } catch {
    return invalidPayload(kind, "it has no JSON, such as a value of type bigint, or one that contains itself")
  }
  // JSON escapes NUL and lone surrogates as \uXXXX. An escaped backslash before a `u` matches, too: the value decides.
  if (/\\u(0000|d[89a-f])/i.test(json)) {
    const problem = problemIn(JSON.parse(json))
    if (problem !== undefined) return invalidPayload(kind, problem)
  }
  const bytes = json.length * 3 <= maxBytes ? 0 : new TextEncoder().encode(json).length
  return bytes > maxBytes ? new PayloadTooLarge({ bytes, maxBytes }) : json
}

/** Milliseconds. */
export const delay = (
  operation: string,
  queue: string,
  input: Duration.Input | undefined,
  maxMs: number
): Effect.Effect<number, QueueError> =>
  input === undefined
    ? Effect.succeed(0)
    : Effect.flatMap(
      milliseconds(operation, queue, "delay", input),
      (delayMs) =>
        delayMs > maxMs ? fail(operation, queue, new DelayTooLong({ delayMs, maxMs })) : Effect.succeed(delayMs)
    )

/** A duration in milliseconds, with a limit. */
const upTo =
  (maxMs: number, limit: string) =>
  (operation: string, queue: string, field: string, input: Duration.Input): Effect.Effect<number, QueueError> =>
    Effect.flatMap(
      milliseconds(operation, queue, field, input),
      (ms) => ms > maxMs ? invalid(operation, queue, field, `it is longer than ${limit}`) : Effect.succeed(ms)
    )

/** Milliseconds, from 0 to 12 hours. */
export const timeout = upTo(12 * 3_600_000, "12 hours")

/** How long a received message is hidden: milliseconds, from 1 to 12 hours. */
export const visibility = (operation: string, queue: string, input: Duration.Input) =>
  Effect.flatMap(
    timeout(operation, queue, "visibilityTimeout", input),
    (ms) => ms === 0 ? invalid(operation, queue, "visibilityTimeout", notPositive) : Effect.succeed(ms)
  )

/** How long something is kept: milliseconds, up to 10 years. */
export const retention = upTo(3_650 * 86_400_000, "10 years")

export interface Receiving {
  readonly maxMessages: number
  readonly visibilityMs: number
  readonly waitMs: number
}

export const receiving = Effect.fnUntraced(function*(
  queue: string,
  options: Parameters<Queue["Service"]["receive"]>[1]
): Effect.fn.Return<Receiving, QueueError> {
  const maxMessages = yield* count("receive", queue, "maxMessages", options.maxMessages)
  const visibilityMs = yield* visibility("receive", queue, options.visibilityTimeout)
  const waitMs = yield* milliseconds("receive", queue, "wait", options.wait)
  if (waitMs > maxWaitMs) return yield* invalid("receive", queue, "wait", "it is longer than 20 seconds")
  return { maxMessages, visibilityMs, waitMs }
})

/** A whole number from 1 to 1,000. */
export const count = (
  operation: string,
  queue: string,
  field: string,
  value: number
): Effect.Effect<number, QueueError> =>
  Number.isInteger(value) && value >= 1 && value <= maxCount
    ? Effect.succeed(value)
    : invalid(operation, queue, field, `it must be a whole number from 1 to ${maxCount}`)

/** What the store keeps of a reason: without characters it cannot hold, and short. */
export const reason = (text_: string): string => text.replaceUnstorable(text_).slice(0, maxReason)

// internal

const maxCount = 1000

const maxWaitMs = 20_000

const maxReason = 1000

const invalid = (operation: string, queue: string, field: string, problem: string) =>
  fail(operation, queue, new InvalidInput({ field, problem }))

const invalidPayload = (kind: string | null, problem: string) => new PayloadInvalid({ kind, problem })

/** A name in an error: texts of any length and with any character are given for names. */
const shown = (name: unknown): string => text.replaceUnstorable(String(name)).slice(0, 100)

const milliseconds = (operation: string, queue: string, field: string, input: Duration.Input) => {
  const ms = wholeMs(input)
  return ms === undefined ? invalid(operation, queue, field, noDuration) : Effect.succeed(ms)
}

const problemIn = (value: unknown): string | undefined => {
  if (typeof value === "string") return text.problemOf(value)
  if (typeof value !== "object" || value === null) return undefined
  for (const [key, inner] of Object.entries(value)) {
    const problem = text.problemOf(key) ?? problemIn(inner)
    if (problem !== undefined) return problem
  }
  return undefined
}
