/**
 * Deletion beside all other calls, two sessions at a time: one of them pauses inside its transaction, the other
 * one waits for it or proceeds, and afterwards an instance is complete or deleted.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import type { DeleteOutcome } from "../../src/provider/AdminDriver.ts"
import * as FromDriver from "../../src/provider/FromDriver.ts"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const json = JSON.stringify

const childStart = (id: string, parent: string) =>
  Test.message(id, json({ StartOrchestration: { instance: id, parent_instance: parent } }))

/** An instance with rows in every table, its turn's lock and its activity's lock. */
const inATurn = Effect.fnUntraced(function*(test: Test.Opened, instanceId: string) {
  yield* test.driver.startOrchestrations([Test.start(instanceId)])
  const first = yield* Test.claimOne(test.driver)
  yield* test.driver.ackOrchestrationItems([
    Test.turn(first.lockToken, {
      ...Test.named,
      history: Test.events(1),
      keyValues: [{ action: "set", key: "k", value: "v", lastUpdatedAtMs: 1 }],
      workerItems: [Test.activity({ instanceId })],
      orchestratorItems: [Test.message(instanceId)]
    })
  ])
  const { lockToken } = yield* Test.claimOne(test.driver)
  const [activity] = yield* Test.take(test.driver)
  return { turn: lockToken, activity: activity!.lockToken }
})

const deleted = (outcome: DeleteOutcome) => {
  assert.strictEqual(outcome._tag, "Deleted")
  return outcome._tag === "Deleted" ? outcome.deleted : assert.fail()
}

const remove = (test: Test.Opened, ...instanceIds: ReadonlyArray<string>) =>
  test.admin.deleteInstances({ instanceIds, mustHaveEnded: [] })

const removeSql = "SELECT * FROM dx_delete_instances($1, '{}')"

type Answers = Effect.Effect<ReadonlyArray<string>, ProviderError>

