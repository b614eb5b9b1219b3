/**
 * Finds the one cause for which an instance does not continue, and says it in a sentence.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import type * as Event from "../../model/Event.ts"
import type { CoreVersion, InstanceStatus } from "../../model/Instance.ts"
import type { Limit } from "../../model/Limit.ts"
import type { Pause } from "../../model/Pause.ts"
import * as completion from "../../model/shared/completion.ts"
import * as coreVersion from "../../model/shared/coreVersion.ts"
import { cures } from "../../model/shared/cures.ts"
import { explainEnd } from "../../model/shared/explained.ts"
import { shownBound } from "../../model/shared/limits.ts"
import { shownTarget } from "../../model/shared/pauses.ts"
import { age, counted } from "../../model/shared/quantities.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import type { Admin, InstanceInfo, QueuedWork } from "../Admin.ts"
import type { ProcessInfo, QueuePlace } from "../AdminDriver.ts"
import { Cause } from "../Explanation.ts"
import type { AwaitedActivity, Explanation, Wait } from "../Explanation.ts"
import { endOf, outcomeOf } from "../shared/endOf.ts"
import * as OpenWaits from "../shared/openWaits.ts"
import { serversOfActivity, serversOfOrchestration } from "../shared/served.ts"

type Service = Admin["Service"]

type Reads = Pick<
  Service,
  | "getInstanceInfo"
  | "getExecutionInfo"
  | "readHistoryWithExecutionId"
  | "getQueuedWork"
  | "listProcesses"
  | "getPauses"
  | "getLimit"
>

export const explains = (reads: Reads): Pick<Service, "explain"> => ({
  explain: Effect.fnUntraced(function*(instanceId) {
    const { events, queued, state } = yield* atOneMoment(reads, instanceId)
    const nowMs = yield* Clock.currentTimeMillis
    const end = endOf(state)
    if (end !== undefined) {
      const { error, status } = outcomeOf(end)
      const cause = Cause.Ended({ atMs: events.at(-1)?.timestampMs ?? state.updatedAtMs, error })
      const sentence = sentenceOf(state, status, cause, { interruption: null, untaken: [], messages: [] }, nowMs)
      return { instanceId, status, sentence, cause, waits: [], untaken: [], interruption: null } satisfies Explanation
    }
    const { interruption = null, messages, untaken, waits } = OpenWaits.of(events, queued)
    const found = causeOf({
      state,
      queued,
      events,
      waits,
      pinnedVersion: events.length === 0
        ? null
        : (yield* reads.getExecutionInfo(instanceId, state.executionId)).pinnedVersion,
      processes: yield* reads.listProcesses,
      pauses: (yield* reads.getPauses).targets
    })
    const cause = yield* withLimit(reads, found)
    const sentence = sentenceOf(state, "Running", cause, { interruption, untaken, messages }, nowMs)
    return { instanceId, status: "Running", sentence, cause, waits, untaken, interruption } satisfies Explanation
  })
})

// internal

/** Reads anew while turns are stored between the reads. */
const atOneMoment = Effect.fnUntraced(function*(reads: Reads, instanceId: string) {
  let state = yield* reads.getInstanceInfo(instanceId)
  for (let tries = 1;; tries++) {
    const events = yield* reads.readHistoryWithExecutionId(instanceId, state.executionId)
    const queued = yield* reads.getQueuedWork(instanceId)
    const after = yield* reads.getInstanceInfo(instanceId)
    const isOne = after.updatedAtMs === state.updatedAtMs && after.executionId === state.executionId
    state = after
    if (isOne || tries === mostTries) return { events, queued, state }
  }
})

const mostTries = 5

/** With the limit that is waited for. */
const withLimit = (reads: Reads, cause: Cause) =>
  cause._tag === "ActivityLimited"
    ? Effect.map(
      reads.getLimit("activity", cause.activity.name, cause.key),
      (limit) => Cause.ActivityLimited({ ...cause, limit })
    )
    : cause._tag === "Limited"
    ? Effect.map(reads.getLimit("orchestration", cause.name, cause.key), (limit) => Cause.Limited({ ...cause, limit }))
    : Effect.succeed(cause)

interface Found {
  readonly state: InstanceInfo
  readonly queued: QueuedWork
  readonly events: ReadonlyArray<Event.Event>
  readonly pinnedVersion: CoreVersion | null
  readonly processes: ReadonlyArray<ProcessInfo>
  readonly pauses: ReadonlyArray<Pause>
  readonly waits: ReadonlyArray<Wait>
}

