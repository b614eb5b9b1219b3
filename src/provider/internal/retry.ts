/**
 * Retries: what an instance that has ended, or is blocked, runs again with.
 *
 * Its history keeps the events before a cut. Arrivals behind it return to the queue in their order, except failed
 * answers, interruptions and terminations. The requests of failed answers are carried out again, under their old event
 * ids and so with the same idempotency keys. The runtime does that, because only a replay knows a request as the code
 * made it. Tasks whose ends are not among what stays run again, or send their ends again: the store does that with the
 * cut.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Schedule from "effect/Schedule"
import * as ErrorDetails from "../../model/ErrorDetails.ts"
import type * as Event from "../../model/Event.ts"
import type { InstanceState } from "../../model/Instance.ts"
import * as coreVersion from "../../model/shared/coreVersion.ts"
import { childId } from "../../model/shared/identifiers.ts"
import * as interruptSignal from "../../model/shared/interruptSignal.ts"
import * as markers from "../../model/shared/markers.ts"
import { isArrival, messageOf } from "../../model/shared/recordedArrivals.ts"
import { isClosing, isEnd, isFailedAnswer, isOwnEnd } from "../../model/shared/recordedEnds.ts"
import * as retrySignal from "../../model/shared/retrySignal.ts"
import * as taskCalls from "../../model/shared/taskCalls.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Admin, Retried, RetriedActivity, RetriedInstance, RetriedTask, RetryOptions } from "../Admin.ts"
import type { AdminDriver, CutOutcome, HistoryCut, RecalledTask } from "../AdminDriver.ts"
import { InstanceNotFound, ProviderError, RetryRefused } from "../ProviderError.ts"
import { endOf } from "../shared/endOf.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import * as encoding from "./encoding.ts"
import { attributesOf, changesOf, changesValues, customStatusOf, readEvents, valuesBefore } from "./recordedState.ts"
import type { StoredValue } from "./recordedState.ts"

type Driver = AdminDriver["Service"]

type Service = Admin["Service"]

export const retries = (driver: Driver): Pick<Service, "retry"> => ({
  retry: (instanceId, options = {}) =>
    checked("retry", [
      check.text("instanceId", instanceId),
      check.whole("from", options.from, 1),
      check.text("reason", options.reason)
    ], () => retryTree(driver, instanceId, options))
})

// internal

/** Two seconds. A process that tries a blocked instance holds it for some milliseconds. */
const untilFree = {
  schedule: Schedule.spaced("100 millis"),
  while: (outcome: CutOutcome) => outcome === "Locked",
  times: 20
}

const refusal = (instanceId: string, problem: string) =>
  new ProviderError({ operation: "retry", reason: new RetryRefused({ instanceId, problem }) })

const refuse = (instanceId: string, problem: string) => Effect.fail(refusal(instanceId, problem))

/** A child that is retried with its parent, from its last good event or from this one. */
interface Retrying {
  readonly id: string
  readonly from: number | undefined
}

/**
 * The whole family is looked at before the first cut. The parent is cut first: it waits again before a child runs, so
 * that no answer of a child is lost.
 */
const retryTree = Effect.fnUntraced(function*(
  driver: Driver,
  instanceId: string,
  options: RetryOptions
): Effect.fn.Return<Retried, ProviderError> {
  const root = yield* cutOf(driver, instanceId, options, false)
  const cuts = [root]
  // Who names an event knows what was undone since.
  const whose = options.from === undefined ? "child" : "child of a chosen event"
  const waiting = [...root.children]
  for (let next = waiting.shift(); next !== undefined; next = waiting.shift()) {
    const { from, id } = next
    const child = yield* cutOf(driver, id, { from, reason: options.reason }, whose).pipe(
      Effect.mapError((error) =>
        error.reason._tag !== "RetryRefused" ? error : refusal(
          instanceId,
          `its child ${error.reason.instanceId} cannot be retried: ` +
            (options.from !== undefined
              ? error.reason.problem
              // What follows is about events of the child.
              : `${error.reason.problem.split(". ")[0]!}. Retry ${instanceId} from event ` + (
                root.finishFrom === undefined
                  ? `${root.cut.keep} if nothing was undone`
                  : `${root.finishFrom} to let its children finish their clean-up`
              ))
        )
      )
    )
    cuts.push(child)
    waiting.push(...child.children)
  }
  for (const { beforeTasks, cut } of options.dryRun === true ? [] : cuts) {
    const outcome = yield* Effect.repeat(driver.cutHistory(cut), untilFree)
    if (outcome === "Cut") continue
    return yield* refuse(
      cut.instanceId,
      outcome === "TaskMissing"
        ? "a task that it waits for was deleted after its retention, or cannot run again in this store: " +
          `retry from event ${beforeTasks}, before its calls of tasks`
        : outcome === "Locked"
        ? "a process runs it right now; repeat the call"
        : "it has changed meanwhile; repeat the call"
    )
  }
  return { instances: cuts.map(({ retried }) => retried) }
})

