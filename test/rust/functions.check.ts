import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Logger from "effect/Logger"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as Test from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Functions from "./functions.ts"
import * as Rust from "./Rust.ts"

/** One schema through our functions and through Duroxide's. */
const both = Effect.gen(function*() {
  const shared = yield* Rust.open
  yield* Effect.provide(Migrator.adopt(shared), Logger.layer([]))
  const { driver } = yield* Test.openOn(shared)
  return { ...shared, driver, theirs: yield* Functions.open(shared) }
})

/** What one side's lock is to the other. */
const excluded = "a live lock keeps the other side out, an expired one is taken over, and the late ack changes nothing"

const named = { orchestration_name: "Orchestration", orchestration_version: "1.0.0" }
const activityItem = (instance: string, id: number, fields: object = {}) => ({
  ActivityExecute: { instance, execution_id: 1, id, name: "Activity", input: "1", ...fields }
})
/** An activity that either side takes. */
const encodedActivity = (
  instance: string,
  id: number,
  fields: { readonly session_id?: string; readonly input?: string } = {}
) =>
  Test.activity({
    servedBy: "rust",
    workItem: JSON.stringify(activityItem(instance, id, fields)),
    instanceId: instance,
    activityId: id,
    sessionId: fields.session_id ?? null
  })

/** A start that is only a message. */
const unpinned = (instance: string) =>
  JSON.stringify({
    StartOrchestration: {
      instance,
      orchestration: "Orchestration",
      input: "1",
      version: "1.0.0",
      parent_instance: null,
      parent_id: null,
      execution_id: 1
    }
  })

/** Our claim takes executions pinned to our versions, or unpinned. */
const claim = (driver: Test.Driver, lockTimeoutMs = 30_000, limit = 1) =>
  driver.fetchOrchestrationItems({
    limit,
    lockTimeoutMs,
    versions: { min: { major: 1000, minor: 0, patch: 0 }, max: { major: 1000, minor: 1, patch: 0 } }
  })

describe("locks of instances", () => {
  it.live(`our turn: ${excluded}`, () =>
    Effect.gen(function*() {
      const { driver, sql, theirs } = yield* both
      yield* theirs.enqueueMessage("a", unpinned("a"))
      const [ours] = yield* claim(driver, 300)
      assert.isUndefined(yield* theirs.fetchInstance())
      assert.strictEqual(yield* theirs.renewInstance(ours!.lockToken), "LockLost")
      yield* waitUntil(Effect.map(theirs.fetchInstance(), (taken) => taken?.out_attempt_count === 2))
      const late = Test.turn(ours!.lockToken, { ...Test.named, history: Test.events(1) })
      assert.deepStrictEqual(yield* driver.ackOrchestrationItems([late]), ["LockLost"])
      assert.deepStrictEqual(yield* sql("SELECT * FROM history"), [])
      assert.deepStrictEqual(yield* claim(driver), [])
      assert.lengthOf(yield* sql("SELECT * FROM orchestrator_queue WHERE lock_token LIKE 'lock_%'"), 1)
    }))

  it.live(`their turn: ${excluded}`, () =>
    Effect.gen(function*() {
      const { driver, sql, theirs } = yield* both
      yield* driver.enqueueForOrchestrator([Test.message("a", unpinned("a"))])
      const first = yield* theirs.fetchInstance(300)
      assert.deepStrictEqual(yield* claim(driver), [])
      yield* waitUntil(Effect.map(claim(driver), ([taken]) => taken !== undefined && Test.attempts(taken) === 2))
      const token = first!.out_lock_token
      assert.strictEqual(yield* theirs.ackInstance(token, { events: [{ event_id: 1 }], metadata: named }), "LockLost")
      assert.strictEqual(yield* theirs.abandonInstance(token), "LockLost")
      assert.deepStrictEqual(yield* sql("SELECT * FROM history"), [])
      assert.isUndefined(yield* theirs.fetchInstance())
      assert.lengthOf(yield* sql("SELECT * FROM orchestrator_queue WHERE lock_token IS NOT NULL"), 1)
    }))

  it.live("their ack that is under way when its lock runs out is stored, and the messages are delivered again", () =>
    Effect.gen(function*() {
      const { driver, schema, sql, theirs, url } = yield* both
      yield* driver.enqueueForOrchestrator([Test.message("a", unpinned("a"))])
      const late = yield* theirs.fetchInstance(2_000)
      // Their ack has found its lock alive, and waits for the row of the instance.
      const blocker = yield* PgServer.connect(url)
      const block = (statement: string) => Effect.promise(() => blocker.query(statement))
      yield* block(
        `BEGIN; INSERT INTO ${schema}.instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at)
         VALUES ('a', 'Orchestration', '1.0.0', now(), now())`
      )
      const ack = yield* Effect.forkScoped(
        theirs.ackInstance(late!.out_lock_token, { events: [{ event_id: 1 }], metadata: named })
      )
      const claims = yield* Effect.repeat(claim(driver), { until: (claims) => claims.length > 0 })
      const taken = claims[0]!
      yield* block("ROLLBACK")
      assert.strictEqual(yield* Fiber.join(ack), "Done")

      const turn = Test.turn(taken.lockToken, { ...Test.named, history: Test.events(1) })
      assert.deepStrictEqual(yield* driver.ackOrchestrationItems([turn]), ["DuplicateEvent"])
      yield* driver.abandonOrchestrationItems([{ lockToken: taken.lockToken, delayMs: null, ignoreAttempt: false }])
      const again = yield* theirs.fetchInstance()
      assert.deepStrictEqual(again?.out_history.map(({ event_id }) => event_id), [1])
      assert.lengthOf(again!.out_messages, 1)
      assert.lengthOf(yield* sql("SELECT * FROM history"), 1)
    }))

  it.live("executions pinned to one side are not claimed by the other, unpinned ones by either", () =>
    Effect.gen(function*() {
      const { driver, theirs } = yield* both
      yield* driver.startOrchestrations([
        Test.start("ours"),
        Test.start("theirs", { pinnedVersion: { major: 0, minor: 1, patch: 30 } })
      ])
      const claimed = yield* theirs.fetchInstance()
      assert.strictEqual(claimed?.out_instance_id, "theirs")
      assert.isUndefined(yield* theirs.fetchInstance())
      yield* theirs.abandonInstance(claimed!.out_lock_token)
      assert.deepStrictEqual((yield* claim(driver, 30_000, 5)).map(({ instanceId }) => instanceId), ["ours"])
      yield* theirs.enqueueMessage("a", unpinned("a"))
      yield* theirs.enqueueMessage("b", unpinned("b"))
      assert.strictEqual((yield* claim(driver))[0]?.instanceId, "a")
      assert.strictEqual((yield* theirs.fetchInstance())?.out_instance_id, "theirs")
      assert.strictEqual((yield* theirs.fetchInstance())?.out_instance_id, "b")
    }))
})

