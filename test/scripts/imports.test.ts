import { afterAll, assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const script = fileURLToPath(new URL("../../scripts/imports.mjs", import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), "imports-"))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

/** Runs the check on a tree of the given files; an empty answer means that it passed. */
const check = (files: Record<string, string>): ReadonlyArray<string> => {
  const root = mkdtempSync(join(scratch, "tree-"))
  for (const [path, text] of Object.entries(files)) {
    mkdirSync(dirname(join(root, path)), { recursive: true })
    writeFileSync(join(root, path), text)
  }
  const { status, stderr } = spawnSync(process.execPath, [script, root], { encoding: "utf8" })
  const breaches = stderr.split("\n").filter((line) => line !== "")
  assert.strictEqual(status, breaches.length === 0 ? 0 : 1)
  return breaches
}

const good = {
  "src/index.ts": `export * as Client from "./Client.ts"\n`,
  "src/Event.ts": `import * as Schema from "effect/Schema"\nimport { text } from "./internal/text.ts"\n`,
  "src/internal/text.ts": ``,
  "src/Provider.ts": `import type { Event } from "./Event.ts"\nimport { x } from "./internal/seam/coalescer.ts"\n`,
  "src/internal/seam/coalescer.ts": `import * as Queue from "effect/Queue"\n`,
  "src/Client.ts": `import { Provider } from "./Provider.ts"\nimport * as Os from "node:os"\n`,
  "src/prisma/index.ts": `export * as PrismaDriver from "./PrismaDriver.ts"\n`,
  "src/prisma/PrismaDriver.ts": [
    `import pg from "pg"`,
    `import { PrismaPg } from "@prisma/adapter-pg"`,
    `import {`,
    `  Provider`,
    `} from "../Provider.ts"`,
    `import { PrismaClient } from "./generated/client.ts"`
  ].join("\n"),
  "src/prisma/generated/client.ts": `import "anything"\n`,
  "src/testing/index.ts": `import { it } from "@effect/vitest"\nimport { Client } from "../Client.ts"\n`,
  "examples/hello.ts": `import { Client } from "duroxide-prisma"\nimport { say } from "./say.ts"\n`,
  "examples/say.ts": `import { Effect } from "effect"\n`,
  "scripts/fixtures.ts": `import { x } from "#internal/seam/coalescer.ts"\n`,
  "test/Event.test.ts": `import { Event } from "../src/Event.ts"\n`
}

describe("imports", () => {
  it("check: lets a tree pass whose arrows point the right way", () => {
    assert.deepStrictEqual(check(good), [])
  })

  const bad: ReadonlyArray<readonly [promise: string, path: string, text: string, breach: string]> = [
    [
      "refuses a model that imports the contract",
      "src/Event.ts",
      `import { Provider } from "./Provider.ts"`,
      "src/Event.ts:1: imports src/Provider.ts: model does not import contract"
    ],
    [
      "refuses a contract that imports the program, also for its types alone",
      "src/Provider.ts",
      `\nimport type { Client } from "./Client.ts"`,
      "src/Provider.ts:2: imports src/Client.ts: contract does not import program"
    ],
    [
      "refuses a program that imports a driver, also at run time",
      "src/Client.ts",
      `const driver = () => import("./prisma/PrismaDriver.ts")`,
      "src/Client.ts:1: imports src/prisma/PrismaDriver.ts: program does not import driver"
    ],
    [
      "refuses a driver that imports the program",
      "src/prisma/PrismaDriver.ts",
      `import { Client } from "../Client.ts"`,
      "src/prisma/PrismaDriver.ts:1: imports src/Client.ts: driver does not import program"
    ],
    [
      "refuses testing that imports a driver",
      "src/testing/index.ts",
      `export { PrismaDriver } from "../prisma/index.ts"`,
      "src/testing/index.ts:1: imports src/prisma/index.ts: testing does not import driver"
    ],
    [
      "refuses the effect barrel",
      "src/Event.ts",
      `import { Schema } from "effect"`,
      "src/Event.ts:1: imports effect: import the module instead, as `effect/Effect`"
    ],
    [
      "refuses a package that the room does not use",
      "src/Client.ts",
      `import pg from "pg"`,
      "src/Client.ts:1: imports pg: program does not use the package pg"
    ],
    [
      "refuses a source that imports its own package",
      "src/Client.ts",
      `import { Provider } from "duroxide-prisma"`,
      "src/Client.ts:1: imports duroxide-prisma: inside src, import by relative path"
    ],
    [
      "refuses a source that imports from outside src",
      "src/Client.ts",
      `import { x } from "../test/utils/x.ts"`,
      "src/Client.ts:1: imports test/utils/x.ts: src imports nothing outside itself"
    ],
    [
      "refuses an entry point that exports something internal",
      "src/index.ts",
      `export * from "./internal/text.ts"`,
      "src/index.ts:1: imports src/internal/text.ts: an entry point exports nothing internal"
    ],
    [
      "refuses a module without a room",
      "src/Helpers.ts",
      ``,
      "src/Helpers.ts: stands in no room; give it one in the table of scripts/imports.mjs"
    ],
    [
      "refuses a cycle, telling its way round",
      "src/internal/text.ts",
      `import { Event } from "../Event.ts"`,
      "src/Event.ts: imports itself: src/Event.ts -> src/internal/text.ts -> src/Event.ts"
    ],
    [
      "refuses an example that looks behind the package",
      "examples/hello.ts",
      `import { text } from "../src/internal/text.ts"`,
      "examples/hello.ts:1: imports src/internal/text.ts: examples use only what the package exports"
    ],
    [
      "refuses a test of what is built",
      "test/Event.test.ts",
      `import { Event } from "../dist/Event.js"`,
      "test/Event.test.ts:1: imports dist/Event.js: import the source or the package, not what is built"
    ]
  ]
  for (const [promise, path, text, breach] of bad) {
    it(`check: ${promise}`, () => {
      assert.deepStrictEqual(check({ ...good, [path]: text }), [breach])
    })
  }

  it("check: takes types that refer to each other for no cycle", () => {
    const tree = { ...good, "src/internal/text.ts": `import type { Event } from "../Event.ts"` }
    assert.deepStrictEqual(check(tree), [])
  })

  it("check: does not read examples in comments as code", () => {
    const tree = {
      ...good,
      "src/Event.ts": `/**\n * import { Client } from "./Client.ts"\n */\n// import("./Client.ts")`
    }
    assert.deepStrictEqual(check(tree), [])
  })
})