/** How its history is cut, and the children that failed, or were cancelled, and that it waits for. */
const cutOf = Effect.fnUntraced(function*(
  driver: Driver,
  instanceId: string,
  { from, reason = "" }: RetryOptions,
  whose: false | "child" | "child of a chosen event"
) {
  const [state] = yield* driver.readInstances([instanceId])
  if (state === undefined) {
    return yield* Effect.fail(
      new ProviderError({ operation: "retry", reason: new InstanceNotFound({ instanceId }) })
    )
  }
  const events = yield* readEvents(driver, state, refuse)
  const [started] = events
  if (started === undefined && (yield* driver.readInstances([instanceId])).length === 0) {
    return yield* Effect.fail(new ProviderError({ operation: "retry", reason: new InstanceNotFound({ instanceId }) }))
  }
  if (started?._tag !== "OrchestrationStarted") return yield* refuse(instanceId, "it has not begun")
  if (!coreVersion.isOwn(started.duroxideVersion)) {
    return yield* refuse(instanceId, "Duroxide runs it, and knows no retry")
  }
  if (state.status === "Completed") return yield* refuse(instanceId, "it has completed")
  if (state.status === "ContinuedAsNew") return yield* refuse(instanceId, "its next execution begins; repeat the call")
  if (state.status === "Running" && state.block === null) {
    return yield* refuse(instanceId, "it runs; what has failed, was cancelled or is blocked can be retried")
  }
  // The parent of a child that is retried with it waits as soon as its history is cut.
  if (whose === false) yield* checkParent(driver, started)
  const least = 1 + (started.carryForwardEvents?.length ?? 0)
  const most = beforeEnd(events)
  const keep = withEndOfMarker(events, from ?? lastGood(events, least, most))
  if (keep < least || keep > most) {
    return yield* refuse(
      instanceId,
      `the event must be one from ${least} to ${most} of its execution ${state.executionId}`
    )
  }
  if (!events.some(({ eventId }) => eventId === keep)) {
    return yield* refuse(instanceId, `a retry has removed event ${keep} of its execution ${state.executionId}`)
  }
  const hasEnded = state.status === "Failed"
  const problem = from === undefined && hasEnded && whose !== "child of a chosen event"
    ? cleanUpProblem(events, keep, most)
    : undefined
  if (problem !== undefined) return yield* refuse(instanceId, problem)
  const plan = planOf(events, keep, hasEnded)
  const later = yield* driver.readInstances(plan.laterChildren)
  if (later.length > 0) {
    return yield* refuse(
      instanceId,
      `it has started its child ${later[0]!.instanceId} after event ${keep}: choose a later event, or delete the child`
    )
  }
  const children = yield* answersOf(driver, instanceId, plan.openChildren)
  const ends = yield* endsOf(driver, plan.endingChildren)
  // The end of an execution stores its values over those of earlier ones; a removal of all names none.
  const needsBefore = hasEnded ? events.some(changesValues) : events.some(({ _tag }) => _tag === "KeyValuesCleared")
  const before = needsBefore ? yield* valuesBefore(driver, state, refuse) : new Map<string, StoredValue>()
  const lastEventId = events.at(-1)!.eventId
  // No replay may see the clock go back.
  const timestampMs = Math.max(events.at(-1)!.timestampMs, yield* Clock.currentTimeMillis)
  const cut: HistoryCut = {
    instanceId,
    executionId: state.executionId,
    lastEventId,
    status: state.status,
    keep,
    event: encoding.encodeEvent({
      _tag: "ExternalEventPersistent",
      eventId: lastEventId + 1,
      sourceEventId: null,
      instanceId,
      executionId: state.executionId,
      timestampMs,
      duroxideVersion: started.duroxideVersion,
      name: retrySignal.name,
      data: retrySignal.removed(keep + 1, lastEventId)
    }),
    reason,
    customStatus: customStatusOf(plan.kept, started),
    attributes: encoding.changesOf(attributesOf(plan.kept, started)),
    stored: hasEnded && events.some(changesValues) ? [...before.values()] : null,
    changed: changesOf(plan.kept, before.keys()),
    messages: [
      WorkItem.encode({
        _tag: "QueueMessage",
        instance: instanceId,
        name: retrySignal.name,
        data: retrySignal.encode(plan.again)
      }),
      ...plan.messages.map(WorkItem.encode),
      ...children.answers.map(WorkItem.encode),
      ...ends.messages.map(WorkItem.encode)
    ],
    cancelledActivities: plan.removedActivities,
    withdrawn: [
      ...plan.removedTimers.map(WorkItem.encode),
      ...(hasEnded ? yield* terminationsOf(driver, instanceId) : [])
    ],
    tasks: plan.tasks.map(({ task }) => task)
  }
  const termination = cutOffOf(events)
  const activities = events.filter((event) => event._tag === "ActivityScheduled" && !markers.isMarker(event))
    .map(({ eventId, name }): RetriedActivity => ({ name, eventId }))
  const retried: RetriedInstance = {
    instanceId,
    from: keep,
    removed: keep < lastEventId ? [events.find(({ eventId }) => eventId > keep)!.eventId, lastEventId] : null,
    again: activities.filter(({ eventId }) => plan.again.includes(eventId)),
    forgotten: activities.filter(({ eventId }) => eventId > keep),
    tasks: plan.tasks.map((planned) => retriedTask(planned, plan.kept))
  }
  return {
    cut,
    retried,
    /** The last event before the first call of a task that runs again. */
    beforeTasks: plan.kept.findLast(({ eventId }) => plan.tasks.every(({ call }) => eventId < call))?.eventId,
    children: [...children.toRetry.map((id): Retrying => ({ id, from: undefined })), ...ends.toRetry],
    /** The event from which it and its children would finish a clean-up that was cut off. */
    finishFrom: termination === undefined ? undefined : termination.eventId - 1
  }
})