const causeOf = (found: Found): Cause => {
  const { pinnedVersion, processes, queued: { messages }, state } = found
  if (state.pause !== null) return Cause.Paused({ pause: state.pause })
  if (state.block !== null) return Cause.Blocked({ block: state.block })
  if (pinnedVersion !== null && !coreVersion.isWithin(pinnedVersion, coreVersion.supported)) {
    return Cause.OfDuroxide({ version: `${pinnedVersion.major}.${pinnedVersion.minor}.${pinnedVersion.patch}` })
  }
  const locked = messages.find(({ lockedUntilMs }) => lockedUntilMs !== null)
  if (locked !== undefined) return Cause.TakesTurn({ untilMs: locked.lockedUntilMs! })
  const start = messages.find(({ item }) => item?._tag === "StartOrchestration")
  const due = messages.filter(({ isDue }) => isDue)
  if (due.length > 0 && (start === undefined || start.isDue)) {
    const asked = start?.item?._tag === "StartOrchestration" ? start.item.version : null
    const version = state.orchestrationVersion ?? asked
    const servedBy = serversOfOrchestration(processes, state.orchestrationName, version)
    const { waitsForLimit } = found.queued
    return servedBy === 0
      ? Cause.Unserved({ name: state.orchestrationName, version })
      : waitsForLimit !== null
      ? Cause.Limited({ name: state.orchestrationName, ...waitsForLimit, sinceMs: start!.visibleAtMs, limit: null })
      : Cause.Queued({ sinceMs: Math.min(...due.map(({ visibleAtMs }) => visibleAtMs)), servedBy })
  }
  if (start !== undefined) return Cause.StartsLater({ atMs: start.visibleAtMs })
  return ofWaits(found)
}

/** The worst activity counts first; what comes by itself, such as a timer, last. */
const ofWaits = (found: Found): Cause => {
  const { waits } = found
  const activities = waits.flatMap((wait) => wait.kind === "activity" ? ofActivity(found, wait) : [])
  const worst = (...tags: ReadonlyArray<Cause["_tag"]>) => activities.find(({ _tag }) => tags.includes(_tag))
  const first = worst("ActivityUnserved", "ActivityPaused") ?? ofRetry(found) ??
    worst("ActivityDelayed") ?? worst("ActivityLimited") ?? worst("ActivityQueued") ?? worst("ActivityRuns")
  if (first !== undefined) return first
  const child = waits.find(({ kind }) => kind === "child")
  if (child !== undefined) {
    const { instanceId, isInterrupted = false, name, sinceMs } = child
    return Cause.Child({ instanceId: instanceId!, name: name!, sinceMs, isInterrupted })
  }
  const timers = waits.flatMap(({ kind, place }) => kind === "timer" && place !== null ? [place.visibleAtMs] : [])
  const untilMs = timers.length === 0 ? null : Math.min(...timers)
  const signals = waits.filter(({ kind }) => kind === "signal")
  const task = signals.find(({ name }) => taskSignal.isName(name!))
  if (task !== undefined) return Cause.Task({ name: taskOf(found.events, task), sinceMs: task.sinceMs })
  const completed = signals.find(({ name }) => completion.isName(name!))
  if (completed !== undefined) return ofCompletion(found.events, completed, untilMs)
  const [signal] = signals
  if (signal !== undefined) return Cause.Signal({ name: signal.name!, sinceMs: signal.sinceMs, untilMs })
  const request = waits.find(({ kind }) => kind === "request")
  if (request !== undefined) return Cause.Request({ name: request.name!, sinceMs: request.sinceMs, untilMs })
  return untilMs === null ? Cause.Nothing() : Cause.Timer({ untilMs })
}

/** The call of an activity that is completed from outside. */
const ofCompletion = (
  events: ReadonlyArray<Event.Event>,
  { name, sinceMs }: Wait,
  timerMs: number | null
): Cause => {
  const callId = completion.callIdOf(name!)
  const scheduled = events.find(({ eventId }) => eventId === callId)
  const activityName = scheduled?._tag === "ActivityScheduled" ? scheduled.name : "unknown"
  const state = completion.stateOf(events, { executionId: events[0]!.executionId, callId, activityName })
  // Of payloads that are encrypted, only the timer says when it expires.
  const timesOutMs = timerMs === null ? null : timerMs - completion.graceMs
  const { expiresAtMs = timesOutMs, heartbeat } = state._tag === "Open" ? state : {}
  return Cause.Completion({
    name: activityName,
    sinceMs: scheduled?.timestampMs ?? sinceMs,
    untilMs: expiresAtMs,
    heartbeat: heartbeat === undefined
      ? null
      : { atMs: heartbeat.atMs, details: JSON.stringify(heartbeat.details) ?? "null" }
  })
}

