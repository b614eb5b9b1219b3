import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { Declined, gate, Job, makeCalls, queues } from "./utils/tasks.ts"
import type { Act } from "./utils/tasks.ts"

const Long = Task.make("Long", { lease: "1 second" })

const Undo = Activity.make("Undo", { payload: Schema.String })

const Order = Orchestration.make("Order", { payload: Schema.Number, success: Schema.Number, error: Declined })
const Dies = Orchestration.make("Dies", { success: Schema.String })
const Races = Orchestration.make("Races", { success: Schema.Boolean })
const Stop = Signal.make("Stop")
const Waits = Orchestration.make("Waits")
const Shares = Orchestration.make("Shares", { payload: Schema.String, success: Schema.Number, error: Declined })

const orchestrations = Layer.mergeAll(
  Order.toLayer((n) => Effect.map(Effect.all([Job.execute({ n }), Job.execute({ n: n * 10 })]), ([a, b]) => a + b)),
  Dies.toLayer(() =>
    Job.execute({ n: -1 }).pipe(
      Effect.as("no"),
      Effect.orDie,
      Effect.catchDefect((defect) => Effect.succeed(defect instanceof Task.TaskDied ? defect.message : "another one"))
    )
  ),
  Races.toLayer(() =>
    Effect.raceFirst(Effect.as(Long.execute(undefined), false), Effect.as(Stop.wait, true)).pipe(
      Effect.tap(() => Undo.execute("after"))
    )
  ),
  Shares.toLayer((key) => Job.execute({ n: 7 }, { key })),
  Waits.toLayer(() => Long.execute(undefined))
)

/** A process with a runtime, a worker and a publisher. */
const process = (url: string, act: Act, onUndo: (text: string) => Effect.Effect<void>, long: Effect.Effect<void>) => {
  const shared = PrismaProvider.layer({ url, migrate: "none" })
  const runtime = Runtime.layer({
    orchestrations: [Order, Dies, Races, Waits, Shares],
    activities: [Undo, ...Tasks.activities]
  })
    .pipe(
      Layer.provide([orchestrations, Undo.toLayer(onUndo), Tasks.layerActivities]),
      Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 0 }))
    )
  const worker = TaskWorker.layer({ tasks: [Job, Long], gracePeriod: 0 }).pipe(
    Layer.provide([
      Job.toLayer((payload) => Effect.flatMap(Task.Attempt, (attempt) => act(payload, attempt))),
      Long.toLayer(() => long)
    ]),
    Layer.merge(Outbox.publisher()),
    Layer.provide(PgQueue.layer({ queues }))
  )
  return Layer.mergeAll(runtime, worker, Client.layer, Tasks.layer).pipe(
    Layer.provide(shared),
    Layer.provide(Logger.layer([]))
  )
}

const start = Effect.fnUntraced(function*<A, E>(layer: Layer.Layer<A, E>) {
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  return { services: yield* Layer.buildWithScope(layer, scope), stop: Scope.close(scope, Exit.void) }
})

const ok: Act = ({ n }) => Effect.succeed(n)