// -- what stays ------------------------------------------------------------------------------------

/** The last event before those that end the execution; the last one of an execution that has not ended. */
export const beforeEnd = (events: ReadonlyArray<Event.Event>): number => {
  const first = events.findIndex((event) => isEnd(event) || isClosing(event))
  return events.at(first < 0 ? -1 : first - 1)!.eventId
}

const isAnswerOfChild = (event: Event.Event): boolean =>
  event._tag === "SubOrchestrationCompleted" || event._tag === "SubOrchestrationFailed"

const isInterruption = (event: Event.Event): boolean =>
  event._tag === "ExternalEventPersistent" && event.name === interruptSignal.name

/**
 * The last event before the arrivals that ended the execution; if a failed answer or a termination is among them, the
 * event before the first one; that before the interruption of one that was interrupted. All events of an execution that
 * has not ended, or that ended without its code.
 */
const lastGood = (events: ReadonlyArray<Event.Event>, least: number, most: number): number => {
  const end = events.findLast(isEnd)
  if (end === undefined) return most
  if (end._tag === "OrchestrationFailed" && ErrorDetails.cancellationOf(end.details) !== undefined) {
    const interruption = events.findIndex((event) => event.eventId > least && isInterruption(event))
    if (interruption >= 0) return events[interruption - 1]!.eventId
  }
  const lastArrivals = (before: number): { readonly first: number; readonly arrived: ReadonlyArray<Event.Event> } => {
    let last = before
    while (last >= least && !isArrival(events[last]!, events)) last--
    let first = last
    while (first > least && isArrival(events[first - 1]!, events)) first--
    return { first, arrived: last < least ? [] : events.slice(first, last + 1) }
  }
  let { arrived, first } = lastArrivals(events.findLastIndex(({ eventId }) => eventId <= most))
  if (arrived.length === 0) return events[least - 1]!.eventId
  if (!isOwnEnd(end, arrived)) return most
  // What made the program interrupt a child came before the end of that child.
  const isLateEnd = lateEndsOf(events)
  while (arrived.every(isLateEnd)) {
    const before = lastArrivals(first - 1)
    if (before.arrived.length === 0) break
    ;({ arrived, first } = before)
  }
  const bad = arrived.findIndex((event) =>
    isFailedAnswer(event) && !isLateEnd(event) || event._tag === "OrchestrationCancelRequested"
  )
  return events[first + Math.max(0, bad) - 1]!.eventId
}

