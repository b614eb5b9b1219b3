/**
 * Messages of transactions that stay open while their instance continues, and rows in use by another transaction: none
 * is lost, and the messages of one sender keep their order.
 */
import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { ClaimedInstance } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"
import * as Listening from "../utils/listening.ts"
import { type Run, session } from "../utils/session.ts"

const text = (word: string) => `{"QueueMessage":{"word":"${word}"}}`
const texts = (claimed: ReadonlyArray<ClaimedInstance>) =>
  claimed.map(({ messages }) => messages.map(({ workItem }) => workItem))

/** A claim of a process that serves one version. */
const claimAs = ({ driver }: Test.Opened, version: string) =>
  driver.fetchOrchestrationItems({
    limit: 10,
    lockTimeoutMs: 30_000,
    versions: null,
    serves: [{ name: "Orchestration", versions: [version] }]
  })

/** One step, which is a whole pass over this few messages. */
const sweep = ({ driver }: Test.Opened) => driver.sweepMessages({ maxAgeMs: 3_600_000, limit: 100, after: null })

const send = (run: Run, instanceId: string, word: string) =>
  run(
    "SELECT dx_enqueue_for_orchestrator(jsonb_build_array(jsonb_build_object('instance_id', $1::text, 'work_item', $2::text)))",
    [
      instanceId,
      text(word)
    ]
  )

const turn = (test: Test.Opened, version: string, changes: Parameters<typeof Test.turn>[1]) =>
  Effect.gen(function*() {
    const claimed = yield* claimAs(test, version)
    assert.lengthOf(claimed, 1, `claimed as ${version}`)
    const named = { orchestrationName: "Orchestration", orchestrationVersion: version }
    assert.deepStrictEqual(
      yield* test.driver.ackOrchestrationItems([Test.turn(claimed[0]!.lockToken, { ...named, ...changes })]),
      ["Done"]
    )
  })

/** An instance that runs as 1.0.0, and a transaction that has sent it a message and is still open. */
const sentBeforeTheChange = Effect.gen(function*() {
  const test = yield* Test.open()
  yield* test.driver.startOrchestrations([Test.start("a", { orchestrationVersion: "1.0.0" })])
  yield* turn(test, "1.0.0", { history: Test.events(1) })
  const sender = yield* session(test)
  yield* send(sender, "a", "first")
  return { test, sender }
})

/** From now on it runs as 2.0.0. */
const changeVersion = (test: Test.Opened) =>
  Effect.gen(function*() {
    yield* test.driver.enqueueForOrchestrator([Test.message("a", text("before the change"))])
    yield* turn(test, "1.0.0", {
      history: Test.events(2),
      status: "ContinuedAsNew",
      nextVersion: "2.0.0",
      orchestratorItems: [Test.message("a", "{\"ContinueAsNew\":{\"instance\":\"a\"}}")]
    })
    yield* turn(test, "2.0.0", { executionId: 2, history: Test.events(1) })
  })

