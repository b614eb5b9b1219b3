/**
 * The console blocks of a page: commands, and what they print.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Cli from "../cli/cli.ts"
import * as Docs from "../utils/docs.ts"

export interface Block {
  readonly args: string
  readonly lines: ReadonlyArray<string>
}

export const blocksOf = (page: string): ReadonlyArray<Block> =>
  Docs.blocks(page, "console").map(({ code }) => {
    const [command = "", ...lines] = code.split("\n")
    return { args: command.replace("$ npx duroxide-prisma ", ""), lines }
  })

/** Runs the command, and compares what it prints with the block. */
export const check = Effect.fnUntraced(function*({ args, lines }: Block, url: string, onError = 1) {
  const words = [...args.matchAll(/'([^']*)'|"([^"]*)"|(\S+)/g)].map((found) => found.slice(1).join(""))
  const ended = yield* Cli.run(words, { env: { DATABASE_URL: url } })
  assert.strictEqual(
    ended.exitCode,
    lines.some((line) => line.startsWith("error: ")) ? onError : 0,
    `${args}: ${ended.stderr}`
  )
  assert.deepStrictEqual(...compared(normal(lines), printed(ended)), args)
})

// internal

/** Without what differs from run to run: times, ages, addresses, widths of columns, the names of migrations. */
const normal = (lines: ReadonlyArray<string>) =>
  lines
    .map((line) =>
      line
        .replace(/\S+:\d+\/\w+/, "ADDRESS")
        .replace(/schema \w+/, "SCHEMA")
        .replace(/\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?Z/g, "TIME")
        .replace(/\d\d:\d\d:\d\dZ/g, "TIME")
        .replace(/[\da-f]{8}(-[\da-f]{4}){3}-[\da-f]{12}/g, "UUID")
        .replace(/\b\d+ (s|min|h|d)\b/g, "AGE")
        .replace(/PostgreSQL [\d.]+/, "PostgreSQL")
        .replace(/[\d.]+ [kM]B/, "SIZE")
        .replace(/"WyJ\w+"/, "CURSOR")
        .replace(/^applied \d+_\w+/, "applied")
        .replace(/ +/g, " ")
        .trimEnd()
    )
    .filter((line, i, all) => line !== "" && line !== all[i - 1])

const printed = (ended: Cli.Ended) => normal((ended.stdout + ended.stderr).split("\n"))

/** Lines that a block leaves out, as it says with an ellipsis, are not compared. */
const compared = (documented: ReadonlyArray<string>, printed: ReadonlyArray<string>) => {
  if (!documented.includes(omitted)) return [documented, printed] as const
  const shown = documented.filter((line) => line !== omitted)
  return [shown, printed.filter((line) => shown.includes(line))] as const
}

const omitted = "…"
