import { assert, describe, it } from "@effect/vitest"
import { MemoryDriver } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as Test from "../utils/driver.ts"

type Driver = ProviderDriver.ProviderDriver["Service"]

const claim = { limit: 1, lockTimeoutMs: 30_000, versions: null }
const work = { limit: 1, lockTimeoutMs: 30_000, session: null }

/** What waits, after each step; times are those of the test's clock. */
const story = Effect.fnUntraced(function*(driver: Driver) {
  const seen: Array<unknown> = []
  const look = Effect.flatMap(driver.readBacklog({ limit: 100 }), (backlog) => Effect.sync(() => seen.push(backlog)))
  yield* look
  yield* driver.startOrchestrations([Test.start("a"), Test.start("later", { delayMs: 60_000 })])
  yield* TestClock.adjust("1 second")
  yield* driver.startOrchestrations([Test.start("b")])
  // Waits for its start.
  yield* driver.enqueueForOrchestrator([Test.message("orphan")])
  yield* driver.enqueueForWorker([
    Test.activity({ name: "A" }),
    Test.activity({ name: "B", tag: "gpu", activityId: 2 }),
    Test.activity({ name: "C", tag: "gpu", activityId: 3, sessionId: "s" })
  ])
  yield* TestClock.adjust("2 seconds")
  yield* look
  // Claimed work does not wait, nor does what comes for a claimed instance.
  const [instance] = yield* driver.fetchOrchestrationItems(claim)
  assert.strictEqual(instance!.instanceId, "a")
  yield* driver.enqueueForOrchestrator([Test.message("a")])
  yield* driver.fetchWorkItems({ ...work, tags: { _tag: "DefaultOnly" } })
  yield* look
  // Its locks have run out: it waits since then.
  yield* TestClock.adjust("31 seconds")
  yield* look
  // A pause.
  yield* driver.abandonOrchestrationItems([{ lockToken: instance!.lockToken, delayMs: 60_000, ignoreAttempt: true }])
  yield* look
  yield* TestClock.adjust("1 minute")
  yield* look
  return seen
})

const expected = [
  {
    orchestrator: { depth: 0, oldestAgeMs: null },
    worker: [],
    activeInstances: 0,
    blockedInstances: 0,
    limitedActivities: 0,
    limitedInstances: 0
  },
  {
    orchestrator: { depth: 2, oldestAgeMs: 3_000 },
    worker: [{ tag: "gpu", depth: 2, oldestAgeMs: 2_000 }, { tag: null, depth: 1, oldestAgeMs: 2_000 }],
    activeInstances: 3,
    blockedInstances: 0,
    limitedActivities: 0,
    limitedInstances: 0
  },
  {
    orchestrator: { depth: 1, oldestAgeMs: 2_000 },
    worker: [{ tag: "gpu", depth: 2, oldestAgeMs: 2_000 }],
    activeInstances: 3,
    blockedInstances: 0,
    limitedActivities: 0,
    limitedInstances: 0
  },
  {
    orchestrator: { depth: 3, oldestAgeMs: 33_000 },
    worker: [{ tag: "gpu", depth: 2, oldestAgeMs: 33_000 }, { tag: null, depth: 1, oldestAgeMs: 1_000 }],
    activeInstances: 3,
    blockedInstances: 0,
    limitedActivities: 0,
    limitedInstances: 0
  },
  {
    orchestrator: { depth: 1, oldestAgeMs: 33_000 },
    worker: [{ tag: "gpu", depth: 2, oldestAgeMs: 33_000 }, { tag: null, depth: 1, oldestAgeMs: 1_000 }],
    activeInstances: 3,
    blockedInstances: 0,
    limitedActivities: 0,
    limitedInstances: 0
  },
  {
    orchestrator: { depth: 4, oldestAgeMs: 93_000 },
    worker: [{ tag: "gpu", depth: 2, oldestAgeMs: 93_000 }, { tag: null, depth: 1, oldestAgeMs: 61_000 }],
    activeInstances: 3,
    blockedInstances: 0,
    limitedActivities: 0,
    limitedInstances: 0
  }
]

describe("readBacklog", () => {
  it.effect("counts what could be claimed, and since when: memory", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual<unknown>(yield* story(MemoryDriver.make()), expected)
    }))

  it.effect("counts what could be claimed, and since when: PostgreSQL", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open({ clock: "effect" })
      assert.deepStrictEqual<unknown>(yield* story(driver), expected)
    }))

  it.live("claimed work in front hides nothing behind it, unless it is ten times as much as the limit", () =>
    Effect.gen(function*() {
      const { driver } = yield* Test.open()
      const ids = (name: string, count: number) => Array.from({ length: count }, (_, i) => `${name}${i}`)
      const add = (name: string, count: number) =>
        Effect.andThen(
          driver.startOrchestrations(ids(name, count).map((id) => Test.start(id))),
          driver.enqueueForWorker(
            ids(name, count).flatMap((id) => [
              Test.activity({ instanceId: id }),
              Test.activity({ instanceId: id, tag: "gpu", sessionId: id })
            ])
          )
        )
      yield* add("claimed", 17)
      yield* Test.claim(driver, 17)
      yield* Test.take(driver, { limit: 34, session: { workerId: "me", lockTimeoutMs: 30_000 } })
      yield* add("waiting", 3)
      const depths = Effect.map(driver.readBacklog({ limit: 2 }), ({ orchestrator, worker }) => [
        orchestrator.depth,
        ...worker.map(({ depth }) => depth)
      ])
      assert.deepStrictEqual(yield* depths, [2, 2, 2])
      yield* Test.claim(driver, 3)
      yield* add("hidden", 3)
      assert.strictEqual((yield* depths)[0], 0)
    }))

  it.live("leaves out messages to instances that Duroxide runs", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* Test.open()
      yield* driver.startOrchestrations([Test.start("ours"), Test.start("its")])
      yield* sql("UPDATE orchestrator_queue SET route = '0.1.30 =1.0.0 Orchestration' WHERE instance_id = 'its'")
      const { orchestrator } = yield* driver.readBacklog({ limit: 100 })
      assert.strictEqual(orchestrator.depth, 1)
    }))
})
