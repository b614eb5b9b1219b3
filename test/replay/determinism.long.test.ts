import { assert, describe, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Exit from "effect/Exit"
import * as ErrorDetails from "../../src/model/ErrorDetails.ts"
import type * as Event from "../../src/model/Event.ts"
import type * as WorkItem from "../../src/model/WorkItem.ts"
import { isRequest, record } from "../../src/replay/action.ts"
import type { RequestEvent } from "../../src/replay/action.ts"
import { Instance } from "./play.ts"
import { Dice, make, nothingLeft, Uninterrupted } from "./randomPrograms.ts"

const programs = 1000
const depth = 4

const reason = "at random"

/** The messages of one turn: some of the due ones, in any order, and some that should not arrive at all. */
const nextBatch = (dice: Dice, instance: Instance, sent: Array<WorkItem.WorkItem>, turn: number) => {
  const everything = turn > 40
  const due: Array<WorkItem.WorkItem> = []
  const takes = (probability: number) => everything || dice.happens(probability)
  for (const { id, input } of instance.activities.values()) {
    if (!takes(0.4)) continue
    due.push(dice.happens(0.7) ? instance.completed(id, `done ${input}`) : instance.failed(id, `no ${input}`))
  }
  for (const [id, { input }] of instance.children) {
    if (!takes(0.4)) continue
    due.push(
      dice.happens(0.7)
        ? instance.childCompleted(id, `child did ${input}`)
        : instance.childFailed(id, ErrorDetails.application("OrchestrationFailed", `"child did not ${input}"`))
    )
  }
  for (const name of ["A", "B", "C"]) {
    if (takes(0.15)) due.push(instance.raised(name, `${name} ${turn}`))
    if (takes(0.15)) due.push(instance.sent(name, `${name} ${turn}`))
  }
  if (dice.happens(0.02)) due.push(instance.interrupted(reason))
  if (dice.happens(0.05)) due.push(instance.raised("no wait is open for this"))
  if (sent.length > 0 && dice.happens(0.2)) due.push(dice.pick(sent))
  if (sent.length > 0 && dice.happens(0.1)) {
    const old = dice.pick(sent)
    if ("executionId" in old) due.push({ ...old, executionId: 9 })
    if ("parentExecutionId" in old) due.push({ ...old, parentExecutionId: 9 })
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
  if (messages.length === 0 && instance.activities.size === 0 && instance.children.size === 0) {
    const timer = [...instance.timers.values()].sort((a, b) => a.fireAtMs - b.fireAtMs)[0]
    if (timer !== undefined) messages.push(instance.fired(timer.id))
  }
  sent.push(...messages)
  return messages
}

/** What an event says of the call, without its envelope. */
const own = ({
  duroxideVersion: _1,
  eventId: _2,
  executionId: _3,
  instanceId: _4,
  sourceEventId: _5,
  timestampMs: _6,
  ...fields
}: RequestEvent): object => fields

/** The schedules that a turn's cancel events of one kind are for. */
const givenUp = (events: ReadonlyArray<Event.Event>, tag: Event.Event["_tag"]) =>
  events.flatMap((event) => event._tag === tag ? event.sourceEventId! : []).sort((a, b) => a - b)

const cancels = [
  ["CallActivity", "ActivityCancelRequested"],
  ["StartSubOrchestration", "SubOrchestrationCancelRequested"],
  ["WaitExternal", "ExternalSubscribedCancelled"],
  ["DequeueEvent", "ExternalSubscribedPersistentCancelled"]
] as const

describe("replay", () => {
  it("replay: random programs decide turn by turn what an uninterrupted run of plain Effect does", async () => {
    const cancelled = "SubOrchestrationCancelRequested"
    const counts = { interrupted: 0, turns: 0, resumed: 0, executions: 0, ended: 0, events: 0 }
    for (let seed = 1; seed <= programs; seed++) {
      const dice = new Dice(seed)
      const { program, text } = make(dice, depth)
      const where = () => `seed ${seed}, turn ${counts.turns}: ${text}`
      let left = nothingLeft
      let instance = new Instance(program, { instanceId: `i${seed}` })
      for (let isOver = false; !isOver;) {
        const { executionId } = instance
        const live = new Uninterrupted(program, {
          nowMs: instance.nowMs,
          seed: `i${seed}\n${executionId}\n${instance.nowMs}`,
          executionId,
          left
        })
        const sent: Array<WorkItem.WorkItem> = []
        let messages: ReadonlyArray<WorkItem.WorkItem> = []
        counts.executions++
        for (let turn = 1; turn === 1 || instance.outcome._tag === "Waiting"; turn++) {
          if (turn > 500) assert.fail(`${where()} does not end`)
          counts.turns++
          await live.settle()
          await live.deliver(messages, instance.nowMs)
          const before = instance.history
          const given = new Map(cancels.map(([tag, event]) => [tag, givenUp(before, event)]))
          const { turn: { cancelledActivities, historyDelta, orchestratorItems } } = instance.turn(...messages)
          const scheduled = historyDelta.filter(isRequest)
          const begun = await live.bind(scheduled[0]?.eventId ?? 0)
          assert.deepStrictEqual(
            scheduled.map(own),
            begun.map((action, i) =>
              record(action, { eventId: scheduled[i]?.eventId ?? 0, executionId, nowMs: instance.nowMs })
            ),
            where()
          )
          const { continued, exit } = live
          if (continued !== undefined) {
            assert(instance.outcome._tag === "ContinuedAsNew", where())
            const { carried, ...outcome } = instance.outcome
            assert.deepStrictEqual(outcome, {
              _tag: "ContinuedAsNew",
              input: continued,
              version: null,
              customStatus: live.left.customStatus,
              attributes: {}
            }, where())
            const sent = (messages: ReadonlyArray<{ readonly name: string; readonly data: string }>) =>
              messages.map(({ data, name }) => [name, data])
            assert.deepStrictEqual(sent(carried), sent(live.left.messages), where())
            break
          }
          if (exit !== undefined) {
            counts.ended++
            isOver = true
            const isInterrupted = Exit.isFailure(exit) && Cause.hasInterruptsOnly(exit.cause)
            if (isInterrupted) {
              counts.interrupted++
              assert.deepStrictEqual(instance.failure, ErrorDetails.cancelled(reason), where())
              break
            }
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
          for (const [tag, event] of cancels) {
            assert.deepStrictEqual(
              givenUp(historyDelta, event),
              live.dropped(tag).filter((id) => !given.get(tag)!.includes(id)),
              where()
            )
          }
          assert.deepStrictEqual(
            cancelledActivities.map(({ activityId }) => activityId),
            givenUp(historyDelta, "ActivityCancelRequested"),
            where()
          )
          assert.deepStrictEqual(
            orchestratorItems.flatMap((item) => item._tag === "QueueMessage" ? item.instance : []),
            // Others were given up in the turn that asked for them.
            givenUp(historyDelta.filter((event) => "reason" in event && event.reason === "interrupted"), cancelled)
              .map((id) => `i${seed}::sub::${executionId === 1 ? "" : `${executionId}_`}${id}`),
            where()
          )
          messages = nextBatch(dice, instance, sent, turn)
        }
        counts.events += instance.history.length
        counts.resumed += instance.resumed
        if (isOver) break
        left = live.left
        instance = instance.next()
      }
    }
    const { ended, events, executions, interrupted, resumed, turns } = counts
    assert.isAbove(interrupted, 20)
    assert.strictEqual(ended, programs)
    assert.isAbove(executions, programs)
    assert.strictEqual(resumed, turns - executions, "every turn but the first of an execution resumes its program")
    console.log(
      `replayed ${programs} programs in ${executions} executions, ${turns} turns (${resumed} also without replay), ${events} events`
    )
  })
})
