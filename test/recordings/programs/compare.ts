/**
 * Compares a decision with the recorded one.
 *
 * Texts are compared byte for byte, keys in their order, after these rules:
 *
 * - Clock: Duroxide reads its clock for every event, we read the store's once per turn. So our `timestamp_ms` is the
 *   turn's clock in every event and value, and the recorded one is at most a few milliseconds later (`recording.ts`).
 * - Due times of timers are compared as distances from the time of the event that created them.
 * - The row of an activity has additional fields of this package, which are left out.
 * - `duroxide_version` of new events is ours; the recorded one is Duroxide's (`recording.ts`).
 * - Errors: variant, kind and every field but free text agree. The texts of nondeterminism and unreadable histories are
 *   debug output of Duroxide; ours must not be empty. Our poison counts only the failed deliveries, one less than
 *   Duroxide, and does not repeat the messages. The error an orchestration failed with travels as JSON text here and
 *   bare there, in its history and in the notice to its parent. What the runtime says itself, of a limit that was
 *   exceeded or of an id that is taken, is a defect of the program here. The stack of a defect is ours alone.
 * - Queue rows written by a turn are compared as JSON values, because Duroxide sorts their keys.
 */
import { ErrorDetails, Event, Instance, WorkItem } from "duroxide-prisma/provider"
import type { ProviderDriver } from "duroxide-prisma/provider"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import { isDeepStrictEqual } from "node:util"
import * as coreVersion from "../../../src/model/shared/coreVersion.ts"
import type { Step, Stored } from "./recording.ts"
import type { Reaction } from "./tape.ts"

/** The differences as text; empty if the step went as recorded. */
export const differences = (step: Step, reaction: Reaction): ReadonlyArray<string> => {
  switch (step._tag) {
    case "Turn":
      return reaction._tag === "Stored"
        ? turnDifferences(step, reaction.ack)
        : [`a turn was recorded, ours was: ${reaction._tag}`]
    case "Nothing":
      return (reaction._tag === "Dropped" && reaction.enqueued.length === 0) ||
          (reaction._tag === "Stored" && decidesNothing(reaction.ack))
        ? []
        : [`nothing was recorded, ours: ${JSON.stringify(reaction)}`]
    case "Dropped":
      return reaction._tag === "Dropped"
        ? messageDifferences(step.messages.map(messageRow([], step.batch.nowMs)), reaction.enqueued)
        : [`the messages must be dropped, ours: ${JSON.stringify(reaction)}`]
    case "GivenBack": {
      const { counted, delayMs } = step
      return differ("given back", { _tag: "GivenBack", delayMs, counted }, reaction)
    }
    case "Activity":
      return step.completion === null
        ? differ("given back", { _tag: "GivenBack", delayMs: step.delayMs ?? null, counted: false }, reaction)
        : differ("completion", { _tag: "Completed", completion: withOurReason(step.completion, reaction) }, reaction)
    case "NotAskedFor":
      return reaction._tag === "Asked" && !isInRange(reaction.versions, step.version)
        ? []
        : [`executions of ${step.version.join(".")} are claimed`]
  }
}

// internal

/** Whether `version` lies in `range`, both ends included. */
const isInRange = (
  range: Instance.VersionRange | null | undefined,
  version: readonly number[]
): boolean => {
  if (range === null || range === undefined) return true
  const rank = ([major, minor, patch]: readonly number[]) => (major! * 1e6 + minor!) * 1e6 + patch!
  const { max, min } = range
  return rank(version) >= rank([min.major, min.minor, min.patch]) &&
    rank(version) <= rank([max.major, max.minor, max.patch])
}

const ourVersion = `${coreVersion.current.major}.${coreVersion.current.minor}.${coreVersion.current.patch}`

const turnDifferences = (
  { batch, stored }: Extract<Step, { readonly _tag: "Turn" }>,
  ack: ProviderDriver.OrchestrationAck
): ReadonlyArray<string> => {
  const { instanceId, nowMs } = batch
  const { executionId } = stored
  const ours = ack.history.map(({ eventData }) => eventData)
  const events = stored.events.flatMap((text, index) => eventDifferences(text, ours[index], nowMs))
  return [
    ...(ack.executionId === executionId ? [] : [`the turn is stored in execution ${ack.executionId}`]),
    ...events,
    ...ours.slice(stored.events.length).map((text) => `one event too many: ${text}`),
    ...ack.history.flatMap(({ eventData, eventId }) =>
      eventId === fields(eventData)["event_id"]
        ? []
        : [`the row of event ${fields(eventData)["event_id"]} says ${eventId}`]
    ),
    ...differ("activities", stored.activities.map(activityRow), ack.workerItems.map(ourActivityRow)),
    ...messageDifferences(stored.messages.map(messageRow(stored.events, nowMs)), ack.orchestratorItems),
    ...differ(
      "cancelled activities",
      stored.cancelled.map((activityId) => ({ instanceId, executionId, activityId })),
      ack.cancelledActivities
    ),
    ...endDifferences(stored, ack),
    ...identityDifferences(stored, ack),
    ...differ("custom status", customStatusOf(stored.events), ack.customStatus),
    ...differ("key values", keyValuesOf(stored.events, nowMs), ack.keyValues)
  ]
}

