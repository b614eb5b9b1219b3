import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const sum = (counts: ReadonlyArray<number>) => counts.reduce((total, count) => total + count, 0)
const times = <A, E, R>(count: number, effect: (i: number) => Effect.Effect<A, E, R>) =>
  Effect.forEach(Array.from({ length: count }, (_, i) => i), effect, { concurrency: "unbounded" })

const claimSql = "SELECT * FROM dx_fetch_orchestration_items(1, 30000, null, null, p_orphans => true)"
const takeSql = "SELECT * FROM dx_fetch_work_items(1, 30000, true, null, null, null)"

describe("claims:", () => {
  it.live("one instance, 32 concurrent fetchers: exactly one claims it", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ maxConnections: 32 })
      const { driver } = test
      for (let round = 0; round < 5; round++) {
        yield* driver.enqueueForOrchestrator([Test.message(`instance-${round}`)])
        const claimed = yield* times(32, () => Test.claim(driver, 3))
        assert.strictEqual(sum(claimed.map((some) => some.length)), 1)
      }
    }))

  it.live("32 instances, 32 concurrent fetchers of one each: each claims one, none returns empty", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open({ maxConnections: 32 })
      yield* driver.enqueueForOrchestrator(Array.from({ length: 32 }, (_, i) => Test.message(`instance-${i}`)))
      const claimed = yield* times(32, () => Test.claimOne(driver))
      assert.lengthOf(new Set(claimed.map(({ instanceId }) => instanceId)), 32)
    }))

  it.live("an instance that another transaction claims is skipped without waiting", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a"), Test.message("b")])
      const other = yield* session(test)
      assert.strictEqual((yield* other(claimSql))[0].out_instance_id, "a")
      assert.strictEqual((yield* Test.claimOne(test.driver)).instanceId, "b")
      assert.deepStrictEqual(yield* Test.claim(test.driver), [])
      yield* other("ROLLBACK")
      assert.strictEqual((yield* Test.claimOne(test.driver)).instanceId, "a")
    }))

  it.live("a claim that passes over such an instance says so, whatever else it has found", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      const other = yield* session(test)
      yield* test.driver.enqueueForOrchestrator([Test.message("a"), Test.message("b")])
      yield* other("SELECT pg_advisory_xact_lock(hashtext('a'))")
      const claim = Effect.gen(function*() {
        let held = 0
        const onLocked = () => void held++
        const options = { limit: 10, lockTimeoutMs: 30_000, versions: null, orphans: true, onLocked }
        const claimed = yield* test.driver.fetchOrchestrationItems(options)
        return [...claimed.map(({ instanceId }) => instanceId), held]
      })
      assert.deepStrictEqual(yield* claim, ["b", 1])
      assert.deepStrictEqual(yield* claim, [1])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* claim, ["a", 0])
    }))

  it.live("the advisory lock that Rust takes on the hash of the id keeps an instance from being claimed", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      const other = yield* session(test)
      yield* other("SELECT pg_advisory_xact_lock(hashtext($1))", ["a"])
      assert.deepStrictEqual(yield* Test.claim(test.driver), [])
      yield* other("COMMIT")
      assert.lengthOf(yield* Test.claim(test.driver), 1)
    }))

  it.live("a lock has its full duration although another instance could not be claimed", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a"), Test.message("b")])
      const other = yield* session(test)
      yield* other("SELECT pg_advisory_xact_lock(hashtext($1))", ["a"])
      const { instanceId, nowMs } = yield* Test.claimOne(test.driver, 5000)
      assert.strictEqual(instanceId, "b")
      // It counts from the moment of the lock, which comes after the scan; its message has the same expiry.
      const locks = yield* test.sql<{ instance_id: string; until: number; marked: number; latest: number }>(
        `SELECT l.instance_id, l.locked_until::float8 AS until, q.locked_until::float8 AS marked,
           extract(epoch FROM clock_timestamp())::float8 * 1000 + 5000 AS latest
         FROM instance_locks AS l
         JOIN orchestrator_queue AS q ON q.lock_token = l.lock_token`
      )
      assert.deepStrictEqual(locks.map(({ instance_id }) => instance_id), ["b"])
      const { latest, marked, until } = locks[0]!
      assert.strictEqual(marked, until)
      assert.isAtLeast(until, nowMs + 5000)
      assert.isAtMost(until, latest)
      yield* other("COMMIT")
    }))

  it.live("the only instance is given up without a lock if another transaction holds its messages", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a"), Test.message("a")])
      const other = yield* session(test)
      yield* other("SELECT FROM orchestrator_queue FOR UPDATE")
      assert.deepStrictEqual(yield* Test.claim(test.driver), [])
      assert.deepStrictEqual(yield* test.sql("SELECT FROM instance_locks"), [])
      yield* other("COMMIT")
      assert.strictEqual(Test.attempts(yield* Test.claimOne(test.driver)), 1)
    }))

  it.live("an expired lock in use by another transaction is neither taken over nor waited for", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a"), Test.message("b")])
      yield* test.sql("INSERT INTO instance_locks VALUES ('a', 'theirs', 1, 1)")
      const other = yield* session(test)
      yield* other("SELECT FROM instance_locks WHERE instance_id = 'a' FOR UPDATE")
      assert.deepStrictEqual((yield* Test.claim(test.driver)).map(({ instanceId }) => instanceId), ["b"])
      yield* other("COMMIT")
      assert.deepStrictEqual((yield* Test.claim(test.driver)).map(({ instanceId }) => instanceId), ["a"])
    }))

  it.live("messages that are being deleted leave no lock behind, and the next instance is claimed", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForOrchestrator([Test.message("a"), Test.message("b")])
      const other = yield* session(test)
      yield* other("DELETE FROM orchestrator_queue WHERE instance_id = 'a'")
      assert.strictEqual((yield* Test.claimOne(test.driver)).instanceId, "b")
      assert.lengthOf(yield* test.sql("SELECT FROM instance_locks"), 1)
      yield* other("COMMIT")
    }))

  it.live("a route that changes just before the lock is respected, and so is a version Duroxide pins", () =>
    Effect.gen(function*() {
      for (
        const change of [
          "UPDATE instances SET route = '1.0.0 =1.0.0 Orchestration' WHERE instance_id = 'a'",
          "UPDATE executions SET duroxide_version_major = 1 WHERE instance_id = 'a'"
        ]
      ) {
        const test = yield* Test.open()
        yield* test.driver.startOrchestrations([Test.start("a"), Test.start("b")])
        // In the form in which Duroxide writes an instance.
        if (change.includes("executions")) yield* test.sql("UPDATE instances SET route = '' WHERE instance_id = 'a'")
        // Stands for another process that commits at that very moment.
        yield* test.sql(
          `CREATE FUNCTION pin() RETURNS trigger LANGUAGE plpgsql AS $$
         BEGIN
           ${change};
           RETURN NEW;
         END $$`
        )
        yield* test.sql("CREATE TRIGGER pin BEFORE INSERT ON instance_locks FOR EACH ROW EXECUTE FUNCTION pin()")
        const ours = { major: 1000, minor: 0, patch: 0 }
        const claimed = yield* test.driver.fetchOrchestrationItems({
          limit: 1,
          lockTimeoutMs: 1000,
          versions: { min: ours, max: ours }
        })
        assert.deepStrictEqual(claimed.map(({ instanceId }) => instanceId), ["b"])
        assert.deepStrictEqual(yield* test.sql("SELECT instance_id FROM instance_locks"), [{ instance_id: "b" }])
        assert.deepStrictEqual(
          yield* test.sql("SELECT attempt_count FROM orchestrator_queue WHERE instance_id = 'a'"),
          [{ attempt_count: 0 }]
        )
      }
    }))

  it.live("activities: 32 concurrent fetchers of one each get 32 different ones", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open({ maxConnections: 32 })
      for (const tags of [{ _tag: "Any" }, { _tag: "DefaultAnd", tags: ["a"] }] as const) {
        yield* driver.enqueueForWorker(Array.from({ length: 32 }, (_, i) =>
          Test.activity({ activityId: i, tag: tags._tag !== "Any" && i % 2 === 0 ? "a" : null })))
        const taken = yield* times(32, () =>
          Test.take(driver, { limit: 1, tags }))
        assert.deepStrictEqual(taken.map((some) => some.length), taken.map(() => 1))
        assert.lengthOf(new Set(taken.map((some) => some[0]!.lockToken)), 32)
      }
    }))

  it.live("activities: one that another transaction claims is skipped without waiting", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForWorker([Test.activity({ workItem: "1" }), Test.activity({ workItem: "2" })])
      const other = yield* session(test)
      assert.strictEqual((yield* other(takeSql))[0].out_work_item, "1")
      assert.deepStrictEqual((yield* Test.take(test.driver)).map(({ workItem }) => workItem), ["2"])
      yield* other("ROLLBACK")
      assert.deepStrictEqual((yield* Test.take(test.driver)).map(({ workItem }) => workItem), ["1"])
    }))

  it.live("activities: a claim that passes over one says so, whatever else it has found", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForWorker([Test.activity({ workItem: "1" }), Test.activity({ workItem: "2" })])
      const other = yield* session(test)
      yield* other("SELECT FROM worker_queue WHERE work_item = '1' FOR UPDATE")
      const several = "SELECT * FROM dx_fetch_work_items(10, 30000, true, null, null, null)"
      const workItems = Effect.map(
        test.sql<{ out_work_item: string | null }>(several),
        (rows) => rows.map(({ out_work_item }) => out_work_item)
      )
      assert.deepStrictEqual(yield* workItems, ["2", null])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* workItems, ["1"])
    }))

  it.live("activities: a claim that passes over one delivered twice says so", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForWorker([Test.activity()])
      yield* test.sql("UPDATE worker_queue SET attempt_count = 2")
      const other = yield* session(test)
      yield* other("SELECT FROM worker_queue FOR UPDATE")
      const workItems = Effect.map(test.sql<{ out_work_item: string | null }>(takeSql), (rows) =>
        rows.map(({ out_work_item }) => out_work_item === null ? null : "an activity"))
      assert.deepStrictEqual(yield* workItems, [null])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* workItems, ["an activity"])
      assert.deepStrictEqual(yield* workItems, [])
    }))

  it.live("sessions: after losing a session to another owner, the claim takes the next activity and counts no delivery", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      yield* test.driver.enqueueForWorker([
        Test.activity({ workItem: "1", sessionId: "s" }),
        Test.activity({ workItem: "2", sessionId: "s" }),
        Test.activity({ workItem: "3" })
      ])
      const other = yield* session(test)
      yield* other("SELECT FROM dx_fetch_work_items(1, 30000, true, null, 'other', 30000)")
      const taken = yield* Test.take(test.driver, { limit: 1, session: { workerId: "me", lockTimeoutMs: 1000 } })
      assert.deepStrictEqual(taken.map(({ workItem }) => workItem), ["3"])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* test.sql("SELECT work_item, attempt_count FROM worker_queue ORDER BY id"), [
        { work_item: "1", attempt_count: 1 },
        { work_item: "2", attempt_count: 0 },
        { work_item: "3", attempt_count: 1 }
      ])
      assert.deepStrictEqual(yield* test.sql("SELECT worker_id FROM sessions"), [{ worker_id: "other" }])
    }))

  it.live("sessions: an owned session is usable while another statement updates it", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      const me = { workerId: "me", lockTimeoutMs: 30_000 }
      yield* test.driver.enqueueForWorker([Test.activity({ sessionId: "s" }), Test.activity({ sessionId: "s" })])
      yield* Test.take(test.driver, { limit: 1, session: me })
      const other = yield* session(test)
      yield* other("UPDATE sessions SET last_activity_at = last_activity_at + 1")
      assert.lengthOf(yield* Test.take(test.driver, { session: me }), 1)
    }))

  it.live("sessions: 16 owners race for one session with 16 activities: one gets them all", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* Test.open({ maxConnections: 16 })
      yield* driver.enqueueForWorker(Array.from({ length: 16 }, () => Test.activity({ sessionId: "s" })))
      const taken = yield* times(
        16,
        (i) => Test.take(driver, { limit: 16, session: { workerId: `owner-${i}`, lockTimeoutMs: 30_000 } })
      )
      assert.deepStrictEqual(taken.map((some) => some.length).sort((a, b) => b - a).slice(0, 2), [16, 0])
      assert.lengthOf(yield* sql("SELECT FROM sessions"), 1)
    }))
})

