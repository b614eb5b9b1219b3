/**
 * Deletion of trees that do not fit into one transaction, of many trees of which one cannot be deleted, and of paused
 * instances.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schedule from "effect/Schedule"
import * as TestClock from "effect/testing/TestClock"
import { mkdtemp, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import * as pg from "pg"
import * as Migrator from "../../src/prisma/Migrator.ts"
import type { AdminDriver } from "../../src/provider/AdminDriver.ts"
import * as FromDriver from "../../src/provider/FromDriver.ts"
import type { ClaimedInstance } from "../../src/provider/ProviderDriver.ts"
import { ConnectionLost, ProviderError } from "../../src/provider/ProviderError.ts"
import * as DatabaseServer from "../../src/server/DatabaseServer.ts"
import * as Test from "../utils/driver.ts"
import type { TestDatabase } from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/**
 * A root, and below it instances in two levels: one of ten is a child of the root, the others are its grandchildren.
 */
const tree = ({ sql }: Pick<TestDatabase, "sql">, rootId: string, size: number, status = "Completed") =>
  sql(
    `WITH one AS (
       SELECT CASE n WHEN 1 THEN $1 ELSE $1 || '-' || n END AS id,
         CASE WHEN n > 1 THEN CASE WHEN n % 10 = 2 THEN $1 ELSE $1 || '-' || (n - 2) / 10 * 10 + 2 END END AS parent
       FROM generate_series(1, $2::integer) AS n
     ),
     instance AS (
       INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at, parent_instance_id)
       SELECT id, 'O', now(), now(), parent FROM one
     ),
     execution AS (
       INSERT INTO executions (instance_id, execution_id, status, started_at, completed_at)
       SELECT id, 1, $3, now(), CASE WHEN $3 <> 'Running' THEN now() END FROM one
     )
     INSERT INTO history SELECT id, 1, 1, 'OrchestrationStarted', '{}', now() FROM one`,
    [rootId, size, status]
  )

const everything = (size: number) => ({
  instancesDeleted: size,
  executionsDeleted: size,
  eventsDeleted: size,
  queueMessagesDeleted: 0
})

const rowsOf = (test: Test.Opened) =>
  Effect.map(
    test.sql<{ rows: number }>(
      `SELECT ((SELECT count(*) FROM instances) + (SELECT count(*) FROM executions) + (SELECT count(*) FROM history)
         + (SELECT count(*) FROM instance_locks) + (SELECT count(*) FROM orchestrator_queue)
         + (SELECT count(*) FROM worker_queue))::integer AS rows`
    ),
    ([row]) => row!.rows
  )

/** A server with PostgreSQL's defaults: a small table of locks. */
const defaultServer = Effect.gen(function*() {
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "duroxide-prisma-default-"))),
    (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true, maxRetries: 5 }))
  )
  const server = yield* DatabaseServer.makeEmbedded({ directory, settings: { fsync: "off" } })
  const url = Redacted.value(server.url)
  yield* Migrator.migrate({ url })
  const client = yield* Effect.acquireRelease(
    Effect.promise(async () => {
      const client = new pg.Client(url)
      await client.connect()
      return client
    }),
    (client) => Effect.promise(() => client.end())
  )
  const sql: TestDatabase["sql"] = <Row>(text: string, values?: ReadonlyArray<unknown>) =>
    Effect.promise(async () => (await client.query(text, values && [...values])).rows as ReadonlyArray<Row>)
  return yield* Test.openOn({ url, schema: "public", sql })
}).pipe(Effect.provide(Logger.layer([])))

/** Fails the call of that number. */
const failing = (driver: AdminDriver["Service"], call: number): AdminDriver["Service"] => {
  let calls = 0
  return {
    ...driver,
    deleteInstances: (options) =>
      ++calls === call
        ? Effect.fail(new ProviderError({ operation: "deleteInstances", reason: lost }))
        : driver.deleteInstances(options)
  }
}

const lost = new ConnectionLost({ problem: "gone" })

