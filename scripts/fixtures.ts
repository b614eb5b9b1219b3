/**
 * Replays the recordings of the reference runtime under `test/fixtures/duroxide` and compares every decision.
 *
 *     npm run fixtures [-- <name> …]
 *
 * Prints one line for each recording, and at the end `fixtures: N replayed, M not yet, K failed`. Exits with 1 when a
 * recording goes another way, when it stands in neither of the two tables or in both, and when one of a table is not
 * there. With names, only those are replayed.
 */
import * as Effect from "effect/Effect"
import { readdirSync } from "node:fs"
import { notYet } from "./fixtures/notYet.ts"
import { read } from "./fixtures/recording.ts"
import { replay, scenarios } from "./fixtures/scenarios.ts"

const folder = new URL("../../test/fixtures/duroxide/", import.meta.url)
const wanted = process.argv.slice(2)

const recorded = readdirSync(folder)
  .filter((name) => name.endsWith(".json") && !name.startsWith("_"))
  .map((name) => name.slice(0, -".json".length))
const names = wanted.length > 0
  ? wanted
  : [...new Set([...recorded, ...Object.keys(scenarios), ...Object.keys(notYet)])].sort()

/** Why the recording fails; nothing when it replays, undefined when it is not expected to. */
const result = (name: string): Effect.Effect<ReadonlyArray<string> | undefined> => {
  const scenario = scenarios[name]
  if (!recorded.includes(name)) return Effect.succeed(["there is no such recording"])
  if (scenario === undefined) {
    return Effect.succeed(notYet[name] === undefined ? ["it is neither replayed nor listed as not yet"] : undefined)
  }
  if (notYet[name] !== undefined) return Effect.succeed(["it is replayed and listed as not yet"])
  return replay(read(new URL(`${name}.json`, folder)), scenario).pipe(
    Effect.catchDefect((defect) => Effect.succeed([defect instanceof Error ? defect.message : String(defect)]))
  )
}

const main = Effect.gen(function*() {
  const counts = { replayed: 0, notYet: 0, failed: 0 }
  for (const name of names) {
    const problems = yield* result(name)
    if (problems === undefined) {
      counts.notYet++
      console.log(`not yet   ${name}: ${notYet[name]}`)
    } else if (problems.length === 0) {
      counts.replayed++
      console.log(`replayed  ${name}`)
    } else {
      counts.failed++
      console.log(`FAILED    ${name}`)
      for (const problem of problems) console.log(`          ${problem}`)
    }
  }
  console.log(`fixtures: ${counts.replayed} replayed, ${counts.notYet} not yet, ${counts.failed} failed`)
  process.exitCode = counts.failed > 0 ? 1 : 0
})

await Effect.runPromise(main)
