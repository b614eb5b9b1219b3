/**
 * Writes what `test/fixtures/histories` does not have yet: the histories of new programs in `scripts/histories`.
 *
 *     npm run histories [-- --again]
 *
 * A file that is there is a promise to running instances, and stays as it is. `--again` writes all of them anew; do that
 * only before the release that makes the promise.
 */
import * as Effect from "effect/Effect"
import { existsSync, mkdirSync, writeFileSync } from "node:fs"
import { scenarios } from "./histories/programs.ts"
import { record } from "./histories/record.ts"

const folder = new URL("../../test/fixtures/histories/", import.meta.url)
const again = process.argv.includes("--again")

mkdirSync(folder, { recursive: true })
for (const [name, scenario] of Object.entries(scenarios)) {
  const file = new URL(`${name}.json`, folder)
  if (existsSync(file) && !again) continue
  writeFileSync(file, await Effect.runPromise(record(scenario)))
  console.log(`recorded  ${name}`)
}
