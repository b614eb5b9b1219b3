/**
 * Sealed texts: payloads as a `PayloadCodec` has stored them. Each is a JSON object whose first field names the steps
 * that made it, so that stores with texts of several codecs and keys, and plain ones, can be read.
 *
 * `{"$sealed":"deflate+aes-256-gcm:k2","bytes":312,"data":"…"}`: compressed, then encrypted with the key `k2`. `bytes`
 * is the length of the payload in UTF-8, `data` what the last step has made, in base64.
 */
import * as Predicate from "effect/Predicate"

/** A step, and what it has to know again: of encryption the id of the key. */
export interface Step {
  readonly name: string
  /** Empty for a step that has none. */
  readonly parameter: string
}

export interface Sealed {
  /** In the order in which they were applied; at least one. */
  readonly steps: ReadonlyArray<Step>
  readonly bytes: number
  readonly data: string
}

export const field = "$sealed"

/** Names of steps, and their parameters. */
export const validWord = /^[A-Za-z0-9_.-]{1,64}$/

/** No payload begins like this: `payload.ts` refuses it. */
export const isSealed = (text: string): boolean => text.startsWith(prefix)

export const write = ({ bytes, data, steps }: Sealed): string =>
  JSON.stringify({ [field]: headerOf(steps), bytes, data })

export const headerOf = (steps: ReadonlyArray<Step>): string =>
  steps.map(({ name, parameter }) => parameter === "" ? name : `${name}:${parameter}`).join("+")

/** Undefined for a text that is not sealed, or not as this version seals. */
export const read = (text: string): Sealed | undefined => {
  if (!isSealed(text)) return undefined
  try {
    return readObject(JSON.parse(text))
  } catch {
    return undefined
  }
}

/** Reads the object that a sealed text stands for. */
export const readObject = (value: unknown): Sealed | undefined => {
  if (!Predicate.isObject(value)) return undefined
  const { [field]: header, bytes, data } = value as Record<string, unknown>
  if (typeof header !== "string" || typeof data !== "string" || !Number.isSafeInteger(bytes)) return undefined
  const steps = header.split("+").map((step) => {
    const [name = "", parameter = ""] = step.split(":")
    return { name, parameter }
  })
  if (!steps.every(({ name, parameter }) => validWord.test(name) && (parameter === "" || validWord.test(parameter)))) {
    return undefined
  }
  return { steps, bytes: bytes as number, data }
}

/** What a sealed text shows of itself, for people: `encrypted (key k2, 312 bytes)`. */
export const describe = (text: string): string => {
  const sealed = read(text)
  return sealed === undefined ? "sealed by another version" : describeSealed(sealed)
}

export const describeSealed = ({ bytes, steps }: Sealed): string => {
  const said = steps.map(wordsOf)
  const details = [...said.flatMap(({ detail }) => detail ?? []), `${bytes} bytes`]
  return `${said.map(({ what }) => what).join(", ")} (${details.join(", ")})`
}

/** Why a Schema refuses a sealed text. */
export const problemOf = (text: string): string =>
  `it is ${
    describe(text)
  }, and this process cannot decode it: provide the PayloadCodec that has stored it, with its key`

/** A text for people: each sealed text in it, also as a part of JSON, is replaced by what it shows of itself. */
export const concealIn = (text: string): string =>
  text.includes(field)
    ? text.replace(anySealed, (whole: string, header: string, bytes: string) => {
      const read = readObject({ [field]: header, bytes: Number(bytes), data: "" })
      return read === undefined ? whole : describeSealed(read)
    })
    : text

/** A value for people, with `concealIn` for all texts in it. */
export const conceal = (value: unknown): unknown => mapTexts(value, concealIn)

/** All sealed texts in a value: in its texts, and in JSON in them. */
export const textsIn = (value: unknown): ReadonlySet<string> => {
  const found = new Set<string>()
  replace(value, (text) => {
    found.add(text)
    return text
  })
  return found
}

/** A value with each sealed text in it replaced. */
export const replace = (value: unknown, by: (text: string) => string): unknown =>
  mapTexts(value, (text) => {
    if (!text.includes(field)) return text
    if (isSealed(text)) return by(text)
    const json = parsed(text)
    return typeof json === "object" ? JSON.stringify(replace(json, by)) : text.replace(oneSealed, by)
  })

// internal

const prefix = `{"${field}":"`

const wordsOf = ({ name, parameter }: Step): { readonly what: string; readonly detail?: string } => {
  switch (name) {
    case "aes-256-gcm":
      return { what: "encrypted", detail: `key ${parameter}` }
    case "deflate":
      return { what: "compressed" }
    case "object":
      return { what: "in the object store", detail: `object ${parameter.slice(0, 12)}` }
    default:
      return { what: `encoded by ${name}`, ...(parameter !== "" && { detail: parameter }) }
  }
}

/** Matches what `write` writes, also as a part of a JSON text, whose quotes are escaped. */
const anySealed = /\{\\*"\$sealed\\*":\\*"([^"\\]+)\\*",\\*"bytes\\*":(\d+),\\*"data\\*":\\*"[A-Za-z0-9+/=]*\\*"\}/g

const oneSealed = /\{"\$sealed":"[^"]+","bytes":\d+,"data":"[A-Za-z0-9+/=]*"\}/g

const parsed = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

const mapTexts = (value: unknown, map: (text: string) => string): unknown => {
  if (typeof value === "string") return map(value)
  if (Array.isArray(value)) return value.map((item) => mapTexts(item, map))
  if (typeof value !== "object" || value === null) return value
  if (value instanceof Map) return new Map(Array.from(value, ([key, item]) => [key, mapTexts(item, map)]))
  const prototype = Object.getPrototypeOf(value)
  if (prototype !== Object.prototype && prototype !== null) return value
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, mapTexts(item, map)]))
}