/**
 * Why a retry from `keep` would not know what the program has cleaned up since. An activity that was given up may have
 * had its effect.
 */
const cleanUpProblem = (events: ReadonlyArray<Event.Event>, keep: number, most: number): string | undefined => {
  const requestAfter = (eventId: number) =>
    events.find((event) =>
      event.eventId > eventId && !markers.isPart(event, events) &&
      (event._tag === "ActivityScheduled" || event._tag === "SubOrchestrationScheduled")
    )?.eventId
  if (events.some((event) => event.eventId === keep + 1 && isInterruption(event))) {
    const cleanUp = requestAfter(keep)
    if (cleanUp === undefined) return undefined
    const termination = events.find(({ _tag }) => _tag === "OrchestrationCancelRequested")
    return `it was interrupted at event ${keep + 1} and has cleaned up since event ${cleanUp}. ` + (
      termination === undefined
        ? `Start a new instance, or retry from event ${keep} if nothing was undone`
        : `Retry from event ${
          termination.eventId - 1
        } to let it finish that, or from event ${keep} if nothing was undone`
    )
  }
  const end = events.findLast(isEnd)
  const isLateEnd = lateEndsOf(events)
  const failed = events.findLast((event) =>
    event.eventId <= most && (isFailedAnswer(event) && !isLateEnd(event) || taskCalls.isFailedEnd(event, events))
  )
  if (failed === undefined || failed.eventId > keep || end?._tag !== "OrchestrationFailed") return undefined
  if (!(isFailedAnswer(failed) ? endsWith(end.details, failed.details) : endsWithTask(end.details))) return undefined
  const cleanUp = requestAfter(failed.eventId)
  return cleanUp === undefined ? undefined : `after the failed answer of event ${failed.eventId} it has done more ` +
    `(event ${cleanUp}), and would fail again. Retry from event ${
      failed.eventId - 1
    } to let it try again what failed: ` +
    "what it has undone since stays so"
}

/**
 * Whether a program that ended so may have ended because of the failed answer: with a failure of its own, or with the
 * death of what it called. Another death has nothing to do with it.
 */
const endsWith = (end: ErrorDetails.ErrorDetails, answer: ErrorDetails.ErrorDetails): boolean =>
  end._tag === "Application" && (
    end.kind === "OrchestrationFailed" ||
    end.kind === "Panicked" && answer._tag === "Application" && answer.message !== "" &&
      // Long texts are cut.
      end.message.includes(answer.message.slice(0, 1_000))
  )

/** Whether a program that ended so may have ended because of a task. A defect of a task names it in its message. */
const endsWithTask = (end: ErrorDetails.ErrorDetails): boolean =>
  end._tag === "Application" &&
  (end.kind === "OrchestrationFailed" || end.kind === "Panicked" && end.message.includes("task \""))

/** The termination of an execution that was interrupted before: it may have cut off a clean-up. */
const cutOffOf = (events: ReadonlyArray<Event.Event>): Event.Event | undefined =>
  events.some(isInterruption) ? events.find(({ _tag }) => _tag === "OrchestrationCancelRequested") : undefined