describe("a big tree", () => {
  it.live(
    "of 15,001 instances is deleted on a server with PostgreSQL's defaults, where one transaction cannot hold it",
    () =>
      Effect.gen(function*() {
        const test = yield* defaultServer
        yield* tree(test, "root", 15_001)
        const instanceIds = yield* test.listed
        const { reason } = yield* Effect.flip(test.admin.deleteInstances({ instanceIds, mustHaveEnded: [] }))
        assert.deepInclude(reason, { _tag: "Unavailable", sqlState: "53200" })
        const refused = yield* Effect.flip(FromDriver.makeAdmin(test.admin).deleteInstancesAtomic(instanceIds))
        assert.deepInclude(refused.reason, { _tag: "InvalidInput", field: "instanceIds.length" })

        // The server reports an error before it gives the locks of its transaction back.
        const { allIds } = yield* Effect.retry(FromDriver.makeAdmin(test.admin).getInstanceTree("root"), {
          while: (error) => "reason" in error && error.reason._tag === "Unavailable",
          schedule: Schedule.spaced("10 millis")
        })
        assert.lengthOf(allIds, 15_001)
        assert.deepStrictEqual(yield* FromDriver.makeAdmin(test.admin).deleteInstance("root"), everything(15_001))
        assert.strictEqual(yield* rowsOf(test), 0)
      })
  )

  it.live(
    "in use is deleted with force, beside claims, starts and signals, and leaves no row",
    () =>
      Effect.gen(function*() {
        const test = yield* Test.open({ maxConnections: 8 })
        yield* tree(test, "root", 2501, "Running")
        yield* test.sql(
          `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
         SELECT instance_id, '{"CancelInstance":{}}', now(), now() FROM instances`
        )
        let born = 0
        const childOf = (parent: string) => {
          const instance = `${parent}+${born++}`
          return Test.message(
            instance,
            JSON.stringify({ StartOrchestration: { instance, parent_instance: parent } })
          )
        }
        /** Every turn starts a child, down to three levels below the first; other instances end. */
        const after = ({ history, instance, instanceId, lockToken, messages }: ClaimedInstance) => {
          const isStarted = instance !== null ||
            messages.some(({ workItem }) => workItem.includes("StartOrchestration"))
          if (!isStarted) return Test.turn(lockToken, { executionId: null })
          const isStranger = !instanceId.startsWith("root")
          return Test.turn(lockToken, {
            ...Test.named,
            history: Test.events(history.length + 1),
            parentInstanceId: instanceId.includes("+") ? instanceId.slice(0, instanceId.lastIndexOf("+")) : null,
            status: isStranger ? "Completed" : null,
            orchestratorItems: isStranger || instanceId.split("+").length > 3 ? [] : [childOf(instanceId)]
          })
        }
        const turns = Effect.flatMap(
          Test.claim(test.driver, 20),
          (claimed) => Effect.forEach(claimed, (one) => test.driver.ackOrchestrationItems([after(one)]))
        )
        let strangers = 0
        const others = Effect.gen(function*() {
          yield* test.driver.startOrchestrations([Test.start(`stranger-${strangers++}`)])
          yield* test.driver.enqueueForOrchestrator([
            Test.message("root"),
            Test.message("root-2"),
            Test.message("root-7")
          ])
        })
        const noise = yield* Effect.forkChild(
          Effect.all(
            // A start that was sent has its answer: it counts as a stranger if and only if it is in the store.
            [turns, turns, others].map((one) => Effect.forever(Effect.uninterruptible(one))),
            { concurrency: "unbounded" }
          )
        )
        yield* waitUntil(Effect.sync(() => born > 0))
        const { instancesDeleted } = yield* FromDriver.makeAdmin(test.admin).deleteInstance("root", { force: true })
        yield* Fiber.interrupt(noise)

        assert.isAtLeast(instancesDeleted, 2501)
        assert.isAbove(born, 0)
        assert.deepStrictEqual(
          yield* test.sql(
            `SELECT 'instance' AS what, instance_id FROM instances WHERE instance_id LIKE 'root%'
           UNION ALL SELECT 'execution', instance_id FROM executions WHERE instance_id LIKE 'root%'
           UNION ALL SELECT 'event', instance_id FROM history WHERE instance_id LIKE 'root%'
           UNION ALL SELECT 'start', instance_id FROM orchestrator_queue
             WHERE instance_id LIKE 'root%' AND work_item LIKE '{"StartOrchestration"%'`
          ),
          []
        )
        const [left] = yield* test.sql<{ count: number }>("SELECT count(*)::integer AS count FROM instances")
        assert.strictEqual(left!.count, strangers)
      })
  )

  it.live("with one running instance is refused as a whole, and continues", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* tree(test, "root", 1501)
      yield* test.sql("UPDATE executions SET status = 'Running', completed_at = NULL WHERE instance_id = 'root-1500'")
      const before = yield* rowsOf(test)
      const { reason } = yield* Effect.flip(FromDriver.makeAdmin(test.admin).deleteInstance("root"))
      assert.deepInclude(reason, { _tag: "InstanceRunning", instanceId: "root-1500" })
      assert.strictEqual(yield* rowsOf(test), before)
      assert.lengthOf(yield* Test.claimed(test.driver, "root-1500").pipe(Effect.map((one) => one.messages)), 1)
    }))

  it.effect("whose deletion failed half way keeps its root, takes no turn meanwhile, and is deleted by a second call", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ clock: "effect" })
      yield* tree(test, "root", 2501, "Running")
      yield* test.driver.enqueueForOrchestrator([Test.message("root"), Test.message("root-2")])
      const error = yield* Effect.flip(
        FromDriver.makeAdmin(failing(test.admin, 2)).deleteInstance("root", { force: true })
      )
      assert.strictEqual(error.reason, lost)
      const left = yield* test.listed
      assert.lengthOf(left, 1501)
      assert.includeMembers([...left], ["root", "root-2"])
      assert.deepStrictEqual(yield* Test.claim(test.driver), [])

      assert.strictEqual(
        (yield* FromDriver.makeAdmin(test.admin).deleteInstance("root", { force: true })).instancesDeleted,
        1501
      )
      assert.strictEqual(yield* rowsOf(test), 0)
    }))

  it.effect("whose deletion failed half way and is not repeated continues after ten minutes", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ clock: "effect" })
      yield* tree(test, "root", 1501, "Running")
      yield* test.driver.enqueueForOrchestrator([Test.message("root")])
      yield* Effect.flip(FromDriver.makeAdmin(failing(test.admin, 1)).deleteInstance("root", { force: true }))
      yield* TestClock.adjust("599 seconds")
      assert.deepStrictEqual(yield* Test.claim(test.driver), [])
      yield* TestClock.adjust("1 second")
      assert.strictEqual((yield* Test.claimOne(test.driver)).instanceId, "root")
    }))
})

