/**
 * Finds the one cause for which an instance does not continue, and says it in a sentence.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Match from "effect/Match"
import type * as Event from "../../model/Event.ts"
import type { CoreVersion, InstanceStatus } from "../../model/Instance.ts"
import type { Limit } from "../../model/Limit.ts"
import type { Pause, PauseTarget } from "../../model/Pause.ts"
import * as completion from "../../model/shared/completion.ts"
import * as coreVersion from "../../model/shared/coreVersion.ts"
import { cureOf } from "../../model/shared/cures.ts"
import { explainEnd } from "../../model/shared/explained.ts"
import { shownBound } from "../../model/shared/limits.ts"
import { shownTarget } from "../../model/shared/pauses.ts"
import { age, counted } from "../../model/shared/quantities.ts"
import { shellArgument } from "../../model/shared/shellWord.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import type { Admin, InstanceInfo, QueuedWork } from "../Admin.ts"
import type { ProcessInfo, QueuePlace } from "../AdminDriver.ts"
import { Cause } from "../Explanation.ts"
import type { AwaitedActivity, Explanation, Wait } from "../Explanation.ts"
import { endOf, outcomeOf } from "../shared/endOf.ts"
import * as OpenWaits from "../shared/openWaits.ts"
import { servedVersions, serversOfActivity, serversOfOrchestration } from "../shared/served.ts"

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
      const cause = Cause.Ended({
        atMs: events.at(-1)?.timestampMs ?? state.updatedAtMs,
        // A typed error has no other mark than to be JSON.
        error: status === "Failed" && end._tag === "Failed" ? explainEnd(end.details) : error
      })
      const sentence = sentenceOf(state, status, cause, {
        interruption: null,
        untaken: [],
        messages: [],
        servedBy: 1,
        isBegun: true
      }, nowMs)
      return {
        instanceId,
        status,
        sentence: sentence + retryHint(state, status, events),
        cause,
        waits: [],
        untaken: [],
        interruption: null
      } satisfies Explanation
    }
    const { interruption = null, messages, untaken, waits } = OpenWaits.of(events, queued)
    const processes = yield* reads.listProcesses
    const found = causeOf({
      state,
      queued,
      events,
      waits,
      pinnedVersion: events.length === 0
        ? null
        : (yield* reads.getExecutionInfo(instanceId, state.executionId)).pinnedVersion,
      processes,
      pauses: (yield* reads.getPauses).targets
    })
    const cause = yield* withLimit(reads, found)
    const servedBy = serversOfOrchestration(processes, state.orchestrationName, versionOf(state, queued))
    const sentence = sentenceOf(state, "Running", cause, {
      interruption,
      untaken,
      messages,
      servedBy,
      isBegun: events.length > 0 || state.executionId > 1
    }, nowMs)
    return { instanceId, status: "Running", sentence, cause, waits, untaken, interruption } satisfies Explanation
  })
})

// internal

/** A child is retried with its parent. */
const retryHint = (
  { instanceId, parentInstanceId }: InstanceInfo,
  status: InstanceStatus,
  [started]: ReadonlyArray<Event.Event>
): string =>
  status !== "Completed" && parentInstanceId === null && started !== undefined &&
    coreVersion.isOwn(started.duroxideVersion)
    ? ` What another run would do: duroxide-prisma retry --dry-run ${shellArgument(instanceId)}`
    : ""

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

const startIn = (messages: QueuedWork["messages"]) => messages.find(({ item }) => item?._tag === "StartOrchestration")

/** The version of the instance, or the one its start asks for; null: any. */
const versionOf = (state: InstanceInfo, { messages }: QueuedWork): string | null => {
  const start = startIn(messages)
  return state.orchestrationVersion ?? (start?.item?._tag === "StartOrchestration" ? start.item.version : null)
}

/** What has paused an instance besides `pause`. */
const othersThan = (
  pause: Pause,
  { pauses, state: { orchestrationName, orchestrationVersion } }: Found
): ReadonlyArray<PauseTarget> =>
  pauses.map(({ target }) => target).filter((target) =>
    shownTarget(target) !== shownTarget(pause.target) && (
      target._tag === "Everything" ||
      target._tag === "Orchestration" && target.name === orchestrationName &&
        (target.version === undefined || target.version === orchestrationVersion)
    )
  )

/** The pause of a start without a version, if all versions that living processes serve are paused. */
const pauseOfVersions = ({ pauses, processes, state: { orchestrationName } }: Found): Pause | undefined => {
  const paused = [...servedVersions(processes, orchestrationName)].map((version) =>
    pauses.find(({ target }) =>
      target._tag === "Orchestration" && target.name === orchestrationName && target.version === version
    )
  )
  return paused.every((pause) => pause !== undefined) ? paused[0] : undefined
}