/** A marker is two events: the activity and its end. */
export const withEndOfMarker = (events: ReadonlyArray<Event.Event>, keep: number): number =>
  events.some((event) => event.eventId === keep && markers.isMarker(event)) ? keep + 1 : keep

/** Children that the program has interrupted, and whose end is not among these events, by event id. */
export const interruptedOf = (
  events: ReadonlyArray<Event.Event>
): Map<number, Event.Of<"SubOrchestrationScheduled">> => {
  const answered = new Set(events.flatMap((event) => isAnswerOfChild(event) ? event.sourceEventId! : []))
  const interrupted = new Set(
    events.flatMap((event) =>
      event._tag === "SubOrchestrationCancelRequested" && event.reason === interruptSignal.ofChild
        ? event.sourceEventId!
        : []
    )
  )
  return new Map(
    events.flatMap((event) =>
      event._tag === "SubOrchestrationScheduled" && interrupted.has(event.eventId) && !answered.has(event.eventId)
        ? [[event.eventId, event] as const]
        : []
    )
  )
}

/** Whether an event of these is the end of a child that the program had interrupted before. */
const lateEndsOf = (events: ReadonlyArray<Event.Event>) => {
  const interrupted = interruptedOf(events.filter((event) => !isAnswerOfChild(event)))
  return (event: Event.Event): boolean => isAnswerOfChild(event) && interrupted.has(event.sourceEventId!)
}

interface PlannedTask {
  readonly task: RecalledTask
  /** The event that has created it. */
  readonly call: number
}

interface Plan {
  readonly kept: ReadonlyArray<Event.Event>
  /** Requests that are carried out again. */
  readonly again: ReadonlyArray<number>
  /** Arrivals that return to the queue. */
  readonly messages: ReadonlyArray<WorkItem.WorkItem>
  /** Children whose answer is neither in the events that stay nor among the messages. */
  readonly openChildren: ReadonlyArray<Event.Of<"SubOrchestrationScheduled">>
  /** Interrupted children whose end the program waits for, and that is neither in the events nor among the messages. */
  readonly endingChildren: ReadonlyArray<Event.Of<"SubOrchestrationScheduled">>
  /** Ids of children that were requested after the cut; those that exist were started. */
  readonly laterChildren: ReadonlyArray<string>
  /** Tasks that have not completed, by the events that stay and the messages. */
  readonly tasks: ReadonlyArray<PlannedTask>
  readonly removedActivities: ReadonlyArray<number>
  readonly removedTimers: ReadonlyArray<WorkItem.WorkItem>
}

