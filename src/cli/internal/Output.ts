/**
 * Where everything a command prints goes.
 *
 * Standard output has the answer and nothing else: text for people, or one JSON value with `--json`. Progress, log
 * lines and errors go to standard error; with `--json` each of them is a JSON object on a line of its own.
 *
 * Payloads that a codec has sealed are shown as what they say of themselves, everywhere.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as sealed from "../../model/shared/sealed.ts"
import type { Io, Stream } from "./io.ts"
import { withoutPasswords } from "./secrets.ts"

/** What a command has found. */
export interface Answer {
  readonly json: unknown
  /** Lines for people. */
  readonly text: ReadonlyArray<string>
}

/** Marks text for a terminal with colours, and leaves it as it is elsewhere. */
export interface Style {
  readonly bold: (text: string) => string
  readonly dim: (text: string) => string
  readonly red: (text: string) => string
  readonly green: (text: string) => string
  readonly yellow: (text: string) => string
}

export class Output extends Context.Service<Output, {
  readonly isJson: boolean
  /** Whether standard output is a terminal. */
  readonly isTerminal: boolean
  /** On standard output, for help. */
  readonly hasColours: boolean
  readonly style: Style
  /** For standard error. */
  readonly errorStyle: Style
  /** Width that lines should keep to: of the terminal, or unlimited. */
  readonly columns: number
  /** Standard error is a terminal that can rewrite a line. */
  readonly canRewrite: boolean
  readonly answer: (answer: Answer) => Effect.Effect<void>
  /** One of many answers, each as soon as it is there: with `--json` a JSON value on a line of its own. */
  readonly part: (answer: Answer) => Effect.Effect<void>
  /** A line on standard error: `text` for people, `json` with `--json`. */
  readonly note: (text: string, json: object) => Effect.Effect<void>
  /** A note that something may not be as it was meant. */
  readonly warn: (text: string) => Effect.Effect<void>
  /** `note` outside an effect. */
  readonly noteUnsafe: (text: string, json: object) => void
  /** Whether a person can answer: on a terminal, without `--json`. */
  readonly canAsk: boolean
  /** Asks on standard error whether to do something. Only if `canAsk`. */
  readonly ask: (question: string) => Effect.Effect<boolean>
  /** Shows a line on standard error in place of the last one, until the next output. Only if `canRewrite`. */
  readonly rewrite: (line: string) => Effect.Effect<void>
}>()("duroxide-prisma/cli/Output") {}

export const make = (io: Io): Output["Service"] => {
  const isJson = wantsJson(io.args)
  const styleOf = (stream: Stream) => hasColours(io.env, stream) && !isJson ? colours : plain
  const canRewrite = io.stderr.isTerminal && !isJson && io.env.TERM !== "dumb"
  let isRewriting = false
  const erase = () => {
    if (isRewriting) io.stderr.write(eraseLine)
    isRewriting = false
  }
  const noteUnsafe = (text: string, json: object) => {
    erase()
    io.stderr.write(`${withoutPasswords(isJson ? jsonOf(json) : sealed.concealIn(text))}\n`)
  }
  const errorStyle = styleOf(io.stderr)
  return Output.of({
    isJson,
    isTerminal: io.stdout.isTerminal,
    hasColours: hasColours(io.env, io.stdout),
    style: styleOf(io.stdout),
    errorStyle,
    columns: io.stdout.columns || Number.POSITIVE_INFINITY,
    canRewrite,
    answer: ({ json, text }) =>
      Effect.sync(() => {
        erase()
        io.stdout.write(isJson ? `${jsonOf(json, 2)}\n` : text.map((line) => `${sealed.concealIn(line)}\n`).join(""))
      }),
    part: ({ json, text }) =>
      Effect.sync(() => {
        erase()
        io.stdout.write(isJson ? `${jsonOf(json)}\n` : text.map((line) => `${line}\n`).join(""))
      }),
    note: (text, json) => Effect.sync(() => noteUnsafe(text, json)),
    warn: (text) => Effect.sync(() => noteUnsafe(`${errorStyle.yellow("warning")}: ${text}`, { warning: text })),
    noteUnsafe,
    canAsk: io.stdin.isTerminal && io.stderr.isTerminal && !isJson,
    ask: (question) =>
      Effect.promise(async (signal) => {
        erase()
        io.stderr.write(`${withoutPasswords(question)} [y/N] `)
        const line = await io.stdin.line(signal)
        // Neither Ctrl-D nor Ctrl-C ends the line.
        if (line === undefined && !signal.aborted) io.stderr.write("\n")
        return /^y(es)?$/i.test(line?.trim() ?? "")
      }).pipe(Effect.onInterrupt(() => Effect.sync(() => io.stderr.write("\n")))),
    rewrite: (line) =>
      Effect.sync(() => {
        // A line that wraps could not be taken back.
        const width = (io.stderr.columns || 80) - 1
        io.stderr.write(`${eraseLine}${withoutPasswords(line).slice(0, width)}`)
        isRewriting = true
      })
  })
}

// internal

/** Escapes what a terminal would obey and `JSON.stringify` leaves as it is. */
const jsonOf = (json: unknown, indent?: number): string =>
  JSON.stringify(sealed.conceal(json), null, indent).replace(
    /[\u007f-\u009f\p{Bidi_Control}]/gu,
    (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`
  )

const eraseLine = "\r\u001b[2K"

/** Looks for the flag in the arguments themselves: errors of the parser come before it has read one. */
const wantsJson = (args: ReadonlyArray<string>) => {
  const end = args.indexOf("--")
  return args.slice(0, end === -1 ? args.length : end).some((arg) => arg === "--json" || arg === "--json=true")
}

/** Follows https://no-color.org and what terminals agree on. */
const hasColours = (env: Io["env"], { isTerminal }: Stream) =>
  isTerminal && (env.NO_COLOR ?? "") === "" && env.TERM !== "dumb"

const marked = (code: number) => (text: string) => text === "" ? text : `\u001b[${code}m${text}\u001b[0m`
const colours: Style = {
  bold: marked(1),
  dim: marked(2),
  red: marked(31),
  green: marked(32),
  yellow: marked(33)
}

const same = (text: string) => text
const plain: Style = { bold: same, dim: same, red: same, green: same, yellow: same }
