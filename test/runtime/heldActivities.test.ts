import { assert, describe, it } from "@effect/vitest"
import { Notifier, ProviderError } from "duroxide-prisma/provider"
import type { Provider, WorkItem } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import { monotonicMs } from "../../src/model/shared/monotonic.ts"
import * as heldActivities from "../../src/runtime/heldActivities.ts"
import { makeUnsafe } from "../../src/runtime/settings.ts"
import type { Options } from "../../src/runtime/settings.ts"
import * as supervisor from "../../src/runtime/supervisor.ts"
import * as Notified from "../utils/notified.ts"
import { pass } from "../utils/notified.ts"
import { start } from "../utils/starts.ts"

/** One process that holds activities, with the instances whose locks each statement renews, and another one. */
const open = Effect.fnUntraced(function*(options: {
  readonly holder?: Notified.Options
  readonly other?: Notified.Options
  readonly settings?: Options
  readonly isDown?: () => boolean
  /** How long each renewal takes. Defaults to no time. */
  readonly renewalMs?: number
} = {}) {
  const checks: Array<ReadonlyArray<string>> = []
  const instances = new Map<string, string>()
  const store = Notified.make()
  const { provider } = yield* store.process({
    ...options.holder,
    change: (driver) => ({
      renewWorkItemLocks: (items) =>
        Effect.suspend(() => {
          checks.push(items.map(({ lockToken }) => instances.get(lockToken)!))
          if (options.isDown?.() === true) return Effect.fail(down)
          const renewed = driver.renewWorkItemLocks(items)
          return options.renewalMs === undefined ? renewed : Effect.tap(renewed, () => Effect.sleep(options.renewalMs!))
        })
    })
  })
  const other = (yield* store.process(options.other)).provider
  const settings = makeUnsafe(options.settings)
  const held = yield* heldActivities.make(provider, settings, supervisor.make())
  const lost: Array<string> = []

  /** Claims an activity of a new instance, which `isOfRust` or not. */
  const enter = Effect.fnUntraced(function*(instanceId: string, isOfRust = false) {
    yield* provider.startOrchestration(start(instanceId))
    const activity: WorkItem.Of<"ActivityExecute"> = {
      _tag: "ActivityExecute",
      instance: instanceId,
      executionId: 1,
      id: 7,
      name: "A",
      input: "1",
      ...(!isOfRust && { startedAtMs: 1 })
    }
    yield* provider.enqueueForWorker(activity)
    const [claimed] = yield* claim(provider)
    const one = new heldActivities.Held(claimed!)
    one.onLost = () => {
      lost.push(instanceId)
      held.leave(one)
    }
    instances.set(one.lockToken, instanceId)
    held.enter(one, monotonicMs(yield* Clock.Clock))
    return one
  })

  const claim = (provider: Provider.Provider["Service"]) =>
    provider.fetchWorkItems({
      lockTimeout: settings.workerLockTimeout,
      pollTimeout: Duration.zero,
      tags: { _tag: "DefaultOnly" },
      session: Option.none()
    })

  /** The other process stores a turn that cancels the activity of the instance that was started first. */
  const cancel = Notified.run(other, (item) => ({
    ...Notified.completion(item),
    cancelledActivities: [{ instanceId: item.instanceId, executionId: 1, activityId: 7 }]
  }))

  return { cancel, checks, claimElsewhere: claim(other), enter, held, lost }
})

describe("A running activity that another process cancels", () => {
  it.effect("learns of it at once, by one statement for its instance; until then its lock is checked at half of it", () =>
    Effect.gen(function*() {
      const { cancel, checks, enter, lost } = yield* open()
      yield* enter("a")
      yield* enter("b")
      yield* pass(10_000, 100)
      assert.deepStrictEqual(checks, [])
      yield* cancel
      yield* pass(20)
      assert.deepStrictEqual(lost, ["a"])
      assert.deepStrictEqual(checks, [["a"]])
      yield* pass(6_000, 100)
      assert.deepStrictEqual(checks, [["a"], ["b"]])
    }))

  it.effect("learns of it within half of its lock if the announcement is lost", () =>
    Effect.gen(function*() {
      const { cancel, enter, lost } = yield* open({ other: { drops: () => true } })
      yield* enter("a")
      yield* pass(1_000, 100)
      yield* cancel
      yield* pass(13_800, 100)
      assert.deepStrictEqual(lost, [])
      yield* pass(300, 100)
      assert.deepStrictEqual(lost, ["a"])
    }))

  it.effect("learns of it within the check interval without notifications, and if its orchestration is one of Rust", () =>
    Effect.gen(function*() {
      for (const [isNotified, isOfRust] of [[false, false], [true, true]] as const) {
        const { cancel, checks, enter, lost } = yield* open({
          holder: { isNotified },
          other: { drops: () => true },
          settings: { cancellationCheckInterval: "2 seconds" }
        })
        yield* enter("a", isOfRust)
        yield* enter("b")
        yield* pass(6_100, 100)
        assert.deepStrictEqual(checks, Array.from({ length: 3 }, () => isNotified ? ["a"] : ["a", "b"]))
        yield* cancel
        yield* pass(2_000, 100)
        assert.deepStrictEqual(lost, ["a"])
      }
    }))

  it.effect("of Rust does not wait for the check of one that is checked seldom", () =>
    Effect.gen(function*() {
      const { checks, enter } = yield* open()
      yield* enter("a")
      yield* pass(500, 100)
      yield* enter("b", true)
      yield* pass(1_100, 100)
      assert.deepStrictEqual(checks, [["b"]])
    }))
})