describe("while a deletion is under way,", () => {
  it.live("claims take other instances at once, and never this one", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("a"), Test.start("b")])
      yield* test.driver.enqueueForWorker([
        Test.activity({ instanceId: "a" }),
        Test.activity({ instanceId: "b", workItem: "b" })
      ])
      const other = yield* session(test)
      yield* other(removeSql, [["a"]])
      assert.deepStrictEqual((yield* Test.claim(test.driver)).map(({ instanceId }) => instanceId), ["b"])
      assert.deepStrictEqual((yield* Test.take(test.driver)).map(({ workItem }) => workItem), ["b"])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Test.claim(test.driver), [])
      assert.deepStrictEqual(yield* Test.take(test.driver), [])
      assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), [])
    }))

  const settling: Readonly<
    Record<string, (driver: Test.Driver, tokens: { readonly turn: string; readonly activity: string }) => Answers>
  > = {
    ackOrchestrationItems: (driver, { turn }) =>
      driver.ackOrchestrationItems([
        Test.turn(turn, { ...Test.named, history: Test.events(2), orchestratorItems: [Test.message("a")] })
      ]),
    abandonOrchestrationItems: (driver, { turn }) =>
      driver.abandonOrchestrationItems([{ lockToken: turn, delayMs: null, ignoreAttempt: false }]),
    renewOrchestrationItemLocks: (driver, { turn }) =>
      driver.renewOrchestrationItemLocks([{ lockToken: turn, extendForMs: 60_000 }]),
    deferMessages: (driver, { turn }) => driver.deferMessages([{ lockToken: turn, ids: [1], delayMs: 1 }]),
    ackWorkItems: (driver, { activity }) =>
      driver.ackWorkItems([{ lockToken: activity, completion: { instanceId: "a", workItem: "{}" } }]),
    abandonWorkItems: (driver, { activity }) =>
      driver.abandonWorkItems([{ lockToken: activity, delayMs: null, ignoreAttempt: false }])
  }
  it.live("renewWorkItemLocks does not wait for it, and has lost its lock afterwards", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const { activity } = yield* inATurn(test, "a")
      const renewal = test.driver.renewWorkItemLocks([{ lockToken: activity, extendForMs: 60_000 }])
      const other = yield* session(test)
      yield* other(removeSql, [["a"]])
      assert.deepStrictEqual(yield* renewal, ["Locked"])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* renewal, ["LockLost"])
    }))

  for (const [name, settle] of Object.entries(settling)) {
    it.live(`${name} waits for it, and has lost its lock`, () =>
      Effect.gen(function*() {
        const test = yield* Test.open({ patient: true })
        const tokens = yield* inATurn(test, "a")
        const other = yield* session(test)
        yield* other(removeSql, [["a"]])
        const late = yield* Effect.forkChild(settle(test.driver, tokens))
        yield* waitForStatement(test, "dx_", "Lock")
        yield* other("COMMIT")
        assert.deepStrictEqual(yield* Fiber.join(late), ["LockLost"])
        assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), [])
      }))
  }

  it.live("and is rolled back, nothing is lost, and the turn continues", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const tokens = yield* inATurn(test, "a")
      const before = yield* Test.tablesWith(test, "a")
      const other = yield* session(test)
      yield* other(removeSql, [["a"]])
      const late = yield* Effect.forkChild(test.driver.ackOrchestrationItems([Test.turn(tokens.turn)]))
      yield* waitForStatement(test, "dx_ack_orchestration_items", "Lock")
      yield* other("ROLLBACK")
      assert.deepStrictEqual(yield* Fiber.join(late), ["Done"])
      assert.deepStrictEqual(
        yield* Test.tablesWith(test, "a"),
        before.filter((table) => table !== "instance_locks" && table !== "orchestrator_queue")
      )
    }))

  it.live("a message is sent at once, and does not revive the instance", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* inATurn(test, "a")
      const other = yield* session(test)
      yield* other(removeSql, [["a"]])
      yield* test.driver.enqueueForOrchestrator([Test.message("a")])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), ["orchestrator_queue"])
    }))

  it.live("a start finds the id taken, and a later one creates a new instance", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* inATurn(test, "a")
      const other = yield* session(test)
      yield* other(removeSql, [["a"]])
      assert.deepStrictEqual(yield* test.driver.startOrchestrations([Test.start("a")]), ["AlreadyExists"])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* test.driver.startOrchestrations([Test.start("a")]), ["Started"])
      const { executionId, history, keyValues, messages } = yield* Test.claimOne(test.driver)
      assert.deepStrictEqual([executionId, history, keyValues, messages.length], [1, [], [], 1])
    }))

  it.live("a start of an id without a row waits for it, and is complete", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("a")])
      // Pauses the deletion half way, after it has locked the instance rows.
      const holder = yield* session(test)
      yield* holder("SELECT FROM executions WHERE instance_id = 'a' FOR UPDATE")
      const removal = yield* Effect.forkChild(remove(test, "a", "x"))
      yield* waitForStatement(test, "dx_delete_instances", "Lock")
      const start = yield* Effect.forkChild(test.driver.startOrchestrations([Test.start("x")]))
      yield* Effect.race(Fiber.await(start), waitForStatement(test, "dx_start_orchestrations", "Lock"))
      yield* holder("COMMIT")
      assert.strictEqual(deleted(yield* Fiber.join(removal)).instancesDeleted, 1)
      assert.deepStrictEqual(yield* Fiber.join(start), ["Started"])
      assert.deepStrictEqual(yield* Test.tablesWith(test, "x"), ["executions", "instances", "orchestrator_queue"])
    }))

  it.live("another deletion of the same ids waits for it, and finds nothing", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("a"), Test.start("b")])
      const other = yield* session(test)
      const [first] = yield* other(removeSql, [["a", "b"]])
      assert.strictEqual(first.out_instances_deleted, "2")
      const second = yield* Effect.forkChild(remove(test, "b", "a"))
      yield* waitForStatement(test, "dx_delete_instances", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(deleted(yield* Fiber.join(second)), {
        instancesDeleted: 0,
        executionsDeleted: 0,
        eventsDeleted: 0,
        queueMessagesDeleted: 0
      })
    }))
})

