import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type * as Event from "../../src/model/Event.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import type * as Orchestration from "../../src/Orchestration.ts"
import * as turns from "../../src/replay/turn.ts"
import { activity, Instance, signal } from "./play.ts"

const A = activity("A")

/** CPU time of this process, microseconds. */
const cpu = (run: () => void): number => {
  const before = process.cpuUsage()
  run()
  const { system, user } = process.cpuUsage(before)
  return user + system
}

/** The minimum of several measurements, as other load on the machine only adds time. */
const least = (times: number, measure: () => number) => Math.min(...Array.from({ length: times }, measure))

/** How much longer a turn of 20,000 takes than one of 2,500. Measured again if it seems too much. */
const growth = (what: string, prepare: (n: number) => turns.Input) => {
  const times = measured(what, prepare)
  return times < linear ? times : Math.min(times, measured(what, prepare), measured(what, prepare))
}

const measured = (what: string, prepare: (n: number) => turns.Input) => {
  const [few, many] = [2_500, 20_000].map((n) => {
    const input = prepare(n)
    return least(4, () => cpu(() => turns.run(input)))
  }) as [number, number]
  console.log(`${what}: 2,500 in ${(few / 1000).toFixed(1)} ms, 20,000 in ${(many / 1000).toFixed(1)} ms of CPU`)
  return many / few
}

/** Eight times the work takes eight times the time, and something for memory; 64 times would be quadratic. */
const linear = 32

const numbers = (n: number) => Array.from({ length: n }, (_, index) => index)

const wide = (n: number, branch: (index: number) => Effect.Effect<unknown, unknown, Orchestration.Instance>) =>
  new Instance(
    Effect.map(Effect.all(numbers(n).map(branch), { concurrency: "unbounded" }), (results) => results.length)
  )

/** Runs the first turn without the check of `Instance.turn`, which costs time here. */
const begun = (instance: Instance) => {
  instance.history.push(...turns.run(instance.claimed([])).turn.historyDelta)
  return instance
}

describe("scale", () => {
  it("all: 10,000 branches are scheduled in one turn and joined in another", () => {
    const n = 10_000
    const instance = wide(n, (index) => A(index))
    const { turn } = instance.turn()
    assert.strictEqual(turn.workerItems.length, n)
    instance.turn(...numbers(n).toReversed().map((index) => instance.completed(index + 2, index)))
    assert.strictEqual(instance.output, n)
  })

  it("all: the cost of scheduling a fan-out grows with its width", () => {
    assert.isBelow(growth("schedule", (n) => wide(n, (index) => A(index)).claimed([])), linear)
  })

  it("all: the cost of joining a fan-out grows with its width", () => {
    const times = growth("join", (n) => {
      const instance = begun(wide(n, (index) => A(index)))
      return instance.claimed(numbers(n).map((index) => instance.completed(index + 2, index)))
    })
    assert.isBelow(times, linear)
  })

  it("all: the cost of dropping a fan-out of activities and waits grows with its width", () => {
    const times = growth("give up", (n) => {
      const instance = begun(
        new Instance(Effect.raceFirst(
          signal("Stop"),
          Effect.all(numbers(n / 2).flatMap((index) => [A(index), signal("Go")]), { concurrency: "unbounded" })
        ))
      )
      return instance.claimed([instance.raised("Stop")])
    })
    assert.isBelow(times, linear)
  })

  it("all: the cost of sending signals to a fan-out of waits grows with its width", () => {
    const times = growth("signals", (n) => {
      const instance = begun(wide(n, () => signal("Go")))
      return instance.claimed(numbers(n).map((index) => instance.raised("Go", index)))
    })
    assert.isBelow(times, linear)
  })

  it("sequence: the cost of replaying a chain grows with its length, and needs no stack", () => {
    const times = growth("chain", (n) => {
      const instance = begun(new Instance(Effect.forEach(numbers(n), (index) => A(index), { discard: true })))
      const [started] = instance.history
      const chain = numbers(n - 1).flatMap((index): ReadonlyArray<Event.Event> => [
        { ...started!, _tag: "ActivityScheduled", eventId: 2 * index + 2, name: "A", input: `${index}` },
        { ...started!, _tag: "ActivityCompleted", eventId: 2 * index + 3, sourceEventId: 2 * index + 2, result: "0" }
      ])
      instance.history.splice(1, instance.history.length, ...chain)
      const input = instance.claimed([])
      assert.strictEqual(turns.run(input).turn.workerItems[0]?.input, `${n - 1}`)
      return input
    })
    assert.isBelow(times, linear)
  })

  it("race: of 10,000 branches the first wins and the others are cancelled", () => {
    const n = 10_000
    const instance = new Instance(Effect.raceAll(numbers(n).map((index) => A(index))))
    instance.turn()
    instance.turn(instance.completed(2 + n / 2, "won"))
    assert.strictEqual(instance.output, "won")
    assert.strictEqual(instance.last.turn.cancelledActivities.length, n - 1)
  })

  it("turn: says what a five-way fan-out costs", () => {
    const repeat = 2_000
    const first = wide(5, (index) => A(index)).claimed([])
    const instance = begun(wide(5, (index) => A(index)))
    const messages: ReadonlyArray<WorkItem.WorkItem> = numbers(5).map((index) => instance.completed(index + 2, index))
    const second = instance.claimed(messages)
    const each = (input: turns.Input) =>
      least(3, () =>
        cpu(() => {
          for (let i = 0; i < repeat; i++) turns.run(input)
        })) / repeat
    console.log(
      `five-way fan-out: ${each(first).toFixed(1)} microseconds of CPU to schedule, ${
        each(second).toFixed(1)
      } to replay and join`
    )
    assert.strictEqual(turns.run(second).outcome._tag, "Completed")
  })
})
