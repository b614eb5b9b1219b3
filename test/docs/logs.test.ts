/**
 * Compares the table of log lines with the code: every line of level Info or above, and no other.
 */
import { assert, describe, it } from "@effect/vitest"
import { readdirSync, readFileSync } from "node:fs"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"

const sources = fileURLToPath(new URL("../../src", import.meta.url))

interface Line {
  readonly level: string
  /** `…` stands for computed parts. */
  readonly text: string
}

const strings = String.raw`((?:"[^"]*"|\x60[^\x60]*\x60)(?:\s*\+\s*(?:"[^"]*"|\x60[^\x60]*\x60))*)`

/** Calls that log, each with the level of its lines; the first string among the arguments is the line. */
const calls: ReadonlyArray<{ readonly call: string; readonly level: string; readonly component?: string }> = [
  { call: "Effect.logInfo", level: "Info" },
  { call: "Effect.logWarning", level: "Warn" },
  { call: "Effect.logError", level: "Error" },
  { call: "Effect.logFatal", level: "Fatal" },
  // What a handler or a program has died of.
  { call: "logDeath", level: "Error" },
  // An instance that is abandoned.
  { call: "errorOnce", level: "Error", component: "Orchestration dispatcher: " },
  // What a turn found in its messages.
  { call: "warnings.push", level: "Warn", component: "Orchestration dispatcher: " }
]
/** They log the lines of `logDeath` and of the last two. */
const passesOn = /Effect\.logError\(line[),]|Effect\.logWarning\(`\$\{component\}: \$\{warning\}`\)/g

const naming = /const component = "([^"]+)"/
/** The parts of a dispatcher share the name that one of them gives it. */
const importsComponent = /import \{[^}]*\bcomponent\b[^}]*\} from "\.\/((?:reports|outcomes)\.ts)"/
const nameIn = (code: string) => naming.exec(code)?.[1]

const logged = (file: string): ReadonlyArray<Line> => {
  const code = readFileSync(path.join(sources, file), "utf8").replace(passesOn, "")
  const imported = importsComponent.exec(code)?.[1]
  const named = nameIn(code) ??
    (imported === undefined ? undefined : nameIn(readFileSync(path.join(sources, "runtime", imported), "utf8")))
  return calls.flatMap(({ call, component = "", level }) => {
    const begins = [...code.matchAll(new RegExp(String.raw`${call.replace(".", "\\.")}\((\s*[\x60"])?`, "g"))]
    const texts = [...code.matchAll(new RegExp(String.raw`${call.replace(".", "\\.")}\(\s*${strings}`, "g"))]
    if (call.startsWith("Effect.")) assert.lengthOf(texts, begins.length, `${file}: ${call} without a text of its own`)
    return texts.map(([, text]) => ({
      level,
      text: component + [...text!.matchAll(/"([^"]*)"|\x60([^\x60]*)\x60/g)]
        .map(([, plain, template]) => plain ?? template).join("")
        .replace("${component}", named ?? "…").replace(/\$\{[^}]*\}/g, "…")
    }))
  })
}

const lines = readdirSync(sources, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"))
  .flatMap(logged)

const section = Docs.read("docs/operating.md").split("\n## Logs\n")[1]!
const described: ReadonlyArray<Line> = [...section.matchAll(/^\| (`.*?) *\| (\w+) +\|/gm)].flatMap(([, cell, level]) =>
  [...cell!.matchAll(/`([^`]+)`/g)].map(([, text]) => ({ level: level!, text: text! }))
)

const matches = (one: Line, line: Line) =>
  one.level === line.level &&
  new RegExp(`^${one.text.split("…").map((part) => part.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")).join(".*")}$`).test(
    line.text
  )

const shown = ({ level, text }: Line) => `${level} ${text}`

describe("Log lines about an instance:", () => {
  it("all have the address of its page: what annotates them adds it", () => {
    const annotating = readdirSync(sources, { recursive: true, encoding: "utf8" }).filter((file) =>
      file.endsWith(".ts")
    )
      .flatMap((file) =>
        [...readFileSync(path.join(sources, file), "utf8").matchAll(/(\w+)\((?:\w+, )?\{[^{}]*\binstance_id:/g)].map(
          ([, call]) => `${file}: ${call}`
        )
      )
    assert.isAbove(annotating.length, 8)
    assert.deepStrictEqual(annotating.filter((one) => !/: (?:aboutInstance|linked)$/.test(one)), [])
  })
})

describe("docs/operating.md, the log lines:", () => {
  it("has every line of the code", () => {
    assert.isAbove(lines.length, 30)
    assert.deepStrictEqual(lines.filter((line) => !described.some((one) => matches(one, line))).map(shown), [])
  })

  it("has no other line", () => {
    assert.deepStrictEqual(described.filter((one) => !lines.some((line) => matches(one, line))).map(shown), [])
  })
})
