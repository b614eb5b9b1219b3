/**
 * How the program loads the module of `preflight`, by the Node of this process.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Command from "../utils/command.ts"
import * as PgServer from "../utils/PgServer.ts"

const preflight = Effect.fnUntraced(function*(module: string) {
  const { url } = yield* PgServer.PgServer
  const { end, output } = yield* Command.start(["node", "dist/cli/main.js", "preflight", module], { DATABASE_URL: url })
  return { exitCode: yield* end, output: output() }
})

const nothing = { exitCode: 0, output: "no running instances\n" }

it.layer(PgServer.layer, { excludeTestServices: true })("preflight", (it) => {
  it.effect("compiled JavaScript", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* preflight("build/test/programs/release.js"), nothing)
    }))

  it.effect("TypeScript, by a Node that strips types; any other says what to do", () =>
    Effect.gen(function*() {
      const { exitCode, output } = yield* preflight("test/programs/release.ts")
      if ("typescript" in process.features && process.features.typescript !== false) {
        // Some releases of Node warn that it is experimental.
        assert.deepStrictEqual([exitCode, output.endsWith(nothing.output)], [0, true], output)
      } else {
        assert.strictEqual(exitCode, 2)
        assert.match(
          output,
          /^error: \S+release\.ts cannot be loaded: Node \S+ loads no TypeScript by itself: use .*\n$/
        )
      }
    }))

  it.effect("a module with an import that is missing, or with an error of syntax", () =>
    Effect.gen(function*() {
      const folder = yield* Effect.acquireRelease(
        Effect.sync(() => mkdtempSync(join(tmpdir(), "preflight-"))),
        (folder) => Effect.sync(() => rmSync(folder, { recursive: true }))
      )
      const modules = [
        ["missing.mjs", "import \"./none.mjs\"", /Cannot find module '\S+none\.mjs'/],
        ["syntax.mjs", "export", /Unexpected/]
      ] as const
      for (const [name, text, problem] of modules) {
        writeFileSync(join(folder, name), text)
        const { exitCode, output } = yield* preflight(join(folder, name))
        assert.strictEqual(exitCode, 2)
        assert.match(output, /^error: \S+\.mjs cannot be loaded: [^\n]*\n$/)
        assert.match(output, problem)
      }
    }))
})
