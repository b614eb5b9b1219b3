/**
 * Shrinks a sequence on which the drivers differ, while the same difference stays: another one would hide the first.
 */
import type { Operation } from "./operations.ts"

type Sequence = ReadonlyArray<Operation>

/** Plays a sequence; the error if the drivers differ. */
export type Plays = (sequence: Sequence) => Promise<Error | undefined>

export const shrink = async (sequence: Sequence, failure: Error, plays: Plays): Promise<Sequence> => {
  const kind = kindOf(failure)
  const fails = async (shorter: Sequence) => {
    const error = await plays(shorter)
    return error !== undefined && kindOf(error) === kind
  }
  let smallest = await without(sequence, fails)
  let last: Sequence | undefined
  while (smallest !== last) {
    last = smallest
    smallest = await simpler(await without(smallest, fails), fails)
  }
  return smallest
}

// internal

/** The first line of a difference without the numbers of operations, rows and times. */
const kindOf = ({ message }: Error): string => message.split("\n")[0]!.replaceAll(/\d+/g, "#")

type Fails = (sequence: Sequence) => Promise<boolean>

/** Removes operations: first many at once, from the end. */
const without = async (sequence: Sequence, fails: Fails): Promise<Sequence> => {
  let smallest = sequence
  for (let size = Math.ceil(sequence.length / 2); size >= 1; size = size === 1 ? 0 : Math.ceil(size / 2)) {
    for (let start = smallest.length - size; start > -size; start -= size) {
      const shorter = [...smallest.slice(0, Math.max(0, start)), ...smallest.slice(start + size)]
      if (shorter.length < smallest.length && await fails(shorter)) smallest = shorter
    }
  }
  return smallest
}

/** Makes the operations simpler, one change at a time. */
const simpler = async (sequence: Sequence, fails: Fails): Promise<Sequence> => {
  let smallest = sequence
  for (let place = 0; place < smallest.length; place++) {
    const tried = new Set<string>()
    for (let found = true; found;) {
      found = false
      for (const operation of variants(smallest[place]!) as Iterable<Operation>) {
        const text = JSON.stringify(operation)
        if (tried.has(text)) continue
        tried.add(text)
        const changed = smallest.with(place, operation)
        if (await fails(changed)) {
          smallest = changed
          found = true
          break
        }
      }
    }
  }
  return smallest
}

/** Each value has one list shorter, or one field that says nothing special. */
function* variants(value: unknown): Iterable<unknown> {
  if (Array.isArray(value)) {
    for (const index of value.keys()) if (value.length > 1) yield value.toSpliced(index, 1)
    for (const [index, item] of value.entries()) {
      for (const other of variants(item)) yield value.with(index, other)
    }
  } else if (typeof value === "object" && value !== null) {
    for (const [name, field] of Object.entries(value)) {
      if (optional.has(name)) {
        const { [name]: _, ...rest } = value as Record<string, unknown>
        yield rest
      } else if (
        name in plain && (field !== null || plain[name] === null) &&
        JSON.stringify(field) !== JSON.stringify(plain[name])
      ) {
        yield { ...value, [name]: plain[name] }
      }
      for (const other of variants(field)) yield { ...value, [name]: other }
    }
  }
}

const optional = new Set([
  "activities",
  "beginsFirst",
  "block",
  "cancelsItems",
  "clockOffMs",
  "firstTurn",
  "hasMessage",
  "leaves",
  "limitKey",
  "nextVersion",
  "replaces",
  "requeues",
  "serves",
  "sufficientMs",
  "suspects",
  "takesOver"
])

const plain: Readonly<Record<string, unknown>> = {
  cancelledActivities: [],
  customStatus: null,
  delayMs: null,
  executionOffset: 0,
  handOver: null,
  history: [],
  ignoreAttempt: false,
  isBlocked: false,
  isOther: false,
  isPaused: false,
  isRepeat: false,
  keyValues: [],
  lastEventOffset: 0,
  maxBytes: 1_000_000,
  lockTimeoutMs: 30_000,
  orchestrationName: null,
  orchestrationVersion: null,
  orchestratorItems: [],
  output: null,
  parentInstanceId: null,
  pinnedVersion: { major: 0, minor: 0, patch: 0 },
  session: null,
  sessionId: null,
  spare: 0,
  status: null,
  tag: null,
  tags: { _tag: "Any" },
  token: { open: 0 },
  versions: null,
  visibleInMs: null,
  workerItems: []
}
