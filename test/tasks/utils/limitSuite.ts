/**
 * What limits of tasks promise, whatever server carries their wake-ups.
 */
import { assert, describe, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { Task } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { waitUntil } from "../../utils/waitUntil.ts"
import { gate, open as openTasks } from "./tasks.ts"
import type { Server } from "./tasks.ts"

export const Call = Task.make("Call", {
  payload: { tenant: Schema.String, n: Schema.Int },
  limitKey: ({ tenant }) => tenant,
  // No heartbeat comes between the end of a lease and the next attempt: it would renew the lease.
  lease: "5 minutes"
})

const numbers = (count: number) => Array.from({ length: count }, (_, i) => i)

const calls = (tenant: string, count: number, from = 0) =>
  numbers(count).map((n) => ({ payload: { tenant, n: from + n } }))

const open = Effect.fnUntraced(function*(server: Server) {
  const app = yield* openTasks(server)
  const admin = Context.get(
    yield* Layer.build(
      Layer.provide(PrismaProvider.layer({ url: app.url, migrate: "none" }), Logger.layer([]))
    ),
    Admin.Admin
  )
  const running = new Map<string, string>()
  const begun: Array<string> = []
  const most = { all: 0, ofKey: 0 }
  /** A worker of calls that counts those at once, of all workers. */
  const callWorker = (
    run: (payload: { readonly tenant: string; readonly n: number }) => Effect.Effect<void> = () => Effect.yieldNow,
    concurrency = 10
  ) =>
    app.worker(
      { tasks: [Call], gracePeriod: 0, concurrency },
      Call.toLayer((payload) =>
        Effect.gen(function*() {
          const id = `${payload.tenant}-${payload.n}`
          running.set(id, payload.tenant)
          begun.push(id)
          most.all = Math.max(most.all, running.size)
          most.ofKey = Math.max(most.ofKey, [...running.values()].filter((key) => key === payload.tenant).length)
          yield* Effect.ensuring(run(payload), Effect.sync(() => running.delete(id)))
        })
      )
    )
  const waiting = Effect.map(admin.getLimit("task", "Call"), (limit) => limit!.waiting)
  const queued = Effect.map(
    app.sql<{ count: number }>(
      `SELECT (SELECT count(*) FROM queue_messages)::int
        + (SELECT count(*) FROM queue_outbox WHERE sent_at IS NULL)::int AS count`
    ),
    ([row]) => row!.count
  )
  return { ...app, admin, running, begun, most, callWorker, waiting, queued }
})

export const limitSuite = (name: string, server: Server) => {
  const test = (
    title: string,
    body: (app: Effect.Success<ReturnType<typeof open>>) => Effect.Effect<void, unknown, any>
  ) =>
    it.live(
      title,
      () => Effect.scoped(Effect.flatMap(open(server), body)) as Effect.Effect<void, unknown>
    )

  describe(`Limits of tasks (${name})`, () => {
    test("no more run at once than the bounds allow, in all and of a key, by all workers; each runs once", (app) =>
      Effect.gen(function*() {
        yield* app.admin.setLimit("task", "Call", { total: { concurrency: 5 }, eachKey: { concurrency: 2 } })
        yield* app.publisher
        yield* app.callWorker(() => Effect.sleep("3 millis"))
        yield* app.callWorker(() => Effect.sleep("2 millis"))
        const ids = yield* Effect.map(
          Effect.forEach(["a", "b", "c", "d"], (tenant) => app.tasks.createMany(Call, calls(tenant, 30))),
          (all) => all.flat()
        )
        yield* Effect.forEach(ids, (id) => app.tasks.wait(Call, id), { concurrency: "unbounded" })
        assert.lengthOf(app.begun, 120)
        assert.lengthOf([...new Set(app.begun)], 120)
        assert.isAtMost(app.most.all, 5)
        assert.isAtMost(app.most.ofKey, 2)
        assert.isAtLeast(app.most.all, 3, "they did not run at once: the test showed nothing")
        assert.deepInclude(yield* app.admin.getLimit("task", "Call"), { inUse: 0, waiting: 0 })
      }))

    test("those that wait leave their queue, and hold up no other task of it", (app) =>
      Effect.gen(function*() {
        const Other = Task.make("Other", { success: Schema.Number })
        const held = gate()
        yield* app.admin.setLimit("task", "Call", { total: { concurrency: 1 } })
        yield* app.publisher
        let begun = 0
        yield* app.worker(
          { tasks: [Call, Other], gracePeriod: 0, concurrency: 2 },
          Layer.merge(
            Call.toLayer(() => Effect.suspend(() => Effect.andThen(Effect.sync(() => begun++), held.await))),
            Other.toLayer(() => Effect.succeed(7))
          )
        )
        const first = yield* app.tasks.createMany(Call, calls("a", 200))
        const other = yield* app.tasks.create(Other, {})
        assert.strictEqual(yield* app.tasks.wait(Other, other), 7)
        // At most the message of the one that runs is left.
        yield* waitUntil(Effect.map(app.queued, (count) => count <= 1))
        assert.strictEqual(begun, 1)
        assert.strictEqual(yield* app.waiting, 199)
        yield* held.open
        yield* Effect.forEach(first, (id) => app.tasks.wait(Call, id), { concurrency: "unbounded" })
        assert.strictEqual(begun, 200)
      }))

    test("a key with one task waits for one of each other key, however many of these wait", (app) =>
      Effect.gen(function*() {
        yield* app.admin.setLimit("task", "Call", { total: { concurrency: 1 } })
        yield* app.publisher
        const held = gate()
        yield* app.callWorker(() => held.await)
        yield* app.tasks.createMany(Call, calls("big", 300))
        yield* waitUntil(Effect.sync(() => app.begun.length === 1))
        const small = yield* app.tasks.createMany(Call, [...calls("one", 1), ...calls("two", 1)])
        yield* held.open
        yield* Effect.forEach(small, (id) => app.tasks.wait(Call, id))
        const [one, two] = [app.begun.indexOf("one-0"), app.begun.indexOf("two-0")]
        // The one that ran, then one of each key.
        assert.isAtMost(Math.max(one, two), 3)
      }))

    test("a rate: in no time begin more than its tokens, those that wait begin when one is back", (app) =>
      Effect.gen(function*() {
        const [burst, count, perMs] = [3, 10, 500]
        yield* app.admin.setLimit("task", "Call", { total: { rate: { count, per: perMs, burst } } })
        yield* app.publisher
        yield* app.callWorker()
        yield* app.callWorker()
        const ids = yield* app.tasks.createMany(Call, calls("a", 25))
        yield* Effect.forEach(ids, (id) => app.tasks.wait(Call, id), { concurrency: "unbounded" })
        const times = yield* app.sql<{ ms: number }>(
          "SELECT (extract(epoch FROM started_at) * 1000)::float8 AS ms FROM queue_tasks ORDER BY 1"
        )
        for (const [i, from] of times.entries()) {
          for (const [j, to] of times.entries()) {
            if (j < i) continue
            assert.isAtMost(j - i + 1, burst + Math.floor((to.ms - from.ms + 1) * count / perMs))
          }
        }
      }))

    test("limits change while workers run: raised, more begin at once; removed, all do", (app) =>
      Effect.gen(function*() {
        const held = gate()
        yield* app.publisher
        yield* app.callWorker(() => held.await, 20)
        yield* app.callWorker(() => held.await, 20)
        // Some run, some wait already.
        yield* app.tasks.createMany(Call, calls("a", 10))
        yield* waitUntil(Effect.sync(() => app.running.size === 10))
        yield* app.admin.setLimit("task", "Call", { total: { concurrency: 3 } })
        yield* app.tasks.createMany(Call, calls("b", 25))
        assert.deepInclude(yield* app.admin.getLimit("task", "Call"), { inUse: 10, waiting: 25 })
        yield* app.admin.setLimit("task", "Call", { total: { concurrency: 18 } })
        yield* waitUntil(Effect.sync(() => app.running.size === 18))
        assert.deepInclude(yield* app.admin.getLimit("task", "Call"), { inUse: 18, waiting: 17 })
        assert.isTrue(yield* app.admin.removeLimit("task", "Call"))
        yield* waitUntil(Effect.sync(() => app.running.size === 35))
        yield* held.open
        yield* waitUntil(Effect.sync(() => app.running.size === 0))
      }))

    test("a failed attempt gives its slot to another task; the next attempt waits for one", (app) =>
      Effect.gen(function*() {
        const Fails = Task.make("Fails", { error: Schema.String, retry: { maxAttempts: 3 } })
        yield* app.admin.setLimit("task", "Fails", { total: { concurrency: 1 } })
        yield* app.publisher
        let [running, most, begun] = [0, 0, 0]
        yield* app.worker(
          { tasks: [Fails] },
          Fails.toLayer(() =>
            Effect.gen(function*() {
              most = Math.max(most, ++running)
              begun++
              yield* Effect.sleep("5 millis")
              running--
              return yield* Effect.fail("no")
            })
          )
        )
        const ids = yield* app.tasks.createMany(Fails, numbers(5).map(() => ({})))
        yield* Effect.forEach(ids, (id) => Effect.flip(app.tasks.wait(Fails, id)), { concurrency: "unbounded" })
        assert.strictEqual(begun, 15)
        assert.strictEqual(most, 1)
        assert.deepInclude(yield* app.admin.getLimit("task", "Fails"), { inUse: 0, waiting: 0 })
      }))

    test("a cancelled task leaves its slot, and one that waits never runs", (app) =>
      Effect.gen(function*() {
        yield* app.admin.setLimit("task", "Call", { total: { concurrency: 1 } })
        yield* app.publisher
        const held = gate()
        yield* app.callWorker(({ n }) => n === 2 ? held.open : Effect.never)
        const [first] = yield* app.tasks.createMany(Call, calls("a", 1))
        yield* waitUntil(Effect.sync(() => app.begun.length === 1))
        const [second, third] = yield* app.tasks.createMany(Call, calls("a", 2, 1))
        yield* waitUntil(Effect.map(app.waiting, (count) => count === 2))
        assert.isTrue(yield* app.tasks.cancel(second!, "not needed"))
        assert.isTrue(yield* app.tasks.cancel(first!, "not needed"))
        yield* app.tasks.wait(Call, third!)
        assert.deepStrictEqual(app.begun, ["a-0", "a-2"])
      }))

    test("the slot of a lost attempt goes to the next attempt at its task", (app) =>
      Effect.gen(function*() {
        yield* app.admin.setLimit("task", "Call", { total: { concurrency: 1 } })
        yield* app.publisher
        yield* app.callWorker(({ n }) => n === 0 && app.begun.length === 1 ? Effect.never : Effect.void)
        const [first] = yield* app.tasks.createMany(Call, calls("a", 1))
        yield* waitUntil(Effect.sync(() => app.begun.length === 1))
        const [second] = yield* app.tasks.createMany(Call, calls("a", 1, 1))
        yield* app.sql("UPDATE queue_tasks SET worker_id = 'a dead one' WHERE id = $1", [first])
        yield* app.endLease(first!)
        yield* app.tasks.wait(Call, first!)
        yield* app.tasks.wait(Call, second!)
        assert.deepStrictEqual(yield* app.outcomes(first!), ["Lost", "Completed"])
        assert.deepStrictEqual(app.begun, ["a-0", "a-0", "a-1"])
      }))
  })
}