const causeOf = (found: Found): Cause => {
  const { pinnedVersion, processes, queued: { messages }, state } = found
  if (state.pause !== null) return Cause.Paused({ pause: state.pause, others: othersThan(state.pause, found) })
  if (state.block !== null) return Cause.Blocked({ block: state.block })
  if (pinnedVersion !== null && !coreVersion.isWithin(pinnedVersion, coreVersion.supported)) {
    return Cause.OfDuroxide({ version: `${pinnedVersion.major}.${pinnedVersion.minor}.${pinnedVersion.patch}` })
  }
  const locked = messages.find(({ lockedUntilMs }) => lockedUntilMs !== null)
  if (locked !== undefined) return Cause.TakesTurn({ untilMs: locked.lockedUntilMs! })
  const start = startIn(messages)
  const due = messages.filter(({ isDue }) => isDue)
  if (due.length > 0 && (start === undefined || start.isDue)) {
    const version = versionOf(state, found.queued)
    const servedBy = serversOfOrchestration(processes, state.orchestrationName, version)
    const { waitsForLimit } = found.queued
    if (servedBy === 0) return Cause.Unserved({ name: state.orchestrationName, version })
    const pause = version === null ? pauseOfVersions(found) : undefined
    if (pause !== undefined) return Cause.Paused({ pause, others: [] })
    return waitsForLimit !== null
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
  state: InstanceInfo,
  status: InstanceStatus,
  cause: Cause,
  { interruption, isBegun, messages, servedBy, untaken }:
    & Pick<Explanation, "interruption" | "untaken">
    & Pick<ReturnType<typeof OpenWaits.of>, "messages">
    & { readonly servedBy: number; readonly isBegun: boolean },
  nowMs: number
): string => {
  const { instanceId, orchestrationName: name, orchestrationVersion: version } = state
  const end = readsNothing.has(cause._tag) ? endInQueue(messages) : undefined
  const unread = end?.kind
  const about = unread !== undefined
    ? `${instanceId}, whose ${unread} has come and was not read,`
    : interruption === null
    ? instanceId
    : `${instanceId} was interrupted ${ago(interruption.sinceMs, nowMs)} and cleans up: it`
  const others = waitsForOthers.has(cause._tag) ? shownUntaken(untaken) : ""
  const predicate = cause._tag === "Paused"
    ? `${paused(cause, nowMs)}: ${afterResume(state, cause, end, nowMs)}`
    : cause._tag === "Blocked"
    ? `${blocked(cause, instanceId, nowMs)}${pastBlock(end, nowMs)}`
    : predicateOf(cause, status, name, isBegun, nowMs)
  const unserved = servedBy === 0 && !saysWhoServes.has(cause._tag)
    ? `; no living process serves ${name}${version === null ? "" : ` ${version}`}`
    : ""
  return `${about} ${predicate}${others}${unserved}.`
}

/** What ends the instance once it reads its messages. */
interface EndInQueue {
  readonly kind: "interruption" | "termination"
  /** The deadline of an interruption, after which it is terminated; null without one. */
  readonly deadlineMs: number | null
}

/** A termination that is due comes before an interruption; one that is not is the deadline. */
const endInQueue = (messages: ReturnType<typeof OpenWaits.of>["messages"]): EndInQueue | undefined => {
  const terminations = messages.filter(({ kind }) => kind === "termination")
  if (terminations.some(({ place }) => place.isDue)) return { kind: "termination", deadlineMs: null }
  if (!messages.some(({ kind }) => kind === "interruption")) return undefined
  return { kind: "interruption", deadlineMs: terminations[0]?.place.visibleAtMs ?? null }
}

const paused = ({ others, pause }: CauseOf<"Paused">, nowMs: number) => {
  const rest = others.length === 0 ?
    "" :
    `, and so ${others.length === 1 ? "is" : "are"} ${
      others.map((target) => target._tag === "Everything" ? "everything" : `all of ${shownTarget(target)}`).join(
        " and "
      )
    }`
  // What holds more than the instance may have been paused before it was started.
  const how = pause.target._tag === "Instance"
    ? others.length === 0 ? ", with nothing else," : ""
    : pause.target._tag === "Everything"
    ? ", as everything has been"
    : `, as all of ${shownTarget(pause.target)} has been`
  return `is paused${how} ${since(pause.sinceMs, nowMs)}${why(pause)}${rest}`
}

const afterResume = (
  { block }: InstanceInfo,
  { others }: CauseOf<"Paused">,
  end: EndInQueue | undefined,
  nowMs: number
): string => {
  const when = others.length === 0 ? "after \"resume\"" : "after a \"resume\" of each"
  if (end?.kind === "termination") return `${when} it is Cancelled, without clean-up`
  const deadline = end?.deadlineMs ?? null
  const unless = deadline === null ? "" : `, or past its deadline, ${at(deadline, nowMs)}, it is Cancelled without`
  if (block !== null) return `${when} it is still blocked, ${block.reason}: ${block.problem}${unless}`
  return end === undefined ? `it continues ${when}` : `${when} it cleans up, and is Cancelled${unless}`
}

const blocked = ({ block }: CauseOf<"Blocked">, instanceId: string, nowMs: number) =>
  `is blocked ${since(block.sinceMs, nowMs)}: ${block.problem} (${block.reason}, tried ${
    counted(block.tries, "time")
  }, the last by build ${block.build}). The cure: ${cureOf(block, instanceId)}`

const pastBlock = (end: EndInQueue | undefined, nowMs: number) =>
  end?.kind === "termination"
    ? "; at its next try it is Cancelled, without clean-up"
    : end === undefined || end.deadlineMs === null
    ? ""
    : `; past the deadline of its interruption, ${at(end.deadlineMs, nowMs)}, it is Cancelled without clean-up`

type CauseOf<Tag extends Cause["_tag"]> = Extract<Cause, { readonly _tag: Tag }>

/** Causes whose sentence says whether a process serves it, or for which none needs to. */
const saysWhoServes: ReadonlySet<Cause["_tag"]> = new Set<Cause["_tag"]>([
  "Ended",
  "OfDuroxide",
  "TakesTurn",
  "Unserved",
  "Queued",
  "Limited"
])

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

const predicateOf = (
  cause: Exclude<Cause, CauseOf<"Paused" | "Blocked">>,
  status: InstanceStatus,
  name: string,
  isBegun: boolean,
  nowMs: number
): string =>
  Match.valueTags(cause, {
    Ended: ({ atMs, error }) =>
      `${status === "Completed" ? "completed" : status === "Cancelled" ? "was cancelled" : "failed"} ${
        ago(atMs, nowMs)
      }${error === null ? "" : `: ${error}`}`,
    OfDuroxide: ({ version }) =>
      `is run by processes of Duroxide ${version} alone, of which this package knows nothing`,
    TakesTurn: ({ untilMs }) => `takes a turn in a process, whose lock lasts until ${at(untilMs, nowMs)}`,
    Unserved: (one) =>
      `${isBegun ? "has messages" : "has not begun"}, and no living process serves ${one.name}${
        one.version === null ? "" : ` ${one.version}`
      }`,
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
      `waits for ${named(activity)} ${since(activity.scheduledAtMs, nowMs)}, which a worker runs under a lock until ${
        at(untilMs, nowMs)
      }; if it has died, another one takes it then${tried(activity)}`,
    Child: (child) =>
      `waits for child ${child.instanceId} (${child.name}) ${sinceTime(child.sinceMs, nowMs)}${
        child.isInterrupted ? "; it was interrupted, and cleans up" : ""
      }`,
    Task: (task) => `waits for the end of task ${task.name} ${sinceTime(task.sinceMs, nowMs)}`,
    Completion: ({ heartbeat, name, sinceMs, untilMs }) =>
      `waits for a completion of activity ${name} from outside ${sinceTime(sinceMs, nowMs)}${
        untilMs === null ? "" : `, until ${at(untilMs, nowMs)}`
      }${heartbeat === null ? "" : `; the last heartbeat came ${ago(heartbeat.atMs, nowMs)}`}`,
    Signal: ({ name, sinceMs, untilMs }) =>
      `waits for signal ${name} ${sinceTime(sinceMs, nowMs)}${
        untilMs === null ? ", without a timeout" : `, and for a timer at ${at(untilMs, nowMs)}`
      }`,
    Request: ({ name, sinceMs, untilMs }) =>
      `waits for requests "${name}" ${sinceTime(sinceMs, nowMs)}${
        untilMs === null ? ", without a timeout" : `, and for a timer at ${at(untilMs, nowMs)}`
      }`,
    Timer: ({ untilMs }) => `sleeps until ${at(untilMs, nowMs)}`,
    Nothing: () => "waits for nothing that is stored: no message, activity, timer, child or signal would wake it"
  })
