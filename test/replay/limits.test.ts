import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as KeyValue from "../../src/KeyValue.ts"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import * as Orchestration from "../../src/Orchestration.ts"
import { engine } from "../../src/replay/context.ts"
import type { OrchestrationContext } from "../../src/replay/context.ts"
import { continueAsNew, Instance, set, signal } from "./play.ts"

const tagged = (tag: string) =>
  Effect.flatMap(engine, ({ perform }) => perform({ _tag: "CallActivity", name: "A", input: "1", tag }))

const clear = (key: string) => Effect.flatMap(engine, ({ request }) => request({ _tag: "ClearKeyValue", key }))

describe("limits", () => {
  const problemOf = (program: Effect.Effect<unknown, unknown, Orchestration.Instance>, options = {}) => {
    const instance = new Instance(program, { parent: { instance: "p", id: 7, executionId: 1 }, ...options })
    instance.turn()
    const { outcome } = instance
    if (outcome._tag !== "Failed") return outcome._tag
    const notice = { _tag: "SubOrchFailed", parentInstance: "p", parentExecutionId: 1, parentId: 7 } as const
    assert.deepStrictEqual(instance.last.turn.orchestratorItems, [{ ...notice, details: outcome.details }])
    if (outcome.details._tag !== "Application") return assert.fail(outcome.details._tag)
    // Not anything that a caller could mistake for an error of the program.
    assert.strictEqual(outcome.details.kind, "Panicked")
    assert.strictEqual(instance.written.filter((event) => event.includes("OrchestrationCompleted")).length, 0)
    return outcome.details.message
  }

  it("limits: a turn that exceeds one fails whatever its own end, and the parent is notified", () => {
    const status = (length: number) => Orchestration.setCustomStatus("é".repeat(length / 2))
    assert.strictEqual(problemOf(status(262_144)), "Completed")
    assert.strictEqual(problemOf(status(262_146)), "Custom status size (262146 bytes) exceeds limit (262144 bytes)")
    assert.strictEqual(problemOf(Effect.andThen(status(262_146), status(2))), "Completed")
    assert.strictEqual(problemOf(tagged("t".repeat(256))), "Waiting")
    assert.strictEqual(
      problemOf(tagged("t".repeat(257))),
      "Activity 'A' tag size (257 bytes) exceeds limit (256 bytes)"
    )
    assert.strictEqual(problemOf(set("k", "v".repeat(65_536))), "Completed")
    assert.strictEqual(
      problemOf(Effect.andThen(set("k", "v".repeat(65_537)), continueAsNew())),
      "KV value for key 'k' (65537 bytes) exceeds limit (65536 bytes)"
    )
  })

  it("limits: a string counts without the quotes and escapes of JSON", () => {
    const text = (value: string) => KeyValue.make("k", Schema.String).set(value)
    assert.strictEqual(problemOf(text("v".repeat(65_536))), "Completed")
    assert.strictEqual(problemOf(text("\n".repeat(65_536))), "Completed")
    assert.strictEqual(problemOf(text("é".repeat(32_768))), "Completed")
    const tooLong = "KV value for key 'k' (65537 bytes) exceeds limit (65536 bytes)"
    assert.strictEqual(problemOf(text("v".repeat(65_537))), tooLong)
    assert.strictEqual(problemOf(set("k", `"${"v".repeat(65_536)}`)), tooLong)
  })

  it("limits: all keys count, whichever turn set them", () => {
    const setAll = (n: number, prefix = "k") =>
      Effect.forEach(Array.from({ length: n }), (_, index) => set(`${prefix}${index}`, ""))
    const keyValues = new Map(Array.from({ length: 149 }, (_, index) => [`old${index}`, { value: "" }]))
    assert.strictEqual(problemOf(setAll(150)), "Completed")
    assert.strictEqual(problemOf(setAll(151)), "KV key count (151) exceeds limit (150)")
    assert.strictEqual(problemOf(setAll(1), { keyValues }), "Completed")
    assert.strictEqual(problemOf(setAll(2), { keyValues }), "KV key count (151) exceeds limit (150)")
    assert.strictEqual(problemOf(Effect.andThen(clear("old7"), setAll(2)), { keyValues }), "Completed")
    const later = new Instance(Effect.andThen(Effect.andThen(setAll(100, "a"), signal("Go")), setAll(100, "b")))
    later.turn()
    later.turn(later.raised("Go"))
    assert.strictEqual(
      ErrorDetails.display(later.failure),
      "orchestration panicked: KV key count (200) exceeds limit (150)"
    )
  })

  it("limits: a cancellation in the same turn comes first", () => {
    const instance = new Instance(Effect.andThen(signal("Go"), tagged("t".repeat(257))))
    instance.turn()
    instance.turn(instance.raised("Go"), instance.cancel("stop"))
    assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled("stop"))
  })
})

