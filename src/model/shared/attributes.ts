/**
 * Attributes as they are stored: in messages and events as JSON, in the store as rows.
 */
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Attribute from "../Attribute.ts"
import { problemOf } from "./text.ts"
import type { Unfit } from "./text.ts"

/** A text, a number, or a time in milliseconds since the Unix epoch. */
export type Encoded = string | number | { readonly timeMs: number }

/** By name. */
export interface EncodedAttributes {
  readonly [name: string]: Encoded
}

/** By name; null removes the attribute. */
export interface EncodedChanges {
  readonly [name: string]: Encoded | null
}

/** What an attribute must be. A range is from the first number on and below the second; null: without this end. */
export type Condition =
  | { readonly name: string; readonly equals: Encoded }
  | {
    readonly name: string
    readonly kind: "number" | "time"
    readonly from: number | null
    readonly below: number | null
  }

export const Encoding: Schema.Codec<EncodedAttributes, unknown> = Schema.Record(
  Schema.String,
  Schema.Union([Schema.String, Schema.Finite, Schema.Struct({ timeMs: Schema.Finite })])
)

export const none: EncodedAttributes = {}

/**
 * The key of the events that record changes. They are `KeyValueSet`, which readers in Rust know; no value of this key
 * is stored.
 */
export const recordKey = "duroxide-prisma/attributes"

export const mostAttributes = 20

/** Whether instances have attributes among these. */
export const hasAny = (attributes: EncodedAttributes): boolean => Object.keys(attributes).length > 0

/** The attributes after the changes. */
export const changed = (attributes: EncodedAttributes, changes: EncodedChanges): EncodedAttributes =>
  Object.fromEntries(
    Object.entries({ ...attributes, ...changes }).filter((entry): entry is [string, Encoded] => entry[1] !== null)
  )

/** Changes as an event records them. */
export const writeChanges = (changes: EncodedChanges): string => JSON.stringify(changes)

/** The changes that an event records; none if they cannot be read. */
export const readChanges = (value: string): EncodedChanges => {
  try {
    const read: unknown = JSON.parse(value)
    return typeof read === "object" && read !== null ? read as EncodedChanges : none
  } catch {
    return none
  }
}

/** The attributes that a start gives, by name in order. */
export const encode = (given: Attribute.Attributes): Effect.Effect<EncodedAttributes, Unfit> =>
  Effect.flatMap(
    encodeAll(given, (name, value) => encoded(name, value)),
    (attributes) => Effect.as(checkCount(attributes), attributes)
  )

/** The changes that a program gives, by name in order: equal ones are recorded as equal texts. */
export const encodeChanges = (given: Attribute.Changes): Effect.Effect<EncodedChanges, Unfit> =>
  encodeAll(given, (name, value) => value === null ? Effect.succeed(null) : encoded(name, value))

export const checkCount = (attributes: EncodedAttributes): Effect.Effect<void, Unfit> => {
  const count = Object.keys(attributes).length
  return count > mostAttributes
    ? unfit(`an instance has at most ${mostAttributes} attributes, and this one would have ${count}`)
    : Effect.void
}

export const encodeConditions = (given: Attribute.Conditions): Effect.Effect<ReadonlyArray<Condition>, Unfit> =>
  Effect.map(encodeAll(given, condition), Object.values<Condition>)

export const decode = (value: Encoded): Attribute.Value =>
  typeof value === "object" ? DateTime.makeUnsafe(value.timeMs) : value

export const meets = (attributes: ReadonlyMap<string, Encoded> | undefined, condition: Condition): boolean => {
  const value = attributes?.get(condition.name)
  if (value === undefined) return false
  if ("equals" in condition) {
    return typeof value === "object" && typeof condition.equals === "object"
      ? value.timeMs === condition.equals.timeMs
      : value === condition.equals
  }
  const number = condition.kind === "number" ? value : typeof value === "object" ? value.timeMs : undefined
  return typeof number === "number" && (condition.from === null || number >= condition.from) &&
    (condition.below === null || number < condition.below)
}

// internal

const longestText = 256

const validName = /^[A-Za-z][\w.-]{0,63}$/

/** The first and the last millisecond of the years 1 to 9999. */
const earliestMs = -62_135_596_800_000
const latestMs = 253_402_300_799_999

const unfit = (problem: string): Effect.Effect<never, Unfit> =>
  Effect.fail({ _tag: "Unfit", field: "attributes", problem })

const encodeAll = Effect.fnUntraced(function*<Given, A>(
  given: { readonly [name: string]: Given },
  encodeOne: (name: string, value: Given) => Effect.Effect<A, Unfit>
) {
  if (typeof given !== "object" || given === null) return yield* unfit("they must be an object of names and values")
  const all: Array<[string, A]> = []
  for (const name of Object.keys(given).sort()) {
    if (!validName.test(name)) {
      return yield* unfit(
        `the name ${JSON.stringify(name)} must have 1 to 64 of A-Z, a-z, 0-9, _ . -, and begin with a letter`
      )
    }
    all.push([name, yield* encodeOne(name, given[name]!)])
  }
  return Object.fromEntries(all)
})

const encoded = (name: string, value: unknown): Effect.Effect<Encoded, Unfit> => {
  if (typeof value === "string") {
    if (value.length > longestText) {
      return unfit(`the text of ${name} has ${value.length} characters, the limit is ${longestText}`)
    }
    const problem = problemOf(value)
    return problem === undefined ? Effect.succeed(value) : unfit(`the text of ${name} cannot be stored: ${problem}`)
  }
  if (typeof value === "number") {
    // JSON has no -0.
    return Number.isFinite(value)
      ? Effect.succeed(value + 0)
      : unfit(`the number of ${name} is ${value}: give a finite one`)
  }
  const timeMs = value instanceof Date
    ? value.getTime()
    : DateTime.isDateTime(value)
    ? Math.floor(DateTime.toEpochMillis(value))
    : undefined
  if (timeMs === undefined) return unfit(`the value of ${name} must be a text, a number, a Date or a DateTime`)
  return timeMs >= earliestMs && timeMs <= latestMs
    ? Effect.succeed({ timeMs })
    : unfit(`the time of ${name} must be in the years 1 to 9999`)
}

const isRange = (value: unknown): value is { readonly from?: unknown; readonly below?: unknown } =>
  typeof value === "object" && value !== null && !(value instanceof Date) && !DateTime.isDateTime(value)

const condition = Effect.fnUntraced(function*(name: string, value: unknown): Effect.fn.Return<Condition, Unfit> {
  if (!isRange(value)) return { name, equals: yield* encoded(name, value) }
  const from = value.from === undefined ? undefined : yield* encoded(name, value.from)
  const below = value.below === undefined ? undefined : yield* encoded(name, value.below)
  const kinds = [from, below].flatMap((end) => end === undefined ? [] : typeof end === "object" ? "time" : typeof end)
  const [kind] = kinds
  if (kind === undefined) return yield* unfit(`the range of ${name} needs from or below`)
  if (kind !== "number" && kind !== "time" || kinds.some((other) => other !== kind)) {
    return yield* unfit(`the range of ${name} must be one of numbers or one of times`)
  }
  const numberOf = (end: Encoded | undefined) =>
    end === undefined ? null : typeof end === "object" ? end.timeMs : Number(end)
  return { name, kind, from: numberOf(from), below: numberOf(below) }
})
