import { afterAll, assert, describe, it } from "@effect/vitest"
import { spawnSync } from "node:child_process"
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { relative } from "node:path/posix"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"

const script = fileURLToPath(new URL("../../scripts/imports.mjs", import.meta.url))
const scratch = mkdtempSync(join(tmpdir(), "imports-"))
afterAll(() => rmSync(scratch, { recursive: true, force: true }))

const rooms = Object.entries(
  JSON.parse(Docs.read("scripts/rooms.json")) as Record<string, {
    readonly rooms: ReadonlyArray<string>
    readonly packages: ReadonlyArray<string>
  }>
)

const inRoom = (room: string, path: string) => room === "author" ? `src/${path}` : `src/${room}/${path}`

const statement = (from: string, target: string) => {
  const path = relative(dirname(from), target)
  return `import "${path.startsWith(".") ? path : `./${path}`}"`
}

const modules: Readonly<Record<string, string>> = { effect: "effect/Effect", node: "node:os" }

/** One file of each room, which imports all that the room may import. */
const everyEdge = Object.fromEntries(rooms.map(([room, { packages, rooms }]) => {
  const file = inRoom(room, "edges.ts")
  return [
    file,
    [
      ...rooms.map((other) => statement(file, inRoom(other, "edges.ts"))),
      ...packages.map((name) => `import "${modules[name] ?? name}"`)
    ].join("\n")
  ]
}))

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
  ...everyEdge,
  "src/index.ts": `export * as Client from "./Client.ts"\nexport * as Event from "./model/Event.ts"\n`,
  "src/Client.ts": `import { Provider } from "./provider/Provider.ts"\nimport * as Effect from "effect/Effect"\n`,
  "src/model/Event.ts": `import * as Schema from "effect/Schema"\nimport { text } from "./shared/text.ts"\n`,
  "src/model/shared/text.ts": ``,
  "src/provider/index.ts": `export * as Provider from "./Provider.ts"\n`,
  "src/provider/Provider.ts": `import type { Event } from "../model/Event.ts"\nexport * from "./driver/turns.ts"\n`,
  "src/provider/driver/turns.ts": ``,
  "src/provider/internal/coalescer.ts": `import * as Queue from "effect/Queue"\n`,
  "src/provider/shared/endOf.ts": `import { coalescer } from "../internal/coalescer.ts"\n`,
  "src/replay/turn.ts":
    `import type { Turn } from "../provider/Provider.ts"\nimport { endOf } from "../provider/shared/endOf.ts"\n`,
  "src/runtime/slots.ts": ``,
  "src/runtime/dispatcher.ts": `import { run } from "../replay/turn.ts"\n`,
  "src/prisma/index.ts": `export * as PrismaDriver from "./PrismaDriver.ts"\n`,
  "src/prisma/PrismaDriver.ts": [
    `import pg from "pg"`,
    `import { PrismaPg } from "@prisma/adapter-pg"`,
    `import {`,
    `  Provider`,
    `} from "../provider/Provider.ts"`,
    `import { DatabaseServer } from "../server/DatabaseServer.ts"`,
    `import { PrismaClient } from "./generated/client.ts"`
  ].join("\n"),
  "src/prisma/generated/client.ts": `import "anything"\n`,
  "src/server/DatabaseServer.ts": ``,
  "src/testing/index.ts": `import { it } from "@effect/vitest"\nimport { Client } from "../Client.ts"\n`,
  "examples/hello.ts": `import { Client } from "duroxide-prisma"\nimport { say } from "./say.ts"\n`,
  "examples/say.ts": `import { Effect } from "effect"\n`,
  "scripts/bench.ts": `import { x } from "../src/provider/internal/coalescer.ts"\n`,
  "test/model/Event.test.ts": `import { Event } from "../../src/model/Event.ts"\n`
}

