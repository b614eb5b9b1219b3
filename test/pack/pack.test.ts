/**
 * What a user gets: the packed package in an empty project outside the repository.
 *
 * It is packed from `dist`, which `npm test` brings up to date before it starts vitest.
 */
import { afterAll, assert, beforeAll, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { execFile } from "node:child_process"
import { mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import { fileURLToPath } from "node:url"
import { promisify } from "node:util"
import * as PgServer from "../utils/PgServer.ts"

const root = fileURLToPath(new URL("../../", import.meta.url))

let project: string

beforeAll(async () => {
  project = await mkdtemp(join(tmpdir(), "duroxide-prisma-pack-"))
  const { devDependencies } = JSON.parse(await readFile(join(root, "package.json"), "utf8"))
  const pinned = (...names: ReadonlyArray<string>) => names.map((name) => `${name}@${devDependencies[name]}`)

  // No scripts: `prepack` would rebuild `dist` under the tests that are running programs from it.
  const packed = await run("npm", ["pack", "--json", "--ignore-scripts", "--pack-destination", project, root])
  const tarball = join(project, JSON.parse(packed)[0].filename)

  await writeFile(join(project, "package.json"), JSON.stringify({ private: true, type: "module" }))
  const wanted = [tarball, ...pinned("effect", "typescript", "@types/node")]
  await run("npm", ["install", "--prefer-offline", "--no-audit", "--no-fund", ...wanted])
})

afterAll(() => rm(project, { recursive: true, force: true }))

describe("package", () => {
  it.live("README: the first example compiles and prints what it says, as written", () =>
    Effect.gen(function*() {
      const readme = yield* Effect.promise(() => readFile(join(root, "README.md"), "utf8"))
      const [, example, prints] = /```ts\n(.*?)\n```(?:\s*<!-- prints:(.*?)-->)?/s.exec(readme) ?? []
      assert(example !== undefined, "README.md has no ts block")
      assert(prints !== undefined, "the first ts block of README.md is not followed by <!-- prints: … -->")

      const { url } = yield* PgServer.emptyDatabase
      const output = yield* Effect.promise(async () => {
        await writeFile(join(project, "example.ts"), example)
        const options = ["--strict", "--target", "es2022", "--module", "nodenext", "--types", "node"]
        await run("npx", ["tsc", ...options, "example.ts"])
        return run(process.execPath, ["example.js"], { DATABASE_URL: url })
      })
      assert.deepStrictEqual(lines(output).filter((line) => !logLine.test(line)), lines(prints))
    }), 120_000)

  it("exports: keep what is internal out of reach", async () => {
    const reach = (path: string) =>
      run(process.execPath, ["--input-type=module", "-e", `import.meta.resolve("duroxide-prisma/${path}")`])
    await reach("prisma")
    for (const path of ["internal/wire", "internal/wire.js", "dist/internal/wire.js"]) {
      assert.include(await reach(path).then(String, String), "ERR_PACKAGE_PATH_NOT_EXPORTED")
    }
  })

  it("declarations: name no module by the package's private imports", async () => {
    const dist = join(project, "node_modules/duroxide-prisma/dist")
    const declarations = (await readdir(dist, { recursive: true })).filter((path) => path.endsWith(".d.ts"))
    assert.isNotEmpty(declarations)
    for (const path of declarations) {
      assert.notMatch(await readFile(join(dist, path), "utf8"), /(from |import\()"#/, path)
    }
  })
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Runs a command in the project; answers what it printed, or fails with all of it. */
async function run(file: string, args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) {
  const options = { cwd: project, env: { ...process.env, ...env } }
  return promisify(execFile)(file, args, options).then(
    ({ stdout }) => stdout,
    (error) => Promise.reject(new Error(`${error.message}\n${error.stdout}`))
  )
}

/** Effect's logger writes to standard output as well. */
const logLine = /^\[\d\d:\d\d:\d\d\.\d\d\d\] [A-Z]+ \(#\d+\): /

const lines = (text: string) => text.split("\n").map((line) => line.trim()).filter((line) => line !== "")