describe("a message committed after its instance changed its version", () => {
  it.live("reaches the new version with the sweep, before later messages", () =>
    Effect.gen(function*() {
      const { sender, test } = yield* sentBeforeTheChange
      yield* changeVersion(test)
      yield* sender("COMMIT")
      // Stored for the old version, which no process serves now.
      assert.deepStrictEqual(yield* claimAs(test, "2.0.0"), [])
      yield* sweep(test)
      const claimed = yield* claimAs(test, "2.0.0")
      assert.deepStrictEqual(texts(claimed), [[text("first")]])
      yield* test.driver.enqueueForOrchestrator([Test.message("a", text("second"))])
      yield* test.driver.ackOrchestrationItems([Test.turn(claimed[0]!.lockToken, { executionId: 2 })])
      assert.deepStrictEqual(texts(yield* claimAs(test, "2.0.0")), [[text("second")]])
    }))

  it.live("is delivered with a later message, before it, without a sweep", () =>
    Effect.gen(function*() {
      const { sender, test } = yield* sentBeforeTheChange
      yield* changeVersion(test)
      yield* sender("COMMIT")
      yield* test.driver.enqueueForOrchestrator([Test.message("a", text("second"))])
      assert.deepStrictEqual(texts(yield* claimAs(test, "2.0.0")), [[text("first"), text("second")]])
    }))

  it.live("is rerouted by a process of the old version that finds it, not counted", () =>
    Effect.gen(function*() {
      const { sender, test } = yield* sentBeforeTheChange
      yield* changeVersion(test)
      yield* sender("COMMIT")
      assert.deepStrictEqual(yield* claimAs(test, "1.0.0"), [])
      const claimed = yield* claimAs(test, "2.0.0")
      assert.deepStrictEqual(texts(claimed), [[text("first")]])
      assert.strictEqual(Test.attempts(claimed[0]!), 1)
    }))

  for (
    const [by, route] of [
      [
        "a claim of the old version",
        `SELECT * FROM dx_fetch_orchestration_items(10, 30000, NULL, NULL, '{Orchestration}', '{1.0.0}')`
      ],
      ["a sweep", `SELECT * FROM dx_sweep_messages(3600000, 100, NULL)`]
    ] as const
  ) {
    it.live(`waits, with all later messages after it, while ${by} moves it, and is announced then`, () =>
      Effect.gen(function*() {
        const { sender, test } = yield* sentBeforeTheChange
        yield* changeVersion(test)
        yield* sender("COMMIT")
        const mover = yield* session(test)
        yield* mover(route)
        yield* test.driver.enqueueForOrchestrator([Test.message("a", text("second"))])
        assert.deepStrictEqual(yield* claimAs(test, "2.0.0"), [])
        // That look has used up the hints of the senders.
        const listener = yield* Listening.connected(test)
        yield* mover("COMMIT")
        const [announced] = yield* listener.next(1)
        assert.include(announced!.hint, { _tag: "Work", queue: "orchestrator" })
        assert.isNull(announced!.sender)
        assert.deepStrictEqual(texts(yield* claimAs(test, "2.0.0")), [[text("first"), text("second")]])
      }))
  }
})

describe("a message committed after its instance was deleted", () => {
  it.live("waits for the next start with the sweep", () =>
    Effect.gen(function*() {
      const { sender, test } = yield* sentBeforeTheChange
      yield* test.sql("SELECT * FROM dx_delete_instances('{a}', '{}')")
      yield* sender("COMMIT")
      yield* sweep(test)
      assert.deepStrictEqual(yield* claimAs(test, "1.0.0"), [])
      const start = Test.start("a", { orchestrationVersion: "2.0.0" })
      yield* test.driver.startOrchestrations([start])
      assert.deepStrictEqual(texts(yield* claimAs(test, "2.0.0")), [[start.workItem, text("first")]])
    }))
})

describe("a claim that meets a message another transaction works on", () => {
  it.live("ends the batch of its instance there, takes the messages of other instances, and loses nothing", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      const words = ["1", "2", "3", "4"]
      for (const instanceId of ["a", "b"]) {
        yield* test.driver.startOrchestrations([Test.start(instanceId, { orchestrationVersion: "1.0.0" })])
      }
      for (const { lockToken } of yield* claimAs(test, "1.0.0")) {
        const named = { orchestrationName: "Orchestration", orchestrationVersion: "1.0.0" }
        yield* test.driver.ackOrchestrationItems([Test.turn(lockToken, { ...named, history: Test.events(1) })])
      }
      for (const word of words) {
        yield* test.driver.enqueueForOrchestrator(["a", "b"].map((instanceId) => Test.message(instanceId, text(word))))
      }
      const other = yield* session(test)
      yield* other("SELECT FROM orchestrator_queue WHERE instance_id = 'a' AND work_item = $1 FOR UPDATE", [text("3")])
      const claimed = yield* claimAs(test, "1.0.0")
      assert.deepStrictEqual(claimed.map(({ instanceId }) => instanceId), ["a", "b"])
      assert.deepStrictEqual(texts(claimed), [[text("1"), text("2")], words.map(text)])
      yield* other("COMMIT")
      yield* test.driver.ackOrchestrationItems(claimed.map(({ lockToken }) => Test.turn(lockToken)))
      const rest = yield* claimAs(test, "1.0.0")
      assert.deepStrictEqual(texts(rest), [[text("3"), text("4")]])
      assert.strictEqual(Test.attempts(rest[0]!), 1)
    }))
})