describe("a deletion waits for", () => {
  it.live("a claim, which then loses its lock", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("a")])
      const other = yield* session(test)
      const [claimed] = yield* other("SELECT * FROM dx_fetch_orchestration_items(1, 60000, null, null)")
      const removal = yield* Effect.forkChild(remove(test, "a"))
      yield* waitForStatement(test, "dx_delete_instances", "Lock")
      yield* other("COMMIT")
      assert.deepInclude(deleted(yield* Fiber.join(removal)), { instancesDeleted: 1, queueMessagesDeleted: 1 })
      assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), [])
      const late = Test.turn(claimed.out_lock_token, { ...Test.named, history: Test.events(1) })
      assert.deepStrictEqual(yield* test.driver.ackOrchestrationItems([late]), ["LockLost"])
      assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), [])
    }))

  const settling: Readonly<
    Record<
      string,
      (tokens: { readonly turn: string; readonly activity: string }) => readonly [sql: string, argument: unknown]
    >
  > = {
    "a turn, and deletes what it stored": ({ turn }) => [
      `SELECT dx_ack_orchestration_items($1, '[{"ack":1,"event_id":2,"event_type":"TimerFired","event_data":"{}"}]',
         '[{"ack":1,"action":"set","key":"k2","value":"v","last_updated_at_ms":1}]',
         '[{"ack":1,"work_item":"{}","name":"A","instance_id":"a","execution_id":1,"activity_id":2}]', null,
         '[{"ack":1,"instance_id":"a","work_item":"{}"}]')`,
      [{ token: turn, execution_id: 1 }]
    ],
    "a turn that is given back": ({ turn }) => ["SELECT dx_abandon_orchestration_items($1)", [{ token: turn }]],
    "a renewal": ({ turn }) => [
      "SELECT dx_renew_orchestration_item_locks($1)",
      [{ token: turn, extend_for_ms: 60_000 }]
    ],
    "the result of an activity, which is lost": ({ activity }) => [
      "SELECT dx_ack_work_items($1)",
      [{ token: activity, instance_id: "a", work_item: "{}" }]
    ],
    "the renewal of an activity": ({ activity }) => [
      "SELECT dx_renew_work_item_locks($1)",
      [{ token: activity, extend_for_ms: 60_000 }]
    ]
  }
  for (const [name, settle] of Object.entries(settling)) {
    it.live(name, () =>
      Effect.gen(function*() {
        const test = yield* Test.open({ patient: true })
        const tokens = yield* inATurn(test, "a")
        const other = yield* session(test)
        const [sql, argument] = settle(tokens)
        const [answer] = yield* other(sql, [json(argument)])
        assert.deepStrictEqual(Object.values(answer), [["Done"]])
        const removal = yield* Effect.forkChild(remove(test, "a"))
        yield* waitForStatement(test, "dx_delete_instances", "Lock")
        yield* other("COMMIT")
        assert.strictEqual(deleted(yield* Fiber.join(removal)).instancesDeleted, 1)
        assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), [])
      }))
  }

  it.live("a start of one of its ids: refused if that must have ended, else deleted with it", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      for (
        const [mustHaveEnded, outcome, left] of [
          [["x"], "StillRunning", ["executions", "instances", "orchestrator_queue"]],
          [[], "Deleted", []]
        ] as const
      ) {
        const other = yield* session(test)
        yield* other("SELECT dx_start_orchestrations($1)", [
          json([{ instance_id: "x", orchestration_name: "O", work_item: "{}", major: 1, minor: 0, patch: 0 }])
        ])
        const removal = yield* Effect.forkChild(test.admin.deleteInstances({ instanceIds: ["x"], mustHaveEnded }))
        yield* Effect.race(Fiber.await(removal), waitForStatement(test, "dx_delete_instances", "Lock"))
        yield* other("COMMIT")
        assert.strictEqual((yield* Fiber.join(removal))._tag, outcome)
        assert.deepStrictEqual(yield* Test.tablesWith(test, "x"), [...left])
        yield* remove(test, "x")
      }
    }))

  it.live("no message that is being sent, and that does not revive the instance", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* inATurn(test, "a")
      const other = yield* session(test)
      yield* other("SELECT dx_enqueue_for_orchestrator($1)", [json([{ instance_id: "a", work_item: "{}" }])])
      assert.strictEqual(deleted(yield* remove(test, "a")).instancesDeleted, 1)
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), ["orchestrator_queue"])
    }))
})

