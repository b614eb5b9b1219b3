/**
 * Attributes as people write and read them: `customer=c1` is a text; with a colon, `amount:=12` or `due:<2026-12-01`,
 * the value is a number or a time.
 */
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import type * as Attribute from "../model/Attribute.ts"
import { isoTime, timeOf } from "./times.ts"

/** A text that says no attribute. The message does not name the flag or the field that has it. */
export class AttributeUnreadable
  extends Schema.TaggedError<AttributeUnreadable>("duroxide-prisma/operating/AttributeUnreadable")(
    "AttributeUnreadable",
    { message: Schema.String }
  )
{}

/** The attributes that an instance starts with. */
export const attributesOf = Effect.fnUntraced(function*(
  texts: ReadonlyArray<string>
): Effect.fn.Return<Attribute.Attributes, AttributeUnreadable> {
  const attributes = new Map<string, Attribute.Given>()
  for (const text of texts) {
    const { name, operator, value } = yield* parse(text)
    if (operator !== "=" && operator !== ":=") {
      return yield* refuse(`${shown(text)} is a range: an instance starts with one value, so use = or :=`)
    }
    if (attributes.has(name)) return yield* twice(name)
    attributes.set(name, value)
  }
  return Object.fromEntries(attributes)
})

/** What attributes must be; undefined without a text. Two ends of one range may be given apart. */
export const conditionsOf = Effect.fnUntraced(function*(
  texts: ReadonlyArray<string>
): Effect.fn.Return<Attribute.Conditions | undefined, AttributeUnreadable> {
  const conditions = new Map<string, Attribute.Conditions[string]>()
  for (const text of texts) {
    const { name, operator, value } = yield* parse(text)
    const before = conditions.get(name)
    if (operator === "=" || operator === ":=") {
      if (before !== undefined) return yield* twice(name)
      conditions.set(name, value)
      continue
    }
    const end = operator === ":<" ? "below" : "from"
    if (before !== undefined && (typeof before !== "object" || before instanceof Date || end in before)) {
      return yield* twice(name)
    }
    conditions.set(name, { ...before as object, [end]: value })
  }
  return texts.length === 0 ? undefined : Object.fromEntries(conditions)
})

/** A text in quotes, so that it looks like no number. */
export const shownValue = (value: Attribute.Value): string =>
  typeof value === "string" ? JSON.stringify(value) : String(jsonOf(value))

/** A time as all times. */
export const jsonOf = (value: Attribute.Value): string | number =>
  typeof value === "object" ? isoTime(value.epochMilliseconds) : value

// internal

interface Parsed {
  readonly name: string
  readonly operator: string
  readonly value: string | number | Date
}

const parse = Effect.fnUntraced(function*(text: string): Effect.fn.Return<Parsed, AttributeUnreadable> {
  const [, name, operator, value] = /^([^=:<>]+)(=|:=|:>=|:<=|:>|:<)(.*)$/s.exec(text) ?? []
  if (name === undefined || operator === undefined || value === undefined) {
    return yield* refuse(
      `${shown(text)} is not a name and a value, such as customer=c1, amount:=12, amount:>=12 or amount:<12`
    )
  }
  if (operator === "=") return { name, operator, value }
  if (operator === ":<=" || operator === ":>") {
    return yield* refuse(
      `${
        shown(text)
      }: there is no ${operator}. Use :>= for the lower end (included) and :< for the upper end (not included)`
    )
  }
  if (/^[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?$/i.test(value)) return { name, operator, value: Number(value) }
  const ms = yield* timeOf(value)
  return ms !== undefined ? { name, operator, value: new Date(ms) } : yield* refuse(
    `the value after the colon of ${shown(text)} must be a number such as 12.5, or a time ` +
      `(2026-12-01T08:00Z, now, or 2h for two hours ago). For a text, leave out the colon: ${name}=…`
  )
})

const shown = (text: string) => JSON.stringify(text)

const twice = (name: string) => refuse(`${name} is given twice`)

const refuse = (message: string) => Effect.fail(new AttributeUnreadable({ message }))
