/**
 * What the examples of README and guides import: everything they use, from where it is.
 */
import { assert, describe, it } from "@effect/vitest"
import * as root from "duroxide-prisma"
import * as agents from "duroxide-prisma/agents"
import * as dashboard from "duroxide-prisma/dashboard"
import * as observability from "duroxide-prisma/observability"
import * as outbox from "duroxide-prisma/outbox"
import * as prisma from "duroxide-prisma/prisma"
import * as provider from "duroxide-prisma/provider"
import * as queue from "duroxide-prisma/queue"
import * as sqs from "duroxide-prisma/queue/sqs"
import * as completions from "duroxide-prisma/recipes/completions"
import * as datasets from "duroxide-prisma/recipes/datasets"
import * as deliveries from "duroxide-prisma/recipes/deliveries"
import * as triggers from "duroxide-prisma/recipes/triggers"
import * as schedules from "duroxide-prisma/schedules"
import * as server from "duroxide-prisma/server"
import * as sqlite from "duroxide-prisma/sqlite"
import * as tasks from "duroxide-prisma/tasks"
import * as testing from "duroxide-prisma/testing"
import * as suite from "duroxide-prisma/testing/provider"
import * as queueSuite from "duroxide-prisma/testing/queue"
import * as scheduleKit from "duroxide-prisma/testing/schedules"
import * as taskKit from "duroxide-prisma/testing/tasks"
import * as effect from "effect"
import * as ai from "effect/ai"
import * as http from "effect/http"
import * as httpApi from "effect/http-api"
import * as effectObservability from "effect/observability"
import * as persistence from "effect/persistence"
import { readdirSync } from "node:fs"
import { fileURLToPath } from "node:url"
import * as Docs from "../utils/docs.ts"

const ours: Record<string, object> = {
  "duroxide-prisma": root,
  "duroxide-prisma/agents": agents,
  "duroxide-prisma/dashboard": dashboard,
  "duroxide-prisma/observability": observability,
  "duroxide-prisma/prisma": prisma,
  "duroxide-prisma/provider": provider,
  "duroxide-prisma/outbox": outbox,
  "duroxide-prisma/queue": queue,
  "duroxide-prisma/queue/sqs": sqs,
  "duroxide-prisma/recipes/completions": completions,
  "duroxide-prisma/recipes/datasets": datasets,
  "duroxide-prisma/recipes/deliveries": deliveries,
  "duroxide-prisma/recipes/triggers": triggers,
  "duroxide-prisma/schedules": schedules,
  "duroxide-prisma/server": server,
  "duroxide-prisma/sqlite": sqlite,
  "duroxide-prisma/tasks": tasks,
  "duroxide-prisma/testing": testing,
  "duroxide-prisma/testing/provider": suite,
  "duroxide-prisma/testing/queue": queueSuite,
  "duroxide-prisma/testing/schedules": scheduleKit,
  "duroxide-prisma/testing/tasks": taskKit
}
const entries: Record<string, object> = {
  ...ours,
  effect,
  "effect/ai": ai,
  "effect/http": http,
  "effect/http-api": httpApi,
  "effect/observability": effectObservability,
  "effect/persistence": persistence
}
const exported = new Set(Object.values(entries).flatMap((entry) => Object.keys(entry)))

const guides = readdirSync(fileURLToPath(new URL("../../docs", import.meta.url)))
  .filter((file) => file.endsWith(".md"))
  .map((file) => `docs/${file}`)
// `Order` and `Chat` are definitions of the examples; `Array` and `Response` are those of JavaScript and the web.
const theirOwn = new Set(["Order", "Chat", "Array", "Response"])
/** Its examples show parts of a file only, and so do those about bundling. */
const fragments = "docs/duroxide.md"
const bundling = Docs.section("docs/http.md", "Bundling")

/** Names and origins of the imports of a page. */
const imports = (page: string) =>
  [...page.matchAll(/^import \{ ([^}]+) \} from "([^"]+)"$/gm)].flatMap(([, names, from]) =>
    names!.split(", ").map((name) => ({ name, from: from! }))
  )

/** What the blocks of a page use of the entry points. */
const used = (page: string) => {
  const code = Docs.blocks(page, "ts").map(({ code }) => code.replace(/\/\/ .*$/gm, "")).join("\n")
  const names = [...code.matchAll(/\b([A-Z]\w+)\.|\b(recordHistory|replayHistory)\(/g)].map(([, one, other]) =>
    one ?? other!
  )
  return new Set(names.filter((name) => exported.has(name) && !theirOwn.has(name)))
}

describe("imports of the examples:", () => {
  it("each guide imports what its examples use", () => {
    const missing = guides.filter((path) => path !== fragments).flatMap((path) => {
      const page = Docs.read(path).replace(bundling, "")
      const imported = new Set(imports(page).map(({ name }) => name))
      return [...used(page)].filter((name) => !imported.has(name)).map((name) => `${path}: ${name}`)
    })
    assert.deepStrictEqual(missing, [])
  })

  it("each import is an export", () => {
    const all = ["README.md", ...guides].flatMap((path) => imports(Docs.read(path)).map((one) => ({ path, ...one })))
      .filter(({ from }) => from in entries)
    assert.isAbove(all.length, 40)
    assert.deepStrictEqual(
      all.filter(({ from, name }) => !(name in entries[from]!)).map(({ from, name, path }) =>
        `${path}: ${name} of ${from}`
      ),
      []
    )
  })

  it("docs/architecture.md lists every entry point with its exports", () => {
    const [, section] = Docs.read("docs/architecture.md").split("\n## Entry points\n")
    const rows = [...section!.split("\n## ")[0]!.matchAll(/^- `(duroxide-prisma[^`]*)`[^:]*: ([^]*?)(?=\n- |\n$)/gm)]
      .map(([, entry, names]) => [entry!, [...names!.matchAll(/`(\w+)`/g)].map(([, name]) => name!)] as const)
    assert.deepStrictEqual(
      Object.fromEntries(rows.map(([entry, names]) => [entry, names.toSorted()])),
      Object.fromEntries(Object.entries(ours).map(([entry, module]) => [entry, Object.keys(module).toSorted()]))
    )
  })
})
