import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as TestClock from "effect/testing/TestClock"
import * as Database from "../../src/prisma/Database.ts"
import * as Horizon from "../../src/prisma/internal/horizon.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const pile = (test: PgServer.TestDatabase) =>
  Effect.gen(function*() {
    yield* test.sql(`INSERT INTO worker_queue (work_item, visible_at, created_at, route)
      SELECT '{}', now(), now(), 'Step' FROM generate_series(1, 12000)`)
    yield* test.sql("DELETE FROM worker_queue")
    yield* waitUntil(Effect.map(
      test.sql<{ readonly dead: number }>(
        "SELECT pg_stat_get_dead_tuples('worker_queue'::regclass)::integer AS dead, pg_stat_clear_snapshot()::text"
      ),
      ([row]) => row!.dead >= 12_000
    )).pipe(TestClock.withLive)
  })

describe("the holder of dead rows:", () => {
  it.effect("named once it stays, again after growing pauses, and forgotten when it ends", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const database = yield* Database.make({ url: test.url, schema: test.schema })
      const lines: Array<Readonly<Record<string, unknown>>> = []
      const logger = Logger.make(({ fiber }) => {
        lines.push(fiber.getRef(References.CurrentLogAnnotations))
      })
      const looks = Horizon.makeLook(database).pipe(Effect.provide(Logger.layer([logger])))
      const look = Effect.andThen(looks, TestClock.adjust("5 minutes"))
      const run = yield* session(test)
      yield* run("SET LOCAL application_name = 'left open'")
      const [{ pid }] = yield* run("SELECT pg_backend_pid()::text AS pid, pg_current_xact_id()::text AS began")
      // Minutes of this test take milliseconds, so short transactions of others, autovacuum for example, seem to stay.
      const own = () => lines.splice(0).filter((line) => line["id"] === pid)
      const warnings = Effect.sync(() => own().length)
      yield* look
      yield* look
      assert.strictEqual(yield* warnings, 0, "too few dead rows to matter")

      yield* pile(test)
      yield* look
      assert.strictEqual(yield* warnings, 0, "it may end at once")
      yield* look
      const [line, ...more] = own()
      assert.deepStrictEqual(more, [])
      assert.deepInclude(line, { application_name: "left open", holder: "transaction", id: pid })
      assert.isAtLeast(Number(line!["dead_rows"]), 12_000)
      assert.notInclude(JSON.stringify(line), "SELECT")

      // After 10, then 20 minutes.
      const pauses = []
      for (let i = 0; i < 7; i++) {
        yield* look
        pauses.push(yield* warnings)
      }
      assert.deepStrictEqual(pauses, [0, 1, 0, 0, 0, 1, 0])

      yield* run("COMMIT")
      for (let i = 0; i < 9; i++) yield* look
      assert.strictEqual(yield* warnings, 0)
    }))
})
