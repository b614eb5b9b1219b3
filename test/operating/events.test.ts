import { assert, describe, it } from "@effect/vitest"
import { ErrorDetails } from "duroxide-prisma/provider"
import type { Event } from "duroxide-prisma/provider"
import * as events from "../../src/operating/events.ts"

const at = { eventId: 3, instanceId: "i", executionId: 1, timestampMs: 0, duroxideVersion: "1000.1.0" }

describe("Events as people read them", () => {
  it("an activity or a child that died is not said to be the orchestration", () => {
    const details = ErrorDetails.died(new Error("boom"))
    const failed = { ...at, sourceEventId: 2, details }
    const ends: ReadonlyArray<Event.Event> = [
      { ...failed, _tag: "ActivityFailed" },
      { ...failed, _tag: "SubOrchestrationFailed" },
      { ...failed, _tag: "ActivityFailed", details: ErrorDetails.application("ActivityFailed", "\"declined\"") },
      { ...failed, _tag: "OrchestrationFailed", sourceEventId: null }
    ]
    assert.deepStrictEqual(ends.map((event) => events.describe(event)), [
      "#2 died: boom",
      "#2 died: boom",
      "#2 \"declined\"",
      "boom"
    ])
  })

  it("a cancellation, which is stored as a failure, is called one", () => {
    const failed = { ...at, sourceEventId: 2, details: ErrorDetails.cancelled("out of stock") }
    const ends: ReadonlyArray<Event.Event> = [
      { ...failed, _tag: "OrchestrationFailed", sourceEventId: null },
      { ...failed, _tag: "ActivityFailed" },
      { ...failed, _tag: "SubOrchestrationFailed" },
      { ...failed, _tag: "SubOrchestrationFailed", details: ErrorDetails.application("OrchestrationFailed", "\"no\"") }
    ]
    assert.deepStrictEqual(ends.map((event) => `${events.kindOf(event, new Set())} ${events.shown(event)}`), [
      "cancelled out of stock",
      "activity cancelled #2 out of stock",
      "child cancelled #2 out of stock",
      "child failed #2 \"no\""
    ])
  })
})
