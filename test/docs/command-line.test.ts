import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { exitCodes } from "../../src/cli/internal/failure.ts"
import * as Events from "../../src/operating/events.ts"
import * as Cli from "../cli/cli.ts"
import * as Shop from "../cli/shop.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"
import { blocksOf, check } from "./consoleBlocks.ts"

const page = Docs.read("docs/command-line.md")

const blocks = blocksOf(page)

/** The module that the page calls `./programs.ts`. */
const release = "test/cli/releases/shop.ts"

it.layer(Shop.layer, { excludeTestServices: true })("docs/command-line.md", (it) => {
  it.effect("its commands print what it says", () =>
    Effect.gen(function*() {
      const shop = yield* Shop.Shop
      const empty = yield* PgServer.emptyDatabase
      assert.isAtLeast(blocks.length, 8)
      for (const block of blocks) {
        const { url } = block.args === "migrate" ? empty : shop
        yield* Shop.refresh
        const isPreflight = block.args.startsWith("preflight")
        const { args } = block
        yield* check(
          { ...block, args: args.replace("./programs.ts", release) },
          url,
          isPreflight ? exitCodes.unfit : 1
        )
      }
    }))

  it.effect("lists the fields of status, doctor, queues and top with --json, and no others", () =>
    Effect.gen(function*() {
      const shop = yield* Shop.Shop
      yield* Shop.refresh
      for (const command of ["status", "doctor", "queues", "top"]) {
        const once = command === "top" ? ["--once"] : []
        const { stdout } = yield* Cli.run([command, "--json", ...once], { env: { DATABASE_URL: shop.url } })
        const [, section = ""] = page.split(`\n## ${command}\n`)
        const [own = ""] = section.split("\n## ")
        const rows = [...own.slice(own.search(/With `(--once )?--json`/)).matchAll(/^\| `(\w+)` +\| (.*)\|$/gm)]
        const answer: Record<string, unknown> = JSON.parse(stdout)
        assert.deepStrictEqual(rows.map(([, field]) => field), Object.keys(answer), command)
        for (const [, field = "", text = ""] of rows) {
          const value = [answer[field]].flat()[0]
          if (typeof value !== "object" || value === null || field === "instances") continue
          for (const key of Object.keys(value)) assert.include(text, `\`${key}\``, `${command}.${field}`)
        }
      }
    }))

  it.effect("lists the fields of processes --json, and no others", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const { stdout } = yield* Cli.run("processes --json", { env: { DATABASE_URL: url } })
      const [process] = JSON.parse(stdout)
      const [own = ""] = page.slice(page.indexOf("\n## processes\n") + 1).split("\n## ")
      const rows = [...own.matchAll(/^\| `(\w+)` +\| (.*)\|$/gm)]
      assert.deepStrictEqual(rows.map(([, field]) => field), Object.keys(process))
    }))

  it.effect("lists the fields of preflight --json, and no others", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const { stdout } = yield* Cli.run(["preflight", release, "--json"], { env: { DATABASE_URL: url } })
      const answer: Record<string, unknown> = JSON.parse(stdout)
      const [own = ""] = page.slice(page.indexOf("\n## preflight\n") + 1).split("\n## ")
      const rows = [...own.matchAll(/^\| `(\w+)` +\| (.*)\|$/gm)]
      assert.deepStrictEqual(rows.map(([, field]) => field), Object.keys(answer))
      const [finding] = [answer["findings"]].flat() as ReadonlyArray<Record<string, unknown>>
      const text = rows.find(([, field]) => field === "findings")?.[2] ?? ""
      for (const key of Object.keys(finding ?? {})) assert.include(text, `\`${key}\``)
    }))

  it.effect("lists the fields of show --json, and no others", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const json = (args: string) =>
        Effect.map(Cli.run(`${args} --json`, { env: { DATABASE_URL: url } }), ({ stdout }) => JSON.parse(stdout))
      const shown: Record<string, unknown> = yield* json("show order-4")
      const [, section = ""] = page.slice(page.indexOf("\n## show\n")).split("\nWith `--json`: ")
      const rows = [...section.split("\n## ")[0]!.matchAll(/^\| `(\w+)` +\| (.*)\|$/gm)]
      const { instances: [listed] } = yield* json("list")
      assert.sameMembers([...Object.keys(listed), ...rows.map(([, field = ""]) => field)], Object.keys(shown))
      for (const name of ["waitsFor", "children", "executions", "history"]) {
        const [value] = [shown[name]].flat()
        const text = rows.find(([, field]) => field === name)?.[2] ?? ""
        assert.isObject(value, name)
        for (const key of Object.keys(value ?? {})) assert.include(text, `\`${key}\``, name)
      }
    }))

  it.effect("describes every command and every flag", () =>
    Effect.gen(function*() {
      const pathsBelow = (path: string): Effect.Effect<ReadonlyArray<string>> =>
        Effect.gen(function*() {
          const { stdout } = yield* Cli.run(`${path} --help`.trim())
          const [, list = ""] = stdout.split("SUBCOMMANDS")
          const names = [...list.split("EXAMPLES")[0]!.matchAll(/^ {2}(\w+) {2}/gm)].map(([, name]) => name!)
          const paths = names.map((name) => `${path} ${name}`.trim())
          return [...paths, ...(yield* Effect.forEach(paths, pathsBelow)).flat()]
        })
      const paths = yield* pathsBelow("")
      assert.includeMembers([...paths], ["list", "import sqlite", "tasks redrive"])
      for (const path of paths) {
        const [command, subcommand] = path.split(" ")
        assert.include(page, subcommand === undefined ? `## ${command}\n` : path)
        const help = (yield* Cli.run(`${path} --help`)).stdout
        for (const [flag] of help.matchAll(/^ {2}--[\w-]+/gm)) {
          if (!["--help", "--version"].includes(flag.trim())) assert.include(page, `\`${flag.trim()}`, path)
        }
      }
    }))
})

describe("docs/command-line.md", () => {
  it("has every event, with its stored type", () => {
    const rows = [...page.matchAll(/^\| ([a-z -]+?) +\| `([A-Z]\w+)` +\|$/gm)]
    assert.deepStrictEqual(rows.map(([, kind, type]) => [type, kind]), Object.entries(Events.kindsOfTypes))
  })

  it("has every exit code", () => {
    const documented = [...page.matchAll(/^\| (\d+) +\|/gm)].map(([, code]) => Number(code))
    assert.deepStrictEqual(documented, [0, ...Object.values(exitCodes)])
  })
})
