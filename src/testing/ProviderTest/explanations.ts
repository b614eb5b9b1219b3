/**
 * Why an instance does not continue: one cause for each state.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { cancelled } from "../../model/ErrorDetails.ts"
import { PauseTarget } from "../../model/Pause.ts"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import * as requestSignal from "../../model/shared/requestSignal.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import { Admin } from "../../provider/Admin.ts"
import type { Cause } from "../../provider/Explanation.ts"
import { Provider } from "../../provider/Provider.ts"
import {
  abandon,
  activityItem,
  activityScheduled,
  announce,
  claimActivity,
  claimInstance,
  create,
  done,
  duties,
  enqueueStart,
  fails,
  listed,
  listedProcesses,
  multi,
  named,
  poke,
  seed,
  startItem,
  timerFired,
  topic,
  turn,
  version
} from "./harness.ts"
import type { EventInput } from "./harness.ts"

const explain = (instanceId: string) => Effect.flatMap(Admin, (admin) => admin.explain(instanceId))

/** The cause must have this tag; the sentence must match. */
const expectCause = <Tag extends Cause["_tag"]>(instanceId: string, tag: Tag, sentence: RegExp) =>
  Effect.map(explain(instanceId), ({ cause, sentence: text, waits }) => {
    assert.strictEqual(cause._tag, tag, text)
    assert.match(text, sentence)
    return { ...(cause as Extract<Cause, { readonly _tag: Tag }>), waits }
  })

/** An instance whose turn has stored these events and activities. */
const waiting = (instanceId: string, events: ReadonlyArray<EventInput>, parts: Parameters<typeof turn>[1] = {}) =>
  Effect.andThen(create(instanceId), turn(instanceId, { ...parts, events }))

const timer = (instanceId: string, eventId: number, fireAtMs: number): EventInput => ({
  _tag: "TimerCreated",
  eventId,
  fireAtMs
})

const signal = (eventId: number, name: string): EventInput => ({ _tag: "ExternalSubscribedPersistent", eventId, name })

const inAnHour = Effect.map(Effect.clockWith((clock) => clock.currentTimeMillis), (now) => now + 3_600_000)

const request = (eventId: number, name: string) => signal(eventId, requestSignal.nameOf(name))

