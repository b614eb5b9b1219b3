import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Cli from "../cli/cli.ts"
import { encrypted } from "../payloads/utils.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { queues } from "./utils/tasks.ts"

const Render = Task.make("Render", {
  payload: Schema.String,
  success: Schema.String,
  lease: "1 second",
  retry: { maxAttempts: 1 }
})
const Charge = Activity.make("Charge", { success: Schema.String })
const Waits = Orchestration.make("Waits", { payload: Schema.Literals(["own", "shared"]), success: Schema.String })
const Pair = Orchestration.make("Pair", { success: Schema.String })

const keyOf = (which: "own" | "shared") => which === "shared" ? { key: "k" } : {}

/** A process whose tasks wait for `opened`, and die if they are in `deadly`. */
const openWith = Effect.fnUntraced(function*(payloads: Layer.Layer<never> | ReturnType<typeof encrypted>) {
  const { sql, url } = yield* PgServer.database
  const opened = yield* Deferred.make<void>()
  const deadly = new Set<string>()
  const runs: Array<string> = []
  const charges: Array<string> = []
  const runtime = Runtime.layer({ orchestrations: [Waits, Pair], activities: [Charge, ...Tasks.activities] }).pipe(
    Layer.provide([
      Waits.toLayer((which) =>
        Effect.map(Effect.all([Charge.execute(), Render.execute("a", keyOf(which))]), ([, text]) => text)
      ),
      Pair.toLayer(() =>
        Effect.map(
          Effect.all([Render.execute("a"), Render.execute("b"), Render.execute("c")], { concurrency: "unbounded" }),
          (texts) => texts.join()
        )
      ),
      Charge.toLayer(() => Effect.map(Activity.Call, ({ idempotencyKey }) => (charges.push(idempotencyKey), "paid"))),
      Tasks.layerActivities
    ]),
    Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 0 }))
  )
  const worker = TaskWorker.layer({ tasks: [Render], gracePeriod: 0 }).pipe(
    Layer.provide(Render.toLayer((text) =>
      Effect.gen(function*() {
        const { taskId } = yield* Task.Attempt
        runs.push(`${text} ${taskId}`)
        if (deadly.has(text)) return yield* Effect.die(new Error("no ink"))
        yield* Deferred.await(opened)
        return `${text} is done`
      })
    )),
    Layer.merge(Outbox.publisher()),
    Layer.provide(PgQueue.layer({ queues }))
  )
  const services = yield* Layer.build(
    Layer.mergeAll(runtime, worker, Client.layer, Tasks.layer).pipe(
      Layer.provideMerge(PrismaProvider.layer({ url, migrate: "none" })),
      Layer.provide([payloads, Logger.layer([])])
    )
  )
  const has = (query: string) => waitUntil(Effect.map(sql(`SELECT FROM ${query}`), ({ length }) => length > 0))
  return {
    admin: Context.get(services, Admin.Admin),
    client: Context.get(services, Client.Client),
    tasks: Context.get(services, Tasks.Tasks),
    sql,
    url,
    opened,
    deadly,
    runs,
    charges,
    has,
    isWaiting: has("history WHERE event_type = 'ExternalSubscribedPersistent'")
  }
})

const open = openWith(Layer.empty)

const ends = { timeout: "20 seconds" } as const

