/**
 * Attributes on the command line: `customer=c1` is a text; with a colon, `amount:=12` or `due:<2026-12-01`, the value
 * is a number or a time.
 */
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import type * as Attribute from "../../model/Attribute.ts"
import { CommandError } from "./failure.ts"
import { jsonOf } from "./instances.ts"
import { timeOf } from "./times.ts"

/** What the flag `--attribute` of `start` says: each one gives an attribute. */
export const given = Flag.String("attribute").pipe(
  Flag.withMetavar("<name>=<text>"),
  Flag.withDescription(
    "An attribute: customer=c1 is a text, amount:=12 and due:=2026-12-01T08:00Z a number and a time"
  ),
  Flag.atLeast(0)
)

/** What the flag `--attribute` of a filter says. */
export const wanted = Flag.String("attribute").pipe(
  Flag.withMetavar("<name>=<text>"),
  Flag.withDescription(
    "Only those with this attribute: customer=c1 is a text; with a colon a number or a time: amount:=12, 'amount:>=10', " +
      "'due:<2026-12-01'. Several must all hold"
  ),
  Flag.atLeast(0)
)

export const attributesOf = Effect.fnUntraced(function*(
  texts: ReadonlyArray<string>
): Effect.fn.Return<Attribute.Attributes, CommandError> {
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

/** Two ends of one range may be given apart. */
export const conditionsOf = Effect.fnUntraced(function*(
  texts: ReadonlyArray<string>
): Effect.fn.Return<Attribute.Conditions | undefined, CommandError> {
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

// internal

interface Parsed {
  readonly name: string
  readonly operator: string
  readonly value: string | number | Date
}

const parse = Effect.fnUntraced(function*(text: string): Effect.fn.Return<Parsed, CommandError> {
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

const refuse = (problem: string) =>
  Effect.fail(new CommandError({ code: "Usage", message: `--attribute: ${problem}`, exit: "usage" }))
