/**
 * Options as environment variables: a table says which variables set an option and what they may be.
 *
 * All variables of a table are read at once, so that one error names every wrong one. Values are never part of an
 * error: a variable may hold a secret, also by mistake.
 */
import * as Config from "effect/Config"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as SchemaIssue from "effect/SchemaIssue"
import type { Origins } from "./settings.ts"
import { shown } from "./settings.ts"

/** What a variable may be. */
export interface Kind<A> {
  /** Completes "must be …". */
  readonly allowed: string
  /** Undefined for a text that is not allowed. Never called with an empty text: that is a variable which is not set. */
  readonly read: (text: string) => A | undefined
}

/** A variable that sets an option. */
export interface Variable<A> extends Kind<A> {
  readonly name: string
}

/** For each option, the variables that set it. Where several do, those that are set must have one value. */
export type Table<Options> = {
  readonly [K in keyof Options]-?: ReadonlyArray<Variable<NonNullable<Options[K]>>>
}

/** Options that the environment sets, and the variable that set each. */
export interface Given<Options> {
  readonly options: Partial<Options>
  readonly origins: Origins
}

type OptionsOf<T> = { readonly [K in keyof T]: T[K] extends ReadonlyArray<Variable<infer A>> ? A : never }

/** Reads the variables of a table. Options without a variable that is set are left out. */
export const config = <const T extends Readonly<Record<string, ReadonlyArray<Variable<unknown>>>>>(
  table: T
): Config.Config<Given<OptionsOf<T>>> => {
  const names = Object.values(table).flatMap((variables) => variables.map(({ name }) => name))
  const texts = Config.all(Object.fromEntries(names.map((name) => [name, Config.option(Config.String(name))])))
  return Config.mapEffect(texts, (texts) => {
    const options: Record<string, unknown> = {}
    const origins = new Map<string, string>()
    const problems: Array<string> = []
    for (const [option, variables] of Object.entries(table)) {
      for (const { allowed, name, read } of variables) {
        const text = Option.getOrElse(texts[name]!, () => "").trim()
        if (text === "") continue
        const value = read(text)
        const earlier = origins.get(option)
        if (value === undefined) problems.push(`${name} must be ${allowed}`)
        else if (earlier === undefined) {
          options[option] = value
          origins.set(option, name)
        } else if (shown(value) !== shown(options[option])) {
          problems.push(`${earlier} and ${name} set the same option to different values; set one of them`)
        }
      }
    }
    return problems.length > 0
      ? refused(problems)
      : Effect.succeed({ options: options as Partial<OptionsOf<T>>, origins })
  })
}

/** The error of variables that cannot be used. */
export const refused = (problems: ReadonlyArray<string>): Effect.Effect<never, Config.ConfigError> =>
  Effect.fail(
    new Config.ConfigError(new Schema.SchemaError(new SchemaIssue.InvalidValue({ message: problems.join("; ") })))
  )

/** `DUROXIDE_` and the name of the option in capitals. */
export const variable = <A>(prefix: string, option: string, kind: Kind<A>): ReadonlyArray<Variable<A>> => [
  { name: `${prefix}${option.replace(/[A-Z]/g, "_$&").toUpperCase()}`, ...kind }
]

export const text: Kind<string> = { allowed: "a text", read: (text) => text }

/** `yes`, `on` and the like are common in manifests, where `true` without quotes is not a text. */
export const flag: Kind<boolean> = {
  allowed: "true, on, yes, 1, false, off, no or 0",
  read: (text) => /^(?:true|on|yes|1)$/i.test(text) ? true : /^(?:false|off|no|0)$/i.test(text) ? false : undefined
}

/** A whole number. */
export const count = (least: number, most = Number.MAX_SAFE_INTEGER): Kind<number> => ({
  allowed: most === Number.MAX_SAFE_INTEGER
    ? `a whole number of at least ${least}`
    : `a whole number from ${least} to ${most}`,
  read: (text) => {
    const value = /^\d+$/.test(text) ? Number(text) : NaN
    return value >= least && value <= most ? value : undefined
  }
})

export const choice = <const A extends string>(...values: ReadonlyArray<A>): Kind<A> => ({
  allowed: `one of ${values.join(", ")}`,
  read: (text) => values.find((value) => value === text)
})

/** A number with a unit. `least` and `most` are in milliseconds. */
export const duration = (least: number, most = Infinity): Kind<Duration.Duration> => ({
  allowed: "a number and a unit, such as 500ms, 30s, 5m, 1h, 7d or 30 seconds" +
    (least > 0 ? `, at least ${Duration.format(Duration.millis(least))}` : "") +
    (most < Infinity ? `, at most ${Duration.format(Duration.millis(most))}` : ""),
  read: (text) => {
    const [, amount, unit = ""] = /^(\d+(?:\.\d+)?)\s*([a-z]+)$/.exec(text) ?? []
    const length = Object.hasOwn(units, unit) ? units[unit] : undefined
    const millis = Number(amount) * (length ?? NaN)
    return millis >= least && millis <= most && millis < Infinity ? Duration.millis(millis) : undefined
  }
})

/** A duration that may be left out of account: `infinity`. */
export const durationOrInfinity = (least: number): Kind<Duration.Duration> => {
  const finite = duration(least)
  return {
    allowed: `${finite.allowed}, or infinity`,
    read: (text) => /^infinity$/i.test(text) ? Duration.infinity : finite.read(text)
  }
}

/** A number of seconds without a unit. */
export const seconds: Kind<Duration.Duration> = {
  allowed: "a number of seconds of more than 0, without a unit",
  read: (text) => {
    const value = /^\d+(?:\.\d+)?$/.test(text) ? Number(text) : 0
    return value > 0 ? Duration.seconds(value) : undefined
  }
}

export const secret = (kind: Kind<string>): Kind<Redacted.Redacted<string>> => ({
  allowed: kind.allowed,
  read: (text) => kind.read(text) === undefined ? undefined : Redacted.make(text)
})

// internal

const units: Readonly<Record<string, number>> = {
  ms: 1,
  millis: 1,
  millisecond: 1,
  milliseconds: 1,
  s: 1_000,
  second: 1_000,
  seconds: 1_000,
  m: 60_000,
  min: 60_000,
  minute: 60_000,
  minutes: 60_000,
  h: 3_600_000,
  hour: 3_600_000,
  hours: 3_600_000,
  d: 86_400_000,
  day: 86_400_000,
  days: 86_400_000
}
