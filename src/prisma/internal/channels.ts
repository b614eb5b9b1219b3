/**
 * How hints travel as notifications of PostgreSQL: the names of the channels, and what a payload says. The triggers of
 * the tables write the same (`prisma/functions/dx_channel.sql`).
 *
 * Work channels, one per queue:
 * - `<ms>`: work visible from then on, from a trigger
 * - `<ms> <sender>`: the same, from a process of this package
 * - `<ms> <sender> <id> <fingerprint>`: the same, about one item
 * - `0 <sender> taken <id> …`: the sender has claimed the items of these hints
 * - `0 <sender> serves`: the sender looks for work in this queue
 * - `<ms> <sender> locks`: the sender's locks run out then; 0: it holds none
 *
 * The channel of changes:
 * - `<sender> changed <fingerprint> …`; from a trigger the sender is `-`
 * - `<sender> waiting`, `<sender> sampled`, `<sender> hello`
 * - `<sender> echo`: for the sender itself, which checks that notifications arrive
 *
 * Payloads of later versions may say more. What cannot be read is ignored.
 */
import { createHash } from "node:crypto"
import { Hint } from "../../waking/Notifier.ts"
import type { Queue, Received } from "../../waking/Notifier.ts"

/** Unquoted. They are unique in a database for each schema. */
export interface Channels extends Readonly<Record<Queue, string>> {
  readonly changes: string
}

export interface Notification {
  readonly channel: string
  readonly payload: string
}

/** The channels of a schema. Each name has at most 63 bytes, or PostgreSQL would refuse it. */
export const channelsOf = (schema: string): Channels => ({
  orchestrator: channel(schema, "orch_work"),
  worker: channel(schema, "worker_work"),
  changes: channel(schema, "changes")
})

/** The channel of queues, outbox and tasks: `queue/internal/signals.ts` says what its payloads are. */
export const queueChannelOf = (schema: string): string => channel(schema, "queues")

/** The same for every process that uses the schema; short, and plain ASCII. */
export const hashOf = (schema: string): string => createHash("sha256").update(schema, "utf8").digest("hex").slice(0, 32)

/** Twelve random characters. */
export const makeSender = (): string =>
  Array.from(
    globalThis.crypto.getRandomValues(new Uint8Array(senderLength)),
    (byte) => (byte % 36).toString(36)
  ).join("")

/** The notifications that announce the hints. A payload stays below the 8,000 bytes that PostgreSQL allows. */
export const encodeHints = (
  channels: Channels,
  sender: string,
  hints: ReadonlyArray<Hint>
): ReadonlyArray<Notification> =>
  hints.flatMap(Hint.$match({
    Work: ({ only, queue, visibleAtMs }) => [{
      channel: channels[queue],
      payload: [wholeMs(visibleAtMs), sender, ...(only ? [only.id, only.fingerprint] : [])].join(" ")
    }],
    Taken: ({ ids, queue }) =>
      chunks(ids, maxIds).map((some) => ({ channel: channels[queue], payload: `0 ${sender} taken ${some.join(" ")}` })),
    Serves: ({ queue }) => [{ channel: channels[queue], payload: `0 ${sender} serves` }],
    Locks: ({ queue, untilMs }) => [
      { channel: channels[queue], payload: `${untilMs === null ? 0 : wholeMs(untilMs)} ${sender} locks` }
    ],
    Changed: ({ fingerprints }) =>
      chunks(fingerprints, maxFingerprints).map((some) => ({
        channel: channels.changes,
        payload: `${sender} changed ${some.join(" ")}`
      })),
    Waiting: () => [{ channel: channels.changes, payload: `${sender} waiting` }],
    Sampled: () => [{ channel: channels.changes, payload: `${sender} sampled` }],
    Hello: () => [{ channel: channels.changes, payload: `${sender} hello` }]
  }))

/** What `sender` sends to itself. */
export const echoOf = (channels: Channels, sender: string): Notification => ({
  channel: channels.changes,
  payload: `${sender} echo`
})

/** Undefined if it cannot be read as a hint. */
export const decodeNotification = (
  channels: Channels,
  { channel, payload }: Notification
): Received | undefined => {
  switch (channel) {
    case channels.orchestrator:
      return decodeWork("orchestrator", payload)
    case channels.worker:
      return decodeWork("worker", payload)
    case channels.changes:
      return decodeChanges(payload)
    default:
      return undefined
  }
}

// internal

const senderLength = 12

/** PostgreSQL's limit for names. */
const maxNameBytes = 63

/** 800 fingerprints are 7,200 bytes. */
const maxFingerprints = 800

const channel = (schema: string, kind: "orch_work" | "worker_work" | "changes" | "queues"): string => {
  const name = `${schema}_${kind}`
  return Buffer.byteLength(name, "utf8") <= maxNameBytes ? name : `dx_${hashOf(schema)}_${kind}`
}

/** Rounded up: a look before the time finds nothing. */
const wholeMs = (ms: number): number => Math.min(Math.max(Math.ceil(ms), 0), Number.MAX_SAFE_INTEGER)

/** 400 ids are 6,800 bytes. */
const maxIds = 400

const chunks = (words: ReadonlyArray<string>, most: number): ReadonlyArray<ReadonlyArray<string>> =>
  Array.from({ length: Math.ceil(words.length / most) }, (_, i) => words.slice(i * most, (i + 1) * most))

const work =
  /^(\d{1,16})(?: ([0-9a-z]{12})(?: (?:(locks|serves)|([0-9a-f]{16}) ([0-9a-f]{32})|taken((?: [0-9a-f]{16})+)))?)?$/

const decodeWork = (queue: Queue, payload: string): Received | undefined => {
  const [, digits, sender = null, word, id, fingerprint, ids] = work.exec(payload) ?? []
  const ms = Number(digits)
  if (!Number.isSafeInteger(ms)) return undefined // NaN for what does not match
  if (ids !== undefined) return { hint: Hint.Taken({ queue, ids: ids.slice(1).split(" ") }), sender }
  if (word === "serves") return { hint: Hint.Serves({ queue }), sender }
  return word === undefined
    ? { hint: Hint.Work({ queue, visibleAtMs: ms, ...(id && fingerprint && { only: { id, fingerprint } }) }), sender }
    : { hint: Hint.Locks({ queue, untilMs: ms === 0 ? null : ms }), sender }
}

const changes = /^(-|[0-9a-z]{12}) (?:changed((?: [0-9a-f]{8})+)|(waiting|sampled|hello))$/

const decodeChanges = (payload: string): Received | undefined => {
  const found = changes.exec(payload)
  if (found === null) return undefined
  const [, name, fingerprints, word] = found
  const sender = name === "-" ? null : name!
  if (fingerprints !== undefined) {
    return { hint: Hint.Changed({ fingerprints: fingerprints.slice(1).split(" ") }), sender }
  }
  return { hint: word === "waiting" ? Hint.Waiting() : word === "sampled" ? Hint.Sampled() : Hint.Hello(), sender }
}
