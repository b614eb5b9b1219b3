import { assert, describe, it } from "@effect/vitest"
import * as Exit from "effect/Exit"
import { isRequest, record } from "../../src/internal/replay/action.ts"
import type { RequestEvent } from "../../src/internal/replay/action.ts"
import type * as WorkItem from "../../src/WorkItem.ts"
import { Instance, start } from "./play.ts"
import { Dice, make, Uninterrupted } from "./randomPrograms.ts"

const programs = 400
const depth = 4

/** The messages of one turn: some of those that are due, in any order, with some that should not come at all. */
const nextBatch = (dice: Dice, instance: Instance, sent: Array<WorkItem.WorkItem>, turn: number) => {
  const everything = turn > 40
  const due: Array<WorkItem.WorkItem> = []
  const takes = (probability: number) => everything || dice.happens(probability)
  for (const { id, input } of instance.activities.values()) {
    if (!takes(0.4)) continue
    due.push(dice.happens(0.7) ? instance.completed(id, `done ${input}`) : instance.failed(id, `no ${input}`))
  }
  for (const name of ["A", "B", "C"]) if (takes(0.15)) due.push(instance.raised(name, `${name} ${turn}`))
  if (dice.happens(0.05)) due.push(instance.raised("nobody waits for this"))
  if (sent.length > 0 && dice.happens(0.2)) due.push(dice.pick(sent))
  if (sent.length > 0 && dice.happens(0.1)) {
    const old = dice.pick(sent)
    if ("executionId" in old) due.push({ ...old, executionId: 2 })
  }
  // A result that was on its way when its activity was cancelled.
  for (const { activityId } of instance.last.turn.cancelledActivities) {
    if (dice.happens(0.3)) due.push(instance.completed(activityId, "too late"))
  }
  instance.nowMs += dice.pick([0, 0, 1, 5, 50])
  for (const { fireAtMs, id } of instance.timers.values()) {
    if (fireAtMs <= instance.nowMs) due.push(instance.fired(id))
  }
  const messages = dice.shuffle(due)
  // Nothing else will happen: the next timer must.
  if (messages.length === 0 && instance.activities.size === 0) {
    const timer = [...instance.timers.values()].sort((a, b) => a.fireAtMs - b.fireAtMs)[0]
    if (timer !== undefined) messages.push(instance.fired(timer.id))
  }
  sent.push(...messages)
  return messages
}

/** What an event says of the call, without its envelope. */
const own = (event: RequestEvent): object =>
  event._tag === "ActivityScheduled"
    ? { _tag: event._tag, name: event.name, input: event.input }
    : event._tag === "TimerCreated"
    ? { _tag: event._tag, fireAtMs: event.fireAtMs }
    : { _tag: event._tag, name: "name" in event ? event.name : undefined }

describe("replay", () => {
  it("replay: random programs decide turn by turn what an uninterrupted run of plain Effect does", async () => {
    let turns = 0
    let ended = 0
    let events = 0
    for (let seed = 1; seed <= programs; seed++) {
      const dice = new Dice(seed)
      const { program, text } = make(dice, depth)
      const where = () => `seed ${seed}, turn ${turns}: ${text}`
      const instance = new Instance(program, { instanceId: `i${seed}` })
      const live = new Uninterrupted(program, { nowMs: start, seed: `i${seed}\n1\n${start}` })
      const sent: Array<WorkItem.WorkItem> = []
      let messages: ReadonlyArray<WorkItem.WorkItem> = []
      let cancelled: ReadonlyArray<number> = []
      for (let turn = 1; turn === 1 || instance.outcome._tag === "Waiting"; turn++) {
        if (turn > 500) assert.fail(`${where()} does not end`)
        turns++
        await live.settle()
        await live.deliver(messages, instance.nowMs)
        const result = instance.turn(...messages)
        const scheduled = result.turn.historyDelta.filter(isRequest)
        assert.deepStrictEqual(
          scheduled.map(own),
          live.begun.map((action, i) =>
            record(action, { eventId: scheduled[i]?.eventId ?? 0, executionId: 1, nowMs: instance.nowMs })
          ),
          where()
        )
        live.bind(scheduled.map(({ eventId }) => eventId))
        const { exit } = live
        if (exit !== undefined) {
          ended++
          assert.deepStrictEqual(
            instance.outcome._tag === "Failed" && instance.outcome.details._tag === "Application"
              ? instance.outcome.details.message
              : instance.outcome._tag === "Completed"
              ? instance.outcome.output
              : instance.outcome,
            JSON.stringify(
              Exit.isSuccess(exit)
                ? exit.value ?? null
                : exit.cause.reasons.find((reason) => reason._tag === "Fail")?.error
            ),
            where()
          )
          break
        }
        assert.strictEqual(instance.outcome._tag, "Waiting", `${where()} ${JSON.stringify(instance.outcome)}`)
        const dropped = live.dropped("CallActivity").filter((id) => !cancelled.includes(id))
        assert.deepStrictEqual(result.turn.cancelledActivities.map(({ activityId }) => activityId), dropped, where())
        cancelled = live.dropped("CallActivity")
        assert.deepStrictEqual(
          instance.history.flatMap((event) => event._tag === "ExternalSubscribedCancelled" ? event.sourceEventId! : [])
            .sort((a, b) => a - b),
          live.dropped("WaitExternal"),
          where()
        )
        messages = nextBatch(dice, instance, sent, turn)
      }
      events += instance.history.length
    }
    assert.strictEqual(ended, programs)
    console.log(`replayed ${programs} programs in ${turns} turns, ${events} events`)
  }, 120_000)
})