describe("a bulk deletion", () => {
  it.live("skips an instance that was started again since it was selected", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("again"), Test.start("ended")])
      const claimed = yield* Test.claim(test.driver)
      yield* test.driver.ackOrchestrationItems(
        claimed.map(({ lockToken }) => Test.turn(lockToken, { ...Test.named, status: "Completed" }))
      )
      const admin = FromDriver.makeAdmin({
        ...test.admin,
        listInstances: (listing) =>
          Effect.tap(test.admin.listInstances(listing), () =>
            Effect.andThen(remove(test, "again"), test.driver.startOrchestrations([Test.start("again")])))
      })
      assert.strictEqual((yield* admin.deleteInstanceBulk({})).instancesDeleted, 1)
      assert.deepStrictEqual(yield* test.listed, ["again"])
      assert.lengthOf(yield* Test.tablesWith(test, "again"), 3)
    }))
})

describe("a deletion of a parent", () => {
  it.live("waits for a turn that schedules a child, and deletes neither", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const { turn } = yield* inATurn(test, "parent")
      const other = yield* session(test)
      const { instanceId, workItem } = childStart("child", "parent")
      yield* other("SELECT dx_ack_orchestration_items($1, null, null, null, null, $2)", [
        json([{ token: turn, execution_id: 1 }]),
        json([{ ack: 1, instance_id: instanceId, work_item: workItem }])
      ])
      const removal = yield* Effect.forkChild(remove(test, "parent"))
      yield* waitForStatement(test, "dx_delete_instances", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(removal), { _tag: "ChildLeftBehind", instanceId: "child" })
      assert.deepStrictEqual(yield* Test.tablesWith(test, "child"), ["orchestrator_queue"])
      yield* remove(test, "parent", "child")
      for (const id of ["parent", "child"]) assert.deepStrictEqual(yield* Test.tablesWith(test, id), [])
    }))

  it.live("waits for the first turn of a child, and deletes neither", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("parent", { delayMs: 60_000 })])
      yield* test.driver.enqueueForOrchestrator([childStart("child", "parent")])
      const { lockToken } = yield* Test.claimOne(test.driver)
      const other = yield* session(test)
      yield* other("SELECT dx_ack_orchestration_items($1, null, null, null, null, null)", [
        json([{
          token: lockToken,
          execution_id: 1,
          orchestration_name: "O",
          orchestration_version: "1.0.0",
          parent_instance_id: "parent"
        }])
      ])
      const removal = yield* Effect.forkChild(remove(test, "parent"))
      yield* waitForStatement(test, "dx_delete_instances", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(removal), { _tag: "ChildLeftBehind", instanceId: "child" })
      assert.deepStrictEqual(yield* Test.tablesWith(test, "child"), ["executions", "instances"])
    }))

  it.live("with its child leaves the child's first turn without a lock", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      yield* test.driver.startOrchestrations([Test.start("parent", { delayMs: 60_000 })])
      yield* test.driver.enqueueForOrchestrator([childStart("child", "parent")])
      const { lockToken } = yield* Test.claimOne(test.driver)
      const other = yield* session(test)
      yield* other(removeSql, [["child", "parent"]])
      const late = yield* Effect.forkChild(
        test.driver.ackOrchestrationItems([Test.turn(lockToken, { ...Test.named, parentInstanceId: "parent" })])
      )
      yield* waitForStatement(test, "dx_ack_orchestration_items", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(late), ["LockLost"])
      for (const id of ["parent", "child"]) assert.deepStrictEqual(yield* Test.tablesWith(test, id), [])
    }))
})