/** The name of the task that the last activity before the wait has created. */
const taskOf = (events: ReadonlyArray<Event.Event>, { eventId }: Wait): string => {
  const creating = events.findLast((event) =>
    event.eventId < eventId && event._tag === "ActivityScheduled" && taskSignal.creates(event.name)
  )
  return creating?._tag === "ActivityScheduled" ? taskSignal.taskOf(creating.input) ?? "unknown" : "unknown"
}

const ofActivity = ({ events, pauses, processes, queued }: Found, { eventId, place }: Wait): ReadonlyArray<Cause> => {
  const scheduled = events.find((event) => event.eventId === eventId)
  if (scheduled?._tag !== "ActivityScheduled") return []
  const activity = awaited(events, scheduled, place)
  if (place === null) return [Cause.ActivityQueued({ activity, servedBy: 0 })]
  if (place.lockedUntilMs !== null) return [Cause.ActivityRuns({ activity, untilMs: place.lockedUntilMs })]
  const pause = pauses.find(({ target }) =>
    target._tag === "Everything" || (target._tag === "Activity" && target.name === activity.name) ||
    (target._tag === "Tag" && target.tag === activity.tag)
  )
  if (pause !== undefined) return [Cause.ActivityPaused({ activity, pause })]
  const servedBy = serversOfActivity(processes, activity.name, activity.tag)
  if (servedBy === 0) return [Cause.ActivityUnserved({ activity })]
  const waits = queued.activities.find((one) => one.eventId === eventId && one.executionId === scheduled.executionId)
    ?.waitsForLimit ?? null
  if (waits !== null) return [Cause.ActivityLimited({ activity, ...waits, limit: null })]
  return [
    place.isDue
      ? Cause.ActivityQueued({ activity, servedBy })
      : Cause.ActivityDelayed({ activity, atMs: place.visibleAtMs })
  ]
}

/** A timer that began in the turn that received the failure of an activity. */
const ofRetry = ({ events, waits }: Found): Cause | undefined => {
  for (const { eventId, kind, place } of waits) {
    if (kind !== "timer" || place === null) continue
    const before = events.filter((event) => event.eventId < eventId)
    const failed = before.findLast((event) => event._tag !== "TimerCreated")
    if (failed?._tag !== "ActivityFailed") continue
    const scheduled = before.find((event) => event.eventId === failed.sourceEventId)
    if (scheduled?._tag !== "ActivityScheduled") continue
    return Cause.Retries({ activity: awaited(events, scheduled, null), atMs: place.visibleAtMs })
  }
  return undefined
}

/** Counts the failures of this activity with the same input since it last succeeded. */
const awaited = (
  events: ReadonlyArray<Event.Event>,
  { eventId, input, name, tag, timestampMs }: Event.Of<"ActivityScheduled">,
  place: QueuePlace | null
): AwaitedActivity => {
  const same = new Set(
    events.flatMap((event) =>
      event._tag === "ActivityScheduled" && event.name === name && event.input === input ? [event.eventId] : []
    )
  )
  const ends = events.filter((event) =>
    (event._tag === "ActivityCompleted" || event._tag === "ActivityFailed") && same.has(event.sourceEventId ?? 0)
  )
  const failures = ends.slice(ends.findLastIndex(({ _tag }) => _tag === "ActivityCompleted") + 1)
  const last = failures.at(-1)
  return {
    name,
    tag: tag ?? null,
    eventId,
    scheduledAtMs: OpenWaits.carriedOutAgain(events).get(eventId) ?? timestampMs,
    tryNumber: failures.length + (place === null && last !== undefined ? 0 : 1),
    lastError: last?._tag === "ActivityFailed" ? explainEnd(last.details) : null,
    deliveries: place === null ? null : place.attemptCount
  }
}

// -- sentences -------------------------------------------------------------------------------------

