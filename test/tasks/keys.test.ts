import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration } from "duroxide-prisma"
import { Database } from "duroxide-prisma/prisma"
import { Task } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { process, start } from "./utils/taskProcess.ts"
import { gate } from "./utils/tasks.ts"

const Work = Task.make("Work", { payload: Schema.String, success: Schema.String })
const Say = Activity.make("Say", { payload: Schema.String, success: Schema.String })

const Keyed = Orchestration.make("Keyed", { payload: Schema.String, success: Schema.String })
const Says = Orchestration.make("Says", { success: Schema.String })

const oneSlot = (url: string, work: (text: string) => Effect.Effect<string>) =>
  process({
    url,
    orchestrations: [Keyed, Says],
    activities: [Say],
    handlers: Layer.mergeAll(
      Keyed.toLayer((key) => Work.execute(key, { key })),
      Says.toLayer(() => Say.execute("hello")),
      Say.toLayer(Effect.succeed)
    ),
    tasks: [Work],
    taskHandlers: Work.toLayer(work),
    settings: { workerConcurrency: 1 }
  })

describe("Tasks: calls with keys", () => {
  it.live("calls that wait for their tasks hold no slot of activities", () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const end = gate()
      const { services } = yield* start(oneSlot(url, (text) => Effect.as(end.await, text)))
      const client = Context.get(services, Client.Client)
      const ids = Array.from({ length: 16 }, (_, i) => `key ${i}`)
      for (const id of ids) yield* client.start(Keyed, { instanceId: id, payload: id })
      yield* waitUntil(Effect.map(sql("SELECT FROM queue_tasks"), ({ length }) => length === ids.length))
      assert.strictEqual(yield* client.execute(Says, { instanceId: "says" }), "hello")
      yield* end.open
      for (const id of ids) assert.strictEqual(yield* client.wait(Keyed, id), id)
    })))

  it.live("a call waits for a transaction that holds its task, or is about to create it", () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const end = gate()
      const { services } = yield* start(oneSlot(url, (text) => Effect.as(end.await, text)))
      const client = Context.get(services, Client.Client)
      const task = { name: "Work", key: "one", payload: "\"one\"", max_attempts: 1, queue: "tasks" }
      const activities = Effect.map(
        sql<{ readonly fails: number; readonly starts: number }>(
          `SELECT count(*) FILTER (WHERE event_type = 'ActivityFailed')::int AS fails,
             count(*) FILTER (WHERE event_type = 'ActivityScheduled')::int AS starts FROM history`
        ),
        ([row]) => row!
      )
      const { statementCounts } = Context.get(services, Database.Database)
      /** Until its statement has been refused several times. */
      const held = Effect.fnUntraced(function*(
        operation: string,
        instanceId: string,
        statement: string,
        args: ReadonlyArray<unknown>
      ) {
        yield* sql("BEGIN")
        yield* sql(statement, args)
        yield* client.start(Keyed, { instanceId, payload: "one" })
        yield* waitUntil(Effect.map(statementCounts, ({ [operation]: count = 0 }) => count >= 6))
        yield* sql("COMMIT")
      })
      yield* held("createTasks", "a", "SELECT dx_create_tasks($1::jsonb)", [JSON.stringify([task])])
      yield* held("joinTask", "b", "SELECT FROM queue_tasks FOR UPDATE", [])
      yield* waitUntil(Effect.map(sql("SELECT FROM queue_task_callers"), ({ length }) => length === 2))
      assert.deepStrictEqual(yield* activities, { fails: 0, starts: 2 })
      yield* end.open
      for (const id of ["a", "b"]) assert.strictEqual(yield* client.wait(Keyed, id), "one")
    })))

  it.live("the end reaches all that wait, of several processes, and none whose execution has ended", () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const end = gate()
      const work = (text: string) => Effect.as(end.await, text)
      const first = yield* start(oneSlot(url, work))
      const client = Context.get(first.services, Client.Client)
      for (const id of ["a", "b", "c"]) yield* client.start(Keyed, { instanceId: id, payload: "one" })
      const callers = Effect.map(
        sql<{ readonly instance_id: string }>("SELECT instance_id FROM queue_task_callers ORDER BY 1"),
        (rows) => rows.map(({ instance_id }) => instance_id)
      )
      yield* waitUntil(Effect.map(callers, ({ length }) => length === 3))
      yield* client.terminate("b", "not needed")
      yield* Effect.flip(client.wait(Keyed, "b"))
      yield* first.stop

      const second = yield* start(oneSlot(url, work))
      yield* end.open
      const later = Context.get(second.services, Client.Client)
      assert.deepStrictEqual([yield* later.wait(Keyed, "a"), yield* later.wait(Keyed, "c")], ["one", "one"])
      // One that comes later finds the end.
      assert.strictEqual(yield* later.execute(Keyed, { instanceId: "d", payload: "one" }), "one")
      assert.deepStrictEqual(yield* callers, [])
      assert.deepStrictEqual(
        yield* sql(
          "SELECT instance_id, count(*)::int AS ends FROM history WHERE event_type = $1 GROUP BY 1 ORDER BY 1",
          [
            "ExternalEventPersistent"
          ]
        ),
        [{ instance_id: "a", ends: 1 }, { instance_id: "c", ends: 1 }]
      )
      yield* waitUntil(Effect.map(sql("SELECT FROM orchestrator_queue"), ({ length }) => length === 0))
    })))

  it.live("a call that is repeated before its activity is stored receives one end, however the task ends", () =>
    Effect.scoped(Effect.gen(function*() {
      const { sql } = yield* PgServer.database
      const [{ id }] = (yield* sql<{ readonly id: string }>(
        `SELECT out_id AS id FROM dx_create_tasks('[{"name": "Work", "key": "k", "payload": "1", "max_attempts": 1, "queue": "tasks"}]')`
      )) as [{ readonly id: string }]
      yield* sql(
        "INSERT INTO executions (instance_id, execution_id, status, started_at) VALUES ('i', 2, 'Running', now())"
      )
      const join = (execution: number, signal: string) =>
        Effect.map(
          sql<{ readonly end: unknown }>("SELECT dx_join_task($1, 'i', $2, $3) AS end", [id, execution, signal]),
          ([row]) => row!.end
        )
      for (const signal of ["m", "m", "n"]) assert.isNull(yield* join(2, signal))
      assert.isNull(yield* join(1, "of an execution that has ended"))
      yield* sql("SELECT dx_cancel_tasks(ARRAY[$1], 'no')", [id])
      assert.deepStrictEqual(
        yield* sql("SELECT work_item::json #>> '{QueueMessage,name}' AS name FROM orchestrator_queue ORDER BY id"),
        [{ name: "m" }, { name: "n" }]
      )
      assert.deepStrictEqual(yield* join(2, "m"), [
        "Cancelled",
        null,
        "{\"_tag\" : \"Cancelled\", \"reason\" : \"no\"}"
      ])
      yield* sql("DELETE FROM queue_tasks")
      assert.deepStrictEqual(yield* join(2, "m"), ["Missing", null, null])
    })))
})