describe("Tasks: orchestrations", () => {
  it.live(
    "a program runs tasks and receives their results and typed failures",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const act: Act = ({ n }, { attempt }) =>
          n === 70 ? Effect.fail(new Declined({ code: attempt })) : Effect.succeed(n)
        const { services } = yield* start(process(url, act, () => Effect.void, Effect.void))
        const client = Context.get(services, Client.Client)
        assert.strictEqual(yield* client.execute(Order, { instanceId: "a", payload: 4 }), 44)
        const failure = yield* Effect.flip(client.execute(Order, { instanceId: "b", payload: 7 }))
        assert.deepStrictEqual(failure, new Declined({ code: 3 }))
        // One task for each call.
        assert.deepStrictEqual(yield* sql("SELECT count(*)::int AS count FROM queue_tasks"), [{ count: 4 }])
      }))
  )

  it.live(
    "orchestrations with one key share a task, which outlives the call of one of them",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const running = makeCalls<number>()
        const end = gate()
        const act: Act = ({ n }) => running.add(n).pipe(Effect.andThen(end.await), Effect.as(n))
        const { services } = yield* start(process(url, act, () => Effect.void, Effect.void))
        const client = Context.get(services, Client.Client)
        for (const instanceId of ["a", "b", "c"]) yield* client.start(Shares, { instanceId, payload: "today" })
        yield* running.until(1)
        yield* client.terminate("a", "not needed")
        yield* Effect.flip(client.wait(Shares, "a"))
        yield* end.open
        assert.deepStrictEqual([yield* client.wait(Shares, "b"), yield* client.wait(Shares, "c")], [7, 7])
        // One that comes later finds its end.
        assert.strictEqual(yield* client.execute(Shares, { instanceId: "d", payload: "today" }), 7)
        assert.deepStrictEqual(running.calls, [7])
        assert.deepStrictEqual(yield* sql("SELECT key, status FROM queue_tasks"), [{
          key: "today",
          status: "Completed"
        }])
      }))
  )

  it.live("a task that died is a defect that says why", () =>
    Effect.scoped(Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const act: Act = () => Effect.die(new Error("broken"))
      const { services } = yield* start(process(url, act, () => Effect.void, Effect.void))
      const client = Context.get(services, Client.Client)
      assert.include(yield* client.execute(Dies, { instanceId: "d" }), "task \"Job\" died: broken")
    })))

  it.live(
    "a process that ends between the calls and the ends of tasks makes none of them twice",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const running = makeCalls<number>()
        const first = yield* start(
          process(url, ({ n }) => Effect.andThen(running.add(n), Effect.never), () => Effect.void, Effect.void)
        )
        yield* Context.get(first.services, Client.Client).start(Order, { instanceId: "a", payload: 4 })
        yield* running.until(1)
        yield* first.stop
        const second = yield* start(process(url, ok, () => Effect.void, Effect.void))
        assert.strictEqual(yield* Context.get(second.services, Client.Client).wait(Order, "a"), 44)
        assert.deepStrictEqual(
          yield* sql("SELECT status, count(*)::int AS count FROM queue_tasks GROUP BY 1"),
          [{ status: "Completed", count: 2 }]
        )
      }))
  )

  it.live(
    "a task whose call is interrupted is cancelled, and the program continues",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const running = makeCalls<number>()
        const interrupted = makeCalls<number>()
        const undone = makeCalls<string>()
        const long = Effect.andThen(running.add(1), Effect.onInterrupt(Effect.never, () => interrupted.add(1)))
        const { services } = yield* start(process(url, ok, undone.add, long))
        const client = Context.get(services, Client.Client)
        yield* client.start(Races, { instanceId: "r" })
        yield* running.until(1)
        yield* client.send(Stop, "r")
        assert.isTrue(yield* client.wait(Races, "r"))
        yield* interrupted.until(1)
        assert.deepStrictEqual(undone.calls, ["after"])
        assert.deepStrictEqual(yield* sql("SELECT status FROM queue_tasks"), [{ status: "Cancelled" }])
      }))
  )

  it.live(
    "when its orchestration is cancelled, a running task is interrupted, and a waiting one never runs",
    () =>
      Effect.scoped(Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        const running = makeCalls<number>()
        const interrupted = makeCalls<number>()
        const long = Effect.andThen(running.add(1), Effect.onInterrupt(Effect.never, () => interrupted.add(1)))
        const end = gate()
        const { services } = yield* start(process(url, ok, () => end.await, long))
        const client = Context.get(services, Client.Client)
        yield* client.start(Waits, { instanceId: "w" })
        yield* running.until(1)
        yield* client.terminate("w", "not needed")
        yield* interrupted.until(1)
        assert.deepStrictEqual(yield* sql("SELECT status FROM queue_tasks"), [{ status: "Cancelled" }])

        // One that waits: delayed by hand, before a worker could claim it.
        yield* sql(`SELECT FROM dx_create_tasks(jsonb_build_array(jsonb_build_object('name', 'Long', 'payload', 'null',
        'max_attempts', 3, 'queue', 'tasks', 'reply_instance_id', 'w', 'reply_execution_id', 1, 'reply_name', 'm')))`)
        yield* waitUntil(
          Effect.map(sql("SELECT FROM queue_tasks WHERE status = 'Cancelled'"), ({ length }) => length === 2)
        )
        assert.deepStrictEqual(running.calls, [1])
      }))
  )
})
