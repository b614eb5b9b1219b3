import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { engine } from "../../src/replay/context.ts"
import { activity, brief, Instance, signal } from "./play.ts"

type Program = Effect.Effect<unknown, unknown, Orchestration.Instance>

const A = activity("A")
const B = activity("B")

const call = (name: string, options: { readonly sessionId?: string; readonly tag?: string }) =>
  Effect.andThen(
    engine,
    ({ perform }) => perform({ _tag: "CallActivity", name, input: "\"secret\"", ...options })
  )

/** What the second turn says when the code has changed after the first one. */
const changed = (
  before: Program,
  after: Program,
  options: { readonly id?: number; readonly version?: { major: number; minor: number; patch: number } } = {}
) => {
  const instance = new Instance(before, options)
  instance.turn()
  instance.become(after)
  instance.turn(instance.completed(options.id ?? 2, "secret"))
  const { failure } = instance
  if (failure._tag !== "Configuration" || failure.message === null) return assert.fail(JSON.stringify(failure))
  assert.strictEqual(failure.resource, "")
  assert.notInclude(failure.message, "secret", "payloads are not shown")
  assert.strictEqual(instance.last.turn.metadata.output, `nondeterministic: ${failure.message}`)
  // No request of the changed code is stored.
  assert.notInclude(instance.written.join(), "Scheduled")
  assert.deepStrictEqual(instance.last.turn.workerItems, [])
  return failure.message
}