const sentenceOf = (
  { instanceId, orchestrationName }: InstanceInfo,
  status: InstanceStatus,
  cause: Cause,
  { interruption, messages, untaken }:
    & Pick<Explanation, "interruption" | "untaken">
    & Pick<ReturnType<typeof OpenWaits.of>, "messages">,
  nowMs: number
): string => {
  const unread = readsNothing.has(cause._tag)
    ? messages.find(({ kind }) => kind === "interruption" || kind === "termination")?.kind
    : undefined
  const about = unread !== undefined
    ? `${instanceId}, whose ${unread} has come and was not read,`
    : interruption === null
    ? instanceId
    : `${instanceId} was interrupted ${ago(interruption.sinceMs, nowMs)} and cleans up: it`
  const others = waitsForOthers.has(cause._tag) ? shownUntaken(untaken) : ""
  return `${about} ${predicate(cause, status, orchestrationName, nowMs)}${others}.`
}

/** Causes for which an instance reads no message, and so does not see that it is to end. */
const readsNothing: ReadonlySet<Cause["_tag"]> = new Set<Cause["_tag"]>(["Paused", "Blocked", "Unserved"])

/** Causes that a signal which has come might have been meant to end. */
const waitsForOthers: ReadonlySet<Cause["_tag"]> = new Set<Cause["_tag"]>([
  "Child",
  "Task",
  "Completion",
  "Signal",
  "Request",
  "Timer",
  "Nothing"
])

/** Such as `; 1 signal "aproved" has come and was not taken`. */
const shownUntaken = (untaken: Explanation["untaken"]): string => {
  if (untaken.length === 0) return ""
  const names = [...new Set(untaken.map(({ name }) => name))]
  const shown = names.slice(0, mostNames).map((name) =>
    `${counted(untaken.filter((one) => one.name === name).length, "signal")} ${JSON.stringify(name)}`
  )
  const others = names.length - shown.length
  return `; ${[...shown, ...(others === 0 ? [] : [counted(others, "other name")])].join(", ")} ${
    untaken.length === 1 ? "has come and was not taken" : "have come and were not taken"
  }`
}

const mostNames = 3

const ago = (ms: number, nowMs: number) => `${age(nowMs - ms)} ago`

const at = (ms: number, nowMs: number) =>
  `${new Date(ms).toISOString().slice(0, 19).replace("T", " ")}Z${ms > nowMs ? `, in ${age(ms - nowMs)}` : ""}`

const since = (ms: number, nowMs: number) => `for ${age(nowMs - ms)}`

/** With the time, which a log or a ticket has. */
const sinceTime = (ms: number, nowMs: number) => `${since(ms, nowMs)} (since ${at(ms, nowMs)})`

const named = ({ name, tag }: AwaitedActivity) => `activity ${name}${tag === null ? "" : ` with tag ${tag}`}`

const tried = ({ deliveries, lastError, tryNumber }: AwaitedActivity) =>
  [
    ...(tryNumber > 1 ? [`try ${tryNumber}`] : []),
    ...(deliveries !== null && deliveries > 1 ? [`delivery ${deliveries}`] : []),
    ...(lastError === null ? [] : [`the last error: ${lastError}`])
  ].map((text) => `; ${text}`).join("")

/** Such as `a slot of limit Charge/tenant-7 (3 at once): 3 in use`. */
const slotOf = ({ eachKey, inUse, keys, name, total }: Limit, key: string) => {
  const ofKey = keys.find((one) => one.key === key)
  const bound = ofKey?.own ?? eachKey
  const isOfKey = bound !== null && (total?.concurrency === null || inUse < (total?.concurrency ?? Infinity))
  return isOfKey
    ? `a slot of limit ${key === "" ? name : `${name}/${key}`} (${shownBound(bound)}): ${ofKey?.inUse ?? 0} in use`
    : `a slot of limit ${name} (${shownBound(total)}): ${inUse} in use`
}

const why = ({ reason }: Pause) => reason === null ? "" : ` (${reason})`

const processes = (count: number) => counted(count, "process serves", "processes serve")