describe("held instances", () => {
  it.live("lose the turn under way, and report queued children", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      const { lockToken } = yield* Test.claimed(test.driver, "root")
      yield* tree(test, "root", 12, "Running")
      const start = (id: string, parent: string) =>
        Test.message(id, JSON.stringify({ StartOrchestration: { instance: id, parent_instance: parent } }))
      // The second of these exists already, and ignores the start.
      yield* test.driver.enqueueForOrchestrator([start("new", "root"), start("root-5", "root")])
      const held = yield* test.admin.holdInstances({ instanceIds: ["root"], mustHaveEnded: [], holdForMs: 60_000 })
      assert(held._tag === "Held")
      assert.sameMembers([...held.childIds], ["new", "root-2", "root-12"])
      assert.deepStrictEqual(yield* test.driver.ackOrchestrationItems([Test.turn(lockToken)]), ["LockLost"])
      assert.deepStrictEqual(
        yield* test.admin.holdInstances({ instanceIds: ["new"], mustHaveEnded: ["new"], holdForMs: 60_000 }),
        { _tag: "StillRunning", instanceId: "new" }
      )
    }))

  it.live("need one pass over the queued starts, however many are held together", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      const ids = Array.from({ length: 1000 }, (_, i) => `child-${i}`)
      yield* test.driver.enqueueForOrchestrator(
        ids.map((id) =>
          Test.message(id, JSON.stringify({ StartOrchestration: { instance: id, parent_instance: "root" } }))
        )
      )
      /** The minimum of several, as other load on the machine only adds time. */
      const least = (instanceIds: ReadonlyArray<string>) =>
        Effect.map(
          Effect.replicateEffect(
            Effect.timed(test.admin.holdInstances({ instanceIds, mustHaveEnded: [], holdForMs: 60_000 })),
            3
          ),
          (times) => Math.min(...times.map(([took]) => Duration.toMillis(took)))
        )
      const few = yield* least(ids.slice(0, 10))
      const many = yield* least(ids)
      // 3 to 6 times as long, mostly for locks; more than 90 times if each start is parsed for each instance.
      assert.isBelow(many, 30 * few)
    }))
})

