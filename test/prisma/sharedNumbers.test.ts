/**
 * Numbers that stand in the stored functions and in TypeScript.
 */
import { assert, it } from "@effect/vitest"
import { clockTolerance, suspectGroups } from "../../src/provider/ProviderDriver.ts"
import { ours } from "../utils/migrations.ts"

/** What the pattern captures in all migrations, each once. */
const found = (pattern: RegExp) => [
  ...new Set(ours.flatMap(({ sql }) => [...sql.matchAll(pattern)].map(([, captured]) => captured)))
]

it("stored functions: a turn may be as far from the database's clock as `clockTolerance` says", () => {
  assert.deepStrictEqual(found(/clock_ms\b.*\) > (\d+)/g), [`${clockTolerance}`])
})

it("stored functions: a claim without groups of suspects takes `suspectGroups`", () => {
  assert.deepStrictEqual(found(/p_suspects integer\[\] DEFAULT '(.*?)'/g), [`{${suspectGroups.join(",")}}`])
})