describe("imports", () => {
  it("check: lets a tree pass whose arrows point the right way", () => {
    assert.deepStrictEqual(check(good), [])
  })

  const bad: ReadonlyArray<readonly [promise: string, path: string, text: string, breach: string]> = [
    [
      "refuses a model that imports the contract",
      "src/model/Event.ts",
      `import { ProviderError } from "../provider/ProviderError.ts"`,
      "src/model/Event.ts:1: imports src/provider/ProviderError.ts: model does not import provider"
    ],
    [
      "refuses an upward import of types alone",
      "src/provider/Provider.ts",
      `\nimport type { Dispatcher } from "../runtime/slots.ts"`,
      "src/provider/Provider.ts:2: imports src/runtime/slots.ts: provider does not import runtime"
    ],
    [
      "refuses a runtime that imports the author's modules",
      "src/runtime/dispatcher.ts",
      `import type { Runtime } from "../Runtime.ts"`,
      "src/runtime/dispatcher.ts:1: imports src/Runtime.ts: runtime does not import author"
    ],
    [
      "refuses an author's module that imports a driver, also at run time",
      "src/Client.ts",
      `const driver = () => import("./prisma/PrismaDriver.ts")`,
      "src/Client.ts:1: imports src/prisma/PrismaDriver.ts: author does not import prisma"
    ],
    [
      "refuses a driver that imports the runtime",
      "src/prisma/PrismaDriver.ts",
      `import { dispatcher } from "../runtime/dispatcher.ts"`,
      "src/prisma/PrismaDriver.ts:1: imports src/runtime/dispatcher.ts: prisma does not import runtime"
    ],
    [
      "refuses testing that imports a driver",
      "src/testing/index.ts",
      `export { PrismaDriver } from "../prisma/index.ts"`,
      "src/testing/index.ts:1: imports src/prisma/index.ts: testing does not import prisma"
    ],
    [
      "refuses the effect barrel",
      "src/model/Event.ts",
      `import { Schema } from "effect"`,
      "src/model/Event.ts:1: imports effect: import the module instead, as `effect/Effect`"
    ],
    [
      "refuses a package that the room does not use",
      "src/Client.ts",
      `import pg from "pg"`,
      "src/Client.ts:1: imports pg: author does not use the package pg"
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
      "refuses an import of another room's internal folder",
      "src/Client.ts",
      `import { coalescer } from "./provider/internal/coalescer.ts"`,
      "src/Client.ts:1: imports src/provider/internal/coalescer.ts: provider/internal is provider's own; " +
      "import a module of provider, or its shared/"
    ],
    [
      "refuses an import of types alone from another room's internal folder",
      "src/replay/turn.ts",
      `import type { Lane } from "../provider/internal/coalescer.ts"`,
      "src/replay/turn.ts:1: imports src/provider/internal/coalescer.ts: provider/internal is provider's own; " +
      "import a module of provider, or its shared/"
    ],
    [
      "refuses an entry point that exports a module of an internal folder",
      "src/provider/index.ts",
      `export * from "./internal/coalescer.ts"`,
      "src/provider/index.ts:1: imports src/provider/internal/coalescer.ts: an entry point exports nothing internal"
    ],
    [
      "refuses an entry point that exports a module of a private room",
      "src/index.ts",
      `export * from "./replay/turn.ts"`,
      "src/index.ts:1: imports src/replay/turn.ts: an entry point exports nothing internal"
    ],
    [
      "refuses an entry point that exports a name marked as internal",
      "src/model/Event.ts",
      `/**\n * For tests.\n *\n * @internal\n */\nexport const decodeUnsafe = 1`,
      "src/model/Event.ts: exports decodeUnsafe, which is internal, through src/index.ts: move it to a folder that is private"
    ],
    [
      "refuses such a name in a file that a module exports again",
      "src/provider/driver/turns.ts",
      `/** @internal */\nexport const storeUnsafe = 1`,
      "src/provider/driver/turns.ts: exports storeUnsafe, which is internal, through src/provider/index.ts: move it to a folder that is private"
    ],
    [
      "refuses a folder that is not a room",
      "src/helpers/dates.ts",
      ``,
      "src/helpers/dates.ts: stands in no room; give it one in scripts/rooms.json"
    ],
    [
      "refuses a circle, with its way round",
      "src/model/shared/text.ts",
      `import { Event } from "../Event.ts"`,
      "src/model/Event.ts: imports itself: src/model/Event.ts -> src/model/shared/text.ts -> src/model/Event.ts"
    ],
    [
      "refuses a circle of types alone",
      "src/model/shared/text.ts",
      `import type { Event } from "../Event.ts"`,
      "src/model/Event.ts: imports itself: src/model/Event.ts -> src/model/shared/text.ts -> src/model/Event.ts"
    ],
    [
      "refuses an example that looks behind the package",
      "examples/hello.ts",
      `import { text } from "../src/model/shared/text.ts"`,
      "examples/hello.ts:1: imports src/model/shared/text.ts: examples use only what the package exports"
    ],
    [
      "refuses a test of what is built",
      "test/model/Event.test.ts",
      `import { Event } from "../../dist/model/Event.js"`,
      "test/model/Event.test.ts:1: imports dist/model/Event.js: import the source or the package, not what is built"
    ]
  ]
  for (const [promise, path, text, breach] of bad) {
    it(`check: ${promise}`, () => {
      assert.deepStrictEqual(check({ ...good, [path]: text }), [breach])
    })
  }

  it("check: refuses an import of the internal folder of any other room", () => {
    const planted = rooms.flatMap(([room, { rooms }]) =>
      rooms.filter((other) => other !== "author").map((other) => {
        const path = inRoom(room, `reaches${other}.ts`)
        const target = `src/${other}/internal/own.ts`
        return {
          path,
          text: statement(path, target),
          breach: `${path}:1: imports ${target}: ${other}/internal is ${other}'s own; ` +
            `import a module of ${other}, or its shared/`
        }
      })
    )
    assert.isAbove(planted.length, 40)
    assert.sameMembers(
      [...check({ ...good, ...Object.fromEntries(planted.map(({ path, text }) => [path, text])) })],
      planted.map(({ breach }) => breach)
    )
  })

  it("check: refuses a room or a package in the table that its room does not import", () => {
    assert.deepStrictEqual(
      check({ ...good, "src/outbox/edges.ts": everyEdge["src/outbox/edges.ts"]!.split("\n")[0]! }),
      ["waking", "provider", "queue", "effect", "node"].map((other) =>
        `scripts/rooms.json: outbox may import ${other}, and does not: remove it`
      )
    )
  })

  it("docs/architecture.md shows the table as a map", () => {
    const [, map] = /```text\n(model\n[^`]*)```/.exec(Docs.read("docs/architecture.md")) ?? []
    assert.strictEqual(
      map,
      rooms.map(([room, { rooms }]) => (rooms.length === 0 ? room : `${room.padEnd(13)} → ${rooms.join(", ")}`) + "\n")
        .join("")
    )
  })

  it("check: does not read examples in comments as code", () => {
    const tree = {
      ...good,
      "src/model/Event.ts": `/**\n * import { Client } from "../Client.ts"\n */\n// import("../Client.ts")`
    }
    assert.deepStrictEqual(check(tree), [])
  })
})