const predicate = (cause: Cause, status: InstanceStatus, name: string, nowMs: number): string =>
  Cause.$match(cause, {
    Ended: ({ atMs, error }) =>
      `${status === "Completed" ? "completed" : status === "Cancelled" ? "was cancelled" : "failed"} ${
        ago(atMs, nowMs)
      }${error === null ? "" : `: ${error}`}`,
    Paused: ({ pause }) =>
      // Which may have been paused before the instance was started.
      `is paused, ${
        pause.target._tag === "Instance"
          ? "with nothing else,"
          : pause.target._tag === "Everything"
          ? "as everything has been"
          : `as all of ${shownTarget(pause.target)} has been`
      } ${since(pause.sinceMs, nowMs)}${why(pause)}: it continues after "resume"`,
    Blocked: ({ block }) =>
      `is blocked ${since(block.sinceMs, nowMs)}: ${block.problem} (${block.reason}, tried ${
        counted(block.tries, "time")
      }, the last by build ${block.build}). The cure: ${cures[block.reason]}`,
    OfDuroxide: ({ version }) =>
      `is run by processes of Duroxide ${version} alone, of which this package knows nothing`,
    TakesTurn: ({ untilMs }) => `takes a turn in a process, whose lock lasts until ${at(untilMs, nowMs)}`,
    Unserved: (one) =>
      `has messages, and no living process serves ${one.name}${one.version === null ? "" : ` ${one.version}`}`,
    Queued: ({ servedBy, sinceMs }) =>
      `has had messages ${since(sinceMs, nowMs)}, and waits for a free slot; ${processes(servedBy)} ${name}`,
    Limited: ({ ahead, key, limit, sinceMs }) =>
      `waits for ${limit === null ? "a slot" : slotOf(limit, key)}, ${ahead} before it, ${since(sinceMs, nowMs)}`,
    StartsLater: ({ atMs }) => `starts at ${at(atMs, nowMs)}`,
    ActivityUnserved: ({ activity }) =>
      `waits for ${named(activity)}, which no living process takes, ${since(activity.scheduledAtMs, nowMs)}${
        tried(activity)
      }`,
    ActivityPaused: ({ activity, pause }) =>
      `waits for ${named(activity)}, which is paused with ${shownTarget(pause.target)}, ${since(pause.sinceMs, nowMs)}${
        why(pause)
      }`,
    Retries: ({ activity, atMs }) =>
      `tries ${named(activity)} again at ${at(atMs, nowMs)}, after ${
        counted(activity.tryNumber, "try", "tries")
      }; the last error: ${activity.lastError}`,
    ActivityDelayed: ({ activity, atMs }) =>
      `waits for ${named(activity)}, which is delivered again at ${at(atMs, nowMs)}${tried(activity)}`,
    ActivityLimited: ({ activity, ahead, key, limit }) =>
      `waits for ${named(activity)}, which waits for ${
        limit === null ? "a slot" : slotOf(limit, key)
      }, ${ahead} before it, ${since(activity.scheduledAtMs, nowMs)}${tried(activity)}`,
    ActivityQueued: ({ activity, servedBy }) =>
      activity.deliveries === null
        ? `waits for ${named(activity)}, which is not in the queue: its result is being stored`
        : `waits for ${named(activity)}, which has waited for a free worker ${since(activity.scheduledAtMs, nowMs)}; ${
          processes(servedBy)
        } it${tried(activity)}`,
    ActivityRuns: ({ activity, untilMs }) =>
      `waits for ${named(activity)} ${since(activity.scheduledAtMs, nowMs)}, which runs under a lock until ${
        at(untilMs, nowMs)
      }${tried(activity)}`,
    Child: (child) =>
      `waits for child ${child.instanceId} (${child.name}) ${sinceTime(child.sinceMs, nowMs)}${
        child.isInterrupted ? "; it was interrupted, and cleans up" : ""
      }`,
    Task: (task) => `waits for the end of task ${task.name} ${sinceTime(task.sinceMs, nowMs)}`,
    Completion: ({ heartbeat, name, sinceMs, untilMs }) =>
      `waits for a completion of activity ${name} from outside ${sinceTime(sinceMs, nowMs)}${
        untilMs === null ? "" : `, until ${at(untilMs, nowMs)}`
      }${
        heartbeat === null
          ? ""
          : `; the last heartbeat ${ago(heartbeat.atMs, nowMs)}${
            heartbeat.details === "null" ? "" : ` said ${heartbeat.details}`
          }`
      }`,
    Signal: ({ name, sinceMs, untilMs }) =>
      `waits for signal ${name} ${sinceTime(sinceMs, nowMs)}${
        untilMs === null ? ", without a limit" : `, and for a timer at ${at(untilMs, nowMs)}`
      }`,
    Request: ({ name, sinceMs, untilMs }) =>
      `waits for requests "${name}" ${sinceTime(sinceMs, nowMs)}${
        untilMs === null ? ", without a limit" : `, and for a timer at ${at(untilMs, nowMs)}`
      }`,
    Timer: ({ untilMs }) => `sleeps until ${at(untilMs, nowMs)}`,
    Nothing: () => "waits for nothing that is stored: no message, activity, timer, child or signal would wake it"
  })
