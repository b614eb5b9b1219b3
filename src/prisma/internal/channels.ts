/**
 * How hints travel as notifications of PostgreSQL: the names of the channels, and what a payload says. The triggers of
 * the tables write the same (`prisma/functions/waking/dx_channel.sql`).
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
 * - `<sender> waiting`, `<sender> sampled`, `<sender> paused`, `<sender> hello`
 *
 * The channel of topics, one hint per line; `dx_hint` writes the same without a sender:
 * - `<topic>[ @<milliseconds since the Unix epoch>][ ~<sender>]`
 *
 * Channels of changes and of topics:
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
  readonly topics: string
}

export interface Notification {
  readonly channel: string
  readonly payload: string
}

/** The channels of a schema. Each name has at most 63 bytes, or PostgreSQL would refuse it. */
export const channelsOf = (schema: string): Channels => ({
  orchestrator: channel(schema, "orch_work"),
  worker: channel(schema, "worker_work"),
  changes: channel(schema, "changes"),
  topics: channel(schema, "queues")
})

/** Hash of a schema's name, the same for every process that uses it; short, and plain ASCII. */
export const hashOf = (schema: string): string => createHash("sha256").update(schema, "utf8").digest("hex").slice(0, 32)

/** Twelve random characters. */
export const makeSender = (): string =>
  Array.from(
    globalThis.crypto.getRandomValues(new Uint8Array(senderLength)),
    (byte) => (byte % 36).toString(36)
  ).join("")

/** The notifications that announce the hints. A payload stays below the 8,000 bytes that PostgreSQL allows. */
export const encode = (
  channels: Channels,
  sender: string,
  hints: ReadonlyArray<Hint>
): ReadonlyArray<Notification> => {
  const lines: Array<string> = []
  const notifications = hints.flatMap(Hint.$match({
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
    Paused: () => [{ channel: channels.changes, payload: `${sender} paused` }],
    Hello: () => [{ channel: channels.changes, payload: `${sender} hello` }],
    Topic: ({ atMs, topic }) => {
      lines.push(`${topic}${atMs === 0 ? "" : ` @${wholeMs(atMs)}`} ~${sender}\n`)
      return []
    }
  }))
  return lines.length === 0
    ? notifications
    : [...notifications, ...joined(lines).map((payload) => ({ channel: channels.topics, payload }))]
}

/** What `sender` sends to itself. */
export const echoOn = (channel: string, sender: string): Notification => ({ channel, payload: `${sender} echo` })

/** The hints of a notification. None if it cannot be read. */
export const decode = (channels: Channels, { channel, payload }: Notification): ReadonlyArray<Received> => {
  switch (channel) {
    case channels.orchestrator:
      return decodeWork("orchestrator", payload)
    case channels.worker:
      return decodeWork("worker", payload)
    case channels.changes:
      return decodeChanges(payload)
    case channels.topics:
      return payload.split("\n").flatMap(decodeTopic)
    default:
      return []
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

/** Bytes of the lines in one payload; topics are plain ASCII. */
const maxLines = 7_500

/** Joins lines to payloads, as many in each as fit. */
const joined = (lines: ReadonlyArray<string>): ReadonlyArray<string> => {
  const payloads = [""]
  for (const line of lines) {
    const last = payloads.at(-1)!
    if (last.length + line.length > maxLines) payloads.push(line)
    else payloads[payloads.length - 1] = last + line
  }
  return payloads
}

const work =
  /^(\d{1,16})(?: ([0-9a-z]{12})(?: (?:(locks|serves)|([0-9a-f]{16}) ([0-9a-f]{32})|taken((?: [0-9a-f]{16})+)))?)?$/

const decodeWork = (queue: Queue, payload: string): ReadonlyArray<Received> => {
  const [, digits, sender = null, word, id, fingerprint, ids] = work.exec(payload) ?? []
  const ms = Number(digits)
  if (!Number.isSafeInteger(ms)) return [] // NaN for what does not match
  if (ids !== undefined) return [{ hint: Hint.Taken({ queue, ids: ids.slice(1).split(" ") }), sender }]
  if (word === "serves") return [{ hint: Hint.Serves({ queue }), sender }]
  if (word === "locks") return [{ hint: Hint.Locks({ queue, untilMs: ms === 0 ? null : ms }), sender }]
  return [{
    hint: Hint.Work({ queue, visibleAtMs: ms, ...(id && fingerprint && { only: { id, fingerprint } }) }),
    sender
  }]
}

const words = { waiting: Hint.Waiting(), sampled: Hint.Sampled(), paused: Hint.Paused(), hello: Hint.Hello() }

const changes = /^(-|[0-9a-z]{12}) (?:changed((?: [0-9a-f]{8})+)|(waiting|sampled|paused|hello))$/

const decodeChanges = (payload: string): ReadonlyArray<Received> => {
  const found = changes.exec(payload)
  if (found === null) return []
  const [, name, fingerprints, word] = found
  const sender = name === "-" ? null : name!
  if (fingerprints !== undefined) {
    return [{ hint: Hint.Changed({ fingerprints: fingerprints.slice(1).split(" ") }), sender }]
  }
  return [{ hint: words[word as keyof typeof words], sender }]
}

const topicLine = /^([os]|[mt] \S+)(?: @(\d{1,15}))?(?: ~([0-9a-z]{12}))?$/

const decodeTopic = (line: string): ReadonlyArray<Received> => {
  const [, topic, digits = 0, sender = null] = topicLine.exec(line) ?? []
  return topic === undefined ? [] : [{ hint: Hint.Topic({ topic, atMs: Number(digits) }), sender }]
}
