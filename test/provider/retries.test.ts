import { assert, describe, it } from "@effect/vitest"
import { Client, Metrics, Orchestration, Runtime } from "duroxide-prisma"
import { FromDriver, MemoryDriver, Provider } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import { ConnectionLost, Contention, PermissionDenied, ProviderError } from "../../src/provider/ProviderError.ts"
import type { Reason } from "../../src/provider/ProviderError.ts"
import * as Starts from "../utils/starts.ts"

type Driver = ProviderDriver.ProviderDriver["Service"]

const lost = new ConnectionLost({ problem: "cut" })
const contention = new Contention({ sqlState: "40001", problem: "conflict" })
const denied = new PermissionDenied({ problem: "no right" })

/**
 * A provider whose driver fails `failures` times, and then works. With `answerLost` a failing call has done its work
 * nevertheless. Operations that are `broken` always fail. `calls` are the driver's calls: what, and when by the clock.
 */
const open = Effect.fnUntraced(function*(answerLost = false) {
  const store = MemoryDriver.make()
  const calls: Array<readonly [operation: string, atMs: number]> = []
  const failures: Array<Reason> = []
  const broken = new Set<string>()
  const failing = (operation: string, call: Effect.Effect<unknown, ProviderError>) =>
    Effect.gen(function*() {
      calls.push([operation, yield* Clock.currentTimeMillis])
      const reason = broken.has(operation) ? lost : failures.shift()
      if (reason === undefined) return yield* call
      if (answerLost) yield* call
      return yield* new ProviderError({ operation, reason })
    })
  const driver = Object.fromEntries(
    Object.entries(store).map(([name, member]) => [
      name,
      typeof member === "function"
        ? (input: never) => failing(name, (member as (input: never) => Effect.Effect<unknown, ProviderError>)(input))
        : name === "cleanupOrphanedSessions"
        ? failing(name, member as Driver["cleanupOrphanedSessions"])
        : member
    ])
  ) as unknown as Driver
  return { provider: yield* FromDriver.make(driver), broken, calls, failures, store }
})

/** Runs a call until it ends, in virtual time that passes only when nothing can happen without it. */
const settled = <A, E>(call: Effect.Effect<A, E>) =>
  Effect.gen(function*() {
    const fiber = yield* Effect.forkChild(Effect.exit(call), { startImmediately: true })
    while (fiber.pollUnsafe() === undefined) {
      for (let i = 0; i < 20; i++) yield* Effect.yieldNow
      yield* TestClock.adjust("10 millis")
    }
    return yield* yield* Fiber.join(fiber)
  })

const second = Duration.seconds(1)
const options = { lockTimeout: Duration.seconds(30), pollTimeout: Duration.zero }
const cancel = { _tag: "CancelInstance", instance: "a", reason: "" } as const
const activity = { _tag: "ActivityExecute", instance: "a", executionId: 1, id: 2, name: "A", input: "1" } as const
const start = Starts.start("a")
const turn = {
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: {},
  cancelledActivities: []
}

const fetchInstance = (provider: Provider.Provider["Service"]) =>
  Effect.map(provider.fetchOrchestrationItem({ ...options, versions: Option.none() }), Option.getOrThrow)

const silent = Effect.provide(Logger.layer([]))

