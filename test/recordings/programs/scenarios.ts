/**
 * The recordings that replay, each with the definitions that were registered, and the reason where it does not
 * go exactly as recorded.
 */
import { Activity, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Event, FromDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { isDeepStrictEqual } from "node:util"
import { differences } from "./compare.ts"
import * as programs from "./duroxide.ts"
import { pinnedVersion, RecordingError, steps } from "./recording.ts"
import type { Recording, Step, Stored } from "./recording.ts"
import * as tapes from "./tape.ts"

export interface Scenario {
  /** Created again for every replay. */
  readonly definitions: () => ReadonlyArray<programs.Definition>
  /** The expected steps, derived from the recorded ones. */
  readonly steps?: (recorded: ReadonlyArray<Step>, recording: Recording) => ReadonlyArray<Step>
  /** Handler of the activity `Slow`. */
  readonly slow?: (tape: tapes.Tape) => Effect.Effect<number>
}

const plain = (...definitions: ReadonlyArray<programs.Definition>): Scenario => ({ definitions: () => definitions })

export const scenarios: { readonly [fixture: string]: Scenario } = {
  "activity-failure-caught": plain(programs.ActFailCaught),
  "activity-failure-uncaught": plain(programs.ActFailUncaught),
  "cancel-instance": plain(programs.CancelMe, programs.ChildWait),
  "cancel-wins-over-completion": plain(programs.CancelDone),
  "child-continue-as-new": plain(programs.ParentOfCan, programs.ChildCan),
  "continue-as-new": plain(programs.Can),
  "continue-as-new-carry": plain(programs.CanCarry),
  "continue-as-new-outstanding-activity": plain(programs.CanOutstanding),
  "continue-as-new-stale-timer": plain(programs.CanTimerLeft),
  "continue-as-new-unversioned-upgrade": plain(...programs.CanNoVer),
  "continue-as-new-versioned": plain(...programs.CanVer),
  "custom-status": plain(programs.CustomStatus),
  "detached-start": plain(programs.Detached, programs.UpperChild),
  "detached-start-at-end": plain(programs.DetachedLast, programs.UpperChild),
  "duplicate-start": plain(programs.Waiter),
  "events-join": plain(programs.Waits2),
  "external-event": plain(programs.WaitEvent),
  "external-event-early": plain(programs.TimerThenWait),
  "external-event-twice": plain(programs.WaitTwice),
  "fan-out-5": plain(programs.FanOut5),
  "kv": plain(programs.Kv),
  "kv-clear-all": plain(programs.KvClearAll),
  "kv-remote-read": plain(programs.KvRemote),
  "limit-tag": plain(programs.BadTag),
  "message-to-completed": plain(programs.Child),
  "nondeterminism-in-child": { definitions: () => [programs.ParentOfNd, programs.makeChildNd()] },
  "nondeterminism-kind": { definitions: () => [programs.makeNdMissing()] },
  "nondeterminism-mismatch": { definitions: () => [programs.makeNdMismatch()] },
  // Executions of Duroxide keep its rule: code that returns early completes. For ours that is an error.
  "nondeterminism-returned-early": { definitions: () => [programs.makeNdNone()] },
  "parent-continue-as-new-then-child": plain(programs.CanThenSub, programs.Child),
  "queue-messages": plain(programs.Queue),
  "queue-race-dropped": plain(programs.QueueRace),
  "race-activity-loses": plain(programs.RaceActivityTimer),
  "race-both-in-one-batch": plain(programs.RaceET),
  "race-event-wins": plain(programs.RaceTimerEvent),
  "race-timer-wins": plain(programs.RaceTimerEvent),
  "race-timer-wins-then-activity": plain(programs.RaceThenActivity),
  "retry-exhausted": plain(programs.RetryExhausted),
  "retry-success": plain(programs.RetryOk),
  "retry-timeout": plain(programs.RetryTimeout),
  "same-turn-drop": plain(programs.SameTurnDropThen),
  "session-activity": plain(programs.Session),
  "single-activity": plain(programs.SingleActivity),
  "sub-orchestration-explicit-id": plain(programs.SubOkId, programs.UpperChild),
  "sub-orchestration-fail-caught": plain(programs.SubFailCaught, programs.ChildFail),
  "sub-orchestration-fail-uncaught": plain(programs.SubFailUncaught, programs.ChildFail),
  "sub-orchestration-id-collision": plain(programs.CollideSub, programs.Child),
  "sub-orchestration-nested": plain(programs.SubNested, programs.SubOk, programs.UpperChild),
  "sub-orchestration-ok": plain(programs.SubOk, programs.UpperChild),
  "sub-orchestration-race-loses": plain(programs.SubRace, programs.ChildWait),
  "system-calls": plain(programs.Sys),
  "tagged-activity": plain(programs.Tagged),
  "timer": plain(programs.Timer),
  "versioned-start": plain(programs.Ver1, programs.Ver2),

  // -- work that cannot be done --------------------------------------------------------------------

  "unregistered-activity": {
    ...plain(programs.UsesMissingActivity),
    steps: (recorded, { work_items }) => {
      const workItem = turn(recorded, 1).stored.activities[0]!.work_item
      const completion = work_items.find((row) => row.work_item.startsWith(`{"ActivityFailed"`))!.work_item
      return insertAfter(recorded, turn(recorded, 1), [
        { _tag: "Activity", workItem, attemptCount: 1, completion: null, delayMs: 1_000 },
        { _tag: "Activity", workItem, attemptCount: 10, completion: null, delayMs: 1_000 },
        { _tag: "Activity", workItem, attemptCount: 11, completion }
      ])
    }
  },
  "unregistered-orchestration": {
    ...plain(programs.Waiter),
    steps: (recorded) => {
      const [, last] = poisoned(recorded)
      // Duroxide leaves an execution unpinned until it runs; ours is pinned from its start.
      const pinned = better(last, { identity: { ...last.stored.identity!, pinned: true } })
      return [given(last, 1, 1_000), given(last, 10, 1_000), pinned]
    }
  },
  "poison-bad-history": {
    ...plain(programs.Waiter),
    steps: (recorded) => {
      const [before, last] = poisoned(recorded)
      const first = before[0] as Turn
      // The kind of event 2 was changed by hand afterwards.
      const events = first.stored.events.map((text) => text.replace("FutureEvent", "ExternalSubscribed"))
      return [{ ...first, stored: { ...first.stored, events } }, given(last, 1, 100), given(last, 10, 200), last]
    }
  },
  "version-too-new": {
    ...plain(programs.Waiter),
    steps: (recorded, recording) => [...recorded, { _tag: "NotAskedFor", version: pinnedVersion(recording) }]
  },

  // -- where we say it otherwise -------------------------------------------------------------------

  // A reserved id is refused with our own message, for a child as a defect.
  "detached-start-reserved-id": {
    ...plain(programs.ReservedDetached),
    steps: (recorded) => {
      const first = turn(recorded, 1)
      const message = "instanceId is refused: 'sub::' is reserved for child orchestrations"
      return replace(recorded, first, better(first, { events: [first.stored.events[0]!, panicked(first, 2, message)] }))
    }
  },
  "sub-orchestration-reserved-id": {
    ...plain(programs.ReservedSub),
    steps: (recorded) => {
      const first = turn(recorded, 1)
      const caught = "instanceId is refused: 'sub::' at the beginning marks ids the runtime gives"
      return replace(recorded, first, better(first, completed(first, JSON.stringify({ caught }))))
    }
  },

  // -- where we do better --------------------------------------------------------------------------

  // Duroxide loses messages that overtake the start of their instance. Ours wait for it.
  "message-before-start": {
    ...plain(programs.Waiter),
    steps: (recorded) =>
      recorded.map((step): Step =>
        step._tag === "Dropped"
          ? { _tag: "GivenBack", batch: step.batch, delayMs: 1_000, counted: false }
          : step
      )
  },
  // A second start changes nothing: the version the instance was pinned to runs on.
  "defect-duplicate-start-hijack": {
    ...plain(programs.WaitingVer1, programs.WaitingVer2),
    steps: (recorded) => {
      const second = turn(recorded, 2)
      const output = `{"ran":"1.0.0","i":"first","ctx":"1.0.0","e":1}`
      return replace(recorded, second, better(second, completed(second, output)))
    }
  },
  // The event after the timer reaches no wait; the next one reaches the second wait.
  "defect-event-race-replay": {
    ...plain(programs.ETimer),
    steps: (recorded) => {
      const third = turn(recorded, 3)
      const output = `{"r":{"index":1,"value":null},"b":"ev2"}`
      return replace(recorded, third, better(third, completed(third, output)))
    }
  },
  // A message that arrives behind the end of a race goes to the next dequeue, on every replay.
  "defect-queue-race-replay": {
    ...plain(programs.QRace),
    steps: (recorded) => {
      const third = turn(recorded, 3)
      return replace(recorded, third, better(third, completed(third, `"msg"`)))
    }
  },
  // Detached starts are made, whatever happens to the instance that made them.
  "cancel-with-event-in-batch": {
    ...plain(programs.CancelBatch),
    steps: (recorded) => startsDetached(recorded, turn(recorded, 2), "fx-cancel-batch-child")
  },
  "defect-detached-start-lost": {
    ...plain(programs.DetCan),
    steps: (recorded) => startsDetached(recorded, turn(recorded, 1), "fx-lost-detached-child")
  },
  // A parent is notified if its child cannot start because its id is in use.
  "defect-collision-with-running-hangs-parent": {
    ...plain(programs.CollideRunning, programs.Waiter),
    steps: (recorded) => {
      const nothing = recorded.find((step) => step._tag === "Nothing")!
      const parent = turn(recorded, 1, "p3-coll")
      const problem = "sub-orchestration instance id 'p3-run' already exists and is running"
      const notice = childFailed(parent, 2, applicationError(problem))
      const notified: Turn = {
        _tag: "Turn",
        turn: 0,
        batch: nothing.batch,
        stored: { ...empty, executionId: 1, messages: [row("p3-coll", notice)] }
      }
      return [
        ...replace(recorded, nothing, notified),
        hears(parent, notice, (next) => [
          eventText(next, 3, 2, { type: "SubOrchestrationFailed", details: applicationError(problem) }),
          eventText(next, 4, null, { type: "OrchestrationCompleted", output: JSON.stringify({ caught: problem }) })
        ])
      ]
    }
  },
  // A child that was dropped in the turn that continues as new is cancelled, and ends.
  "defect-continue-as-new-orphans-child": {
    ...plain(programs.CanOrphan, programs.Waiter),
    steps: (recorded) => {
      const second = turn(recorded, 2)
      const [fired] = second.stored.events
      const { instanceId } = second.batch
      const reason = "parent dropped sub-orchestration future"
      const child = turn(recorded, 1, `${instanceId}::sub::2`)
      const cancel = { CancelInstance: { instance: child.batch.instanceId, reason } }
      const details = { Application: { kind: { Cancelled: { reason } }, message: "", retryable: false } }
      const notice = childFailed(second, 2, details)
      const cancelled = hears(child, cancel, (next) => [
        eventText(next, 3, null, { type: "OrchestrationCancelRequested", reason }),
        eventText(next, 4, 2, { type: "ExternalSubscribedCancelled", reason: "orchestration_terminal" }),
        eventText(next, 5, null, { type: "OrchestrationFailed", details })
      ])
      return [
        ...replace(
          recorded,
          second,
          better(second, {
            events: [
              fired!,
              eventText(second, 5, 2, { type: "SubOrchestrationCancelRequested", reason: "dropped_future" }),
              eventText(second, 6, null, { type: "OrchestrationContinuedAsNew", input: "1" })
            ],
            messages: [row(child.batch.instanceId, cancel), ...second.stored.messages]
          })
        ),
        { ...cancelled, stored: { ...cancelled.stored, messages: [row(instanceId, notice)] } }
      ]
    }
  },
  // Keys that are cleared together are cleared in the order of the code, and known again in any order.
  "defect-kv-prune-order": {
    ...plain(programs.Prune),
    steps: (recorded) => {
      const pruning = turn(recorded, 1, undefined, 2)
      const cleared = pruning.stored.events.filter((text) => text.includes(`"type":"KeyValueCleared"`))
      const events = pruning.stored.events.map((text) =>
        cleared.includes(text) ? text.replace(/"key":"\w"/, `"key":"${"abcdefgh"[cleared.indexOf(text)]}"`) : text
      )
      const last = turn(recorded, 2)
      return replace(
        replace(recorded, pruning, better(pruning, { events })),
        last,
        better(last, completed(last, "1"))
      )
    }
  },
  // The parent of a child that exceeds a limit is notified.
  "defect-limit-in-child-hangs-parent": {
    ...plain(programs.LimitParent, programs.LimitKid),
    steps: (recorded) => {
      const parent = turn(recorded, 1, "p3-lp")
      const child = turn(recorded, 1, "p3-lp::sub::2")
      const problem = "Activity 'Echo' tag size (257 bytes) exceeds limit (256 bytes)"
      const notice = childFailed(parent, 2, applicationError(problem))
      return [
        ...replace(recorded, child, better(child, { messages: [row("p3-lp", notice)] })),
        hears(parent, notice, (next) => [
          eventText(next, 3, 2, { type: "SubOrchestrationFailed", details: applicationError(problem) }),
          eventText(next, 4, null, { type: "OrchestrationCompleted", output: JSON.stringify({ caught: problem }) })
        ])
      ]
    }
  },
  // A text the database cannot hold is refused before anything is stored; who failed, and when it began, is known.
  "defect-nul-in-custom-status": {
    ...plain(programs.NulStatus),
    steps: (recorded) => {
      const first = turn(recorded, 1)
      const { name, version } = programs.NulStatus.definition
      const problem = "custom status is refused: it holds a NUL character (U+0000), which PostgreSQL cannot store"
      const started = {
        type: "OrchestrationStarted",
        name,
        version,
        input: "0",
        parent_instance: null,
        parent_id: null
      }
      return replace(
        recorded,
        first,
        better(first, {
          events: [eventText(first, 1, null, started), panicked(first, 2, problem)],
          identity: { name, version, parent: null, pinned: true }
        })
      )
    }
  },
  // A renewal that fails for another reason does not mean that the lock is lost: the result is delivered.
  "defect-renewal-error-loses-activity": {
    ...plain(programs.Long),
    slow: (tape) => Effect.as(tape.renewalsFailed, 42),
    steps: (recorded) => {
      const first = turn(recorded, 1)
      const { instanceId, nowMs } = first.batch
      const completion = `{"ActivityCompleted":{"instance":"${instanceId}","execution_id":1,"id":2,"result":"42"}}`
      const workItem = first.stored.activities[0]!.work_item
      const next: Turn = {
        _tag: "Turn",
        turn: 2,
        batch: {
          ...first.batch,
          nowMs: nowMs + 3_000,
          instance: { orchestrationName: "Long", orchestrationVersion: "1.0.0" },
          history: first.stored.events,
          messages: [completion]
        },
        stored: {
          executionId: 1,
          events: [eventText(first, 3, 2, { type: "ActivityCompleted", result: "42" }, nowMs + 3_000)],
          activities: [],
          messages: [],
          cancelled: [],
          end: undefined,
          identity: undefined
        }
      }
      return [
        ...recorded,
        { _tag: "Activity", workItem, attemptCount: 1, completion },
        { ...next, stored: { ...next.stored, ...completed(next, "42") } }
      ]
    }
  }
}

/** Replays a recording; returns the differences as text. */
export const replay = (recording: Recording, scenario: Scenario): Effect.Effect<ReadonlyArray<string>> =>
  Effect.suspend(() => check(plan(recording, scenario), scenario))

/** What must happen when a recording is replayed. Throws `RecordingError`. */
export const plan = (recording: Recording, scenario: Scenario): ReadonlyArray<Step> => {
  const recorded = steps(recording)
  return scenario.steps?.(recorded, recording) ?? recorded
}

/** Runs the steps and returns those that differ. */
export const check = (plan: ReadonlyArray<Step>, scenario: Scenario): Effect.Effect<ReadonlyArray<string>> =>
  Effect.gen(function*() {
    const found: Array<string> = []
    for (const [step, reaction] of yield* play(plan, scenario)) {
      found.push(...differences(step, reaction).map((difference) => `${title(step)}: ${difference}`))
    }
    return found
  })

/** Runs the steps and returns the outcome of each. */
export const play = (
  plan: ReadonlyArray<Step>,
  scenario: Scenario
): Effect.Effect<ReadonlyArray<readonly [Step, tapes.Reaction]>> =>
  Effect.gen(function*() {
    const tape = yield* tapes.make
    yield* Layer.build(runtime(scenario, tape))
    return yield* Effect.forEach(plan, (step) =>
      Effect.map(
        step._tag === "NotAskedFor"
          ? tape.asked
          : step._tag === "Activity"
          ? tape.deliverActivity(step)
          : tape.deliver(step.batch),
        (reaction) => [step, reaction] as const
      ))
  }).pipe(Effect.scoped)

// internal

type Turn = Extract<Step, { readonly _tag: "Turn" }>

const runtime = (scenario: Scenario, tape: tapes.Tape): Layer.Layer<Runtime.Runtime> => {
  const definitions = scenario.definitions()
  const Slow = Activity.make("Slow", { payload: Schema.Number, success: Schema.Number })
  return Runtime.layer({ orchestrations: definitions.map(({ definition }) => definition), activities: [Slow] }).pipe(
    Layer.provide(Layer.mergeAll(
      Slow.toLayer(() => scenario.slow?.(tape) ?? Effect.die("no activity runs here")),
      ...definitions.map(({ layer }) => layer)
    )),
    Layer.provide(FromDriver.layer({ longPolling: { aggressivePollInterval: "1 hour" } })),
    Layer.provide(tape.layer),
    // Renewals come soon, but no lock runs out, however busy the machine: without one nothing is stored.
    Layer.provide(
      RuntimeConfig.layer({ orchestrationConcurrency: 1, workerConcurrency: 1, cancellationCheckInterval: "10 millis" })
    ),
    Layer.provide(Logger.layer([]))
  )
}

const title = (step: Step) =>
  step._tag === "NotAskedFor"
    ? "claims"
    : step._tag === "Activity"
    ? `activity, attempt ${step.attemptCount}`
    : step._tag === "Turn"
    ? `${step.batch.instanceId} turn ${step.turn}`
    : `${step.batch.instanceId} after event ${step.batch.history.length}`

/** The first turn of that number, of any instance and execution unless said. */
const turn = (recorded: ReadonlyArray<Step>, number: number, instanceId?: string, executionId?: number): Turn => {
  const found = recorded.find((step) =>
    step._tag === "Turn" && step.turn === number && (instanceId ?? step.batch.instanceId) === step.batch.instanceId &&
    (executionId ?? step.stored.executionId) === step.stored.executionId
  )
  if (found === undefined) throw new RecordingError(`there is no turn ${number}`)
  return found as Turn
}

const replace = (recorded: ReadonlyArray<Step>, old: Step, next: Step) =>
  recorded.map((step) => step === old ? next : step)

const insertAfter = (recorded: ReadonlyArray<Step>, place: Step, more: ReadonlyArray<Step>) =>
  recorded.flatMap((step) => step === place ? [step, ...more] : [step])

/** The recorded turn with what we do instead. Fails if that is the same. */
const better = (recorded: Turn, change: Partial<Stored>): Turn => {
  const stored = { ...recorded.stored, ...change }
  if (isDeepStrictEqual(stored, recorded.stored)) throw new RecordingError("Duroxide does the same")
  return { ...recorded, stored }
}

/** The recorded arrivals, then the end. */
const completed = (recorded: Turn, output: string): Partial<Stored> => {
  const arrivals = recorded.stored.events.filter((text) => !/"type":"Orchestration(Completed|Failed)"/.test(text))
  const eventId = recorded.batch.history.length + arrivals.length + 1
  return {
    events: [...arrivals, eventText(recorded, eventId, null, { type: "OrchestrationCompleted", output })],
    end: { status: "Completed", output }
  }
}

const eventText = (
  { batch }: Turn,
  eventId: number,
  sourceEventId: number | null,
  kind: { readonly type: string; readonly [field: string]: unknown },
  timestampMs = batch.nowMs
) =>
  JSON.stringify({
    event_id: eventId,
    source_event_id: sourceEventId,
    instance_id: batch.instanceId,
    execution_id: batch.executionId,
    timestamp_ms: timestampMs,
    duroxide_version: "0.1.30",
    ...kind
  })

/** The recorded steps but the last, and the last as the eleventh delivery of all messages that left no event. */
const poisoned = (recorded: ReadonlyArray<Step>): readonly [ReadonlyArray<Step>, Turn] => {
  const last = recorded.findLast((step) => step._tag === "Turn") as Turn
  const waiting = recorded.flatMap((step) => step._tag === "Nothing" ? step.batch.messages : [])
  return [
    recorded.filter((step) => step !== last && step._tag === "Turn"),
    { ...last, batch: { ...last.batch, attemptCount: 11, messages: [...last.batch.messages, ...waiting] } }
  ]
}

const given = ({ batch }: Turn, attemptCount: number, delayMs: number): Step => ({
  _tag: "GivenBack",
  batch: { ...batch, attemptCount },
  delayMs,
  counted: false
})

const panicked = (recorded: Turn, eventId: number, message: string) =>
  eventText(recorded, eventId, null, {
    type: "OrchestrationFailed",
    details: { Application: { kind: "Panicked", message, retryable: false } }
  })

const applicationError = (message: string) => ({
  Application: { kind: "OrchestrationFailed", message, retryable: false }
})

/** The message to a parent that its child has failed. */
const childFailed = ({ batch }: Turn, parentId: number, details: object) => ({
  SubOrchFailed: {
    parent_instance: batch.instanceId,
    parent_execution_id: batch.executionId,
    parent_id: parentId,
    details
  }
})

/** A message that is visible at once. */
const row = (instanceId: string, item: object): Stored["messages"][number] => ({
  queue: "orchestrator",
  instance_id: instanceId,
  visible_at: "",
  work_item: JSON.stringify(item)
})

const empty = { events: [], activities: [], messages: [], cancelled: [], end: undefined, identity: undefined }

/** The turn after `before`: one message in, these events out, of which the last ends the instance. */
const hears = (before: Turn, message: object, events: (next: Turn) => ReadonlyArray<string>): Turn => {
  const started = Result.getOrThrow(Event.decode(before.stored.events[0]!)) as Event.Of<"OrchestrationStarted">
  const next: Turn = {
    _tag: "Turn",
    turn: before.turn + 1,
    batch: {
      ...before.batch,
      nowMs: before.batch.nowMs + 1_000,
      instance: { orchestrationName: started.name, orchestrationVersion: started.version },
      history: [...before.batch.history, ...before.stored.events],
      messages: [JSON.stringify(message)]
    },
    stored: { ...empty, executionId: before.stored.executionId }
  }
  const written = events(next)
  const end = JSON.parse(written.at(-1)!) as { readonly output?: string }
  return {
    ...next,
    stored: {
      ...next.stored,
      events: written,
      end: end.output === undefined ? { status: "Failed", output: null } : { status: "Completed", output: end.output }
    }
  }
}

/** The recorded steps, with the detached start that the turn recorded really sent. */
const startsDetached = (recorded: ReadonlyArray<Step>, one: Turn, instance: string) => {
  const start = row(instance, {
    StartOrchestration: {
      instance,
      orchestration: "Child",
      input: "1",
      version: null,
      parent_instance: null,
      parent_id: null,
      execution_id: 1
    }
  })
  return replace(recorded, one, better(one, { messages: [start, ...one.stored.messages] }))
}
