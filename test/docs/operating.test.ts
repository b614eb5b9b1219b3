import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Metrics, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Pack = Activity.make("Pack")
const Collected = Signal.make("Collected")
const Shipment = Orchestration.make("Shipment")

const application = (url: string) =>
  Runtime.layer({ orchestrations: [Shipment], activities: [Pack] }).pipe(
    Layer.provide([
      Pack.toLayer(() => Effect.void),
      Shipment.toLayer(() => Effect.andThen(Pack.execute(), Collected.wait))
    ]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provideMerge(Logger.layer([]))
  )

const page = Docs.read("docs/operating.md")
const queries = new Map(Docs.blocks(page, "sql").map(({ code, heading }) => [heading, code]))

/** The result of each query on the contents below; columns that depend on the time are left out. */
const answers: Record<
  string,
  { readonly columns: ReadonlyArray<string>; readonly rows: ReadonlyArray<ReadonlyArray<unknown>> }
> = {
  "Instances by status and age": {
    columns: ["orchestration_name", "status", "instances", "older_than_a_day"],
    rows: [["Bill", "Completed", "1", "0"], ["Bill", "Running", "3", "1"], ["Ship", "Failed", "1", "1"], [
      "Ship",
      "Running",
      "4",
      "4"
    ]]
  },
  "Stuck instances": {
    columns: ["instance_id", "orchestration_name", "last_event"],
    rows: [["waits-for-signal", "Ship", "ExternalSubscribed"], ["of-duroxide", "Ship", "ExternalSubscribed"]]
  },
  "Oldest message": {
    columns: ["instance_id", "kind", "seconds_late", "attempt_count"],
    rows: [["late", "ExternalRaised", "120", 1], ["poisoned", "CancelInstance", "60", 4]]
  },
  "Lock holders": {
    columns: ["instance_id", "orchestration_name", "expired"],
    rows: [["dead-process", null, true], ["in-a-turn", "Bill", false]]
  },
  "Biggest histories": {
    columns: ["instance_id", "execution_id", "events", "bytes"],
    rows: [["late", "2", "2", "1000"], ["of-duroxide", "1", "1", "88"], ["waits-for-signal", "1", "2", "4"]]
  },
  "Poison candidates": {
    columns: ["queue", "instance_id", "kind", "attempt_count"],
    rows: [["worker", "asks", "Kill", 9], ["orchestrator", "poisoned", "CancelInstance", 4]]
  },
  "Activities running longest": {
    columns: ["instance_id", "activity", "attempt_count"],
    rows: [["asks", "Slow", 1], ["asks", "Quick", 1]]
  },
  "Timers due next": {
    columns: ["instance_id"],
    rows: [["sleeps"], ["late"]]
  },
  "Queue depth by name and tag": {
    columns: ["activity", "tag", "running", "waiting", "later"],
    rows: [["Kill", null, "0", "2", "0"], ["Quick", null, "1", "1", "1"], ["Slow", "gpu", "1", "0", "0"]]
  }
}

const contents = `
  INSERT INTO instances (instance_id, orchestration_name, current_execution_id, created_at, updated_at, parent_instance_id)
  SELECT i.id, i.name, i.execution, now() - i.age, now() - i.idle, i.parent
  FROM (VALUES
    ('waits-for-signal', 'Ship', 1, interval '2 days', interval '1 day', NULL),
    ('of-duroxide', 'Ship', 1, interval '2 days', interval '23 hours', NULL),
    ('waits-for-child', 'Ship', 1, interval '2 days', interval '1 day', NULL),
    ('sleeps', 'Ship', 1, interval '2 days', interval '1 day', NULL),
    ('asks', 'Bill', 1, interval '1 hour', interval '1 hour', 'waits-for-child'),
    ('late', 'Bill', 2, interval '3 days', interval '1 hour', NULL),
    ('in-a-turn', 'Bill', 1, interval '1 minute', interval '1 minute', NULL),
    ('done', 'Bill', 1, interval '1 hour', interval '1 hour', NULL),
    ('broken', 'Ship', 1, interval '2 days', interval '1 day', NULL)
  ) AS i (id, name, execution, age, idle, parent);

  INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at)
  SELECT
    instance_id,
    current_execution_id,
    CASE instance_id WHEN 'done' THEN 'Completed' WHEN 'broken' THEN 'Failed' ELSE 'Running' END,
    created_at,
    CASE WHEN instance_id IN ('done', 'broken') THEN updated_at END
  FROM instances
  UNION ALL
  SELECT 'late', 1, 'ContinuedAsNew', now(), now();

  INSERT INTO history VALUES
    ('waits-for-signal', 1, 1, 'OrchestrationStarted', '{}', now()),
    ('waits-for-signal', 1, 2, 'ExternalSubscribed', '{}', now()),
    ('of-duroxide', 1, 1, 'Event', '{"event_id":1,"instance_id":"\\"type\\":\\"Wrong\\"","type":"ExternalSubscribed","name":"n"}', now()),
    ('late', 2, 1, 'OrchestrationStarted', repeat('x', 400), now()),
    ('late', 2, 2, 'TimerCreated', repeat('é', 300), now());

  INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, locked_until, created_at, attempt_count)
  SELECT q.id, q.item, now() + q.due, (extract(epoch FROM now()) * 1000)::bigint + q.locked_ms, now(), q.attempts
  FROM (VALUES
    ('late', '{"ExternalRaised":{"name":"\\"TimerFired\\""}}', interval '-120 seconds', -1, 1),
    ('poisoned', '{"CancelInstance":{}}', interval '-60 seconds', NULL, 4),
    ('in-a-turn', '{"StartOrchestration":{}}', interval '-200 seconds', 60000, 1),
    ('late', '{"TimerFired":{}}', interval '2 days', NULL, 0),
    ('sleeps', '{"TimerFired":{}}', interval '1 day', NULL, 0),
    ('sleeps', '{"ExternalRaised":{}}', interval '1 hour', NULL, 0),
    ('waits-for-its-start', '{"QueueMessage":{}}', interval '-900 seconds', NULL, 0)
  ) AS q (id, item, due, locked_ms, attempts);

  -- For an instance without a row that was routed before.
  UPDATE orchestrator_queue SET route = '- =1.0.0 Ship' WHERE instance_id = 'poisoned';

  INSERT INTO worker_queue (instance_id, work_item, visible_at, locked_until, created_at, attempt_count, tag)
  SELECT
    'asks',
    jsonb_build_object('ActivityExecute', jsonb_build_object('name', w.name))::text,
    now() + w.due,
    (extract(epoch FROM now()) * 1000)::bigint + w.locked_ms,
    now() - w.age,
    w.attempts,
    w.tag
  FROM (VALUES
    ('Quick', interval '0', 60000, interval '1 second', 1, NULL),
    ('Slow', interval '0', 60000, interval '1 hour', 1, 'gpu'),
    ('Quick', interval '0', NULL, interval '2 hours', 0, NULL),
    ('Quick', interval '1 minute', NULL, interval '2 hours', 0, NULL),
    ('Kill', interval '0', -1, interval '1 hour', 9, NULL),
    ('Kill', interval '0', NULL, interval '1 hour', 2, NULL)
  ) AS w (name, due, locked_ms, age, attempts, tag);

  INSERT INTO instance_locks (instance_id, lock_token, locked_until, locked_at)
  SELECT l.id, 't', (extract(epoch FROM now()) * 1000)::bigint + l.until_ms, (extract(epoch FROM now()) * 1000)::bigint - l.since_ms
  FROM (VALUES ('in-a-turn', 60000, 1), ('dead-process', -1, 9000)) AS l (id, until_ms, since_ms);
`

const run = (sql: PgServer.TestDatabase["sql"], heading: string) => sql(queries.get(heading)!)

describe("docs/operating.md:", () => {
  it.live("ten queries answer what they promise", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.database
      assert.sameMembers([...queries.keys()], [...Object.keys(answers), "Storage per table"])
      for (const heading of Object.keys(answers)) {
        assert.lengthOf(yield* run(sql, heading), 0, `${heading}, empty tables`)
      }
      yield* sql(contents)
      for (const [heading, { columns, rows }] of Object.entries(answers)) {
        const found = yield* run(sql, heading)
        assert.deepStrictEqual(found.map((row) => columns.map((column) => row[column])), rows, heading)
      }
      yield* sql("ANALYZE history")
      const storage = yield* run(sql, "Storage per table")
      assert.lengthOf(storage, 13)
      assert.match(String(storage[0]!.total), /^\d+ kB$/)
    }).pipe(Effect.scoped))

  it.live("rows of a runtime and of tools carry the type of their event", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Shipment, { instanceId: "asks" })
        yield* waitUntil(
          Effect.map(run(sql, "Stuck instances"), (rows) => rows.length === 1).pipe(
            Effect.tap(() => sql("UPDATE instances SET updated_at = now() - interval '1 hour'"))
          )
        )
        const provider = yield* Provider.Provider
        yield* provider.appendWithExecution("tool", 1, [{
          _tag: "TimerCreated",
          eventId: 1,
          sourceEventId: null,
          instanceId: "tool",
          executionId: 1,
          timestampMs: 0,
          duroxideVersion: "1.0.0",
          fireAtMs: 1
        }])
      }).pipe(Effect.provide(application(url)))
      assert.deepStrictEqual(yield* sql("SELECT instance_id, event_id::int, event_type FROM history ORDER BY 1, 2"), [
        { instance_id: "asks", event_id: 1, event_type: "OrchestrationStarted" },
        { instance_id: "asks", event_id: 2, event_type: "ActivityScheduled" },
        { instance_id: "asks", event_id: 3, event_type: "ActivityCompleted" },
        { instance_id: "asks", event_id: 4, event_type: "ExternalSubscribedPersistent" },
        { instance_id: "tool", event_id: 1, event_type: "TimerCreated" }
      ])
      const [stuck] = yield* run(sql, "Stuck instances")
      assert.deepInclude(stuck, { instance_id: "asks", last_event: "ExternalSubscribedPersistent" })
    }).pipe(Effect.scoped))

  it.live("docs/tables.md names every table and column there is, and no other", () =>
    Effect.gen(function*() {
      const { schema, sql } = yield* PgServer.database
      const columns = yield* sql<{ table: string; column: string }>(
        `SELECT table_name AS "table", column_name AS "column" FROM information_schema.columns
         WHERE table_schema = $1 AND table_name <> '_prisma_migrations'`,
        [schema]
      )
      const described = [
        ...Docs.read("docs/tables.md").matchAll(/^## ([a-z_]+)(?: and ([a-z_]+))?\n((?:(?!^## )[^])*)/gm)
      ]
        .flatMap(
          ([, table, second, text]) =>
            [...text!.matchAll(/^\| (`.*?)\|/gm)].flatMap(([, cell]) =>
              [...cell!.matchAll(/`([a-z_]+)`/g)].map(([, column]) => ({ tables: [table!, second], column: column! }))
            )
        )
      for (const { column, table } of columns) {
        assert.isTrue(
          described.some((one) => one.column === column && one.tables.includes(table)),
          `${table}.${column} is not described`
        )
      }
      for (const { column, tables } of described) {
        assert.isTrue(
          columns.some((one) => one.column === column && tables.includes(one.table)),
          `${tables[0]}.${column} is described and does not exist`
        )
      }
    }).pipe(Effect.scoped))

  it("alerts on metrics that exist", () => {
    const alerts = page.slice(page.indexOf("## What to alert on"))
    const names = Object.values(Metrics).map(({ id }) => id)
    const described = new Set([...alerts.matchAll(/`((?:provider\.|duroxide_)[a-z_]+)`/g)].map(([, name]) => name!))
    assert.isAbove(described.size, 15)
    assert.includeMembers(names, [...described])
  })
})