describe("settling:", () => {
  for (const [name, history] of [["with events", Test.events(1)], ["without events", []]] as const) {
    it.live(`16 concurrent acks of one token ${name}: exactly one is done, its work is scheduled once`, () =>
      Effect.gen(function*() {
        const { driver, sql } = yield* Test.open({ maxConnections: 16, patient: true })
        const { lockToken } = yield* Test.claimed(driver, "a")
        const answers = yield* times(
          16,
          () => driver.ackOrchestrationItems([Test.turn(lockToken, { history, workerItems: [Test.activity()] })])
        )
        assert.strictEqual(answers.filter(([answer]) => answer === "Done").length, 1)
        assert.strictEqual(answers.filter(([answer]) => answer === "LockLost").length, 15)
        assert.lengthOf(yield* sql("SELECT FROM worker_queue"), 1)
      }))
  }

  it.live("an ack waits for an earlier one with its token, and is lost when that commits", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const { lockToken } = yield* Test.claimed(test.driver, "a")
      const other = yield* session(test)
      const [first] = yield* other(
        "SELECT dx_ack_orchestration_items($1, null, null, null, null, null) AS answer",
        [JSON.stringify([{ token: lockToken, execution_id: 1 }])]
      )
      assert.deepStrictEqual(first.answer, ["Done"])
      const second = yield* Effect.forkChild(
        test.driver.ackOrchestrationItems([Test.turn(lockToken, { workerItems: [Test.activity()] })])
      )
      yield* waitForStatement(test, "dx_ack_orchestration_items", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(second), ["LockLost"])
      assert.lengthOf(yield* test.sql("SELECT FROM worker_queue"), 0)
    }))

  it.live("the first turn of a child waits for the deletion of its parent, not for a turn of it", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("parent", { delayMs: 60_000 })])
      const ackOfChild = (id: string) =>
        Effect.flatMap(
          Test.claimed(test.driver, id),
          ({ lockToken }) =>
            test.driver.ackOrchestrationItems([Test.turn(lockToken, { ...Test.named, parentInstanceId: "parent" })])
        )
      const other = yield* session(test)
      yield* other("UPDATE instances SET updated_at = now(), custom_status = 'busy'")
      assert.deepStrictEqual(yield* ackOfChild("child"), ["Done"])
      yield* other("COMMIT")
      yield* other("BEGIN")
      yield* other("SELECT FROM instances WHERE instance_id = 'parent' FOR UPDATE")
      const late = yield* Effect.forkChild(ackOfChild("late child"))
      yield* waitForStatement(test, "dx_ack_orchestration_items", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(late), ["Done"])
    }))

  it.live("concurrent results of one activity: exactly one is delivered", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* Test.open({ maxConnections: 16 })
      yield* driver.enqueueForWorker([Test.activity()])
      const [taken] = yield* Test.take(driver)
      const answers = yield* times(16, () =>
        driver.ackWorkItems([
          { lockToken: taken!.lockToken, completion: { instanceId: "instance", workItem: "{}" } }
        ]))
      assert.strictEqual(answers.filter(([answer]) => answer === "Done").length, 1)
      assert.lengthOf(yield* sql("SELECT FROM orchestrator_queue"), 1)
    }))

  it.live("overlapping sets in opposite order never deadlock", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* Test.open({ maxConnections: 16 })
      const ids = Array.from({ length: 40 }, (_, i) => `instance-${i}`)
      yield* driver.enqueueForOrchestrator(ids.map((id) => Test.message(id)))
      const claimed = yield* Test.claim(driver, 40)
      const renewals = claimed.map(({ lockToken }) => ({ lockToken, extendForMs: 60_000 }))
      yield* driver.enqueueForWorker(ids.map((id) => Test.activity({ instanceId: id, sessionId: `s-${id}` })))
      const taken = yield* Test.take(driver, { limit: 40, session: { workerId: "me", lockTimeoutMs: 60_000 } })
      const more = taken.map(({ lockToken }) => ({ lockToken, extendForMs: 60_000 }))
      yield* times(64, (i): Effect.Effect<unknown, ProviderError> =>
        i % 2 === 0
          ? driver.renewOrchestrationItemLocks(i % 4 === 0 ? renewals : renewals.toReversed())
          : driver.renewWorkItemLocks(i % 4 === 1 ? more : more.toReversed()))
      const turns = claimed.map(({ instanceId, lockToken }) =>
        Test.turn(lockToken, {
          ...Test.named,
          cancelledActivities: ids.toReversed().map((id) => ({ instanceId: id, executionId: 1, activityId: 1 })),
          parentInstanceId: ids[(ids.indexOf(instanceId) + 7) % 40]!
        })
      )
      // On a slow machine one may wait longer than `lock_timeout`, which a deadlock does not need.
      const hasWaitedTooLong = ({ reason }: ProviderError) =>
        reason._tag === "Contention" && reason.sqlState === "55P03"
      const answers = yield* times(4, (i) =>
        Effect.retry(driver.ackOrchestrationItems(i % 2 === 0 ? turns : turns.toReversed()), {
          while: hasWaitedTooLong
        }))
      const done = answers.flat().filter((answer) =>
        answer === "Done"
      )
      assert.lengthOf(done, 40)
      assert.lengthOf(yield* sql("SELECT FROM worker_queue"), 0)
    }))
})

