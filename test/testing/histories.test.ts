/**
 * The promise to running instances: what earlier releases recorded, this one goes on with.
 */
import { assert, describe, it } from "@effect/vitest"
import { replayHistory } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import { readdirSync, readFileSync } from "node:fs"
import { scenarios } from "../../scripts/histories/programs.ts"
import { record } from "../../scripts/histories/record.ts"

const folder = new URL("../fixtures/histories/", import.meta.url)

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
