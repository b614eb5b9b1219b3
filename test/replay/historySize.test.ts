import { assert, describe, it } from "@effect/vitest"
import { Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import { activity, continueAsNew, Instance, set, signal, take } from "./play.ts"
import { Dice, make } from "./randomPrograms.ts"

const A = activity("A")
const { historySize } = Orchestration

describe("Orchestration.historySize", () => {
  it("counts the events up to the one with which the program continues", () => {
    const instance = new Instance(Effect.gen(function*() {
      const sizes = [yield* historySize]
      yield* A(1)
      sizes.push(yield* historySize)
      yield* Effect.all([A(2), signal("Go")], { concurrency: "unbounded" })
      sizes.push(yield* historySize)
      yield* Orchestration.changed("check")
      // The message is there: the wait itself is the last event.
      yield* take("Mail")
      sizes.push(yield* historySize)
      return sizes
    }))
    instance.turn()
    instance.turn(instance.completed(2))
    instance.turn(instance.sent("Mail"))
    instance.turn(instance.raised("Go"))
    instance.turn(instance.completed(4))
    assert.deepStrictEqual(instance.events(), [
      "1 OrchestrationStarted",
      "2 ActivityScheduled",
      "3 ActivityCompleted <2",
      "4 ActivityScheduled",
      "5 ExternalSubscribed",
      "6 ExternalEventPersistent",
      "7 ExternalEvent",
      "8 ActivityCompleted <4",
      "9 ActivityScheduled",
      "10 ActivityCompleted <9",
      "11 ExternalSubscribedPersistent",
      "12 OrchestrationCompleted"
    ])
    assert.deepStrictEqual(instance.output, [1, 3, 8, 11])
  })

  it("begins anew with each execution", () => {
    const instance = new Instance(Effect.gen(function*() {
      while ((yield* historySize) < 5) yield* A(1)
      return yield* continueAsNew(yield* historySize)
    }))
    instance.turn()
    instance.turn(instance.completed(2))
    instance.turn(instance.completed(4))
    assert.deepInclude(instance.outcome, { _tag: "ContinuedAsNew", input: "5" })
    assert.deepInclude(instance.next().turn().outcome, { _tag: "Waiting" })
  })

  it("random programs: is the same on every replay", () => {
    let sizes = 0
    for (let seed = 1; seed <= 200; seed++) {
      const { program, text } = make(new Dice(seed), 3, (leaf) => ({
        ...leaf,
        // A replay compares the value.
        program: Effect.tap(leaf.program, () => Effect.flatMap(historySize, (n) => set("size", String(n))))
      }))
      const dice = new Dice(-seed)
      const instance = new Instance(program, { instanceId: `i${seed}` })
      instance.turn()
      for (let turn = 1; instance.outcome._tag === "Waiting" && turn < 500; turn++) {
        const due = [
          ...[...instance.activities.keys()].map((id) => () => instance.completed(id, id)),
          ...[...instance.children.keys()].map((id) => () => instance.childCompleted(id, id)),
          ...[...instance.timers.keys()].map((id) => () => instance.fired(id)),
          ...["A", "B", "C"].flatMap((name) => [() => instance.raised(name, name), () => instance.sent(name, name)])
        ]
        instance.turn(...dice.shuffle(due).slice(0, 1 + dice.below(3)).map((message) => message()))
      }
      const { outcome } = instance
      if (outcome._tag === "Failed") assert.strictEqual(outcome.details._tag, "Application", `seed ${seed}: ${text}`)
      sizes += instance.history.filter(({ _tag }) => _tag === "KeyValueSet").length
    }
    assert.isAbove(sizes, 500)
  })
})
