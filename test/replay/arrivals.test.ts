import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import { activity, continueAsNew, Instance, signal, take } from "./play.ts"

const A = activity("A")
const B = activity("B")

/** Waits for two activities (2 and 3), a timer (4) and a signal (5). */
const waiting = (options?: ConstructorParameters<typeof Instance>[1]) => {
  const instance = new Instance(
    Effect.all([A(1), B(2), Effect.sleep(50), signal("Go")], { concurrency: "unbounded" }),
    options
  )
  instance.turn()
  return instance
}

describe("arrival", () => {
  it("completion: a second one is dropped with a warning, in the same batch or later", () => {
    const instance = waiting()
    const { warnings } = instance.turn(instance.completed(2, "a"), instance.completed(2, "b"))
    assert.deepStrictEqual(instance.written, ["6 ActivityCompleted <2"])
    assert.deepStrictEqual(warnings, ["ActivityCompleted for event 2 is dropped, it was answered before"])
    const timer = instance.fired(4)
    instance.turn(timer, timer)
    instance.turn(timer, instance.completed(2, "c"))
    assert.deepStrictEqual(instance.written, [])
    assert.strictEqual(instance.last.warnings.length, 2)
    assert.deepStrictEqual(instance.last.turn.orchestratorItems, [])
    assert.deepStrictEqual(instance.last.turn.metadata, {})
    instance.turn(instance.completed(3, "d"), instance.raised("Go", "e"))
    assert.deepStrictEqual(instance.output, ["a", "d", null, "e"])
  })

  it("completion: any answer is final: a failure after a success, a success after a failure, a second failure", () => {
    const other = ErrorDetails.application("ActivityFailed", "\"second\"")
    for (
      const [first, second] of [
        [(i: Instance) => i.completed(2, "won"), (i: Instance) => i.failedWith(2, other)],
        [(i: Instance) => i.failed(2, "won"), (i: Instance) => i.completed(2, "second")],
        [(i: Instance) => i.failed(2, "won"), (i: Instance) => i.failedWith(2, other)],
        // Not even a failure that would end the instance.
        [
          (i: Instance) => i.completed(2, "won"),
          (i: Instance) => i.failedWith(2, ErrorDetails.nondeterminism("elsewhere"))
        ]
      ] as const
    ) {
      for (const together of [true, false]) {
        const instance = new Instance(
          Effect.andThen(
            Effect.catch(A(1), (error) => Effect.succeed(error)),
            (answer) => Effect.as(signal("Go"), answer)
          )
        )
        instance.turn()
        if (together) instance.turn(first(instance), second(instance))
        else {
          instance.turn(first(instance))
          instance.turn(second(instance))
        }
        instance.turn(instance.raised("Go"))
        assert.strictEqual(instance.output, "won")
        assert.strictEqual(instance.events().filter((event) => event.includes("<2")).length, 1)
      }
    }
  })

  it("completion: of another execution is dropped with a warning", () => {
    const instance = new Instance(Effect.race(A(1), Effect.sleep(50)), { executionId: 2 })
    instance.turn()
    const { warnings } = instance.turn(
      { ...instance.completed(2), executionId: 1 },
      { ...instance.fired(3), executionId: 1 },
      { ...instance.failed(2), executionId: 3 }
    )
    assert.deepStrictEqual(instance.written, [])
    assert.deepStrictEqual(warnings, [
      "ActivityCompleted for execution 1 is dropped, 2 runs now",
      "TimerFired for execution 1 is dropped, 2 runs now",
      "ActivityFailed for execution 3 is dropped, 2 runs now"
    ])
    assert.strictEqual(instance.outcome._tag, "Waiting")
  })

  it("completion: for nothing that was scheduled fails an instance of Duroxide, and is not recorded", () => {
    for (
      const [message, problem] of [
        [(i: Instance) => i.completed(9), "no matching schedule for completion id=9"],
        [(i: Instance) => i.failed(1), "no matching schedule for completion id=1"],
        [(i: Instance) => ({ ...i.fired(4), id: 99 }), "no matching schedule for timer id=99"]
      ] as const
    ) {
      const instance = waiting({ version: { major: 0, minor: 1, patch: 31 } })
      instance.turn(instance.completed(2), message(instance), instance.completed(3))
      assert.deepStrictEqual(instance.failure, ErrorDetails.nondeterminism(problem))
      assert.deepStrictEqual(instance.written.slice(0, 3), [
        "6 ActivityCompleted <2",
        "7 ActivityCompleted <3",
        "8 ExternalSubscribedCancelled <5 orchestration_terminal"
      ])
    }
  })

  it("completion: of the wrong kind fails the instance, and is not recorded", () => {
    for (
      const [message, expected, got] of [
        [(i: Instance) => i.completed(4), "timer", "activity"],
        [(i: Instance) => i.failed(4), "timer", "activity"],
        [(i: Instance) => ({ ...i.fired(4), id: 2 }), "activity", "timer"]
      ] as const
    ) {
      const instance = waiting()
      const one = message(instance)
      instance.turn(one)
      assert.deepStrictEqual(
        instance.failure,
        ErrorDetails.nondeterminism(`completion kind mismatch for id=${one.id}, expected '${expected}', got '${got}'`)
      )
      assert.notMatch(instance.written.join(), /ActivityCompleted|ActivityFailed|TimerFired/)
    }
  })

  it("completion: for nothing that was scheduled, or for a wait, is dropped: a retry may have removed the request", () => {
    const instance = waiting()
    const { warnings } = instance.turn(instance.completed(9), instance.completed(5), instance.completed(2))
    assert.deepStrictEqual(instance.written, ["6 ActivityCompleted <2"])
    assert.deepStrictEqual(warnings, [
      "ActivityCompleted for event 9 is dropped, the history has no such request",
      "ActivityCompleted for event 5 is dropped, the history has no such request"
    ])
  })

  it("signal: every one is recorded, even without an open wait", () => {
    const instance = waiting()
    instance.turn(instance.raised("Go", 1), instance.raised("Go", 2), instance.raised("Unknown"))
    assert.deepStrictEqual(instance.written, ["6 ExternalEvent", "7 ExternalEvent", "8 ExternalEvent"])
    instance.turn(instance.raised("Go", 3))
    instance.turn(instance.completed(2), instance.completed(3), instance.fired(4))
    assert.deepStrictEqual(instance.output, [null, null, null, 1])
  })

  it("signal: one that arrives before the wait is lost", () => {
    const instance = new Instance(Effect.andThen(Effect.sleep(50), signal("Go")))
    instance.turn(instance.raised("Go", "before the first turn"))
    instance.turn(instance.raised("Go", "while it sleeps"))
    instance.turn(instance.fired(3), instance.raised("Go", "in the turn that opens the wait"))
    assert.strictEqual(instance.outcome._tag, "Waiting")
    instance.turn(instance.raised("Go", "while it waits"))
    assert.strictEqual(instance.output, "while it waits")
  })

  it("signal: reaches the oldest wait of its name, names are independent", () => {
    const instance = new Instance(
      Effect.all([signal("A"), signal("B"), signal("A"), signal("B")], { concurrency: "unbounded" })
    )
    instance.turn()
    instance.turn(instance.raised("B", "b1"), instance.raised("A", "a1"))
    instance.turn(instance.raised("A", "a2"), instance.raised("B", "b2"), instance.raised("A", "a3"))
    assert.deepStrictEqual(instance.output, ["a1", "b1", "a2", "b2"])
  })

  it("signal: a wait opened after one signal of a batch does not take the next one", () => {
    const instance = new Instance(Effect.all([signal("Go"), signal("Go")]))
    instance.turn()
    instance.turn(instance.raised("Go", 1), instance.raised("Go", 2))
    instance.turn(instance.raised("Go", 3))
    assert.deepStrictEqual(instance.output, [1, 3])
  })

  it("queue message: is recorded and kept", () => {
    const instance = waiting()
    instance.turn({ _tag: "QueueMessage", instance: "i", name: "inbox", data: "1" })
    assert.deepStrictEqual(instance.written, ["6 ExternalEventPersistent"])
    assert.strictEqual(instance.outcome._tag, "Waiting")
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.written, ["7 ExternalEvent"])
  })

  it("messages: become events in the order in which they arrived, with the turn's clock", () => {
    const instance = waiting()
    const timer = instance.fired(4)
    instance.nowMs += 1_000
    instance.turn(instance.raised("Go"), timer, instance.completed(3), instance.raised("X"), instance.failed(2))
    assert.deepStrictEqual(instance.written.slice(0, 5), [
      "6 ExternalEvent",
      "7 TimerFired <4",
      "8 ActivityCompleted <3",
      "9 ExternalEvent",
      "10 ActivityFailed <2"
    ])
    assert.deepStrictEqual(
      new Set(instance.last.turn.historyDelta.map((event) => event.timestampMs)),
      new Set([instance.nowMs])
    )
  })

  it("end of a task: it arrives while its call waits or its task is being created, and is dropped later", () => {
    const box = "duroxide-prisma/task/1"
    const instance = new Instance(Effect.gen(function*() {
      yield* Effect.raceFirst(Effect.andThen(activity("duroxide-prisma/CreateTask")(null), take(box)), signal("Go"))
      return yield* signal("Stop")
    }))
    const end = instance.sent(box, "end")
    instance.turn(end)
    assert.notInclude(instance.written.join(), "ExternalEventPersistent", "before the first request")
    instance.turn(instance.sent("duroxide-prisma/task/2"))
    assert.deepStrictEqual(instance.written, ["4 ExternalEventPersistent"])
    instance.turn(instance.completed(2))
    instance.turn(instance.raised("Go"), end)
    assert.include(instance.written.join(), "ExternalEventPersistent", "the wait is given up in this turn")
    instance.turn(end)
    assert.deepStrictEqual(instance.written, [])
    instance.turn(instance.raised("Stop"), end)
    assert.notInclude(instance.written.join(), "ExternalEventPersistent")
    assert.strictEqual(instance.outcome._tag, "Completed")
  })

  it("end of a task: it arrives although its creation has failed, which may have created it before it is repeated", () => {
    const box = "duroxide-prisma/task/1"
    const create = activity("duroxide-prisma/CreateTask")
    const instance = new Instance(Effect.gen(function*() {
      yield* Effect.exit(create(null))
      yield* signal("Again")
      yield* create(null)
      return yield* take(box)
    }))
    instance.turn()
    instance.turn(instance.failed(2, "the connection was lost"))
    instance.turn(instance.sent(box, "end"))
    instance.turn(instance.raised("Again"))
    instance.turn(instance.completed(7))
    assert.strictEqual(instance.output, "end")
  })

  it("end of a task: the next execution does not carry it", () => {
    const instance = new Instance(Effect.gen(function*() {
      yield* Effect.forkDetach(take("duroxide-prisma/task/1"), { startImmediately: true })
      yield* signal("Go")
      return yield* continueAsNew(2)
    }))
    instance.turn()
    instance.turn(instance.raised("Go"), instance.sent("other", 1), instance.sent("duroxide-prisma/task/1", 2))
    assert.deepStrictEqual(
      instance.last.turn.orchestratorItems.map((item) => item._tag === "ContinueAsNew" ? item.carryForwardEvents : []),
      [[["other", "1"]]]
    )
  })

  it("messages: none at all change nothing", () => {
    const instance = waiting()
    const { outcome, turn } = instance.turn()
    assert.strictEqual(outcome._tag, "Waiting")
    assert.deepStrictEqual(turn, {
      executionId: 1,
      historyDelta: [],
      workerItems: [],
      orchestratorItems: [],
      cancelledActivities: [],
      metadata: {}
    })
  })
})
