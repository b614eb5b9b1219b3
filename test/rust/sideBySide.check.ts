import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Ours from "./ours.ts"
import * as Rust from "./Rust.ts"

const many = Array.from({ length: 100 }, (_, i) => i)

describe("side by side", () => {
  it.live(
    `${many.length} + ${many.length} instances at once, defaults on both sides: each runs its own, every activity once`,
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
              (n) => client.start(Ours.RustSteps, { instanceId: `theirs-${n}`, payload: n }),
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
             (SELECT count(*) FROM instance_locks)::int AS locks,
             (SELECT count(*) FROM (
               SELECT FROM history WHERE event_data::jsonb ->> 'source_event_id' IS NOT NULL
               GROUP BY instance_id, event_data::jsonb ->> 'source_event_id' HAVING count(*) > 1
             ) AS twice)::int AS twice`
          ),
          [{ messages: 0, activities: 0, locks: 0, twice: 0 }]
        )
      })
  )

  it.live("activities go to the other side, in both directions: by servedBy and by tags", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run()
      const ran: Array<string> = []
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const call = (tag: string, instanceId = tag) =>
          client.start(Ours.RustCall, { instanceId, payload: { name: "OurStep", n: 1, tag } })
        yield* client.start(Ours.OurCall, { instanceId: "ours", payload: 1 })
        yield* call("gpu")
        yield* call("duroxide-prisma")
        assert.strictEqual(yield* client.wait(Ours.OurCall, "ours"), 2)
        assert.strictEqual(yield* client.wait(Ours.RustCall, "gpu"), 2)
        assert.strictEqual(yield* client.wait(Ours.RustCall, "duroxide-prisma"), 2)
      }).pipe(Effect.provide(Ours.app(shared, ran, { tags: { _tag: "DefaultAnd", tags: ["gpu"] } })))
      assert.sameMembers(ran, ["OurStep gpu 1", "OurStep duroxide-prisma 1"])
      assert.deepStrictEqual(Rust.ran(rust), ["RustStep ours 1"])
    }))

  it.live("built-in activities of Rust stay with Rust", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.RustClock, { instanceId: "clock", payload: null })
        assert.match((yield* client.wait(Ours.RustClock, "clock")).guid, /^[0-9a-f-]{36}$/)
      }).pipe(Effect.provide(Ours.app(shared)))
    }))

  it.live("an activity of TypeScript without a process waits: Rust never gets it", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run({ activities: ["RustStep", "OurStep"] })
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurSteps, { instanceId: "ours", payload: 1 })
        yield* queued(shared, "OurStep")
        // The Rust worker takes the oldest first, so an activity it runs was enqueued after ours.
        yield* client.start(Ours.OurCall, { instanceId: "later", payload: 1 })
        assert.strictEqual(yield* client.wait(Ours.OurCall, "later"), 2)
        assert.deepStrictEqual(yield* queue(shared), [{ name: "OurStep", tag: "duroxide-prisma", attempts: 0 }])
      }).pipe(Effect.provide(Ours.app(shared, [], { tags: { _tag: "None" } })))
      assert.deepStrictEqual(Rust.ran(rust), ["RustStep later 1"])

      // Its event and the call itself have no tag.
      assert.deepStrictEqual(
        yield* shared.sql(
          `SELECT (SELECT work_item::jsonb -> 'ActivityExecute' -> 'tag' FROM worker_queue) AS called,
           (SELECT event_data::jsonb -> 'tag' FROM history WHERE event_id = 2 AND instance_id = 'ours') AS recorded`
        ),
        [{ called: null, recorded: null }]
      )
      yield* Effect.gen(function*() {
        assert.strictEqual(yield* (yield* Client.Client).wait(Ours.OurSteps, "ours"), 6)
      }).pipe(Effect.provide(Ours.app(shared)))
    }))

  it.live("an activity of Rust without a process waits: TypeScript never gets it", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run({ settings: { workerTagFilter: "none" } })
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.RustCall, { instanceId: "theirs", payload: { name: "RustStep", n: 1 } })
        yield* queued(shared, "RustStep")
        yield* client.start(Ours.OurSteps, { instanceId: "later", payload: 1 })
        assert.strictEqual(yield* client.wait(Ours.OurSteps, "later"), 6)
        assert.deepStrictEqual(yield* queue(shared), [{ name: "RustStep", tag: null, attempts: 0 }])
      }).pipe(Effect.provide(Ours.app(shared)))
      yield* shared.run()
      assert.deepInclude(yield* Rust.ended(shared, "theirs"), { status: "Completed", output: "2" })
    }))

  it.live("an activity that both sides have: calls of TypeScript run there, calls of Rust on either side, once", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run({ activities: ["OurStep"] })
      const ran: Array<string> = []
      const some = many.slice(0, 20)
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.forEach(some, (n) =>
          Effect.all([
            client.start(Ours.OurSteps, { instanceId: `ours-${n}`, payload: n }),
            client.start(Ours.RustCall, { instanceId: `theirs-${n}`, payload: { name: "OurStep", n } })
          ]), { concurrency: 4 })
        const results = yield* Effect.forEach(some, (n) =>
          Effect.all([
            client.wait(Ours.OurSteps, `ours-${n}`),
            client.wait(Ours.RustCall, `theirs-${n}`)
          ]), { concurrency: "unbounded" })
        assert.deepStrictEqual(results, some.map((n) => [n + 5, n + 1]))
      }).pipe(Effect.provide(Ours.app(shared, ran)))
      const all = [...ran, ...Rust.ran(rust)]
      assert.lengthOf(all, 6 * some.length)
      assert.lengthOf(new Set(all), 6 * some.length)
      assert.isTrue(Rust.ran(rust).every((line) => line.split(" ")[1]!.startsWith("theirs")))
    }))

  it.live("an activity that both sides have: calls of Rust run in TypeScript while Rust takes none", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run({ activities: ["OurStep"], settings: { workerTagFilter: "none" } })
      const ran: Array<string> = []
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.RustCall, { instanceId: "theirs", payload: { name: "OurStep", n: 1 } })
        assert.strictEqual(yield* client.wait(Ours.RustCall, "theirs"), 2)
      }).pipe(Effect.provide(Ours.app(shared, ran)))
      assert.deepStrictEqual([ran, Rust.ran(rust)], [["OurStep theirs 1"], []])
    }))

  it.live("an activity that both sides have: calls of Rust run in Rust without a process of TypeScript", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      const rust = yield* shared.run({ activities: ["OurStep"] })
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.RustCall, { instanceId: "theirs", payload: { name: "OurStep", n: 1 } })
        assert.strictEqual(yield* client.wait(Ours.RustCall, "theirs"), 2)
      }).pipe(Effect.provide(Ours.app(shared, [], { tags: { _tag: "None" } })))
      assert.deepStrictEqual(Rust.ran(rust), ["OurStep theirs 1"])
    }))
})

// internal

const queue = ({ sql }: Rust.Shared) =>
  sql(
    `SELECT work_item::jsonb -> 'ActivityExecute' ->> 'name' AS name, tag, attempt_count AS attempts
     FROM worker_queue ORDER BY id`
  )

/** Waits until an activity of that name is in the queue. */
const queued = (shared: Rust.Shared, name: string) =>
  waitUntil(Effect.map(queue(shared), (rows) => rows.some((row) => row.name === name)))