const eventDifferences = (recorded: string, ours: string | undefined, nowMs: number): ReadonlyArray<string> => {
  if (ours === undefined) return [`an event is missing: ${recorded}`]
  const event = fields(recorded)
  if (event.type === "TimerCreated") event["fire_at_ms"] = nowMs + distance(event)
  if (event.type === "KeyValueSet") event["last_updated_at_ms"] = nowMs
  event.timestamp_ms = nowMs
  event["duroxide_version"] = ourVersion
  const expected = JSON.stringify(event)
  return differ(
    `event ${event.event_id}`,
    event.type === "OrchestrationFailed" ? withOurWords(expected, ours) : expected,
    ours
  )
}

/** The recorded failure with the free text replaced by ours, where both fail for the same reason. */
const withOurWords = (recorded: string, ours: string): string => {
  const theirs = failureOf(recorded)
  const mine = failureOf(ours)
  return theirs === undefined || mine === undefined
    ? recorded
    : Event.encode({ ...theirs, details: reworded(theirs.details, mine.details) })
}

/** The recorded end of an activity, the same. */
const withOurReason = (recorded: string, reaction: Reaction): string => {
  const ours = reaction._tag === "Completed" ? reaction.completion : null
  const [theirs, mine] = [recorded, ours ?? "{}"].map((text) =>
    Option.getOrUndefined(Result.getSuccess(WorkItem.decode(text)))
  )
  return theirs?._tag === "ActivityFailed" && mine?._tag === "ActivityFailed"
    ? WorkItem.encode({ ...theirs, details: reworded(theirs.details, mine.details) })
    : recorded
}

const failureOf = (text: string): Event.Of<"OrchestrationFailed"> | undefined => {
  const event = Option.getOrUndefined(Result.getSuccess(Event.decode(text)))
  return event?._tag === "OrchestrationFailed" ? event : undefined
}

