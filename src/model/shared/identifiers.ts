/**
 * Ids and texts that name things in the store.
 *
 * Ids of new instances that people give are checked here, and have at most 1,024 bytes. All others have at most 2,048:
 * those of children, which begin with the id of their parent, and of instances that Duroxide started.
 * `provider/internal/check` checks ids before they are stored.
 */
import * as Effect from "effect/Effect"
import type * as Event from "../Event.ts"
import { problemOf } from "./text.ts"
import type { Unfit } from "./text.ts"

export type { Unfit } from "./text.ts"

// These are indexed. An entry of a PostgreSQL index holds at most 2,704 bytes, and a key shares its entry with the id
// of its instance. Ids that people choose may have half of that, as the ids of children begin with them.
const maxIndexedBytes = 2048
const maxIdAndKeyBytes = 2560
export const maxGivenIdBytes = 1024
// One index entry holds a name, its version and a prefix; another holds an activity's name, its tag and its session.
export const maxNameBytes = 1024

/** Duroxide's limit. */
export const maxTagBytes = 256

/** In a schema shared with Duroxide, the column `tag` holds this for activities without a tag; dx_no_tag returns it. */
const noTag = "duroxide-prisma"

/** Ids of tasks and data sets are UUIDs. */
export const isUuid = (text: string): boolean => /^[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}$/i.test(text)

/** Why the text cannot be a name of at most `maxBytes`; undefined if it can. */
export const problemOfName = (text: string, maxBytes = Infinity): string | undefined =>
  text === "" ? "it is empty" : problemOfLength(text, maxBytes) ?? problemOf(text)

/** Why the text cannot be the tag of an activity; undefined if it can. */
export const problemOfTag = (text: string): string | undefined =>
  text === noTag ? "it is reserved for activities without a tag" : problemOfName(text, maxTagBytes)

/** Why the text cannot be stored in an index entry of at most `maxBytes`; undefined if it can. */
export const problemOfId = (text: string, maxBytes = maxIndexedBytes): string | undefined =>
  problemOfLength(text, maxBytes) ?? problemOf(text)

/** Why the text cannot be the key of a value of the instance; undefined when it can. */
export const problemOfKey = (text: string, instanceId: string): string | undefined => {
  const tooLong = problemOfLength(text, maxIdAndKeyBytes - encoder.encode(instanceId).length)
  return tooLong === undefined ? problemOf(text) : `${tooLong}: with the instance's id it may have ${maxIdAndKeyBytes}`
}

const unfit = (field: string, problem: string): Effect.Effect<never, Unfit> =>
  Effect.fail({ _tag: "Unfit", field, problem })

const check = (field: string, problem: string | undefined): Effect.Effect<void, Unfit> =>
  problem === undefined ? Effect.void : unfit(field, problem)

/** Text that is stored unchanged. */
export const checkText = (field: string, text: string): Effect.Effect<void, Unfit> => check(field, problemOf(text))

/** The key of a value of the instance. */
export const checkKey = (key: string, instanceId: string): Effect.Effect<void, Unfit> =>
  check("key", problemOfKey(key, instanceId))

/** The id of an instance, which may have been started by Duroxide. */
export const checkId = (instanceId: string): Effect.Effect<void, Unfit> =>
  check("instanceId", problemOfName(instanceId, maxIndexedBytes))

/** The id of a new instance without a parent. */
export const checkRootId = (instanceId: string): Effect.Effect<void, Unfit> =>
  check("instanceId", problemOfRootId(instanceId))

/** Why the text cannot be the id of a new instance without a parent; undefined if it can. */
export const problemOfRootId = (instanceId: string): string | undefined =>
  instanceId.startsWith("sub::") || instanceId.includes("::sub::")
    ? "'sub::' is reserved for child orchestrations"
    : problemOfName(instanceId, maxGivenIdBytes)

/** An id that a program chooses for a child. */
export const checkChildId = (instanceId: string): Effect.Effect<void, Unfit> =>
  instanceId.startsWith("sub::")
    ? unfit("instanceId", "'sub::' at the beginning marks ids the runtime gives")
    : check("instanceId", problemOfName(instanceId, maxGivenIdBytes))

/** The full id of a child. The event holds an automatic id without its prefix, the id of the parent. */
export const childId = (event: Event.Of<"SubOrchestrationScheduled">): string =>
  event.instance.startsWith("sub::") ? `${event.instanceId}::${event.instance}` : event.instance

// internal

const encoder = new TextEncoder()

const problemOfLength = (text: string, most: number): string | undefined => {
  if (text.length * 3 <= most) return undefined
  const bytes = encoder.encode(text).length
  return bytes > most ? `it has ${bytes} bytes, the limit is ${most}` : undefined
}