describe("Admin.retry: tasks", () => {
  for (const which of ["own", "shared"] as const) {
    it.live(
      which === "shared"
        ? "a task that waits or runs, and is awaited: of an instance that was terminated"
        : "a task that is dead or was cancelled, and is awaited: with the end of its instance",
      () =>
        Effect.scoped(Effect.gen(function*() {
          const app = yield* open
          yield* app.client.start(Waits, { instanceId: "w", payload: which })
          yield* app.isWaiting
          yield* app.has("queue_tasks WHERE status = 'Running'")
          yield* app.client.terminate("w", "by mistake")
          yield* Effect.exit(app.client.wait(Waits, "w"))
          if (which === "own") yield* app.has("queue_tasks WHERE status = 'Cancelled'")
          const plan = yield* app.admin.retry("w", { dryRun: true })
          const task = which === "own" ? { id: app.runs[0]!.slice(2), key: null } : { id: null, key: "k" }
          assert.deepStrictEqual(plan.instances.map(({ tasks }) => tasks), [[{ ...task, name: "Render", eventId: 4 }]])
          if (which === "own") {
            const said = yield* Cli.run(`retry w --dry-run --url ${app.url}`)
            assert.include(
              said.stdout,
              "  waits again for tasks, which run again, under the same id, if they are dead or were cancelled: " +
                `Render ${task.id} (event 4)\n`
            )
          }
          yield* app.admin.retry("w")
          yield* Deferred.succeed(app.opened, undefined)
          assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
          assert.lengthOf(app.charges, 1)
          assert.lengthOf(new Set(app.runs), 1)
        }))
    )
  }

  it.live("a task that has completed, and is awaited: since the end of its instance", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open
      yield* app.client.start(Waits, { instanceId: "w", payload: "shared" })
      yield* app.isWaiting
      yield* app.client.terminate("w", "by mistake")
      yield* Effect.exit(app.client.wait(Waits, "w"))
      yield* Deferred.succeed(app.opened, undefined)
      yield* app.has("queue_tasks WHERE status = 'Completed'")
      yield* app.admin.retry("w")
      assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
      assert.lengthOf(app.runs, 1)
    })))

  for (const isRedriven of [true, false]) {
    it.live(
      isRedriven
        ? "a task that has completed, and is awaited: after a redrive"
        : "a task that is dead or was cancelled, and is awaited: under the same id",
      () =>
        Effect.scoped(Effect.gen(function*() {
          const app = yield* open
          yield* Deferred.succeed(app.opened, undefined)
          app.deadly.add("a")
          yield* app.client.start(Waits, { instanceId: "w", payload: "own" })
          yield* Effect.exit(app.client.wait(Waits, "w"))
          app.deadly.clear()
          if (isRedriven) {
            yield* app.tasks.redrive({ name: "Render" })
            yield* app.has("queue_tasks WHERE status = 'Completed'")
          }
          yield* app.admin.retry("w")
          assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
          assert.lengthOf(app.runs, 2)
          assert.lengthOf(new Set(app.runs), 1)
        }))
    )
  }

  it.live("a task that is dead or was cancelled, and is awaited: one that a call with a key found", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open
      yield* Deferred.succeed(app.opened, undefined)
      app.deadly.add("a")
      yield* app.tasks.create(Render, { payload: "a", key: "k" })
      yield* app.has("queue_tasks WHERE status = 'Dead'")
      yield* app.client.start(Waits, { instanceId: "w", payload: "shared" })
      yield* Effect.exit(app.client.wait(Waits, "w"))
      app.deadly.clear()
      yield* app.admin.retry("w")
      assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
    })))

  it.live("a task that is dead or was cancelled, and is awaited: beside a dead one, from the event that a refusal names", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open
      app.deadly.add("c")
      yield* app.client.start(Pair, { instanceId: "p" })
      yield* Effect.exit(app.client.wait(Pair, "p"))
      const { message } = yield* Effect.flip(app.admin.retry("p"))
      const from = Number(/Retry from event (\d+)/.exec(message)![1])
      app.deadly.clear()
      yield* Deferred.succeed(app.opened, undefined)
      yield* app.admin.retry("p", { from })
      assert.strictEqual(yield* app.client.wait(Pair, "p", ends), "a is done,b is done,c is done")
      assert.lengthOf(yield* app.sql("SELECT FROM queue_tasks"), 3)
    })))

  it.live("a task that has completed, and is awaited: with a cut between its creation and the wait", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open
      yield* app.client.start(Waits, { instanceId: "w", payload: "own" })
      yield* app.isWaiting
      yield* Deferred.succeed(app.opened, undefined)
      yield* app.has("queue_tasks WHERE status = 'Completed'")
      yield* app.client.wait(Waits, "w")
      yield* app.sql("UPDATE executions SET status = 'Failed'")
      yield* app.sql(
        `UPDATE history SET event_type = 'OrchestrationFailed', event_data = jsonb_set(
           event_data::jsonb - 'output', '{type}', '"OrchestrationFailed"'
         )::jsonb || '{"details": {"Application": {"kind": "OrchestrationFailed", "message": "", "retryable": false}}}'
         WHERE event_type = 'OrchestrationCompleted'`
      )
      const events = yield* app.admin.readHistory("w")
      const wait = events.findIndex(({ _tag }) => _tag === "ExternalSubscribedPersistent")
      yield* app.admin.retry("w", { from: events[wait - 1]!.eventId })
      assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
      assert.lengthOf(app.runs, 1)
    })))

  it.live("a task that is awaited, and was deleted: the refusal names the event before its call", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open
      yield* app.client.start(Waits, { instanceId: "w", payload: "own" })
      yield* app.isWaiting
      yield* app.client.terminate("w", "by mistake")
      yield* Effect.exit(app.client.wait(Waits, "w"))
      yield* app.has("queue_tasks WHERE status = 'Cancelled'")
      yield* app.sql("DELETE FROM queue_tasks")
      const { message } = yield* Effect.flip(app.admin.retry("w"))
      const from = Number(/retry from event (\d+)/.exec(message)![1])
      yield* Deferred.succeed(app.opened, undefined)
      yield* app.admin.retry("w", { from })
      assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
      assert.lengthOf(app.charges, 1)
    })))

  it.live("a task that is dead or was cancelled, and is awaited: where the answer of its creation is missing", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open
      yield* app.client.start(Waits, { instanceId: "w", payload: "own" })
      yield* app.isWaiting
      yield* app.client.terminate("w", "by mistake")
      yield* Effect.exit(app.client.wait(Waits, "w"))
      yield* app.has("queue_tasks WHERE status = 'Cancelled'")
      const events = yield* app.admin.readHistory("w")
      const created = events.find((event) => event._tag === "ActivityScheduled" && event.name.includes("CreateTask"))!
      yield* app.sql("DELETE FROM history WHERE event_data::jsonb->>'source_event_id' = $1", [String(created.eventId)])
      yield* app.sql("DELETE FROM history WHERE event_type LIKE 'ExternalSubscribed%'")
      yield* Deferred.succeed(app.opened, undefined)
      yield* app.admin.retry("w", { from: created.eventId })
      assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
      assert.lengthOf(yield* app.sql("SELECT FROM queue_tasks"), 1)
    })))

  it.live("a task that is dead or was cancelled, and is awaited: with sealed payloads", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* openWith(encrypted("2026"))
      yield* Deferred.succeed(app.opened, undefined)
      app.deadly.add("a")
      yield* app.client.start(Waits, { instanceId: "w", payload: "own" })
      yield* Effect.exit(app.client.wait(Waits, "w"))
      app.deadly.clear()
      yield* app.admin.retry("w")
      assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
      assert.lengthOf(new Set(app.runs), 1)
    })))

  for (const which of ["own", "shared"] as const) {
    it.live(`with sealed payloads, the ${which} task of a terminated instance leaves no instance that waits forever`, () =>
      Effect.scoped(Effect.gen(function*() {
        const app = yield* openWith(encrypted("2026"))
        yield* app.client.start(Waits, { instanceId: "w", payload: which })
        yield* app.isWaiting
        yield* app.client.terminate("w", "by mistake")
        yield* Effect.exit(app.client.wait(Waits, "w"))
        yield* Deferred.succeed(app.opened, undefined)
        if (which === "own") yield* app.admin.retry("w")
        else {
          // What the key of the task is cannot be read.
          const { message } = yield* Effect.flip(app.admin.retry("w"))
          yield* app.admin.retry("w", { from: Number(/retry from event (\d+)/.exec(message)![1]) })
        }
        assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
        assert.lengthOf(app.charges, 1)
        assert.lengthOf(yield* app.sql("SELECT FROM queue_tasks"), 1)
      })))
  }
})

describe("Admin.fork: tasks", () => {
  it.live.each(
    [
      ["plain", open],
      ["sealed", openWith(encrypted("2026"))]
    ] as const
  )(
    "an open call of a task is refused, also where its wait has not begun: %s payloads",
    ([, opening]) =>
      Effect.scoped(Effect.gen(function*() {
        const app = yield* opening
        yield* app.client.start(Waits, { instanceId: "w", payload: "own" })
        yield* app.isWaiting
        const events = yield* app.admin.readHistory("w")
        const wait = events.findIndex(({ _tag }) => _tag === "ExternalSubscribedPersistent")
        for (const index of [wait - 1, wait]) {
          const { message } = yield* Effect.flip(app.admin.fork("w", { atEvent: events[index]!.eventId, newId: "f" }))
          assert.include(message, "it waits for a task")
        }
        const created = events.findLast(({ _tag }) => _tag === "ActivityScheduled")!
        yield* app.admin.fork("w", { atEvent: created.eventId, newId: "f" })
        yield* Deferred.succeed(app.opened, undefined)
        assert.strictEqual(yield* app.client.wait(Waits, "f", ends), "a is done")
        assert.strictEqual(yield* app.client.wait(Waits, "w", ends), "a is done")
      }))
  )
})
