import { assert, describe, it } from "@effect/vitest"
import { Health } from "duroxide-prisma/observability"
import { Outbox } from "duroxide-prisma/outbox"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import { Task, Tasks } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PgServer from "../utils/PgServer.ts"

const Mail = Task.make("Mail")

/** An application without worker and publisher. */
const open = (options?: Parameters<typeof Health.layerTasks>[0]) =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const services = yield* Layer.build(
      Layer.mergeAll(Health.layerTasks(options), Tasks.layer, Outbox.layer).pipe(
        Layer.provide(PrismaProvider.layerDatabase({ url: test.url, migrate: "none" })),
        Layer.provide(Logger.layer([]))
      )
    )
    const health = Context.get(services, Health.TaskHealth)
    return {
      ...test,
      services,
      tasks: Context.get(services, Tasks.Tasks),
      outbox: Context.get(services, Outbox.Outbox),
      check: Effect.provide(health.check, Logger.layer([]))
    }
  })

const nothing = { tasks: { pending: 0, running: 0, dead: 0 }, outbox: { waiting: 0, delayed: 0, failing: 0 } }

describe("Health.layerTasks:", () => {
  it.live("is unhealthy while due messages and tasks wait too long, and reports dead tasks", () =>
    Effect.gen(function*() {
      const { check, outbox, sql, tasks } = yield* open()
      const empty = yield* check
      assert.deepStrictEqual(empty.problems, [])
      assert.deepInclude(empty.report!.tasks, nothing.tasks)
      assert.deepInclude(empty.report!.outbox, nothing.outbox)

      const id = yield* tasks.create(Mail, {})
      yield* tasks.create(Mail, { delay: "1 hour" })
      yield* outbox.add("orders", { kind: "order_placed" })
      const fresh = yield* check
      assert.deepStrictEqual(fresh.problems, [])
      assert.strictEqual(fresh.report!.tasks.pending, 2)
      assert.deepInclude(fresh.report!.outbox, { waiting: 2, delayed: 1 })

      yield* sql("UPDATE queue_tasks SET run_at = now() - interval '400 seconds' WHERE id = $1", [id])
      yield* sql("UPDATE queue_outbox SET deliver_at = now() - interval '70 seconds' WHERE queue = 'orders'")
      const { problems } = yield* check
      assert.lengthOf(problems, 2)
      assert.match(
        problems[0]!,
        /^the oldest message of the outbox has waited for 7\d s, more than 65 s: see duroxide-prisma queues$/
      )
      assert.match(
        problems[1]!,
        /^the oldest task has waited for 7 min, more than 5 min: see duroxide-prisma tasks --status pending$/
      )

      yield* sql("UPDATE queue_tasks SET status = 'Dead', look_at = NULL, dead_at = now() WHERE id = $1", [id])
      const { report, problems: [, ...others] } = yield* check
      assert.deepStrictEqual(others, [])
      assert.deepInclude(report!.tasks, { pending: 1, dead: 1, oldestAgeMs: 0 })
    }).pipe(Effect.scoped))

  it.live("its limits can be set", () =>
    Effect.gen(function*() {
      const { check, sql, tasks } = yield* open({ longestWait: "1 hour", longestSend: "1 hour" })
      yield* tasks.create(Mail, {})
      yield* sql("UPDATE queue_tasks SET run_at = now() - interval '400 seconds'")
      yield* sql("UPDATE queue_outbox SET deliver_at = now() - interval '70 seconds'")
      assert.deepStrictEqual((yield* check).problems, [])
      const error = yield* Effect.flip(open({ longestWait: -1 }))
      assert.deepInclude("reason" in error ? error.reason : {}, { _tag: "InvalidInput", field: "longestWait" })
    }).pipe(Effect.scoped))

  it.live("is unhealthy when the database cannot be read", () =>
    Effect.gen(function*() {
      const { check, sql } = yield* open()
      yield* sql("ALTER TABLE queue_tasks RENAME TO queue_tasks_away")
      assert.deepStrictEqual(yield* check, { report: null, problems: ["the database of queues did not answer"] })
    }).pipe(Effect.scoped))

  it.live("Health.check includes it, if it is in the context", () =>
    Effect.gen(function*() {
      const provider = yield* Layer.build(
        FromDriver.layer().pipe(Layer.provide(MemoryDriver.layer), Layer.provide(Logger.layer([])))
      )
      assert.isNull((yield* Effect.provide(Health.check, provider)).queues)
      const report = {
        tasks: { pending: 1, running: 0, dead: 0, oldestAgeMs: 900_000 },
        outbox: { waiting: 0, delayed: 0, failing: 0, oldestAgeMs: 0 }
      }
      const health = Health.TaskHealth.of({ check: Effect.succeed({ report, problems: ["late"] }) })
      const both = yield* Health.check.pipe(
        Effect.provideService(Health.TaskHealth, health),
        Effect.provide(provider)
      )
      assert.deepStrictEqual([both.status, both.problems, both.queues], ["unhealthy", ["late"], report])
    }).pipe(Effect.scoped))
})
