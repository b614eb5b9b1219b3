/** The time line that the page computes from events. */
import { assert, describe, it } from "@effect/vitest"
import type { HistoryEvent } from "../../ui/src/client/models.ts"
import { timelineOf } from "../../ui/src/views/instance/timeline.ts"

let eventId = 0
const event = (kind: string, atMs: number, more: Partial<HistoryEvent> = {}): HistoryEvent => ({
  eventId: ++eventId,
  atMs,
  type: "",
  kind,
  answers: null,
  name: null,
  tag: null,
  instanceId: null,
  fireAtMs: null,
  problem: null,
  payload: null,
  isFailure: false,
  ...more
})

const answer = (kind: string, atMs: number, to: HistoryEvent, more: Partial<HistoryEvent> = {}) =>
  event(kind, atMs, { answers: to.eventId, ...more })

const shown = (events: ReadonlyArray<HistoryEvent>) =>
  timelineOf(events).rows.map(({ bars, kind, label }) => [
    kind,
    label,
    ...bars.map(({ fromMs, outcome, toMs, tryNumber }) => `${tryNumber}: ${fromMs}-${toMs ?? "…"} ${outcome}`)
  ])

describe("A time line", () => {
  it("has the tries of one call in a row, and calls side by side in rows of their own", () => {
    const call = { name: "Charge", payload: "1" }
    const first = event("activity scheduled", 0, call)
    const other = event("activity scheduled", 0, { name: "Charge", payload: "2" })
    const failed = answer("activity failed", 10, first, { isFailure: true, problem: "declined" })
    const second = event("activity scheduled", 20, call)
    const beside = event("activity scheduled", 25, call)
    assert.deepStrictEqual(
      shown([
        first,
        other,
        failed,
        second,
        beside,
        answer("activity completed", 30, second),
        answer("activity completed", 40, other)
      ]),
      [
        ["activity", "Charge", "1: 0-10 failed", "2: 20-30 done"],
        ["activity", "Charge", "1: 0-40 done"],
        ["activity", "Charge", "1: 25-… open"]
      ]
    )
  })

  it("begins a call anew at the retry that carries it out again under its old event", () => {
    const first = event("activity scheduled", 0, { name: "Charge", payload: "1" })
    const second = event("activity scheduled", 10, { name: "Mail" })
    const { rows } = timelineOf([
      first,
      second,
      event("custom status", 20),
      event("retried", 900, { problem: "events 4 to 5 were removed" }),
      event("retried", 901, { problem: `done again: #${first.eventId}` }),
      answer("activity completed", 905, second),
      answer("activity failed", 910, first, { isFailure: true, problem: "declined" })
    ])
    assert.deepStrictEqual(
      rows.map(({ bars }) =>
        bars.map((
          { fromMs, isAfterRetry, outcome, toMs, tryNumber }
        ) => [tryNumber, fromMs, toMs, outcome, isAfterRetry])
      ),
      [
        [[1, 0, 20, "failed", false], [2, 901, 910, "failed", true]],
        [[1, 10, 905, "done", false]]
      ]
    )
  })

  it("ends a wait with the signal of its name that comes, or has come before", () => {
    const waits = event("signal awaited", 0, { name: "Approved" })
    const given = event("signal awaited", 1, { name: "Other" })
    assert.deepStrictEqual(
      shown([
        event("signal", 0, { name: "Early" }),
        waits,
        given,
        event("signal", 7, { name: "Approved" }),
        answer("wait given up", 8, given),
        event("signal awaited", 9, { name: "Early" })
      ]),
      [
        ["signal", "Approved", "1: 0-7 done"],
        ["signal", "Other", "1: 1-8 given up"],
        ["signal", "Early", "1: 9-9 done"]
      ]
    )
  })

  it("shows timers and children from their beginning until they end, and what only happens as ticks", () => {
    const timer = event("timer set", 0, { fireAtMs: 50 })
    const child = event("child started", 5, { name: "Clean", instanceId: "room-7" })
    const line = [
      timer,
      child,
      event("custom status", 6),
      answer("timer fired", 50, timer),
      answer("child cancelled", 60, child)
    ]
    assert.deepStrictEqual(shown(line), [
      ["timer", "timer", "1: 0-50 done"],
      ["child", "Clean room-7", "1: 5-60 given up"]
    ])
    const { fromMs, ticks, toMs } = timelineOf(line)
    assert.deepStrictEqual([fromMs, toMs, ticks.map(({ label, ticks }) => [label, ticks.length])], [
      0,
      60,
      [["Custom status", 1]]
    ])
  })

  it("of 10,000 events is made at once", () => {
    const calls = Array.from(
      { length: 5_000 },
      (_, n) => event("activity scheduled", n, { name: "Step", payload: `${n % 10}` })
    )
    const answers = calls.map((call, n) => answer("activity failed", 5_000 + n, call, { isFailure: true }))
    const begun = performance.now()
    const { rows } = timelineOf([...calls, ...answers])
    assert.lengthOf(rows, 5_000)
    // Ten milliseconds; a quadratic one takes many seconds.
    assert.isBelow(performance.now() - begun, 2_000)
  })

  it("of nothing is empty", () => {
    assert.deepStrictEqual(timelineOf([]), { ticks: [], rows: [], fromMs: 0, toMs: 0 })
  })
})