export const explanations = topic("explanations", {
  a_wait_for_requests_comes_after_that_for_a_signal: Effect.gen(function*() {
    yield* waiting("serves", [request(2, "Approve")])
    const serving = yield* expectCause(
      "serves",
      "Request",
      /waits for requests "Approve" .*, without a timeout; no living process serves TestOrch 1\.0\.0\.$/
    )
    assert.strictEqual(serving.name, "Approve")
    yield* waiting("both", [request(2, "Approve"), signal(3, "Close")])
    assert.strictEqual((yield* expectCause("both", "Signal", /waits for signal Close/)).name, "Close")
    assert.deepStrictEqual(
      (yield* explain("both")).waits.map(({ kind, name }) => [kind, name]),
      [["request", "Approve"], ["signal", "Close"]]
    )
  }),

  ended_instances_say_how: Effect.gen(function*() {
    yield* done("completed")
    yield* done("failed", undefined, { status: "Failed", output: "boom" })
    yield* waiting("cancelled", [{ _tag: "OrchestrationFailed", eventId: 2, details: cancelled("stop") }], {
      metadata: named({ status: "Failed", output: "canceled: stop" })
    })
    assert.isNull((yield* expectCause("completed", "Ended", /^completed completed .* ago\.$/)).error)
    assert.include(
      (yield* expectCause("failed", "Ended", /^failed failed .*boom\. .*retry --dry-run failed$/)).error,
      "boom"
    )
    assert.strictEqual(
      (yield* expectCause("cancelled", "Ended", /was cancelled .*: stop\. .*retry --dry-run cancelled$/)).error,
      "stop"
    )
    yield* fails(explain("unknown"), /not found/)
  }),

  a_pause_comes_before_all_else: Effect.gen(function*() {
    const { pause, resume } = yield* Admin
    yield* waiting("i", [signal(2, "Approved")])
    yield* poke("i")
    yield* pause(PauseTarget.Everything(), { reason: "incident 7" })
    yield* expectCause("i", "Paused", /is paused, as everything has been for .* \(incident 7\)/)
    yield* resume(PauseTarget.Everything())
    yield* pause(PauseTarget.Instance({ instanceId: "i" }))
    yield* expectCause(
      "i",
      "Paused",
      /is paused, with nothing else, for .*: it continues after "resume"; no living process serves/
    )
  }),

  a_start_without_a_version_waits_while_all_that_are_served_are_paused: Effect.gen(function*() {
    const { pause, resume } = yield* Admin
    const leave = yield* announce(duties("a", { orchestrations: ["TestOrch@1.0.0", "TestOrch@2.0.0"] }))
    yield* listedProcesses(1)
    const { startOrchestration } = yield* Provider
    yield* startOrchestration({
      start: startItem("new", { version: null }),
      pinnedVersion: version("1000.0.0"),
      delay: Option.none()
    })
    yield* pause(PauseTarget.Orchestration({ name: "TestOrch", version: "1.0.0" }))
    yield* expectCause("new", "Queued", /^new has had messages for /)
    yield* pause(PauseTarget.Orchestration({ name: "TestOrch", version: "2.0.0" }))
    yield* expectCause("new", "Paused", /^new is paused, as all of orchestration TestOrch@\d\.0\.0 has been for /)
    yield* resume(PauseTarget.Orchestration({ name: "TestOrch", version: "1.0.0" }))
    yield* expectCause("new", "Queued", /^new has had messages for /)
    yield* leave
  }),

  an_instance_that_is_paused_more_than_once_names_all: Effect.gen(function*() {
    const { pause } = yield* Admin
    yield* waiting("i", [signal(2, "Approved")])
    for (
      const target of [
        PauseTarget.Instance({ instanceId: "i" }),
        PauseTarget.Orchestration({ name: "TestOrch", version: "2.0.0" }),
        PauseTarget.Orchestration({ name: "TestOrch" }),
        PauseTarget.Everything()
      ]
    ) yield* pause(target)
    const { others } = yield* expectCause(
      "i",
      "Paused",
      /^i is paused for .*, and so are (?:everything|all of orchestration TestOrch) and .*: it continues after a "resume" of each;/
    )
    assert.sameDeepMembers([...others], [PauseTarget.Orchestration({ name: "TestOrch" }), PauseTarget.Everything()])
  }),

  a_block_names_its_reason_and_its_cure: Effect.gen(function*() {
    yield* create("i")
    yield* poke("i")
    const { lockToken } = yield* claimInstance("i")
    const block = { reason: "NotDurable", problem: "it awaits a promise", eventId: 2, build: "b7" } as const
    yield* abandon(lockToken, { delay: "1 hour", block })
    const cause = yield* expectCause(
      "i",
      "Blocked",
      /is blocked .*: it awaits a promise \(NotDurable, tried 1 time, .*b7\)/
    )
    assert.deepInclude(cause.block, block)
  }),

  messages_wait_for_a_process: Effect.gen(function*() {
    yield* create("i")
    yield* enqueueStart("new", { version: "2.0.0" })
    yield* poke("i")
    yield* expectCause("i", "Unserved", /has messages, and no living process serves TestOrch 1\.0\.0\.$/)
    const leave = yield* announce(duties("a", { orchestrations: ["TestOrch@1.0.0"] }))
    yield* listedProcesses(1)
    const queued = yield* expectCause("i", "Queued", /waits for a free slot; 1 process serves TestOrch\.$/)
    assert.strictEqual(queued.servedBy, 1)
    yield* claimInstance("i", { serves: ["1.0.0"] })
    yield* expectCause("i", "TakesTurn", /takes a turn in a process, whose lock lasts until .*Z, in /)
    yield* leave
  }),

  an_execution_of_Duroxide_is_left_to_it: Effect.gen(function*() {
    yield* seed("rust", "0.1.30")
    const cause = yield* expectCause("rust", "OfDuroxide", /is run by processes of Duroxide 0\.1\.30 alone/)
    assert.strictEqual(cause.version, "0.1.30")
  }),

  activities_say_who_could_run_them: Effect.gen(function*() {
    const { pause, resume } = yield* Admin
    yield* waiting("i", [activityScheduled(2, "Charge")], { workers: [activityItem("i", 2, { name: "Charge" })] })
    const unserved = yield* expectCause(
      "i",
      "ActivityUnserved",
      /waits for activity Charge, which no living process takes/
    )
    assert.deepInclude(unserved.activity, { name: "Charge", tag: null, eventId: 2, tryNumber: 1, lastError: null })
    const leave = yield* announce(duties("a", { activities: ["Charge"] }))
    yield* listedProcesses(1)
    yield* expectCause(
      "i",
      "ActivityQueued",
      /which has waited for a free worker .*; 1 process serves it; no living process serves TestOrch/
    )
    yield* pause(PauseTarget.Activity({ name: "Charge" }), { reason: "bank" })
    yield* expectCause("i", "ActivityPaused", /activity Charge, which is paused with .*Charge.*, for .* \(bank\); /)
    yield* resume(PauseTarget.Activity({ name: "Charge" }))
    yield* claimActivity(2)
    const { activity, waits } = yield* expectCause(
      "i",
      "ActivityRuns",
      / for .*, which a worker runs under a lock until .*Z, in .*; if it has died, another one takes it then/
    )
    assert.strictEqual(activity.deliveries, 1)
    assert.deepStrictEqual(waits.map(({ kind, name }) => [kind, name]), [["activity", "Charge"]])
    yield* leave
  }),

  a_failed_activity_is_tried_again: Effect.gen(function*() {
    const atMs = yield* inAnHour
    const failed = (eventId: number, sourceEventId: number): EventInput => ({
      _tag: "ActivityFailed",
      eventId,
      sourceEventId,
      details: { _tag: "Application", kind: "OrchestrationFailed", message: "declined", retryable: false }
    })
    yield* waiting(
      "pauses",
      [activityScheduled(2), failed(3, 2), activityScheduled(4), failed(5, 4), timer("pauses", 6, atMs)],
      { items: [timerFired("pauses", 6, atMs)] }
    )
    const pausing = yield* expectCause(
      "pauses",
      "Retries",
      /^pauses tries activity TestActivity again at .*, in \S+ \S+, after 2 tries; the last error: .*declined/
    )
    assert.deepInclude(pausing, { atMs })
    assert.deepInclude(pausing.activity, { eventId: 4, tryNumber: 2 })
    yield* waiting(
      "runs",
      [activityScheduled(2), failed(3, 2), activityScheduled(4)],
      { workers: [activityItem("runs", 4)] }
    )
    yield* claimActivity(4)
    const { activity } = yield* expectCause("runs", "ActivityRuns", /; try 2; the last error: .*declined/)
    assert.deepInclude(activity, { eventId: 4, tryNumber: 2 })
    yield* waiting("again", [activityScheduled(2)], { workers: [activityItem("again", 2, { tryNumber: 2 })] })
    yield* waiting("first", [activityScheduled(2)], {
      workers: [activityItem("first", 2, { input: "{\"try_number\":2}" })]
    })
    yield* waiting("timer", [activityScheduled(2), timer("timer", 3, atMs)], { items: [timerFired("timer", 3, atMs)] })
    assert.deepStrictEqual(yield* listed({ isRetrying: true, orderBy: "id" }), ["again", "pauses"])
  }),

  waits_say_for_what_and_how_long: Effect.gen(function*() {
    const untilMs = yield* inAnHour
    yield* waiting("signal", [signal(2, "Approved")])
    assert.isNull(
      (yield* expectCause(
        "signal",
        "Signal",
        /waits for signal Approved for .*, without a timeout; no living process serves TestOrch 1\.0\.0\.$/
      )).untilMs
    )
    yield* waiting("misspelt", [
      signal(2, "Approved"),
      { _tag: "ExternalEventPersistent", eventId: 3, name: "aproved", data: "1" },
      { _tag: "ExternalEventPersistent", eventId: 4, name: "aproved", data: "2" }
    ])
    const misspelt = yield* explain("misspelt")
    assert.match(
      misspelt.sentence,
      /since \S+ \S+Z\), without a timeout; 2 signals "aproved" have come and were not taken; no living process serves/
    )
    assert.deepStrictEqual(misspelt.untaken.map(({ eventId, name }) => [name, eventId]), [["aproved", 3], [
      "aproved",
      4
    ]])
    yield* waiting("limited", [signal(2, "Approved"), timer("limited", 3, untilMs)], {
      items: [timerFired("limited", 3, untilMs)]
    })
    const limited = yield* expectCause(
      "limited",
      "Signal",
      /for signal Approved for .*, and for a timer at .*, in \S+ \S+; no living process serves TestOrch 1\.0\.0\.$/
    )
    assert.deepInclude(limited, { name: "Approved", untilMs })
    yield* waiting("sleeps", [timer("sleeps", 2, untilMs)], { items: [timerFired("sleeps", 2, untilMs)] })
    yield* expectCause(
      "sleeps",
      "Timer",
      /^sleeps sleeps until .*, in \S+ \S+; no living process serves TestOrch 1\.0\.0\.$/
    )
    yield* waiting("parent", [
      { _tag: "SubOrchestrationScheduled", eventId: 2, name: "Child", instance: "child-1", input: "{}" }
    ])
    assert.deepInclude(
      yield* expectCause("parent", "Child", /waits for child .*child-1 \(Child\) for /),
      { name: "Child", isInterrupted: false }
    )
    yield* waiting("tasks", [
      { _tag: "ActivityScheduled", eventId: 2, name: taskSignal.createTask, input: "{\"name\":\"Render\"}" },
      { _tag: "ActivityCompleted", eventId: 3, sourceEventId: 2, result: "1" },
      signal(4, taskSignal.nameOf("call"))
    ])
    assert.strictEqual((yield* expectCause("tasks", "Task", /waits for the end of task Render for /)).name, "Render")
    yield* multi("nothing", 1, { status: "Running" })
    yield* expectCause("nothing", "Nothing", /waits for nothing that is stored/)
  }),

  a_start_with_a_delay_says_when: Effect.gen(function*() {
    const { startOrchestration } = yield* Provider
    yield* startOrchestration({
      start: startItem("later"),
      pinnedVersion: version("1000.0.0"),
      delay: Option.some(Duration.hours(1))
    })
    yield* poke("later")
    yield* expectCause("later", "StartsLater", /^later starts at .*Z, in \S+ \S+; no living process serves /)
  }),

  an_interruption_is_part_of_the_sentence: Effect.gen(function*() {
    yield* waiting("i", [
      {
        _tag: "ExternalEventPersistent",
        eventId: 2,
        name: interruptSignal.name,
        data: interruptSignal.encode("rain")
      },
      activityScheduled(3, "Refund")
    ], { workers: [activityItem("i", 3, { name: "Refund" })] })
    const { interruption } = yield* explain("i")
    assert.strictEqual(interruption?.reason, "rain")
    yield* expectCause("i", "ActivityUnserved", /^i was interrupted .* ago and cleans up: it waits for activity Refund/)
  })
})
