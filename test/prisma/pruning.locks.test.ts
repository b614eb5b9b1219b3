/**
 * Pruning beside all other calls, two sessions at a time: it waits for no call except another removal of the same
 * executions, no call waits for it, and the current execution is never touched.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

/** An instance in its third execution, with an event in each, and a turn of it under way. */
const inThirdExecution = Effect.gen(function*() {
  const test = yield* Test.open({ patient: true })
  yield* test.driver.startOrchestrations([Test.start("a")])
  for (const executionId of [1, 2, 3]) {
    const { lockToken } = yield* Test.claimOne(test.driver)
    const status = executionId < 3 ? "ContinuedAsNew" : null
    yield* test.driver.ackOrchestrationItems([
      Test.turn(lockToken, { ...Test.named, executionId, history: Test.events(1), status })
    ])
    yield* test.driver.enqueueForOrchestrator([Test.message("a")])
  }
  const { lockToken } = yield* Test.claimOne(test.driver)
  return { ...test, lockToken }
})

const prune = ({ admin }: Test.Opened) =>
  admin.pruneExecutions({ instanceId: "a", keepLast: null, completedBeforeMs: null })
const pruneSql = "SELECT * FROM dx_prune_executions('a', null, null)"

const executions = ({ admin }: Test.Opened) => admin.listExecutions("a")
/** Which executions have events. */
const histories = ({ sql }: Test.Opened) =>
  Effect.map(
    sql<{ id: number }>("SELECT DISTINCT execution_id::int AS id FROM history ORDER BY 1"),
    (rows) => rows.map(({ id }) => id)
  )

describe("while executions are pruned,", () => {
  it.live("a turn is stored at once, and the next execution begins", () =>
    Effect.gen(function*() {
      const test = yield* inThirdExecution
      const other = yield* session(test)
      const [pruned] = yield* other(pruneSql)
      assert.deepStrictEqual(pruned, { out_executions_deleted: "2", out_events_deleted: "2" })
      assert.deepStrictEqual(
        yield* test.driver.ackOrchestrationItems([
          Test.turn(test.lockToken, {
            ...Test.named,
            executionId: 3,
            history: Test.events(2),
            status: "ContinuedAsNew"
          })
        ]),
        ["Done"]
      )
      const { lockToken } = yield* Test.claimed(test.driver, "a")
      yield* test.driver.ackOrchestrationItems([
        Test.turn(lockToken, { ...Test.named, executionId: 4, history: Test.events(1) })
      ])
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* executions(test), [3, 4])
      assert.deepStrictEqual(yield* histories(test), [3, 4])
    }))

  it.live("another pruning and a deletion wait for it, and find what is left", () =>
    Effect.gen(function*() {
      const test = yield* inThirdExecution
      const other = yield* session(test)
      yield* other(pruneSql)
      const second = yield* Effect.forkChild(prune(test))
      yield* waitForStatement(test, "dx_prune_executions", "Lock")
      const removal = yield* Effect.forkChild(test.admin.deleteInstances({ instanceIds: ["a"], mustHaveEnded: [] }))
      yield* waitForStatement(test, "dx_delete_instances", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(second), { executionsDeleted: 0, eventsDeleted: 0 })
      const outcome = yield* Fiber.join(removal)
      assert(outcome._tag === "Deleted")
      assert.deepInclude(outcome.deleted, { instancesDeleted: 1, executionsDeleted: 1, eventsDeleted: 1 })
      assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), [])
    }))
})

describe("pruning", () => {
  it.live("does not wait for a turn, and keeps the execution the turn ends and the one it begins", () =>
    Effect.gen(function*() {
      const test = yield* inThirdExecution
      const other = yield* session(test)
      yield* other("SELECT dx_ack_orchestration_items($1, null, null, null, null, null)", [
        JSON.stringify([{ token: test.lockToken, execution_id: 4, status: "Running" }])
      ])
      assert.deepStrictEqual(yield* prune(test), { executionsDeleted: 2, eventsDeleted: 2 })
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* executions(test), [3, 4])
      assert.deepStrictEqual(yield* histories(test), [3])
    }))

  it.live("does not wait for a claim, which reads the whole history of its execution", () =>
    Effect.gen(function*() {
      const test = yield* inThirdExecution
      yield* test.driver.abandonOrchestrationItems([{ lockToken: test.lockToken, delayMs: null, ignoreAttempt: true }])
      const other = yield* session(test)
      const [claimed] = yield* other("SELECT * FROM dx_fetch_orchestration_items(1, 60000, null, null)")
      assert.deepStrictEqual(yield* prune(test), { executionsDeleted: 2, eventsDeleted: 2 })
      yield* other("COMMIT")
      assert.deepStrictEqual([claimed.out_execution_id, claimed.out_history], ["3", ["{\"event_id\":1}"]])
      assert.deepStrictEqual(
        yield* test.driver.ackOrchestrationItems([
          Test.turn(claimed.out_lock_token, { executionId: 3, history: Test.events(2) })
        ]),
        ["Done"]
      )
    }))

  it.live("waits for a deletion, and finds nothing", () =>
    Effect.gen(function*() {
      const test = yield* inThirdExecution
      const other = yield* session(test)
      yield* other("SELECT * FROM dx_delete_instances('{a}', '{}')")
      const late = yield* Effect.forkChild(prune(test))
      yield* waitForStatement(test, "dx_prune_executions", "Lock")
      yield* other("COMMIT")
      assert.deepStrictEqual(yield* Fiber.join(late), { executionsDeleted: 0, eventsDeleted: 0 })
      assert.deepStrictEqual(yield* Test.tablesWith(test, "a"), [])
    }))
})
