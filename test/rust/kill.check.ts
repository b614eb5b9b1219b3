import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Ours from "./ours.ts"
import * as Rust from "./Rust.ts"

const held = 10
const instances = Array.from({ length: 50 }, (_, i) => i)

describe("a Rust process is killed", () => {
  it.live(
    `${held} activities and a turn under way: the next one takes over, and TypeScript is not affected`,
    () =>
      Effect.gen(function*() {
        const shared = yield* Rust.open
        const settings = { workerConcurrency: held, workerLockTimeoutMs: 5000 }
        const victim = yield* shared.run({ settings, hang: true })
        const ran: Array<string> = []
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          for (let n = 0; n < held; n++) {
            yield* client.start(Ours.RustSteps, { instanceId: `theirs-${n}`, payload: n })
          }
          const locks = (table: string, count: number) =>
            waitUntil(
              Effect.map(
                shared.sql(
                  `SELECT FROM ${table} WHERE lock_token LIKE 'lock_%'
                   AND locked_until > extract(epoch FROM clock_timestamp()) * 1000`
                ),
                (rows) => rows.length === count
              )
            )
          yield* locks("worker_queue", held)
          yield* client.start(Ours.RustPause, { instanceId: "pause", payload: null })
          yield* locks("instance_locks", 1)

          const ours = yield* Effect.forkChild(
            Effect.forEach(instances, (n) => client.execute(Ours.OurSteps, { instanceId: `ours-${n}`, payload: n }), {
              concurrency: "unbounded"
            })
          )
          yield* waitUntil(Effect.sync(() => ran.length > instances.length))
          yield* victim.kill
          yield* locks("instance_locks", 1)
          assert.deepStrictEqual(yield* Fiber.join(ours), instances.map((n) => n + 5))
          assert.deepStrictEqual([ran.length, new Set(ran).size], [5 * instances.length, 5 * instances.length])

          const next = yield* shared.run({ settings })
          for (let n = 0; n < held; n++) {
            assert.strictEqual(yield* client.wait(Ours.RustSteps, `theirs-${n}`), n + 5)
          }
          assert.strictEqual(yield* client.wait(Ours.RustPause, "pause"), "continued")
          assert.deepStrictEqual([Rust.ran(victim).length, Rust.ran(next).length], [held, 5 * held])
        }).pipe(Effect.provide(Ours.app(shared, ran)))
        assert.deepStrictEqual(
          yield* shared.sql(
            `SELECT (SELECT count(*) FROM orchestrator_queue)::int AS messages,
             (SELECT count(*) FROM worker_queue)::int AS activities, (SELECT count(*) FROM instance_locks)::int AS locks`
          ),
          [{ messages: 0, activities: 0, locks: 0 }]
        )
      })
  )
})
