/**
 * Mail of one sender is read in the order in which it was sent, each message once and none late, whatever the clock of
 * the store does: random sequences of sends, claims and their ends, between steps of the clock back and forth.
 *
 * A failure prints its seed and the smallest sequence that still fails. `MAIL_RUNS` sets the number of sequences,
 * `MAIL_SEED` the seed.
 */
import { assert, it } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as fc from "fast-check"
import * as MemoryDriver from "../../src/provider/MemoryDriver.ts"
import type { ClaimedInstance } from "../../src/provider/ProviderDriver.ts"
import { changed, stepping } from "../utils/clock.ts"
import * as Test from "../utils/driver.ts"

const runs = Number(process.env["MAIL_RUNS"] ?? 200)
const seed = Number(process.env["MAIL_SEED"] ?? 1)

const startMs = Date.UTC(2030, 0, 1)
const lockTimeoutMs = 5_000

/** Sizes of batches: some have room for one message only. */
const bytes = fc.constantFrom(1, 200, 500, 1_000_000)
const times = fc.constantFrom(0, 1, 10, 1_000, 10_000, 60_000)

const operation = fc.oneof(
  { weight: 6, arbitrary: fc.record({ _tag: fc.constant("Send" as const), count: fc.integer({ min: 1, max: 3 }) }) },
  { weight: 3, arbitrary: fc.record({ _tag: fc.constant("Pass" as const), ms: times }) },
  { weight: 3, arbitrary: fc.record({ _tag: fc.constant("SetBack" as const), ms: times }) },
  {
    weight: 8,
    arbitrary: fc.record({
      _tag: fc.constant("Claim" as const),
      bytes,
      end: fc.oneof(
        { weight: 4, arbitrary: fc.record({ _tag: fc.constant("Turn" as const), timers: fc.constantFrom(0, 0, 20) }) },
        {
          weight: 4,
          arbitrary: fc.record({
            _tag: fc.constant("ContinueAsNew" as const),
            left: fc.integer({ min: 0, max: 2 }),
            requeued: fc.integer({ min: 0, max: 4 })
          })
        },
        {
          weight: 2,
          arbitrary: fc.record({ _tag: fc.constant("Abandon" as const), pauseMs: fc.constantFrom(0, 100) })
        },
        { weight: 1, arbitrary: fc.record({ _tag: fc.constant("Loss" as const) }) }
      ),
      /** How the clock changes between the claim and its end. */
      passMs: fc.constantFrom(0, 0, 10, -1_000, -60_000)
    })
  }
)

const sequence = fc.record({
  earlier: fc.integer({ min: 0, max: 3 }),
  startDelayMs: fc.constantFrom(0, 0, 1_000),
  operations: fc.array(operation, { maxLength: 30 })
})

type Sequence = typeof sequence extends fc.Arbitrary<infer A> ? A : never
type Operation = Sequence["operations"][number]
type End = Extract<Operation, { readonly _tag: "Claim" }>["end"]

const mail = (n: number) => `{"QueueMessage":{"instance":"box","name":"Mail","data":"${n}"}}`

