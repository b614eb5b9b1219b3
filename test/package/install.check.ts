/**
 * The steps of README.md and docs/testing.md, as written, on each supported version of Node with the npm it comes with.
 *
 * Node itself is installed from npm's registry, which has it for the usual platforms.
 */
import { afterAll, assert, describe, it } from "@effect/vitest"
import { mkdir, rm } from "node:fs/promises"
import { delimiter, join } from "node:path"
import { inject } from "vitest"
import * as Docs from "../utils/docs.ts"
import * as Packed from "../utils/packed.ts"

/** As this repository has it. */
const vite = JSON.parse(Docs.read("package-lock.json")).packages["node_modules/vite"].version

const platform = `${process.platform === "win32" ? "win" : process.platform}-${process.arch}`

/**
 * The oldest supported version of each line, and the newest of the last; `runs` is how README runs the program there.
 */
const versions = [
  { node: "20.19.0", npm: "10.8.2", runs: "npm install --save-dev tsx\nnode --import tsx welcome.ts", vitest: 1 },
  { node: "22.18.0", npm: "10.9.3", runs: "node welcome.ts", vitest: 0 },
  { node: "24.21.0", npm: "11.16.0", runs: "node welcome.ts", vitest: 0 }
]

const readme = Docs.read("README.md")
const testing = Docs.read("docs/testing.md")
const shell = (page: string, heading: string) =>
  Docs.blocks(page, "sh").filter((one) => one.heading === heading).map(({ code }) => code)

const [prepare, ...ways] = shell(readme, "A first program")
const [, ...vitests] = shell(testing, "Install")
const [program] = Docs.blocks(readme, "ts")
const [nodeTest] = Docs.blocks(testing, "js")
const prints = /<!-- prints:(.*?)-->/s.exec(readme)?.[1] ?? ""

/** The first example of docs/testing.md, with `it.effect`. */
const vitestTest = nodeTest!.code
  .replace(/^import assert .*\nimport \{ test \} .*$/m, `import { assert, it } from "@effect/vitest"`)
  .replace(/^test\(/m, "it.effect(")
  .replace(", Effect.runPromise)", ")")

const tarball = inject("tarball")
const projects: Array<Packed.Project> = []
const project = async () => {
  const made = await Packed.project(tarball)
  projects.push(made)
  return made
}

afterAll(async () => {
  for (const made of projects) await made.remove()
})

describe.concurrent("install", () => {
  for (const { node, npm, runs, vitest } of versions) {
    it(`Node ${node}: the documented steps run the program and tests, and npm ci works`, async () => {
      const tools = await project()
      await tools.run("npm", ["install", ...Packed.quietly, `node-${platform}@${node}`, `npm@${npm}`])
      const home = join(tools.folder, `node_modules/node-${platform}`)
      await mkdir(join(home, "lib")) // where npx finds globally installed packages
      const path = [join(home, "bin"), join(tools.folder, "node_modules/.bin"), process.env.PATH].join(delimiter)
      const made = await project()
      await rm(join(made.folder, "package.json"))
      const sh = (commands: string) =>
        made.run("/bin/sh", ["-ec", `${commands.replaceAll(" duroxide-prisma ", ` '${tarball}' `)}\n`], {
          PATH: path,
          DATABASE_URL: undefined
        })
      assert.strictEqual((await sh("node --version; npm --version")).trim(), `v${node}\n${npm}`)

      await sh(prepare!)
      await made.write("welcome.ts", program!.code)
      assert.include(ways, runs)
      const lines = runs.split("\n")
      await sh(lines.slice(0, -1).join("\n"))
      assert.deepStrictEqual(Packed.printed(await sh(lines.at(-1)!)), Packed.printed(prints))
      assert.match(await sh("npx 'duroxide-prisma' --version"), /^duroxide-prisma v\d/)
      const ignored = await sh("git init -q . && git status --short --porcelain")
      assert.notInclude(ignored, ".duroxide")

      // vitest takes the newest vite, which once needed a package that no registry had.
      if (vitest === 0) await sh(`npm pkg set overrides.vite=${vite}`)
      await made.write("welcome.test.mjs", nodeTest!.code)
      await made.write("vitest/welcome.test.mjs", vitestTest)
      const installed = await sh(`(${vitests[vitest]}) 2>&1`)
      assert.notInclude(installed, "EBADENGINE")
      const test = async () => {
        assert.include(await sh("node --test --test-reporter=tap welcome.test.mjs"), "# pass 1")
        assert.match(await sh("NO_COLOR=1 npx vitest run vitest/"), /Tests +1 passed/)
      }
      await test()
      await rm(join(made.folder, "node_modules"), { recursive: true })
      await sh("npm ci")
      await test()
    })
  }
})

describe.concurrent("the packed package", () => {
  it("publint: finds no problem", async () => {
    const made = await project()
    assert.include(await made.run("npx", ["--yes", "publint@0.3.25", "--strict", tarball]), "All good!")
  })

  it("are the types wrong: finds no problem", async () => {
    const made = await project()
    const output = await made.run("npx", [
      "--yes",
      "@arethetypeswrong/cli@0.18.5",
      "--profile",
      "esm-only",
      tarball
    ])
    // A problem would have been a failure; it has checked every entry point.
    for (const path of Object.keys(JSON.parse(Docs.read("package.json")).exports)) {
      assert.include(output, `"${path.replace(/^\./, "duroxide-prisma")}"`)
    }
  })
})