describe("status and values", () => {
  it("replay: removing a status or value from the code is noticed", () => {
    for (const vanishing of [set("k", "v"), clear("k"), Orchestration.setCustomStatus("s")]) {
      const instance = new Instance(Effect.andThen(signal("Go"), Effect.andThen(vanishing, signal("End"))))
      instance.turn()
      instance.turn(instance.raised("Go"))
      instance.become(Effect.andThen(signal("Go"), signal("End"))).turn(instance.raised("End"))
      assert.deepInclude(instance.failure, { kind: "Nondeterminism" })
    }
  })

  it("replay: a different value is noticed, a different custom status or time of a value is not", () => {
    const writing = (value: string, status: string) =>
      Effect.gen(function*() {
        yield* set("k", value)
        yield* Orchestration.setCustomStatus(status)
        yield* signal("Go")
        return yield* Orchestration.customStatus
      })
    const instance = new Instance(writing("v", "s"))
    instance.turn()
    instance.nowMs += 1_000
    instance.become(writing("v", "t")).turn(instance.raised("Go"))
    assert.strictEqual(instance.output, "t")
    const other = new Instance(writing("v", "s"))
    other.turn()
    other.become(writing("w", "s")).turn(other.raised("Go"))
    assert.deepInclude(other.failure, {
      message: "event 2: history has value of \"k\", the code asks for the same with another value"
    })
  })

  it("replay: a run of removals matches in any order if Duroxide recorded it, never if we did", () => {
    const removing = (...keys: ReadonlyArray<string>) => Effect.andThen(Effect.forEach(keys, clear), signal("Go"))
    for (const [major, outcome] of [[0, "Completed"], [1000, "Failed"]] as const) {
      const instance = new Instance(removing("a", "b", "c"), { version: { major, minor: 1, patch: 30 } })
      instance.turn()
      instance.become(removing("c", "a", "b")).turn(instance.raised("Go"))
      assert.strictEqual(instance.outcome._tag, outcome)
    }
    const other = new Instance(removing("a", "b"), { version: { major: 0, minor: 1, patch: 30 } })
    other.turn()
    other.become(removing("a", "d")).turn(other.raised("Go"))
    assert.strictEqual(other.outcome._tag, "Failed")
  })

  it("status, key: a text that cannot be stored is a defect that says so, without showing it", () => {
    const [unstorable, long] = [KeyValue.make("secret\0", Schema.Int), KeyValue.make("secret".repeat(427), Schema.Int)]
    const problems = new Map<Effect.Effect<void, never, OrchestrationContext>, RegExp>([
      [Orchestration.setCustomStatus("secret\0"), /custom status is refused: it holds a NUL character/],
      [unstorable.set(1), /key is refused: it holds a NUL character/],
      [unstorable.clear, /key is refused: it holds a NUL character/],
      [long.set(1), /key is refused: it has 2562 bytes, the limit is \d+: with the instance's id it may have 2560/]
    ])
    for (const [program, expected] of problems) {
      const instance = new Instance(program)
      instance.turn()
      const problem = ErrorDetails.display(instance.failure)
      assert.match(problem, expected)
      assert.notInclude(problem, "secret")
    }
  })
})
