import { assert, describe, it } from "@effect/vitest"
import { KeyValue, Orchestration } from "duroxide-prisma"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { continueAsNew, Instance, signal, start } from "./replay/play.ts"

const A = KeyValue.make("a", Schema.Int)
const B = KeyValue.make("b", Schema.Int)

describe("KeyValue.getAll", () => {
  const read = Effect.map(KeyValue.getAll, (values) => [...values])

  it("reads keys in order with their texts, of earlier executions, earlier turns and this one, on every replay", () => {
    for (const staysWarm of [true, false]) {
      const instance = new Instance(
        Effect.gen(function*() {
          const seen = [yield* read]
          yield* B.set(2)
          yield* A.set(1)
          seen.push(yield* read)
          yield* signal("Go")
          yield* A.clear
          for (const key of ["ä", "\u{1F600}", "\uFF5E"]) yield* KeyValue.make(key, Schema.String).set("text")
          seen.push(yield* read)
          yield* signal("Go")
          yield* KeyValue.clearAll
          return [...seen, yield* read]
        }),
        { keyValues: new Map([["old", { value: "bare" }]]), ...(staysWarm ? {} : { staysWarm }) }
      )
      instance.turn()
      instance.turn(instance.raised("Go"))
      instance.turn(instance.raised("Go"))
      assert.deepStrictEqual(instance.output, [
        [["old", "bare"]],
        [["a", "1"], ["b", "2"], ["old", "bare"]],
        // By UTF-16 code units, not by code points.
        [["b", "2"], ["old", "bare"], ["ä", `"text"`], ["\u{1F600}", `"text"`], ["\uFF5E", `"text"`]],
        []
      ])
    }
  })

  it("decides what a program does next, also after continue-as-new", () => {
    const program = Effect.gen(function*() {
      const keys = [...(yield* KeyValue.getAll).keys()]
      if (keys.length === 2) return keys
      yield* KeyValue.make(`round-${keys.length}`, Schema.Int).set(keys.length)
      yield* signal("Go")
      return yield* continueAsNew()
    })
    let instance = new Instance(program, { staysWarm: false })
    for (let round = 0; round < 2; round++) {
      instance.turn()
      instance.turn(instance.raised("Go"))
      instance = instance.next()
    }
    instance.turn()
    assert.deepStrictEqual(instance.output, ["round-0", "round-1"])
  })
})

describe("KeyValue.clearAll", () => {
  it("removes all keys, set in earlier executions, earlier turns or this one", () => {
    const instance = new Instance(
      Effect.gen(function*() {
        yield* A.set(1)
        yield* signal("Go")
        yield* KeyValue.clearAll
        const empty = [yield* A.get, yield* KeyValue.make("old", Schema.Int).get]
        yield* B.set(2)
        return [...empty, yield* B.get].map(Option.getOrNull)
      }),
      { keyValues: new Map([["old", { value: "0" }]]) }
    )
    instance.turn()
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.output, [null, null, 2])
    assert.deepStrictEqual(instance.written.slice(1), [
      "5 KeyValuesCleared",
      "6 KeyValueSet",
      "7 OrchestrationCompleted"
    ])
  })

  it("is nondeterminism when it is removed from the code of a running instance", () => {
    const instance = new Instance(Effect.andThen(KeyValue.clearAll, signal("Go")))
    instance.turn()
    instance.become(signal("Go")).turn(instance.raised("Go"))
    assert.strictEqual(instance.failure._tag, "Configuration")
  })
})

describe("KeyValue.clearSetBefore", () => {
  const Old = KeyValue.make("old", Schema.Int)
  const all = Effect.map(KeyValue.getAll, (values) => [...values.keys()])

  it("removes keys last set before the time, of this and of earlier executions, in key order", () => {
    const instance = new Instance(
      Effect.gen(function*() {
        yield* Effect.forEach(["c", "b"], (key) => KeyValue.make(key, Schema.Int).set(1))
        yield* Effect.sleep("1 hour")
        const now = yield* DateTime.now
        yield* A.set(1)
        const removed = yield* KeyValue.clearSetBefore(now)
        yield* signal("Go")
        return [removed, ...yield* all]
      }),
      { keyValues: new Map([["old", { value: "0", lastUpdatedAtMs: start - 1 }], ["z", { value: "0" }]]) }
    )
    instance.turn()
    instance.nowMs += 3_600_000
    instance.turn(instance.timers.get(4)!)
    assert.deepStrictEqual(
      instance.history.flatMap((event) => event._tag === "KeyValueCleared" ? event.key : []),
      ["b", "c", "old", "z"]
    )
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(instance.output, [4, "a"])
  })

  it("sees the times of the turns, on every replay and over continue-as-new", () => {
    const program = Effect.gen(function*() {
      const { executionId } = yield* Orchestration.Instance
      if (executionId === 1) {
        yield* Old.set(1)
        yield* Effect.sleep("1 hour")
        yield* A.set(1)
        return yield* continueAsNew()
      }
      const removed = yield* KeyValue.clearSetBefore(start + 1)
      yield* signal("Go")
      return [removed, ...yield* all]
    })
    const first = new Instance(program, { staysWarm: false })
    first.turn()
    first.nowMs += 3_600_000
    first.turn(first.timers.get(3)!)
    const second = first.next()
    second.turn()
    second.turn(second.raised("Go"))
    assert.deepStrictEqual(second.output, [1, "a"])
  })
})
