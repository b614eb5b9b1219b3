import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { Notifier } from "duroxide-prisma/provider"
import type { Backlog } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as storeGauges from "../../src/provider/internal/storeGauges.ts"
import { ConnectionLost, ProviderError } from "../../src/provider/ProviderError.ts"
import { make as makeHints } from "../../src/waking/hints.ts"

const backlog: Backlog.Backlog = {
  orchestrator: { depth: 3, oldestAgeMs: 1_500 },
  worker: [{ tag: "gpu", depth: 2, oldestAgeMs: 700 }, { tag: null, depth: 1, oldestAgeMs: 0 }],
  activeInstances: 7,
  blockedInstances: 2,
  limitedActivities: 4,
  limitedInstances: 5
}

const empty: Backlog.Backlog = {
  orchestrator: { depth: 0, oldestAgeMs: null },
  worker: [],
  activeInstances: 0,
  blockedInstances: 0,
  limitedActivities: 0,
  limitedInstances: 0
}

/** A process with metrics of its own. `statements` counts its samples. */
const process = Effect.fnUntraced(function*(notifier?: Notifier.Notifier["Service"]) {
  const registry: Metric.MetricRegistry = new Map()
  const state = { statements: 0, backlog, isDown: false }
  const scope = yield* Scope.make()
  const inside = Effect.provideService(Metric.MetricRegistry, registry)
  yield* Effect.gen(function*() {
    const hints = yield* makeHints(notifier, { notifyDeliveryTimeoutMs: 100 })
    yield* storeGauges.make(
      Effect.suspend(() => {
        state.statements++
        return state.isDown
          ? Effect.fail(new ProviderError({ operation: "readBacklog", reason: new ConnectionLost({ problem: "cut" }) }))
          : Effect.succeed(state.backlog)
      }),
      hints
    )
  }).pipe(Scope.provide(scope), inside)
  return {
    state,
    scope,
    /** Reads like an exporter: the gauges, and what follows from reading them. */
    read: Effect.gen(function*() {
      const all = yield* Metric.snapshot
      const gauges = {
        active: values(all, Metrics.activeOrchestrations)[""],
        blocked: values(all, Metrics.blockedInstances)[""],
        limited: values(all, Metrics.limitedActivities)[""],
        limitedInstances: values(all, Metrics.limitedInstances)[""],
        messages: values(all, Metrics.orchestratorQueueDepth)[""],
        activities: values(all, Metrics.workerQueueDepth),
        ages: values(all, Metrics.oldestMessageAge)
      }
      yield* TestClock.adjust(0)
      for (let i = 0; i < 20; i++) yield* Effect.yieldNow
      return gauges
    }).pipe(inside)
  }
})

const values = (all: ReadonlyArray<Metric.Metric.Snapshot>, { id }: { readonly id: string }) =>
  Object.fromEntries(
    all.filter((series) => series.id === id).map(({ attributes, state }) => {
      const { unit: _, ...labels } = attributes ?? {}
      return [Object.values(labels).join(" "), (state as Metric.GaugeState<number>).value]
    })
  )

const nothing = {
  active: undefined,
  blocked: undefined,
  limited: undefined,
  limitedInstances: undefined,
  messages: undefined,
  activities: {},
  ages: {}
}

const shown = {
  active: 7,
  blocked: 2,
  limited: 4,
  limitedInstances: 5,
  messages: 3,
  activities: { default: 1, gpu: 2 },
  ages: { "orchestrator default": 1.5, "worker default": 0, "worker gpu": 0.7 }
}

describe("Gauges of the store", () => {
  it.effect("cost nothing until they are read; a reader finds the sample that the one before led to", () =>
    Effect.gen(function*() {
      const { read, state } = yield* process()
      yield* TestClock.adjust("1 day")
      assert.strictEqual(state.statements, 0)
      assert.deepStrictEqual(yield* read, nothing)
      assert.strictEqual(state.statements, 1)
      assert.deepStrictEqual(yield* read, shown)
      assert.deepStrictEqual(yield* read, shown)
      assert.strictEqual(state.statements, 1, "at most one in ten seconds")
      state.backlog = empty
      yield* TestClock.adjust("10 seconds")
      assert.deepStrictEqual(yield* read, shown)
      assert.strictEqual(state.statements, 2)
      assert.deepStrictEqual(yield* read, {
        active: 0,
        blocked: 0,
        limited: 0,
        limitedInstances: 0,
        messages: 0,
        activities: { default: 0, gpu: 0 },
        ages: { "orchestrator default": 0, "worker default": 0, "worker gpu": 0 }
      })
    }))

  it.effect("disappear while the store does not answer, and with the process", () =>
    Effect.gen(function*() {
      const { read, scope, state } = yield* process()
      yield* read
      assert.deepStrictEqual(yield* read, shown)
      state.isDown = true
      yield* TestClock.adjust("10 seconds")
      yield* read
      assert.deepStrictEqual(yield* read, nothing)
      state.isDown = false
      yield* TestClock.adjust("10 seconds")
      yield* read
      assert.deepStrictEqual(yield* read, shown)
      yield* Scope.close(scope, Effect.exit(Effect.void) as never)
      assert.deepStrictEqual(yield* read, nothing)
    }))

  it.effect("one process samples for a fleet of twenty, whose exporters all read", () =>
    Effect.gen(function*() {
      const notifiers = Notifier.makeInProcess()
      const fleet = yield* Effect.forEach(
        Array.from({ length: 20 }, (_, i) => `process ${i}`),
        (sender) => process(notifiers.connect(sender))
      )
      const statements = () => fleet.reduce((sum, { state }) => sum + state.statements, 0)
      let shownBy = 0
      for (let round = 0; round < 10; round++) {
        for (const { read } of fleet) {
          if ((yield* read).active !== undefined) shownBy++
          yield* TestClock.adjust("750 millis")
        }
      }
      // 150 seconds, at most one sample in ten.
      assert.isAtMost(statements(), 15)
      assert.isAtLeast(statements(), 8)
      // Each sample is shown once.
      assert.isAtLeast(shownBy, statements() - 3)
      assert.isAtMost(shownBy, statements() + 1)
    }))
})