describe("nondeterminism", () => {
  it("name: says which activity history has, and which the code asks for", () => {
    assert.strictEqual(
      changed(A("secret"), B("secret")),
      "event 2: history has activity \"A\", the code asks for activity \"B\""
    )
    assert.strictEqual(
      changed(
        Effect.all([A(1), signal("Go")], { concurrency: 2 }),
        Effect.all([A(1), signal("Gone")], { concurrency: 2 })
      ),
      "event 3: history has wait for lossy signal \"Go\", the code asks for wait for lossy signal \"Gone\""
    )
  })

  it("task: is named itself, not the activity that creates it", () => {
    const run = (activity: string, name: string) =>
      Effect.andThen(
        engine,
        ({ perform }) =>
          perform({ _tag: "CallActivity", name: activity, input: JSON.stringify({ name, payload: "secret" }) })
      )
    for (const creates of ["duroxide-prisma/CreateTask", "duroxide-prisma/RunTask"]) {
      assert.strictEqual(
        changed(run(creates, "Resize"), A(1)),
        "event 2: history has task \"Resize\", the code asks for activity \"A\""
      )
      assert.strictEqual(
        changed(A(1), run(creates, "Resize")),
        "event 2: history has activity \"A\", the code asks for task \"Resize\""
      )
    }
  })

  it("kind: says what history has, and what the code asks for", () => {
    assert.strictEqual(
      changed(A("secret"), Effect.sleep(5)),
      "event 2: history has activity \"A\", the code asks for timer"
    )
    assert.strictEqual(
      changed(A("secret"), signal("A")),
      "event 2: history has activity \"A\", the code asks for wait for lossy signal \"A\""
    )
    assert.strictEqual(
      changed(
        Effect.all([A(1), Effect.sleep(5)], { concurrency: 2 }),
        Effect.all([A(1), A("secret")], { concurrency: 2 })
      ),
      "event 3: history has timer, the code asks for activity \"A\""
    )
  })

  it("order: names the first difference", () => {
    assert.strictEqual(
      changed(Effect.all([A(1), B(2)], { concurrency: 2 }), Effect.all([B(2), A(1)], { concurrency: 2 })),
      "event 2: history has activity \"A\", the code asks for activity \"B\""
    )
    assert.strictEqual(
      changed(
        Effect.all([A(1), A(2), B(3)], { concurrency: 3 }),
        Effect.all([A(1), B(3), A(2)], { concurrency: 3 })
      ),
      "event 3: history has activity \"A\", the code asks for activity \"B\""
    )
  })

  it("input: says that it differs, not what it is", () => {
    assert.strictEqual(
      changed(A("secret one"), A("secret two")),
      "event 2: history has activity \"A\", the code asks for the same with another input"
    )
  })

  it("session and tag: says which of them differs", () => {
    assert.strictEqual(
      changed(call("A", { sessionId: "s" }), call("A", { sessionId: "t" })),
      "event 2: history has activity \"A\", the code asks for the same with another session"
    )
    assert.strictEqual(
      changed(call("A", { sessionId: "s" }), call("A", {})),
      "event 2: history has activity \"A\", the code asks for the same with another session"
    )
    assert.strictEqual(
      changed(call("A", {}), call("A", { tag: "gpu" })),
      "event 2: history has activity \"A\", the code asks for the same with another tag"
    )
  })

  it("timer: another duration is allowed, and the recorded one counts", () => {
    const instance = new Instance(Effect.as(Effect.sleep(100), "slept"))
    instance.turn()
    instance.become(Effect.as(Effect.sleep(5_000), "slept"))
    instance.turn(instance.fired(2))
    assert.strictEqual(instance.output, "slept")
  })

  it("removed call: the code asks for nothing more", () => {
    assert.strictEqual(
      changed(Effect.all([A(1), B(2)], { concurrency: 2 }), A(1)),
      "event 3: history has activity \"B\", the code asks for nothing more"
    )
  })

  it("removed call: in a history of many turns, the error names the event", () => {
    const instance = new Instance(Effect.forEach([1, 2, 3], (n) => A(n)))
    instance.turn()
    instance.turn(instance.completed(2))
    instance.turn(instance.completed(4))
    instance.become(Effect.andThen(A(1), signal("Go")))
    instance.turn(instance.completed(6))
    assert.deepInclude(instance.failure, {
      message: "event 4: history has activity \"A\", the code asks for wait for lossy signal \"Go\""
    })
  })

  it("early return: in an execution of this package the code must not end before its history", () => {
    assert.strictEqual(
      changed(Effect.all([A(1), B(2)], { concurrency: 2 }), Effect.succeed("early")),
      "event 2: history has activity \"A\", the code has already ended"
    )
    const instance = new Instance(Effect.forEach([1, 2], (n) => A(n)))
    instance.turn()
    instance.turn(instance.completed(2))
    instance.become(A(1))
    instance.turn(instance.completed(4))
    assert.deepInclude(instance.failure, { message: "event 4: history has activity \"A\", the code has already ended" })
  })

  it("early return: an execution of Duroxide completes, by its rule", () => {
    const instance = new Instance(Effect.all([A(1), B(2)], { concurrency: 2 }), {
      version: { major: 0, minor: 1, patch: 30 }
    })
    instance.turn()
    instance.become(Effect.succeed("early"))
    instance.turn(instance.completed(2))
    assert.strictEqual(instance.output, "early")
    assert.deepStrictEqual(instance.written, [
      "4 ActivityCompleted <2",
      "5 OrchestrationCompleted",
      "6 ActivityCancelRequested <3 orchestration_terminal_completed"
    ])
  })

  it("early return: also after the last recorded event, if that turn stored no end", () => {
    const instance = new Instance(Effect.all([A(1), B(2)], { concurrency: 2 }))
    instance.turn()
    instance.turn(instance.completed(2))
    instance.become(Effect.raceFirst(A(1), B(2)))
    instance.turn(instance.completed(3))
    assert.deepInclude(instance.failure, {
      message: "event 4: history has the code waiting for more, the code has already ended"
    })
  })

  it("early death: where a mismatch fails the execution, it is reported as a panic", () => {
    const instance = new Instance(Effect.andThen(A(1), B(2)))
    instance.turn()
    instance.turn(instance.completed(2))
    instance.become(Effect.die("a new bug"))
    instance.turn(instance.completed(4))
    assert.deepInclude(instance.failure, { kind: "Panicked", message: "a new bug" })
  })

  it("early failure: counts as an early return, too", () => {
    assert.strictEqual(
      changed(A(1), Effect.fail("secret")),
      "event 2: history has activity \"A\", the code has already ended"
    )
  })

  it("more calls than history has: are new", () => {
    const instance = new Instance(A(1))
    instance.turn()
    instance.become(Effect.all([A(1), B(2)], { concurrency: 2 }))
    instance.turn(instance.completed(2))
    assert.deepStrictEqual(instance.written, ["3 ActivityCompleted <2", "4 ActivityScheduled"])
  })

  it("a call before the recorded ones: the error names the first of them", () => {
    assert.strictEqual(
      changed(A("secret"), Effect.andThen(Effect.forkChild(B(1), { startImmediately: true }), A("secret"))),
      "event 2: history has activity \"A\", the code asks for activity \"B\""
    )
  })

  it("history: an answer to nothing open, or without a beginning, is corrupt", () => {
    const headless = new Instance(A(1))
    headless.turn()
    headless.history.splice(0, 2, { ...headless.history[1]!, eventId: 1 })
    headless.turn(headless.completed(1))
    assert.deepInclude(headless.failure, { message: "event 1: history must begin with OrchestrationStarted" })

    const instance = new Instance(A(1))
    instance.turn()
    const [started, scheduled] = instance.history
    instance.history.length = 0
    instance.history.push(
      started!,
      scheduled!,
      { ...started!, _tag: "ActivityCompleted", eventId: 3, sourceEventId: 2, result: "1" } as never,
      { ...started!, _tag: "ActivityCompleted", eventId: 4, sourceEventId: 2, result: "1" } as never
    )
    instance.become(Effect.andThen(A(1), signal("Go")))
    instance.turn()
    assert.deepInclude(instance.failure, { message: "event 4: ActivityCompleted answers event 2, which is not open" })
    assert.deepStrictEqual(instance.history.slice(4).map(brief), ["5 OrchestrationFailed"])
  })

  it("served by: a definition that another side serves by now is the same request; the turn names the side", () => {
    const asks = (servedBy: "rust" | "typescript") => {
      const child = Orchestration.make("C", { servedBy })
      return Effect.all(
        [Activity.make("A", { servedBy }).execute(), child.startDetached({ instanceId: "d" }), child.execute()],
        { concurrency: "unbounded" }
      )
    }
    for (const [before, after] of [["rust", "typescript"], ["typescript", "rust"]] as const) {
      const instance = new Instance(asks(before))
      const { forRust, startsPinnedTo, workerItems } = instance.turn().turn
      assert.deepStrictEqual([...forRust ?? []], before === "rust" ? workerItems : [])
      assert.deepStrictEqual(
        [...startsPinnedTo!].map(([item, { major }]) => [item._tag === "StartOrchestration" && item.instance, major]),
        [["d", before === "rust" ? 0 : 1000], ["i::sub::4", before === "rust" ? 0 : 1000]]
      )
      instance.become(asks(after))
      assert.strictEqual(instance.turn(instance.completed(2, null)).outcome._tag, "Waiting")
    }
  })
})
