/**
 * Ids and texts that name things in the store.
 */
import * as Effect from "effect/Effect"
import { problemOf } from "./text.ts"

// The tables are looked up by these: an entry of a PostgreSQL index takes 2,704 bytes, and a key stands in one together
// with the id of its instance. Ids that people give have half, since those of children begin with them.
const maxIndexedBytes = 2048
const maxKeyBytes = 512
export const maxGivenIdBytes = 1024
// A name, its version and a prefix stand in one index entry; an activity's name, its tag and its session in another.
export const maxNameBytes = 1024

/** Duroxide's limit. */
export const maxTagBytes = 256

/** What a schema shared with Duroxide holds in the column `tag` where there is none; dx_no_tag writes it. */
const noTag = "duroxide-prisma"

/** Why the text cannot name anything, or takes more bytes than that; undefined when it can. */
export const problemOfName = (text: string, maxBytes = Infinity): string | undefined =>
  text === "" ? "it is empty" : problemOfLength(text, maxBytes) ?? problemOf(text)

/** Why the text cannot be the tag of an activity; undefined when it can. */
export const problemOfTag = (text: string): string | undefined =>
  text === noTag ? "it is reserved for activities without a tag" : problemOfName(text, maxTagBytes)

/** Why the text cannot be stored where an index has it, or takes more bytes than that; undefined when it can. */
export const problemOfId = (text: string, maxBytes = maxIndexedBytes): string | undefined =>
  problemOfLength(text, maxBytes) ?? problemOf(text)

/** Why the text cannot be the key of a value; undefined when it can. */
export const problemOfKey = (text: string): string | undefined => problemOfLength(text, maxKeyBytes) ?? problemOf(text)

/** A text that cannot be what it is for. */
export interface Unfit {
  readonly _tag: "Unfit"
  readonly field: string
  readonly problem: string
}

const unfit = (field: string, problem: string): Effect.Effect<never, Unfit> =>
  Effect.fail({ _tag: "Unfit", field, problem })

const check = (field: string, problem: string | undefined): Effect.Effect<void, Unfit> =>
  problem === undefined ? Effect.void : unfit(field, problem)

/** Text that is stored as it is. */
export const checkText = (field: string, text: string): Effect.Effect<void, Unfit> => check(field, problemOf(text))

/** The key of a value. */
export const checkKey = (key: string): Effect.Effect<void, Unfit> => check("key", problemOfKey(key))

/** Any id an instance may have. */
export const checkId = (instanceId: string): Effect.Effect<void, Unfit> =>
  check("instanceId", problemOfName(instanceId, maxGivenIdBytes))

/** The id of an instance without a parent. */
export const checkRootId = (instanceId: string): Effect.Effect<void, Unfit> =>
  instanceId.startsWith("sub::") || instanceId.includes("::sub::")
    ? unfit("instanceId", "'sub::' is reserved for child orchestrations")
    : checkId(instanceId)

/** The id a program gives to a child. */
export const checkChildId = (instanceId: string): Effect.Effect<void, Unfit> =>
  instanceId.startsWith("sub::")
    ? unfit("instanceId", "'sub::' at the beginning marks ids the runtime gives")
    : checkId(instanceId)

// internal

const encoder = new TextEncoder()

const problemOfLength = (text: string, most: number): string | undefined => {
  if (text.length * 3 <= most) return undefined
  const bytes = encoder.encode(text).length
  return bytes > most ? `it has ${bytes} bytes, the limit is ${most}` : undefined
}