describe("Retries:", () => {
  it.effect("a claim that fails twice then succeeds, after 50 and 100 ms, with a fresh clock each time", () =>
    Effect.gen(function*() {
      const { calls, failures, provider } = yield* open()
      yield* provider.startOrchestration(start)
      calls.length = 0
      failures.push(lost, contention)
      const { attemptCount, item } = yield* settled(fetchInstance(provider))
      // Failed attempts are not deliveries, and the time of the turn is that of the attempt that succeeded.
      assert.strictEqual(attemptCount, 1)
      assert.strictEqual(item.nowMs, 150)
      assert.deepStrictEqual(calls, [0, 50, 150].map((atMs) => ["fetchOrchestrationItems", atMs]))
    }).pipe(silent))

  it.effect("a turn that fails twice is stored once", () =>
    Effect.gen(function*() {
      const { calls, failures, provider } = yield* open()
      yield* provider.startOrchestration(start)
      const { lockToken } = yield* settled(fetchInstance(provider))
      const now = yield* Clock.currentTimeMillis
      calls.length = 0
      failures.push(contention, lost)
      yield* settled(provider.ackOrchestrationItem(lockToken, turn))
      assert.deepStrictEqual(calls, [0, 50, 150].map((atMs) => ["ackOrchestrationItems", now + atMs]))
    }).pipe(silent))

  it.effect("after the fourth failure, 300 ms after the first, the caller gets the last one", () =>
    Effect.gen(function*() {
      const { calls, failures, provider } = yield* open()
      failures.push(lost, lost, lost, contention, lost)
      const error = yield* Effect.flip(settled(provider.read("a")))
      assert.strictEqual(error.reason._tag, "Contention")
      assert.isTrue(error.isRetryable)
      assert.deepStrictEqual(calls, [0, 50, 150, 300].map((atMs) => ["readHistory", atMs]))
    }).pipe(silent))

  it.effect("a permanent failure is not retried, even after a retryable one", () =>
    Effect.gen(function*() {
      const { calls, failures, provider } = yield* open()
      failures.push(denied)
      assert.strictEqual((yield* Effect.flip(settled(provider.read("a")))).reason._tag, "PermissionDenied")
      assert.lengthOf(calls, 1)
      failures.push(lost, denied)
      assert.strictEqual((yield* Effect.flip(settled(provider.read("a")))).reason._tag, "PermissionDenied")
      assert.lengthOf(calls, 3)
    }).pipe(silent))

  it.effect("an ack whose answer was lost: the token is used up, and the turn is not stored twice", () =>
    Effect.gen(function*() {
      const { calls, failures, provider, store } = yield* open(true)
      yield* provider.startOrchestration(start)
      const { lockToken } = yield* settled(fetchInstance(provider))
      calls.length = 0
      failures.push(lost)
      const orchestratorItems = [{ ...start.start, instance: "b" }]
      const error = yield* Effect.flip(
        settled(provider.ackOrchestrationItem(lockToken, { ...turn, orchestratorItems }))
      )
      assert.strictEqual(error.reason._tag, "LockLost")
      assert.lengthOf(calls, 2)
      const [claimed] = yield* store.fetchOrchestrationItems({ limit: 9, lockTimeoutMs: 1, versions: null })
      assert.strictEqual(claimed!.instanceId, "b")
      assert.lengthOf(claimed!.messages, 1)
    }).pipe(silent))

  it.effect("a start whose answer was lost fails, and its repetition finds the one instance there is", () =>
    Effect.gen(function*() {
      const { calls, failures, provider } = yield* open(true)
      failures.push(lost)
      const error = yield* Effect.flip(settled(provider.startOrchestration(start)))
      assert.strictEqual(error.reason._tag, "ConnectionLost")
      assert.strictEqual(yield* settled(provider.startOrchestration(start)), "AlreadyExists")
      assert.lengthOf(calls, 2)
      assert.lengthOf((yield* settled(fetchInstance(provider))).item.messages, 1)
    }).pipe(silent))

  it.effect("two turns that fail together with a conflict are sent once together, then four times each", () =>
    Effect.gen(function*() {
      const { calls, failures, provider } = yield* open()
      failures.push(...Array.from({ length: 9 }, () => contention))
      const acks = ["t", "u"].map((lockToken) => Effect.flip(provider.ackOrchestrationItem(lockToken, turn)))
      const errors = yield* settled(Effect.all(acks, { concurrency: "unbounded" }))
      assert.deepStrictEqual(errors.map(({ reason }) => reason._tag), ["Contention", "Contention"])
      assert.deepStrictEqual(calls.map(([, atMs]) => atMs), [0, 0, 0, 50, 50, 150, 150, 300, 300])
    }).pipe(silent))

  // Another level of retries would multiply the statements sent to a failing database.
  it.effect("a turn of the runtime is sent four times, then its instance is paused", () =>
    Effect.gen(function*() {
      const { broken, calls, provider } = yield* open()
      const Nothing = Orchestration.make("Nothing")
      const app = Layer.provide(
        Layer.merge(
          Client.layer,
          Layer.provide(Runtime.layer({ orchestrations: [Nothing] }), Nothing.toLayer(() => Effect.void))
        ),
        Layer.succeed(Provider.Provider, provider)
      )
      broken.add("ackOrchestrationItems")
      yield* settled(
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* client.start(Nothing, { instanceId: "a" })
          yield* Effect.sleep("1 second")
          broken.clear()
        }).pipe(Effect.provide(app))
      )
      const settling = calls.filter(([operation]) => /^(ack|abandon)Orchestration/.test(operation))
      const first = settling[0]![1]
      assert.deepStrictEqual(settling.slice(0, 6).map(([operation, atMs]) => [operation, atMs - first]), [
        ...[0, 50, 150, 300].map((atMs) => ["ackOrchestrationItems", atMs]),
        ["abandonOrchestrationItems", 300],
        // After the pause, the first of the next four.
        ["ackOrchestrationItems", 400]
      ])
    }).pipe(silent))

  const calls: Record<
    string,
    readonly [retried: boolean, (provider: Provider.Provider["Service"]) => Effect.Effect<unknown, ProviderError>]
  > = {
    fetchOrchestrationItems: [
      true,
      (provider) => provider.fetchOrchestrationItem({ ...options, versions: Option.none() })
    ],
    ackOrchestrationItems: [true, (provider) => provider.ackOrchestrationItem("t", turn)],
    renewOrchestrationItemLocks: [
      true,
      (provider) => provider.renewOrchestrationItemLock({ lockToken: "t", extendFor: second })
    ],
    fetchWorkItems: [
      true,
      (provider) => provider.fetchWorkItems({ ...options, tags: { _tag: "Any" }, session: Option.none() })
    ],
    renewWorkItemLocks: [true, (provider) => provider.renewWorkItemLock({ lockToken: "t", extendFor: second })],
    renewSessionLocks: [
      true,
      (provider) => provider.renewSessionLock({ workerIds: ["o"], extendFor: second, idleTimeout: second })
    ],
    readHistory: [true, (provider) => provider.readWithExecution("a", 1)],
    readInstances: [true, (provider) => provider.readInstance("a")],
    readEnds: [true, (provider) => provider.awaitEnd({ instanceId: "a" })],
    readProgress: [true, (provider) => provider.awaitProgress({ instanceId: "a", until: Option.some })],
    readKeyValues: [true, (provider) => provider.getKvAllValues("a")],
    readInstanceStats: [true, (provider) => provider.getInstanceStats("a")],
    enqueueForOrchestrator: [
      false,
      (provider) => provider.enqueueForOrchestrator({ message: cancel, delay: Option.none() })
    ],
    enqueueForWorker: [false, (provider) => provider.enqueueForWorker(activity)],
    startOrchestrations: [false, (provider) => provider.startOrchestration(start)],
    // Settled by their tokens; the runtime decides whether to come back.
    ackWorkItems: [false, (provider) => provider.ackWorkItem("t", Option.none())],
    abandonWorkItems: [
      false,
      (provider) => provider.abandonWorkItem({ lockToken: "t", delay: Option.none(), ignoreAttempt: false })
    ],
    abandonOrchestrationItems: [
      false,
      (provider) => provider.abandonOrchestrationItem({ lockToken: "t", delay: Option.none(), ignoreAttempt: false })
    ],
    cleanupOrphanedSessions: [false, (provider) => provider.cleanupOrphanedSessions],
    sweepMessages: [true, (provider) => provider.sweepMessages({ maxAge: second })],
    readBacklog: [true, (provider) => provider.readBacklog],
    advanceOrchestrations: [
      false,
      (provider) =>
        provider.advanceOrchestration({
          instanceId: "a",
          lastEvent: Starts.scheduled("a", 2),
          results: [{
            lockToken: "t",
            completion: { _tag: "ActivityCompleted", instance: "a", executionId: 1, id: 2, result: "" }
          }],
          turn,
          clockMs: 0,
          handOver: undefined
        })
    ]
  }
  for (const [operation, [isRetried, call]] of Object.entries(calls)) {
    it.effect(`${operation}: a retryable failure is ${isRetried ? "retried up to three times" : "returned at once"}`, () =>
      Effect.gen(function*() {
        const { calls, failures, provider } = yield* open()
        failures.push(lost, lost, lost, lost)
        const error = yield* Effect.flip(settled(call(provider)))
        assert.strictEqual(error.reason._tag, "ConnectionLost")
        assert.deepStrictEqual(calls, (isRetried ? [0, 50, 150, 300] : [0]).map((atMs) => [operation, atMs]))
      }).pipe(silent))
  }

  const labels: Record<string, string> = {
    fetchOrchestrationItems: "fetch",
    ackOrchestrationItems: "ack_orch",
    advanceOrchestrations: "advance_orch",
    renewOrchestrationItemLocks: "renew_orch",
    abandonOrchestrationItems: "abandon_orch",
    fetchWorkItems: "dequeue_worker",
    ackWorkItems: "ack_worker",
    renewWorkItemLocks: "renew_worker",
    abandonWorkItems: "abandon_worker",
    enqueueForOrchestrator: "enqueue",
    enqueueForWorker: "enqueue_worker",
    startOrchestrations: "enqueue",
    renewSessionLocks: "renew_session_locks",
    cleanupOrphanedSessions: "cleanup_orphaned_sessions",
    sweepMessages: "sweep_messages",
    readHistory: "read_history",
    readInstances: "read_instances",
    readEnds: "read_ends",
    readProgress: "read_progress",
    readKeyValues: "read_key_values",
    readInstanceStats: "read_instance_stats",
    readBacklog: "read_backlog"
  }

  it.effect("every failed statement of every call is counted, also when a retry heals it", () =>
    Effect.gen(function*() {
      assert.sameMembers(Object.keys(labels), Object.keys(calls))
      for (const [call, [isRetried, run]] of Object.entries(calls)) {
        yield* Effect.gen(function*() {
          const { failures, provider } = yield* open()
          const count = (error_type: string) =>
            Effect.map(
              Metric.value(
                Metric.withAttributes(Metrics.infrastructureErrors, { operation: labels[call]!, error_type })
              ),
              ({ count }) => count
            )
          failures.push(lost, ...(isRetried ? [lost] : []))
          // It may still fail for another reason, such as a lock that is unknown.
          yield* Effect.exit(settled(Effect.timeoutOption(run(provider), "1 second")))
          assert.strictEqual(yield* count("transaction_failed"), isRetried ? 2 : 1, call)
          failures.push(...Array.from({ length: isRetried ? 4 : 1 }, () => contention))
          yield* Effect.exit(settled(Effect.timeoutOption(run(provider), "1 second")))
          assert.isAtLeast(yield* count("serialization_error"), 1, call)
          assert.strictEqual(yield* count("unknown"), 0, call)
        }).pipe(Effect.provideService(Metric.MetricRegistry, new Map()))
      }
    }).pipe(silent))

  it.effect("error types tell locks, conflicts, outages and all others apart", () =>
    Effect.gen(function*() {
      const { failures, provider } = yield* open()
      for (
        const reason of [new Contention({ sqlState: "55P03", problem: "locked" }), contention, lost, denied] as const
      ) {
        failures.push(reason)
        yield* Effect.exit(settled(provider.startOrchestration(start)))
      }
      for (const error_type of ["lock_timeout", "serialization_error", "transaction_failed", "unknown"]) {
        const { count } = yield* Metric.value(
          Metric.withAttributes(Metrics.infrastructureErrors, { operation: "enqueue", error_type })
        )
        assert.strictEqual(count, 1, error_type)
      }
    }).pipe(silent, Effect.provideService(Metric.MetricRegistry, new Map())))

  const retriesOfTurns = Effect.map(Metric.value(Metrics.ackOrchestrationRetries), ({ count }) => count)

  it.effect("every repeated send of a turn is counted: retries, and single sends of a split set", () =>
    Effect.gen(function*() {
      const { failures, provider } = yield* open()
      yield* provider.startOrchestration(start)
      const { lockToken } = yield* settled(fetchInstance(provider))
      failures.push(lost, lost)
      yield* settled(provider.ackOrchestrationItem(lockToken, turn))
      assert.strictEqual(yield* retriesOfTurns, 2)
      // Once together, then four times each.
      failures.push(...Array.from({ length: 9 }, () => contention))
      const acks = ["t", "u"].map((lockToken) => Effect.flip(provider.ackOrchestrationItem(lockToken, turn)))
      yield* settled(Effect.all(acks, { concurrency: "unbounded" }))
      assert.strictEqual(yield* retriesOfTurns, 2 + 2 * 4)
      // Another turn is not a repetition.
      yield* Effect.flip(settled(provider.ackOrchestrationItem("v", turn)))
      assert.strictEqual(yield* retriesOfTurns, 10)
    }).pipe(silent, Effect.provideService(Metric.MetricRegistry, new Map())))

  it.effect("a turn that is run and sent again after its instance was paused is counted, too", () =>
    Effect.gen(function*() {
      const { broken, calls, provider } = yield* open()
      const Nothing = Orchestration.make("Nothing")
      const app = Layer.provide(
        Layer.merge(
          Client.layer,
          Layer.provide(Runtime.layer({ orchestrations: [Nothing] }), Nothing.toLayer(() => Effect.void))
        ),
        Layer.succeed(Provider.Provider, provider)
      )
      broken.add("ackOrchestrationItems")
      yield* settled(
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* client.start(Nothing, { instanceId: "a" })
          yield* Effect.sleep("1 second")
          broken.clear()
          yield* client.wait(Nothing, "a")
        }).pipe(Effect.provide(app))
      )
      const sends = calls.filter(([operation]) => operation === "ackOrchestrationItems").length
      assert.isAbove(sends, 4)
      assert.strictEqual(yield* retriesOfTurns, sends - 1)
    }).pipe(silent, Effect.provideService(Metric.MetricRegistry, new Map())))
})
