import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Ours from "./ours.ts"
import * as Rust from "./Rust.ts"

const many = Array.from({ length: 100 }, (_, i) => i)

/** The one row of the worker queue, once it was given back for want of a handler. */
const givenBack = ({ sql }: Rust.Shared) =>
  waitUntil(
    Effect.map(
      sql("SELECT FROM worker_queue WHERE attempt_count > 0 AND lock_token IS NULL AND visible_at > now()"),
      (rows) => rows.length === 1
    )
  )

/** As if it had been given back until the next delivery is one too many. */
const wearOut = ({ sql }: Rust.Shared) => sql("UPDATE worker_queue SET attempt_count = 10, visible_at = now()")

describe("side by side", () => {
  it.live(
    `${many.length} + ${many.length} instances at once: each side runs its own, every activity once`,
    () =>
      Effect.gen(function*() {
        const shared = yield* Rust.open
        // Each side has a program of the other one's name.
        const rust = yield* shared.run({ orchestrations: ["RustSteps", "OurSteps"] })
        const ran: Array<string> = []
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          yield* Effect.all([
            Effect.forEach(many, (n) => client.start(Ours.OurSteps, { instanceId: `ours-${n}`, payload: n }), {
              concurrency: 8
            }),
            Effect.forEach(
              many,
              (n) => client.start(Ours.RustSteps, { instanceId: `theirs-${n}`, payload: n, servedBy: "rust" }),
              { concurrency: 8 }
            )
          ], { concurrency: "unbounded" })
          const ours = yield* Effect.forEach(many, (n) => client.wait(Ours.OurSteps, `ours-${n}`), {
            concurrency: "unbounded"
          })
          const theirs = yield* Effect.forEach(many, (n) => client.wait(Ours.RustSteps, `theirs-${n}`), {
            concurrency: "unbounded"
          })
          assert.deepStrictEqual([ours, theirs], [many.map((n) => n + 5), many.map((n) => n + 5)])
        }).pipe(Effect.provide(Ours.app(shared, ran, { trap: true })))

        for (const [side, lines] of [["ours", ran], ["theirs", Rust.ran(rust)]] as const) {
          assert.lengthOf(lines, 5 * many.length)
          assert.lengthOf(new Set(lines), 5 * many.length)
          assert.isTrue(lines.every((line) => line.split(" ")[1]!.startsWith(side)))
        }
        assert.deepStrictEqual(
          yield* shared.sql(
            `SELECT split_part(instance_id, '-', 1) AS side, count(*)::int AS executions,
             min(concat_ws('.', duroxide_version_major, duroxide_version_minor)) AS lowest,
             max(concat_ws('.', duroxide_version_major, duroxide_version_minor)) AS highest
           FROM executions GROUP BY 1 ORDER BY 1`
          ),
          [
            { side: "ours", executions: many.length, lowest: "1000.1", highest: "1000.1" },
            { side: "theirs", executions: many.length, lowest: "0.1", highest: "0.1" }
          ]
        )
        assert.deepStrictEqual(
          yield* shared.sql(
            `SELECT (SELECT count(*) FROM orchestrator_queue)::int AS messages,
             (SELECT count(*) FROM worker_queue)::int AS activities,
             (SELECT count(*) FROM instance_locks)::int AS leases,
             (SELECT count(*) FROM (
               SELECT FROM history WHERE event_data::jsonb ->> 'source_event_id' IS NOT NULL
               GROUP BY instance_id, event_data::jsonb ->> 'source_event_id' HAVING count(*) > 1
             ) AS twice)::int AS twice`
          ),
          [{ messages: 0, activities: 0, leases: 0, twice: 0 }]
        )
      }),
    60_000
  )

  it.live("tags route activities to the other side, both ways, and its built-in ones stay with it", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run()
      const ran: Array<string> = []
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurCall, { instanceId: "ours", payload: 1 })
        yield* client.start(Ours.RustCall, {
          instanceId: "theirs",
          payload: { name: "OurStep", n: 1, tag: Ours.tag },
          servedBy: "rust"
        })
        yield* client.start(Ours.RustClock, { instanceId: "clock", payload: null, servedBy: "rust" })
        assert.strictEqual(yield* client.wait(Ours.OurCall, "ours"), 2)
        assert.strictEqual(yield* client.wait(Ours.RustCall, "theirs"), 2)
        assert.match((yield* client.wait(Ours.RustClock, "clock")).guid, /^[0-9a-f-]{36}$/)
      }).pipe(Effect.provide(Ours.app(shared, ran)))
      assert.deepStrictEqual([ran, Rust.ran(rust)], [["OurStep theirs 1"], ["RustStep ours 1"]])
    }))

  it.live("the other way round: workers of theirs that take a tag only, and what that does to its built-in ones", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run({
        tag: "rust",
        settings: { workerTagFilter: "tags", workerTagFilterTags: ["rust"] }
      })
      const ran: Array<string> = []
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurUntagged, { instanceId: "ours", payload: 1 })
        yield* client.start(Ours.RustSteps, { instanceId: "theirs", payload: 1, servedBy: "rust" })
        assert.strictEqual(yield* client.wait(Ours.OurUntagged, "ours"), 2)
        assert.strictEqual(yield* client.wait(Ours.RustSteps, "theirs"), 6)
        // Nobody is left who could run these: they carry no tag.
        yield* client.start(Ours.RustClock, { instanceId: "clock", payload: null, servedBy: "rust" })
        yield* givenBack(shared)
        const [row] = yield* shared.sql<{ work_item: string }>("SELECT work_item FROM worker_queue")
        assert.include(row!.work_item, "__duroxide_syscall:utc_now_ms")
      }).pipe(Effect.provide(Ours.app(shared, ran, { tags: { _tag: "DefaultOnly" } })))
      assert.deepStrictEqual([ran.length, Rust.ran(rust).length], [1, 5])
    }))

  it.live("without tags: their worker gives ours back and counts, and fails it when it came too often", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurUntagged, { instanceId: "ours", payload: 1 })
        yield* givenBack(shared)
        yield* wearOut(shared)
        const failure = yield* Effect.flip(client.wait(Ours.OurUntagged, "ours"))
        assert.include(failure.message, "poison: activity OurStep#2 exceeded 11 attempts (max 10)")
      }).pipe(Effect.provide(Ours.app(shared)))
    }))

  it.live("without tags: our worker gives theirs back and counts, and fails it when it came too often", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run({ settings: { workerTagFilter: "none" } })
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.RustCall, {
          instanceId: "theirs",
          payload: { name: "RustStep", n: 1 },
          servedBy: "rust"
        })
        yield* givenBack(shared)
        yield* wearOut(shared)
        const { error, status } = yield* Rust.ended(shared, "theirs")
        assert.deepStrictEqual([status, error], [
          "Failed",
          "poison: activity RustStep#2 exceeded 11 attempts (max 10)"
        ])
      }).pipe(Effect.provide(Ours.app(shared, [], { tags: { _tag: "DefaultOnly" } })))
    }))

  it.live("without tags: an activity that both sides have is run by either, once", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run({ activities: ["OurStep"] })
      const ran: Array<string> = []
      const some = many.slice(0, 20)
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.forEach(some, (n) =>
          Effect.all([
            client.start(Ours.OurUntagged, { instanceId: `ours-${n}`, payload: n }),
            client.start(Ours.RustCall, {
              instanceId: `theirs-${n}`,
              payload: { name: "OurStep", n },
              servedBy: "rust"
            })
          ]), { concurrency: 4 })
        const results = yield* Effect.forEach(some, (n) =>
          Effect.all([
            client.wait(Ours.OurUntagged, `ours-${n}`),
            client.wait(Ours.RustCall, `theirs-${n}`)
          ]), { concurrency: "unbounded" })
        assert.deepStrictEqual(results, some.map((n) => [n + 1, n + 1]))
      }).pipe(Effect.provide(Ours.app(shared, ran, { tags: { _tag: "DefaultOnly" } })))
      const all = [...ran, ...Rust.ran(rust)]
      assert.lengthOf(all, 2 * some.length)
      assert.lengthOf(new Set(all), 2 * some.length)
      assert.isAbove(ran.length, 0)
      assert.isAbove(Rust.ran(rust).length, 0)
    }))
})
