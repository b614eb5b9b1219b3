import { assert, describe, it } from "@effect/vitest"
import { Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { times } from "../utils/times.ts"
import { activity, calls, continueAsNew, Instance, set, signal } from "./play.ts"
import { Dice, make } from "./randomPrograms.ts"

const A = activity("A")
const B = activity("B")
const New = activity("New")
const { changed } = Orchestration

const marker = (id: string) => `duroxide-prisma/changed("${id}")`

const before = Effect.gen(function*() {
  const first = yield* A(1)
  yield* signal("Go")
  return [first, yield* B(2)]
})

/** A step before the first one, and one after the signal. */
const after = Effect.gen(function*() {
  const isChecked = yield* changed("check")
  if (isChecked) yield* New("check")
  const first = yield* A(1)
  yield* signal("Go")
  const isInsured = yield* changed("insure")
  if (isInsured) yield* New("insure")
  return [first, yield* B(2), isChecked, isInsured]
})

describe("Orchestration.changed", () => {
  it("is true in an execution that begins with the new code, and is recorded once, as an activity that has ended", () => {
    const instance = new Instance(after)
    instance.turn()
    assert.deepStrictEqual(instance.events(), [
      "1 OrchestrationStarted",
      "2 ActivityScheduled",
      "3 ActivityCompleted <2",
      "4 ActivityScheduled"
    ])
    assert.deepStrictEqual(calls(instance.history), [marker("check"), "New(\"check\")"])
    assert.deepStrictEqual([...instance.activities.keys()], [4], "no worker runs the record of a change")
    instance.turn(instance.completed(4))
    instance.turn(instance.completed(6, "one"))
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(calls(instance.history).slice(-2), [marker("insure"), "New(\"insure\")"])
    instance.turn(instance.completed(instance.history.length))
    instance.turn(instance.completed(instance.history.length, "two"))
    assert.deepStrictEqual(instance.output, ["one", "two", true, true])
  })

  it("is false where the old code has passed, and true at the places that it had not reached", () => {
    const instance = new Instance(before)
    instance.turn()
    instance.turn(instance.completed(2, "one"))
    instance.become(after)
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "wait Go", marker("insure"), "New(\"insure\")"])
    instance.turn(instance.completed(instance.history.length))
    instance.turn(instance.completed(instance.history.length, "two"))
    assert.deepStrictEqual(instance.output, ["one", "two", false, true])
  })

  it("is false at every place of a history of the old code, and records nothing", () => {
    const instance = new Instance(before)
    instance.turn()
    instance.turn(instance.completed(2, "one"))
    instance.turn(instance.raised("Go"))
    instance.become(after)
    instance.turn(instance.completed(6, "two"))
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "wait Go", "B(2)"])
    assert.deepStrictEqual(instance.output, ["one", "two", false, false])
  })

  it("has one answer in an execution: false stays false at places that are new", () => {
    const instance = new Instance(before)
    instance.turn()
    instance.become(Effect.gen(function*() {
      const first = yield* changed("check")
      yield* A(1)
      return [first, yield* changed("check"), yield* changed("other")]
    }))
    instance.turn(instance.completed(2))
    assert.deepStrictEqual(instance.output, [false, false, true])
  })

  it("has one answer in an execution: true is recorded once", () => {
    const instance = new Instance(Effect.gen(function*() {
      const first = yield* changed("check")
      yield* A(1)
      return [first, yield* changed("check")]
    }))
    instance.turn()
    instance.turn(instance.completed(4))
    assert.deepStrictEqual(instance.output, [true, true])
    assert.deepStrictEqual(calls(instance.history), [marker("check"), "A(1)"])
  })

  it("is true in the next execution, which begins with the new code", () => {
    const loop = Effect.gen(function*() {
      yield* A(1)
      return yield* continueAsNew()
    })
    const instance = new Instance(loop)
    instance.turn()
    const seen: Array<boolean> = []
    instance.become(Effect.gen(function*() {
      seen.push(yield* changed("check"))
      yield* A(1)
      return yield* continueAsNew()
    }))
    instance.turn(instance.completed(2))
    assert.deepStrictEqual(new Set(seen), new Set([false]))
    seen.splice(0)
    instance.next().turn()
    assert.deepStrictEqual(new Set(seen), new Set([true]))
  })

  it("keeps the order of concurrent requests that the old code had made", () => {
    const all = { concurrency: "unbounded" } as const
    const instance = new Instance(Effect.all([A(1), B(2), signal("Go")], all))
    instance.turn()
    instance.become(Effect.all([
      Effect.flatMap(changed("first"), (isNew) => isNew ? New(1) : A(1)),
      Effect.flatMap(changed("second"), (isNew) => isNew ? New(2) : B(2)),
      signal("Go")
    ], all))
    instance.turn(instance.completed(2, "one"), instance.completed(3, "two"), instance.raised("Go", "go"))
    assert.deepStrictEqual(instance.output, ["one", "two", "go"])
  })

  it("is true in a replay also behind requests of other fibers", () => {
    const instance = new Instance(Effect.all([
      A(1),
      Effect.tap(B(2), () => Effect.flatMap(changed("check"), (isNew) => isNew ? New(1) : Effect.void)),
      Effect.andThen(Effect.yieldNow, changed("last"))
    ], { concurrency: "unbounded" }))
    instance.turn()
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "B(2)", marker("last")])
    instance.turn(instance.completed(3, "two"))
    instance.turn(instance.completed(2, "one"))
    instance.turn(instance.completed(9))
    assert.deepStrictEqual(instance.output, ["one", "two", true])
  })

  it("is false at a place that the old code has passed, although no request follows it", () => {
    const instance = new Instance(Effect.all([A(1), signal("Go")], { concurrency: "unbounded" }))
    instance.turn()
    instance.turn(instance.completed(2, "one"))
    instance.become(Effect.all([
      Effect.tap(A(1), () => Effect.flatMap(changed("notify"), (isNew) => isNew ? New(1) : Effect.void)),
      signal("Go")
    ], { concurrency: "unbounded" }))
    instance.turn(instance.raised("Go"))
    assert.deepStrictEqual(calls(instance.history), ["A(1)", "wait Go"])
    assert.deepStrictEqual(instance.output, ["one", null])
  })

  it("is true where the old code waits just before it", () => {
    const instance = new Instance(A(1))
    instance.turn()
    instance.become(Effect.tap(A(1), () => Effect.flatMap(changed("notify"), (isNew) => isNew ? New(1) : Effect.void)))
    instance.turn(instance.completed(2, "one"))
    assert.deepStrictEqual(calls(instance.history), ["A(1)", marker("notify"), "New(1)"])
  })

  it("may be removed from the code: what took the new branch continues with it", () => {
    const instance = new Instance(after)
    instance.turn()
    instance.turn(instance.completed(4))
    instance.become(Effect.gen(function*() {
      yield* New("check")
      yield* A(1)
      return yield* signal("Go")
    }))
    instance.turn(instance.completed(6))
    instance.turn(instance.raised("Go", "go"))
    assert.strictEqual(instance.output, "go")
  })

  it("may be asked in another order, and beside others", () => {
    const instance = new Instance(Effect.gen(function*() {
      yield* changed("one")
      yield* changed("two")
      yield* A(1)
    }))
    instance.turn()
    instance.become(Effect.gen(function*() {
      const answers = [yield* changed("two"), yield* changed("three"), yield* changed("one")]
      yield* A(1)
      return answers
    }))
    instance.turn(instance.completed(6))
    assert.deepStrictEqual(instance.output, [true, false, true])
  })

  it("the old code does not fit an instance that took the new branch, and the error names the request", () => {
    const instance = new Instance(after)
    instance.turn()
    instance.become(before)
    instance.turn(instance.completed(4))
    assert.deepInclude(instance.failure, {
      message: "event 4: history has activity \"New\", the code asks for activity \"A\""
    })
  })

  it("counts requests that need no answer as places", () => {
    const instance = new Instance(Effect.andThen(set("k", "1"), A(1)))
    instance.turn()
    instance.become(Effect.gen(function*() {
      yield* set("k", "1")
      const answer = yield* changed("check")
      yield* A(1)
      return answer
    }))
    instance.turn(instance.completed(3))
    assert.strictEqual(instance.output, false)
  })

  it("ids that cannot be stored are refused", () => {
    assert.throws(() => changed(""), RangeError, "name of change \"\" is refused: it is empty")
  })

  it("random programs: instances of the old code continue with the new code, whenever it is deployed", () => {
    const answers = { old: 0, new: 0 }
    const programs = times(100)
    for (let seed = 1; seed <= programs; seed++) {
      const old = make(new Dice(seed), 3)
      const next = make(new Dice(seed), 3, ({ program, text }, n) => ({
        text: `changed(${n}) ${text}`,
        program: Effect.flatMap(changed(String(n)), (isChanged) => {
          answers[isChanged ? "new" : "old"]++
          return isChanged ? Effect.andThen(New(n), program) : program
        })
      }))
      const dice = new Dice(-seed)
      const instance = new Instance(old.program, { instanceId: `i${seed}` })
      const deployedAt = dice.below(5)
      for (let turn = 0; turn === 0 || instance.outcome._tag === "Waiting"; turn++) {
        if (turn === deployedAt) instance.become(next.program)
        const where = `seed ${seed}, turn ${turn}, deployed at ${deployedAt}: ${old.text}`
        if (turn > 500) assert.fail(`${where} does not end`)
        instance.turn(...(turn === 0 ? [] : due(dice, instance)))
        if (instance.outcome._tag === "Failed") {
          assert.strictEqual(
            instance.outcome.details._tag,
            "Application",
            `${where} ${JSON.stringify(instance.outcome)}`
          )
        }
      }
    }
    assert.isAbove(answers.old, programs)
    assert.isAbove(answers.new, programs)
  })
})

/** Some answers that are due, at least one. */
const due = (dice: Dice, instance: Instance) => {
  const messages = [
    ...[...instance.activities.keys()].map((id) => () => instance.completed(id, id)),
    ...[...instance.children.keys()].map((id) => () => instance.childCompleted(id, id)),
    ...[...instance.timers.keys()].map((id) => () => instance.fired(id)),
    ...["A", "B", "C"].flatMap((name) => [() => instance.raised(name, name), () => instance.sent(name, name)])
  ]
  return dice.shuffle(messages).slice(0, 1 + dice.below(3)).map((message) => message())
}