describe("The locks of held activities", () => {
  it.effect("stay live over a slow link, however many they are", () =>
    Effect.gen(function*() {
      const { claimElsewhere, enter, held, lost } = yield* open({
        renewalMs: 400,
        settings: { workerLockTimeout: "1 second" }
      })
      const all = yield* Effect.forEach(Array.from({ length: 300 }, (_, n) => `i${n}`), (id) => enter(id))
      for (let i = 0; i < 100; i++) {
        yield* pass(50)
        assert.isTrue(all.every((one) => held.isLocked(one)))
      }
      assert.deepStrictEqual(yield* claimElsewhere, [])
      assert.deepStrictEqual(lost, [])
    }))

  for (const isNotified of [true, false]) {
    it.effect(`stay live ${isNotified ? "with" : "without"} notifications`, () =>
      Effect.gen(function*() {
        const { claimElsewhere, enter, held, lost } = yield* open({ holder: { isNotified } })
        const one = yield* enter("a")
        for (let seconds = 0; seconds < 100; seconds++) {
          yield* pass(1_000, 100)
          assert.isTrue(held.isLocked(one))
          assert.deepStrictEqual(yield* claimElsewhere, [])
        }
        assert.deepStrictEqual(lost, [])
      }))
  }

  it.effect("are checked at once, and then each second, when the connection is lost; and once when it is back", () =>
    Effect.gen(function*() {
      let listener: Notifier.Listener | undefined
      const notifier = Notifier.Notifier.of({
        name: "played",
        listen: (given) => Effect.sync(() => void (listener = given)),
        announce: () => Effect.void
      })
      const { checks, claimElsewhere, enter, held } = yield* open({ holder: { notifier } })
      listener!.connected()
      const one = yield* enter("a")
      yield* pass(5_000, 100)
      listener!.disconnected("cut")
      yield* pass(3_050, 50)
      assert.lengthOf(checks, 4)
      listener!.connected()
      yield* pass(13_000, 100)
      assert.lengthOf(checks, 5)
      yield* pass(30_000, 100)
      assert.isTrue(held.isLocked(one))
      assert.deepStrictEqual(yield* claimElsewhere, [])
    }))

  it.effect("are checked as often as sessions need it", () =>
    Effect.gen(function*() {
      const { checks, enter } = yield* open({ settings: { sessionIdleTimeout: "10 seconds" } })
      yield* enter("a")
      yield* pass(3_050, 50)
      assert.lengthOf(checks, 3)
    }))

  for (const isNotified of [true, false]) {
    it.effect(`are renewed when the store is back ${isNotified ? "with" : "without"} notifications, all of them`, () =>
      Effect.gen(function*() {
        let isDown = false
        const { checks, enter, held } = yield* open({ holder: { isNotified }, isDown: () => isDown })
        const first = yield* enter("a")
        yield* pass(14_000, 100)
        isDown = true
        const second = yield* enter("b")
        yield* pass(3_000, 100)
        isDown = false
        checks.length = 0
        yield* pass(1_500, 100)
        assert.include(checks.flat(), "a")
        yield* pass(16_000, 100)
        assert.isTrue(held.isLocked(first) && held.isLocked(second))
      }).pipe(Effect.provide(Logger.layer([]))))
  }
})

const down = new ProviderError.ProviderError({
  operation: "renewWorkItemLocks",
  reason: new ProviderError.Unavailable({ problem: "down", sqlState: null })
})
