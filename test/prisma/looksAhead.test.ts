import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { counting, queues } from "../utils/countedClaims.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"

const future = "now() + interval '1 hour'"

describe("claims that find nothing look ahead:", () => {
  for (const one of queues) {
    const { insert, queue } = one
    it.live(`${queue}: once in ten seconds, and at once when the clock was set back`, () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const run = yield* session(test)
        const claiming = counting(run, one)
        const setting = `duroxide_prisma.${queue}_ahead`
        /** Moves the time of the last look; by hours forward: as if the clock had been set back by them. */
        const lookedAt = (offset: string) =>
          run(
            `SELECT set_config('${setting}', ARRAY[one.looked[1], (one.looked[2]::bigint + ${offset})::text]::text, false)
             FROM (SELECT current_setting('${setting}')::text[]) AS one (looked)`
          )

        yield* test.sql(insert(300, future))
        const first = yield* claiming
        assert.isAtLeast(first.read, 100)
        assert.strictEqual(first.claimed, 0, "what is to wait waits")
        const next = yield* claiming
        assert.isBelow(next.read, 10)

        yield* test.sql(insert(1, future, future))
        assert.strictEqual((yield* claiming).claimed, 0)
        yield* lookedAt("-10000")
        assert.strictEqual((yield* claiming).claimed, 0, "behind 300 timers of the same time")
        yield* test.sql(`DELETE FROM ${queue} WHERE created_at < visible_at`)
        yield* lookedAt("3600000")
        assert.strictEqual((yield* claiming).claimed, 1)

        // More than one look gives the present time.
        yield* test.sql(insert(250, future, future))
        yield* lookedAt("3600000")
        let claims = 0
        while ((yield* claiming).claimed > 0) claims++
        assert.strictEqual(claims, 250)
      }))
  }
})