const reworded = (theirs: ErrorDetails.ErrorDetails, mine: ErrorDetails.ErrorDetails): ErrorDetails.ErrorDetails => {
  if (theirs._tag === "Configuration" && mine._tag === "Configuration") {
    return mine.message === null || mine.message === "" ? theirs : { ...theirs, message: mine.message }
  }
  if (theirs._tag === "Application" && mine._tag === "Application") {
    const saysTheRuntime = / exceeds limit \(|^sub-orchestration instance id '.*' already exists/.test(theirs.message)
    if (theirs.kind === "OrchestrationFailed" && mine.kind === "Panicked" && saysTheRuntime) {
      return { ...theirs, kind: mine.kind }
    }
    if (theirs.kind === "Panicked" && mine.stack !== undefined) return { ...theirs, stack: mine.stack }
    return theirs.kind === "OrchestrationFailed" && mine.message === JSON.stringify(theirs.message)
      ? { ...theirs, message: mine.message }
      : theirs
  }
  if (theirs._tag === "Poison" && mine._tag === "Poison" && mine.attemptCount !== theirs.attemptCount) {
    const { messageType } = theirs
    const error = "FailedDeserialization" in mine.messageType ? mine.messageType.FailedDeserialization.error : ""
    return {
      ...theirs,
      attemptCount: theirs.attemptCount - 1,
      message: mine.message,
      messageType: "FailedDeserialization" in messageType && error !== ""
        ? { FailedDeserialization: { ...messageType.FailedDeserialization, error } }
        : messageType
    }
  }
  return theirs
}

const endDifferences = ({ end }: Stored, ack: ProviderDriver.OrchestrationAck): ReadonlyArray<string> => {
  if (end === undefined) {
    return [
      ...(ack.status === null || ack.status === "Running" ? [] : [`the status is set to ${ack.status}`]),
      ...differ("output", null, ack.output)
    ]
  }
  // A failure shows the text of its own event, which is compared above.
  const failure = ack.history.map(({ eventData }) => failureOf(eventData)).findLast((event) => event !== undefined)
  return [
    ...differ("status", end.status, ack.status),
    ...differ(
      "output",
      end.status === "Failed" && failure !== undefined
        ? ErrorDetails.display(failure.details)
        : end.output,
      ack.output
    )
  ]
}

const identityDifferences = ({ identity }: Stored, ack: ProviderDriver.OrchestrationAck): ReadonlyArray<string> =>
  differ(
    "identity",
    { name: null, version: null, parent: null, ...identity, pinned: identity?.pinned ? coreVersion.current : null },
    {
      name: ack.orchestrationName,
      version: ack.orchestrationVersion,
      parent: ack.parentInstanceId,
      pinned: ack.pinnedVersion
    }
  )

const decidesNothing = (ack: ProviderDriver.OrchestrationAck) =>
  ack.history.length === 0 && ack.workerItems.length === 0 && ack.orchestratorItems.length === 0 &&
  ack.cancelledActivities.length === 0 && (ack.status === null || ack.status === "Running") && ack.output === null &&
  ack.customStatus === null && ack.keyValues.length === 0 && ack.orchestrationName === null &&
  ack.orchestrationVersion === null && ack.pinnedVersion === null

const activityRow = (row: Stored["activities"][number]) => ({
  item: fields(row.work_item),
  name: (fields(row.work_item)["ActivityExecute"] as { readonly name: string }).name,
  instanceId: row.instance_id,
  executionId: row.execution_id,
  activityId: row.activity_id,
  sessionId: row.session_id ?? null,
  tag: row.tag ?? null
})

/** Without the fields that only we write, and Rust ignores. */
const withoutOurs = (item: Readonly<Record<string, unknown>>) => {
  const { first_try_id: _, started_at_ms: __, try_number: ___, ...theirs } = item["ActivityExecute"] as {
    readonly [field: string]: unknown
  }
  return { ActivityExecute: theirs }
}

const ourActivityRow = ({ workItem, ...columns }: ProviderDriver.EncodedActivity) => ({
  item: withoutOurs(fields(workItem)),
  ...columns
})

/** What goes into the row of the instance: the last text of the turn. */
const customStatusOf = (events: ReadonlyArray<string>): ProviderDriver.OrchestrationAck["customStatus"] => {
  const last = events.map(fields).findLast((event) => event.type === "CustomStatusUpdated")
  return last === undefined ? null : { value: last["status"] as string | null }
}

const keyValuesOf = (events: ReadonlyArray<string>, nowMs: number) =>
  events.map(fields).flatMap(({ key, type, value }) =>
    type === "KeyValueSet"
      ? { action: "set", key, value, lastUpdatedAtMs: nowMs }
      : type === "KeyValueCleared"
      ? { action: "clear_key", key }
      : type === "KeyValuesCleared"
      ? { action: "clear_all" }
      : []
  )

type MessageRow = ReturnType<typeof ourMessageRow>

const messageDifferences = (
  recorded: ReadonlyArray<MessageRow>,
  ours: ReadonlyArray<ProviderDriver.EncodedMessage>
): ReadonlyArray<string> => {
  const rows = ours.map(ourMessageRow)
  return differ("messages", recorded.map((row, index) => withOurNotice(row, rows[index])), rows)
}

/** The notice of a failure with its free text replaced by ours, where both fail for the same reason. */
const withOurNotice = (recorded: MessageRow, ours: MessageRow | undefined): MessageRow => {
  const theirs = noticeOf(recorded)
  const mine = ours && noticeOf(ours)
  return theirs === undefined || mine === undefined
    ? recorded
    : { ...recorded, item: fields(WorkItem.encode({ ...theirs, details: reworded(theirs.details, mine.details) })) }
}

const noticeOf = ({ item }: MessageRow): WorkItem.Of<"SubOrchFailed"> | undefined => {
  const message = Option.getOrUndefined(Result.getSuccess(WorkItem.decode(JSON.stringify(item))))
  return message?._tag === "SubOrchFailed" ? message : undefined
}

/** Only timers are visible later than at once. */
const messageRow = (events: ReadonlyArray<string>, nowMs: number) => (row: Stored["messages"][number]): MessageRow => {
  const item = fields(row.work_item)
  const timer = item["TimerFired"] as { id: number; fire_at_ms: number } | undefined
  if (timer !== undefined) {
    const created = events.map(fields).find((event) => event.event_id === timer.id)
    if (timer.fire_at_ms !== Date.parse(row.visible_at)) {
      throw new Error("a recorded timer is not visible when it is due")
    }
    if (created !== undefined) timer.fire_at_ms = nowMs + distance(created)
  }
  return { item, instanceId: row.instance_id, visibleAtMs: timer?.fire_at_ms ?? null, delayMs: null }
}

/** Without the instance that our starts create at once. */
const ourMessageRow = ({ delayMs, instanceId, visibleAtMs, workItem }: ProviderDriver.EncodedMessage) => ({
  item: fields(workItem),
  instanceId,
  visibleAtMs,
  delayMs
})

interface Fields {
  [field: string]: unknown
  event_id: number
  timestamp_ms: number
  type: string
}

const fields = (text: string) => JSON.parse(text) as Fields

const distance = (created: Fields) => (created["fire_at_ms"] as number) - created.timestamp_ms

const differ = (what: string, recorded: unknown, ours: unknown): ReadonlyArray<string> =>
  isDeepStrictEqual(ours, recorded) ? [] : [`${what}: recorded ${show(recorded)}, ours ${show(ours)}`]

const show = (value: unknown) => typeof value === "string" ? value : JSON.stringify(value) ?? "nothing"