describe("starts:", () => {
  it.live("16 concurrent starts of the same ids: each is started once", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ maxConnections: 8 })
      const second = yield* Test.openOn(test, { maxConnections: 8 })
      const ids = Array.from({ length: 20 }, (_, i) => `instance-${i}`)
      const answers = yield* times(16, (i) =>
        (i % 2 === 0 ? test : second).driver.startOrchestrations(
          (i % 4 < 2 ? ids : ids.toReversed()).map((id) => Test.start(id))
        ))
      assert.strictEqual(answers.flat().filter((answer) => answer === "Started").length, 20)
      for (const table of ["instances", "executions", "orchestrator_queue"]) {
        assert.lengthOf(yield* test.sql(`SELECT FROM ${table}`), 20, table)
      }
    }))

  it.live("a start waits for an open start of the same id: taken if that commits, free if it is rolled back", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      for (const [end, answer] of [["ROLLBACK", "Started"], ["COMMIT", "AlreadyExists"]] as const) {
        const id = `instance-${end}`
        const other = yield* session(test)
        yield* other("SELECT dx_start_orchestrations($1)", [
          JSON.stringify([{ instance_id: id, orchestration_name: "O", work_item: "{}", major: 1, minor: 0, patch: 0 }])
        ])
        const late = yield* Effect.forkChild(test.driver.startOrchestrations([Test.start(id)]))
        yield* waitForStatement(test, "dx_start_orchestrations", "Lock")
        yield* other(end)
        assert.deepStrictEqual(yield* Fiber.join(late), [answer])
      }
    }))

  it.live("a start and the first turn of the same id: one row in either order", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const { lockToken } = yield* Test.claimed(test.driver, "a")
      const other = yield* session(test)
      yield* other("SELECT dx_start_orchestrations($1)", [
        JSON.stringify([{
          instance_id: "a",
          orchestration_name: "Start",
          work_item: "{}",
          major: 1,
          minor: 0,
          patch: 0
        }])
      ])
      const ack = yield* Effect.forkChild(
        test.driver.ackOrchestrationItems([
          Test.turn(lockToken, { ...Test.named, customStatus: { value: "here" }, parentInstanceId: "p" })
        ])
      )
      yield* waitForStatement(test, "dx_ack_orchestration_items", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(ack), ["Done"])
      const [state] = yield* test.driver.readInstances(["a"])
      assert.deepInclude(state, {
        orchestrationName: "Orchestration",
        orchestrationVersion: "1.0.0",
        customStatus: "here",
        customStatusVersion: 1,
        parentInstanceId: "p"
      })
    }))
})
