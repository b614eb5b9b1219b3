import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const token = "00000000-0000-4000-8000-000000000000"

/** Each settles messages 1, 2 and 3, in the order in which they are given. */
const settling: Readonly<Record<string, (ids: string) => string>> = {
  deleting: (ids) => `SELECT dx_settle_messages(${ids}, ARRAY['${token}', '${token}', '${token}'], NULL)`,
  extending: (ids) =>
    `SELECT dx_extend_messages(${ids}, ARRAY['${token}', '${token}', '${token}'], '{60000,60000,60000}', '{f,f,f}')`,
  burying: (ids) => `SELECT dx_settle_messages(${ids}, ARRAY['${token}', '${token}', '${token}'], '{"no","no","no"}')`
}

/** Leased messages 1, 2 and 3, and visible ones 4, 5 and 6. */
const open = Effect.gen(function*() {
  const test = yield* PgServer.database
  yield* test.sql(
    `INSERT INTO queue_messages (id, queue, payload, created_at, visible_at, lease_token)
     SELECT g, 'work', '{}', now(), now() + CASE WHEN g <= 3 THEN interval '1 hour' ELSE interval '-1 second' END,
       CASE WHEN g <= 3 THEN '${token}' END
     FROM generate_series(1, 6) AS g`
  )
  return test
})

const isWaiting = ({ sql }: PgServer.TestDatabase, count: number) =>
  waitUntil(Effect.map(
    sql(`SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'`),
    (waiting) => waiting.length === count
  ))

describe("the functions of queues, their locks:", () => {
  for (const [first, one] of Object.entries(settling)) {
    for (const [second, other] of Object.entries(settling)) {
      it.live(`${first} and ${second} with the same messages in opposite orders do not deadlock`, () =>
        Effect.gen(function*() {
          const test = yield* open
          const holder = yield* session(test)
          yield* holder("SELECT FROM queue_messages WHERE id = 2 FOR UPDATE")
          const [here, there] = [yield* session(test), yield* session(test)]
          const both = [
            yield* Effect.forkChild(Effect.tap(here(one("'{1,2,3}'")), () => here("COMMIT"))),
            yield* Effect.forkChild(Effect.tap(there(other("'{3,2,1}'")), () => there("COMMIT")))
          ]
          yield* isWaiting(test, 2)
          yield* holder("COMMIT")
          const outcomes = yield* Effect.forEach(both, Fiber.join)
          assert.deepStrictEqual(outcomes.map(([row]) => Object.values(row).flat().length), [3, 3])
        }).pipe(Effect.scoped))
    }
  }

  it.live("a receive does not wait for messages that others hold, and says that it left some", () =>
    Effect.gen(function*() {
      const test = yield* open
      const holder = yield* session(test)
      yield* holder("SELECT FROM queue_messages WHERE id IN (4, 5) FOR UPDATE")
      const [row] = yield* test.sql<{ readonly out_ids: ReadonlyArray<string>; readonly left: boolean }>(
        `SELECT out_ids, out_next_ms <= out_now_ms AS left FROM dx_receive_messages(10, 'work', '${token}', 60000)`
      )
      assert.deepStrictEqual(row, { out_ids: ["6"], left: true })
    }).pipe(Effect.scoped))

  it.live("receivers at the same time get different messages, and none waits", () =>
    Effect.gen(function*() {
      const test = yield* open
      const [here, there] = [yield* session(test), yield* session(test)]
      const receive = `SELECT out_ids FROM dx_receive_messages(2, 'work', '${token}', 60000)`
      const [mine] = yield* here(receive)
      const [theirs] = yield* there(receive)
      assert.deepStrictEqual([mine.out_ids, theirs.out_ids], [["4", "5"], ["6"]])
    }).pipe(Effect.scoped))

  it.live("redrives at the same time move different messages", () =>
    Effect.gen(function*() {
      const test = yield* open
      yield* test.sql(settling.burying!("'{1,2,3}'"))
      const [here, there] = [yield* session(test), yield* session(test)]
      const redrive = (limit: number) => `SELECT dx_redrive_messages('work', ${limit}) AS moved`
      assert.deepStrictEqual(yield* here(redrive(2)), [{ moved: "2" }])
      assert.deepStrictEqual(yield* there(redrive(2)), [{ moved: "1" }])
    }).pipe(Effect.scoped))
})
