import { afterAll, assert, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"

const root = fileURLToPath(new URL("../..", import.meta.url))
mkdirSync(join(root, "build"), { recursive: true })
// Inside the repository, so that the project finds the packages it imports.
const project = mkdtempSync(join(root, "build", "lint-"))
afterAll(() => rmSync(project, { recursive: true, force: true }))

const source = `
import { Activity, Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"

const Tell = Activity.make("Tell")

export const TripLive = Orchestration.make("Trip").toLayer(Effect.fn(function*() {
  yield* Tell.execute()
  Tell.execute()
  yield Tell.execute()
}))
`

it("docs/orchestrations.md: the lint finds a forgotten yield*, and a yield without its star", () => {
  const page = Docs.read("docs/orchestrations.md")
  const settings = JSON.parse(Docs.blocks(page, "json")[0]!.code) as { readonly compilerOptions: object }
  const command = Docs.blocks(page, "sh")[0]!.code.trim()
  const [, tool, ...args] = command.split(" ")
  assert.strictEqual(tool, "effect-tsgo")

  const compilerOptions = { module: "NodeNext", target: "ES2022", strict: true, ...settings.compilerOptions }
  writeFileSync(join(project, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["trip.ts"] }))
  writeFileSync(join(project, "trip.ts"), source)
  const { status, stdout } = spawnSync(
    process.execPath,
    [join(root, "node_modules/@effect/tsgo/dist/effect-tsgo.cjs"), ...args, "--format", "json"],
    { cwd: project, encoding: "utf8" }
  )
  const { diagnostics } = JSON.parse(stdout) as {
    readonly diagnostics: ReadonlyArray<{ readonly line: number; readonly name: string }>
  }
  assert.deepStrictEqual(
    diagnostics.map(({ line, name }) => [source.split("\n")[line - 1]!.trim(), name]),
    [["Tell.execute()", "floatingEffect"], ["yield Tell.execute()", "missingStarInYieldEffectGen"]]
  )
  assert.strictEqual(status, 1)
  for (const { name } of diagnostics) assert.include(page, `\`${name}\``)
})