describe("a bulk deletion", () => {
  it.live("continues after a tree that cannot be deleted, and reports it", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      for (const id of ["a", "bad", "c"]) yield* tree(test, id, 3)
      yield* test.sql(
        `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'kept by law' USING ERRCODE = '23514'; END $$;
         CREATE TRIGGER keep BEFORE DELETE ON instances FOR EACH ROW WHEN (OLD.instance_id = 'bad-3')
           EXECUTE FUNCTION refuse()`
      )
      const { failed, ...deleted } = yield* FromDriver.makeAdmin(test.admin).deleteInstanceBulk({})
      assert.deepStrictEqual(deleted, { ...everything(6), next: null })
      assert.deepStrictEqual(failed.map(({ error, instanceId }) => [instanceId, error.operation]), [
        ["bad", "deleteInstances"]
      ])
      assert.include(failed[0]!.error.message, "kept by law")
      assert.sameMembers([...yield* test.listed], ["bad", "bad-2", "bad-3"])
    }))

  it.live("stops at a failure that would affect every further tree", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      for (const id of ["a", "b", "c"]) yield* tree(test, id, 1)
      const error = yield* Effect.flip(FromDriver.makeAdmin(failing(test.admin, 1)).deleteInstanceBulk({}))
      assert.strictEqual(error.reason, lost)
      assert.lengthOf(yield* test.listed, 3)
    }))
})

describe("a deletion", () => {
  /** That many first calls end in a deadlock; counts all calls. */
  const deadlocks = Effect.fnUntraced(function*(test: Test.Opened, times: number) {
    yield* test.sql(
      `CREATE SEQUENCE calls;
       ALTER FUNCTION dx_delete_instances RENAME TO really_delete;
       CREATE FUNCTION dx_delete_instances(p_ids text[], p_ended text[])
       RETURNS TABLE (
         out_still_running text, out_child_left_behind text, out_instances_deleted bigint,
         out_executions_deleted bigint, out_events_deleted bigint, out_queue_messages_deleted bigint
       ) LANGUAGE plpgsql SET search_path FROM CURRENT AS $$
       BEGIN
         IF nextval('calls') <= ${times} THEN
           RAISE EXCEPTION 'deadlock detected' USING ERRCODE = '40P01';
         END IF;
         RETURN QUERY SELECT * FROM really_delete(p_ids, p_ended);
       END $$`
    )
    return Effect.map(
      test.sql<{ calls: number }>("SELECT last_value::integer AS calls FROM calls"),
      ([row]) => row!.calls
    )
  })

  it.live("is repeated after a deadlock, at most five times", () =>
    Effect.gen(function*() {
      for (const times of [5, 6]) {
        const test = yield* Test.open()
        yield* tree(test, "a", 1)
        const calls = yield* deadlocks(test, times)
        const result = yield* Effect.result(FromDriver.makeAdmin(test.admin).deleteInstance("a"))
        assert.strictEqual(result._tag, times === 5 ? "Success" : "Failure")
        assert.strictEqual(yield* calls, 6)
        assert.lengthOf(yield* test.listed, times === 5 ? 0 : 1)
      }
    }))

  it.live("treats a paused instance as an idle one", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* tree(test, "paused", 3)
      yield* test.sql(
        "INSERT INTO instance_locks VALUES ('paused', '', 99999999999999, 0), ('paused-2', '', 99999999999999, 0)"
      )
      assert.deepStrictEqual(yield* FromDriver.makeAdmin(test.admin).deleteInstance("paused"), everything(3))
      assert.strictEqual(yield* rowsOf(test), 0)
    }))
})