const planOf = (events: ReadonlyArray<Event.Event>, keep: number, hasEnded: boolean): Plan => {
  const kept = events.filter(({ eventId }) => eventId <= keep)
  const removed = events.filter(({ eventId }) => eventId > keep)
  /** Requests with an answer, or given up. */
  const closed = new Set(kept.flatMap(({ sourceEventId }) => sourceEventId ?? []))
  const ending = interruptedOf(kept)
  const keptIds = new Set(kept.map(({ eventId }) => eventId))
  const messages: Array<WorkItem.WorkItem> = []
  const failed = new Set<number>()
  const failedTasks = new Set<string>()
  const delivered: Array<Event.Event> = []
  for (const event of removed) {
    const { sourceEventId } = event
    if (event._tag === "OrchestrationCancelRequested") continue
    const message = isArrival(event, events) ? messageOf(event) : undefined
    // The request that it answers is removed, too, so the code that comes could not match it.
    if (message === undefined || (sourceEventId !== null && !keptIds.has(sourceEventId))) continue
    if (event._tag === "ExternalEventPersistent" && event.name === retrySignal.name || isInterruption(event)) continue
    // The store knows what a sealed end is, and sends it again if it is a result.
    const isSealedEnd = event._tag === "ExternalEventPersistent" && taskSignal.isOfOneCall(event.name) &&
      taskSignal.fieldOf(event.data, "status") === undefined
    if (isSealedEnd || taskCalls.isFailedEnd(event, events)) {
      if (event._tag === "ExternalEventPersistent") failedTasks.add(event.name)
      else failed.add(sourceEventId!)
      continue
    }
    if (isFailedAnswer(event) && !ending.delete(sourceEventId!)) failed.add(sourceEventId!)
    else {
      messages.push(message)
      delivered.push(event)
      ending.delete(sourceEventId!)
      if (sourceEventId !== null) closed.add(sourceEventId)
    }
  }
  const isOpen = ({ eventId }: Event.Event) => !closed.has(eventId)
  return {
    kept,
    messages,
    // What a running instance has open is in the queues, except what has failed.
    again: kept.filter((event) =>
      (event._tag === "ActivityScheduled" || event._tag === "TimerCreated") && isOpen(event) &&
      (hasEnded || failed.has(event.eventId))
    ).map(({ eventId }) => eventId),
    openChildren: kept.filter((event): event is Event.Of<"SubOrchestrationScheduled"> =>
      event._tag === "SubOrchestrationScheduled" && isOpen(event) && (hasEnded || failed.has(event.eventId))
    ),
    endingChildren: [...ending.values()],
    tasks: [
      ...taskCalls.openIn([...kept, ...delivered])
        .filter(({ signal }) => hasEnded || failedTasks.has(signal))
        .map(({ created, signal }) => ({ task: taskOf(created, signal), call: created.eventId })),
      // The call asks again.
      ...kept.flatMap((event) =>
        event._tag === "ActivityScheduled" && event.name === taskSignal.runTask && failed.has(event.eventId)
          ? [{ task: taskOf(event, null), call: event.eventId }]
          : []
      )
    ],
    laterChildren: removed.flatMap((event) => event._tag === "SubOrchestrationScheduled" ? childId(event) : []),
    removedActivities: removed.flatMap((event) => event._tag === "ActivityScheduled" ? event.eventId : []),
    removedTimers: removed.flatMap((event) =>
      event._tag !== "TimerCreated" ? [] : [{
        _tag: "TimerFired" as const,
        instance: event.instanceId,
        executionId: event.executionId,
        id: event.eventId,
        fireAtMs: event.fireAtMs
      }]
    )
  }
}

const taskOf = (created: Event.Of<"ActivityScheduled">, signal: string | null): RecalledTask =>
  signal !== null && taskSignal.isOfOneCall(signal)
    ? { id: taskSignal.callOf(signal), name: null, key: null, signal }
    // What is sealed names no task that there is, and the retry is refused.
    : { id: null, name: text(created.input, "name"), key: text(created.input, "key"), signal }

const retriedTask = ({ call, task: { id } }: PlannedTask, events: ReadonlyArray<Event.Event>): RetriedTask => {
  const created = events.find(({ eventId }) => eventId === call)
  const read = (field: string) => {
    const value = created?._tag === "ActivityScheduled" ? taskSignal.fieldOf(created.input, field) : undefined
    return typeof value === "string" ? value : null
  }
  return { id, name: read("name"), key: read("key"), eventId: call }
}

const text = (input: string, field: string): string => String(taskSignal.fieldOf(input, field))

// -- family ----------------------------------------------------------------------------------------

/** A parent that has its answer would get another one. */
const checkParent = Effect.fnUntraced(function*(driver: Driver, started: Event.Of<"OrchestrationStarted">) {
  const { instanceId, parentExecutionId = 1, parentId, parentInstance } = started
  if (parentInstance === null || parentId === null) return
  const [parent] = yield* driver.readInstances([parentInstance])
  if (parent?.status !== "Running" || parent.executionId !== parentExecutionId) {
    return yield* refuse(instanceId, `its parent ${parentInstance} no longer waits for it: retry the parent`)
  }
  const events = yield* readEvents(driver, parent, refuse)
  const answer = events.find((event) => event.sourceEventId === parentId)
  if (answer !== undefined) {
    return yield* refuse(
      instanceId,
      `its parent ${parentInstance} has its answer since event ${answer.eventId}: retry the parent from event ${
        answer.eventId - 1
      }`
    )
  }
  const queued = yield* readQueue(driver, parentInstance)
  const isQueued = queued.some((queued) => {
    const message = messageIn(queued)
    return message !== undefined && "parentId" in message && message.parentId === parentId &&
      (message._tag === "SubOrchFailed" || message._tag === "SubOrchCompleted")
  })
  if (isQueued) return yield* refuse(instanceId, `its answer is on the way to its parent ${parentInstance}`)
})

