/**
 * The promise to running instances: this release continues the histories that earlier ones recorded.
 */
import { assert, describe, it } from "@effect/vitest"
import { replayHistory } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs"
import { scenarios } from "./programs/ours.ts"
import { record } from "./programs/record.ts"

const folder = new URL("./ours/", import.meta.url)

// `npm run record` writes what is missing. A file that is there stays as it is: it is a promise to running instances.
if (process.env.RECORD_MISSING === "1") {
  for (const [name, scenario] of Object.entries(scenarios)) {
    const file = new URL(`${name}.json`, folder)
    if (!existsSync(file)) writeFileSync(file, await Effect.runPromise(record(scenario)))
  }
}

const files = readdirSync(folder).filter((name) => name.endsWith(".json")).map((name) => name.slice(0, -".json".length))

const recorded = (name: string) => readFileSync(new URL(`${name}.json`, folder), "utf8")

describe("histories", () => {
  it("every program has a history, and every history its program", () => {
    assert.deepStrictEqual(files.toSorted(), Object.keys(scenarios).toSorted())
  })

  for (const [name, scenario] of Object.entries(scenarios)) {
    it.effect(`${name} replays`, () =>
      Effect.gen(function*() {
        const text = recorded(name)
        const { executions } = yield* replayHistory(scenario.orchestration, text).pipe(Effect.provide(scenario.layer))
        assert.strictEqual(executions.reduce((sum, { events }) => sum + events, 0), JSON.parse(text).length)
      }))

    it.effect(`${name} is recorded again byte for byte`, () =>
      Effect.map(record(scenario), (text) => assert.strictEqual(text, recorded(name))))
  }
})