describe("locks of activities", () => {
  it.live(`our activity: ${excluded}`, () =>
    Effect.gen(function*() {
      const { driver, sql, theirs } = yield* both
      yield* driver.enqueueForWorker([encodedActivity("a", 2)])
      const [ours] = yield* Test.take(driver, { lockTimeoutMs: 300 })
      assert.isUndefined(yield* theirs.fetchActivity())
      assert.strictEqual(yield* theirs.ackActivity(ours!.lockToken), "LockLost")
      yield* waitUntil(Effect.map(theirs.fetchActivity(), (taken) => taken?.out_attempt_count === 2))
      const completion = { instanceId: "a", workItem: "{}" }
      const { lockToken } = ours!
      assert.deepStrictEqual(yield* driver.ackWorkItems([{ lockToken, completion }]), ["LockLost"])
      assert.deepStrictEqual(yield* driver.renewWorkItemLocks([{ lockToken, extendForMs: 1000 }]), ["LockLost"])
      assert.deepStrictEqual(yield* sql("SELECT * FROM orchestrator_queue"), [])
    }))

  it.live(`their activity: ${excluded}`, () =>
    Effect.gen(function*() {
      const { driver, sql, theirs } = yield* both
      yield* driver.enqueueForWorker([encodedActivity("a", 2)])
      const first = yield* theirs.fetchActivity(300)
      assert.deepStrictEqual(yield* Test.take(driver), [])
      yield* waitUntil(Effect.map(Test.take(driver), ([taken]) => taken?.attemptCount === 2))
      const token = first!.out_lock_token
      assert.strictEqual(yield* theirs.ackActivity(token, { instanceId: "a", workItem: "{}" }), "LockLost")
      assert.strictEqual(yield* theirs.renewActivity(token), "LockLost")
      assert.deepStrictEqual(yield* sql("SELECT * FROM orchestrator_queue"), [])
    }))

  it.live("either side cancels an activity the other one runs", () =>
    Effect.gen(function*() {
      const { driver, theirs } = yield* both
      yield* driver.enqueueForOrchestrator([Test.message("a", "{}")])
      yield* driver.enqueueForWorker([encodedActivity("a", 2)])
      const [ours] = yield* Test.take(driver)
      yield* driver.enqueueForWorker([encodedActivity("a", 3)])
      const other = yield* theirs.fetchActivity()

      const first = yield* theirs.fetchInstance()
      const cancelled = [{ instance: "a", execution_id: 1, activity_id: 2 }]
      const next = [{ QueueMessage: { instance: "a", name: "q", data: "1" } }]
      assert.strictEqual(
        yield* theirs.ackInstance(first!.out_lock_token, { metadata: named, cancelled, messages: next }),
        "Done"
      )
      const renewal = { lockToken: ours!.lockToken, extendForMs: 1000 }
      assert.deepStrictEqual(yield* driver.renewWorkItemLocks([renewal]), ["LockLost"])

      const [second] = yield* claim(driver)
      const cancelledActivities = [{ instanceId: "a", executionId: 1, activityId: 3 }]
      assert.deepStrictEqual(
        yield* driver.ackOrchestrationItems([Test.turn(second!.lockToken, { cancelledActivities })]),
        ["Done"]
      )
      assert.strictEqual(yield* theirs.renewActivity(other!.out_lock_token), "LockLost")
    }))

  it.live("a session belongs to one owner, on either side", () =>
    Effect.gen(function*() {
      const { driver, sql, theirs } = yield* both
      const session = { workerId: "ours", lockTimeoutMs: 30_000 }
      yield* driver.enqueueForWorker([
        encodedActivity("a", 2, { session_id: "s" }),
        encodedActivity("a", 3, { session_id: "s" }),
        encodedActivity("a", 4, { session_id: "t" }),
        encodedActivity("a", 5, { session_id: "t" })
      ])
      yield* Test.take(driver, { limit: 1, session })
      const theirSession = yield* theirs.fetchActivity(30_000, "theirs")
      assert.include(theirSession?.out_work_item, "\"id\":4")
      const rest = yield* Test.take(driver, { session })
      assert.lengthOf(rest, 1)
      assert.include(rest[0]!.workItem, "\"id\":3")
      assert.include((yield* theirs.fetchActivity(30_000, "theirs"))?.out_work_item, "\"id\":5")
      assert.deepStrictEqual(yield* sql("SELECT session_id, worker_id FROM sessions ORDER BY 1"), [
        { session_id: "s", worker_id: "ours" },
        { session_id: "t", worker_id: "theirs" }
      ])
    }))
})