/** Results of children that have completed meanwhile, and the children that are retried as well. */
const answersOf = Effect.fnUntraced(function*(
  driver: Driver,
  instanceId: string,
  children: ReadonlyArray<Event.Of<"SubOrchestrationScheduled">>
) {
  const states = new Map((yield* driver.readInstances(children.map(childId))).map((one) => [one.instanceId, one]))
  const answers: Array<WorkItem.WorkItem> = []
  const toRetry: Array<string> = []
  for (const child of children) {
    const id = childId(child)
    const state = states.get(id)
    const end = state === undefined ? undefined : endOf(state)
    if (end?._tag === "Failed") toRetry.push(id)
    else if (end?._tag === "Completed") answers.push(answerOf(child, end))
    else if (state !== undefined && (yield* isEnding(driver, state))) {
      return yield* refuse(instanceId, `its child ${id} is being cancelled; repeat the call when it has ended`)
    }
  }
  return { answers, toRetry }
})

const answerOf = (
  child: Event.Of<"SubOrchestrationScheduled">,
  end: NonNullable<ReturnType<typeof endOf>>
): WorkItem.WorkItem => {
  const parent = { parentInstance: child.instanceId, parentExecutionId: child.executionId, parentId: child.eventId }
  return end._tag === "Completed"
    ? { _tag: "SubOrchCompleted", ...parent, result: end.output }
    : { _tag: "SubOrchFailed", ...parent, details: end.details }
}

/**
 * Answers of interrupted children that have ended; the others will send theirs. A child whose clean-up was cut off
 * finishes it.
 */
const endsOf = Effect.fnUntraced(function*(
  driver: Driver,
  children: ReadonlyArray<Event.Of<"SubOrchestrationScheduled">>
) {
  const states = new Map((yield* driver.readInstances(children.map(childId))).map((one) => [one.instanceId, one]))
  const messages: Array<WorkItem.WorkItem> = []
  const toRetry: Array<Retrying> = []
  for (const child of children) {
    const state = states.get(childId(child))
    const end = state === undefined ? undefined : endOf(state)
    if (state === undefined || end === undefined) continue
    const events = end._tag === "Failed" ? yield* readEvents(driver, state, refuse) : []
    const termination = cutOffOf(events)
    if (termination !== undefined) {
      toRetry.push({ id: state.instanceId, from: termination.eventId - 1 })
      continue
    }
    messages.push(answerOf(child, end))
  }
  return { messages, toRetry }
})

/** Whether a running instance is interrupted, or will be terminated. */
const isEnding = Effect.fnUntraced(function*(driver: Driver, state: InstanceState) {
  const queued = (yield* readQueue(driver, state.instanceId)).map(messageIn)
  const isEnded = queued.some((message) =>
    message?._tag === "CancelInstance" ||
    message?._tag === "QueueMessage" && message.name === interruptSignal.name
  )
  return isEnded || (yield* readEvents(driver, state, refuse)).some(isInterruption)
})

/** Deadlines of interruptions that have not passed. */
const terminationsOf = (driver: Driver, instanceId: string) =>
  Effect.map(
    readQueue(driver, instanceId),
    (queued) => queued.flatMap(({ kind, workItem }) => kind === "CancelInstance" && workItem !== null ? workItem : [])
  )

const messageIn = ({ workItem }: { readonly workItem: string | null }) =>
  workItem === null ? undefined : Result.getOrUndefined(WorkItem.decode(workItem))

const readQueue = (driver: Driver, instanceId: string) =>
  driver.readMessages({ instanceId, limit: 10_000, maxBytes: 65_536 })