const numbersOf = ({ messages }: ClaimedInstance) =>
  messages.flatMap(({ id, workItem }) => {
    const [, n] = /^\{"QueueMessage".*"data":"(\d+)"/.exec(workItem) ?? []
    return n === undefined ? [] : [{ id, n: Number(n) }]
  })

const begins = ({ messages }: ClaimedInstance) =>
  messages.some(({ workItem }) => /^\{"(StartOrchestration|ContinueAsNew)"/.test(workItem))

const play = Effect.fnUntraced(function*(
  driver: Test.Driver,
  pass: (ms: number) => void,
  { earlier, operations, startDelayMs }: Sequence
) {
  let sent = 0
  let heldUntilMs = 0
  let executionId = 0
  let hasEnded = true
  let lastEventId = 0
  /** What the program has received, and the events of this execution that record it. */
  const received: Array<number> = []
  let recorded: Array<number> = []

  const send = (count: number) =>
    Effect.forEach(
      Array.from({ length: count }),
      () => driver.enqueueForOrchestrator([Test.message("box", mail(sent++))])
    )

  const claim = (maxBytes: number) =>
    Effect.map(
      driver.fetchOrchestrationItems({ limit: 1, lockTimeoutMs, versions: null, maxBytes }),
      ([claimed]) => claimed
    )

  const settle = Effect.fnUntraced(function*(claimed: ClaimedInstance, end: End) {
    if (end._tag === "Loss") return
    if (end._tag === "Abandon") {
      const { pauseMs: delayMs } = end
      yield* driver.abandonOrchestrationItems([{ lockToken: claimed.lockToken, delayMs, ignoreAttempt: false }])
      return
    }
    if (hasEnded) {
      assert.isTrue(begins(claimed), "what begins an execution is in its first batch")
      ;[hasEnded, executionId, lastEventId, recorded] = [false, executionId + 1, 1, []]
    }
    const all = numbersOf(claimed)
    const taken = end._tag === "ContinueAsNew" ? all.slice(0, Math.max(0, all.length - end.left)) : all
    const history = taken.map(({ n }) => {
      recorded.push(++lastEventId)
      const event_id = lastEventId
      const data = { event_id, source_event_id: null, instance_id: "box", execution_id: executionId, timestamp_ms: 0 }
      const kind = { duroxide_version: "0.1.29", type: "ExternalEventPersistent", name: "Mail", data: String(n) }
      return {
        eventId: event_id,
        eventType: "ExternalEventPersistent",
        eventData: JSON.stringify({ ...data, ...kind })
      }
    })
    received.push(...taken.map(({ n }) => n))
    assert.deepStrictEqual(received, Array.from(received, (_, i) => i), "mail is received in order")
    const turn = Test.turn(claimed.lockToken, { ...Test.named, executionId, history })
    if (end._tag === "Turn") {
      const timers = Array.from({ length: end.timers }, (_, i) => ({
        ...Test.message("box", `{"TimerFired":{"id":${i}}}`),
        visibleAtMs: claimed.nowMs + 1_000 + i
      }))
      assert.deepStrictEqual(
        yield* driver.ackOrchestrationItems([{ ...turn, status: "Running", orchestratorItems: timers }]),
        ["Done"]
      )
      return
    }
    const requeued = recorded.slice(recorded.length - Math.min(end.requeued, recorded.length))
    received.splice(received.length - requeued.length)
    hasEnded = true
    assert.deepStrictEqual(
      yield* driver.ackOrchestrationItems([{
        ...turn,
        status: "ContinuedAsNew",
        orchestratorItems: [Test.message("box", `{"ContinueAsNew":{"instance":"box"}}`)],
        left: all.slice(taken.length).map(({ id }) => id),
        requeued
      }]),
      ["Done"]
    )
  })

  yield* send(earlier)
  yield* driver.startOrchestrations([Test.start("box", { delayMs: startDelayMs })])
  for (const operation of operations) {
    if (operation._tag === "Send") yield* send(operation.count)
    else if (operation._tag === "Pass") pass(operation.ms)
    else if (operation._tag === "SetBack") pass(-operation.ms)
    else {
      const claimed = yield* claim(operation.bytes)
      if (claimed === undefined) continue
      pass(operation.passMs)
      if (operation.end._tag === "Loss") heldUntilMs = claimed.nowMs + lockTimeoutMs
      if (operation.end._tag === "Abandon") heldUntilMs = (yield* Clock.currentTimeMillis) + operation.end.pauseMs
      yield* settle(claimed, operation.end)
    }
  }
  // What is not to wait is there at once, when the instance has begun and no lock holds it.
  if (startDelayMs > 0 && executionId === 0) pass(3_600_000)
  pass(Math.max(0, heldUntilMs - (yield* Clock.currentTimeMillis)))
  for (let i = 0; i < 300 && received.length < sent; i++) {
    const claimed = yield* claim(1)
    assert.isDefined(claimed, `mail is there: ${received.length} of ${sent} are received`)
    yield* settle(claimed, { _tag: "Turn", timers: 0 })
  }
  assert.strictEqual(received.length, sent)
})

const check = (open: (sequence: Sequence) => Effect.Effect<void, unknown>) =>
  Effect.gen(function*() {
    const result = yield* Effect.promise(() =>
      fc.check(
        fc.asyncProperty(sequence, (one) => Effect.runPromise(open(one))),
        { numRuns: runs, seed }
      )
    )
    if (!result.failed) return
    assert.fail(
      `${String(result.errorInstance)}\nseed ${result.seed}, path ${result.counterexamplePath}\n${
        JSON.stringify(result.counterexample?.[0])
      }`
    )
  })

const withClock = (open: Effect.Effect<Test.Driver>, sequence: Sequence) =>
  Effect.gen(function*() {
    const { clock, setBack } = stepping(changed(yield* Clock.Clock, { currentTimeMillisUnsafe: () => startMs }))
    yield* Effect.provideService(
      Effect.flatMap(open, (driver) => play(driver, (ms) => setBack(-ms), sequence)),
      Clock.Clock,
      clock
    )
  })

it.live("memory", () => check((sequence) => withClock(Effect.sync(() => MemoryDriver.make()), sequence)))

it.live("PostgreSQL", () =>
  Effect.gen(function*() {
    const { driver, sql } = yield* Test.open({ clock: "effect" })
    const clear = ["instances", "executions", "history", "instance_locks", "orchestrator_queue"]
      .map((table) => `DELETE FROM ${table}`).join(";")
    yield* check((sequence) => Effect.andThen(sql(clear), withClock(Effect.succeed(driver), sequence)))
  }))
