import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { run } from "../programs/wakeups/run.ts"
import type { Options } from "../programs/wakeups/run.ts"
import * as PgServer from "../utils/PgServer.ts"

const program = new URL("../../build/test/programs/wakeups/process.js", import.meta.url)

/** With four instances, each on a database of its own. */
const outcomeOf = (options: Omit<Options, "urls" | "program">) =>
  Effect.gen(function*() {
    const databases = yield* Effect.forEach([1, 2, 3, 4], () => PgServer.database)
    const outcome = yield* Effect.promise(() => run({ ...options, urls: databases.map(({ url }) => url), program }))
    assert.deepStrictEqual(outcome.violations, [])
    return outcome
  }).pipe(Effect.scoped)

describe("Messages of three processes at the moment at which an instance of a fourth one begins to wait", () => {
  it.live(
    "2,000 of them: none waits in the store while its instance waits for it",
    () => Effect.map(outcomeOf({ messages: 2_000 }), ({ messages }) => assert.isAtLeast(messages, 2_000))
  )

  it.live(
    "the listeners' sessions are terminated every 200 ms: nothing is lost",
    () =>
      Effect.map(outcomeOf({ messages: Infinity, seconds: 8, faults: "kills" }), ({ kills, messages }) => {
        assert.isAtLeast(kills, 20)
        assert.isAbove(messages, 20)
      })
  )

  it.live(
    "no hint arrives: nothing is lost, and the fallback look bounds each wait",
    () =>
      Effect.map(outcomeOf({ messages: Infinity, seconds: 6, faults: "drops" }), ({ messages }) => {
        assert.isAbove(messages, 12)
      })
  )
})