describe("texts", () => {
  const nasty = "ä \u2028 \u{1f980} \"quoted\" \\ / \n\t\u0001 \u007f {\"a\":1e3} ' $1"

  it.live("each side reads what the other stored in both queues and the history", () =>
    Effect.gen(function*() {
      const { driver, theirs } = yield* both
      const message = (data: string) => ({ QueueMessage: { instance: "a", name: nasty, data } })
      const event = (event_id: number, data: string) => ({ event_id, type: "ExternalEvent", name: nasty, data })
      const item = (id: number) => activityItem("a", id, { input: nasty })

      yield* driver.enqueueForOrchestrator([Test.message("a", JSON.stringify(message("ours")))])
      const first = yield* theirs.fetchInstance()
      assert.deepStrictEqual(first?.out_messages, [message("ours")])
      yield* theirs.ackInstance(first!.out_lock_token, {
        events: [event(1, "theirs")],
        workerItems: [item(2)],
        messages: [message("theirs")],
        metadata: named
      })

      const [second] = yield* claim(driver)
      assert.deepStrictEqual(second!.messages.map(({ workItem }) => JSON.parse(workItem) as unknown), [
        message("theirs")
      ])
      assert.deepStrictEqual(second!.history.map((text) => JSON.parse(text) as unknown), [event(1, "theirs")])
      const [taken] = yield* Test.take(driver)
      assert.deepStrictEqual(JSON.parse(taken!.workItem), item(2))
      yield* driver.ackWorkItems([{
        lockToken: taken!.lockToken,
        completion: { instanceId: "a", workItem: JSON.stringify(message("completion of ours")) }
      }])
      yield* driver.ackOrchestrationItems([Test.turn(second!.lockToken, {
        history: [{ eventId: 2, eventType: "TimerFired", eventData: JSON.stringify(event(2, "ours")) }],
        workerItems: [encodedActivity("a", 3, { input: nasty })],
        orchestratorItems: [Test.message("a", JSON.stringify(message("ours, in a turn")))]
      })])

      const third = yield* theirs.fetchInstance()
      assert.sameDeepMembers([...third!.out_messages], [message("completion of ours"), message("ours, in a turn")])
      assert.deepStrictEqual(third?.out_history, [event(1, "theirs"), event(2, "ours")])
      const last = yield* theirs.fetchActivity()
      assert.deepStrictEqual(JSON.parse(last!.out_work_item), item(3))
    }))
})
