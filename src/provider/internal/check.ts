/**
 * What callers may pass, checked before anything is sent: a value no store can hold or act on is `InvalidInput`, the
 * same with every driver.
 *
 * Texts hold no NUL and no half of a surrogate pair. Names and ids that are stored must fit into an index; in a lookup
 * they may be longer, and find nothing. Ids and counts are whole numbers up to 2^53 - 1. Durations are rounded up to
 * whole milliseconds; none is negative, and none reaches beyond the year 9999, as an endless one would. The length of a
 * lock is more than zero. The time to wait for work is not checked: any will do.
 *
 * Ids of instances are accepted up to 2,048 bytes here, because those of children are longer than the ones people give:
 * the checks of `model/shared/identifiers` allow these 1,024.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Event from "../../model/Event.ts"
import type { CoreVersion, VersionRange } from "../../model/Instance.ts"
import {
  maxGivenIdBytes,
  maxNameBytes,
  maxTagBytes,
  problemOfId,
  problemOfKey,
  problemOfRootId
} from "../../model/shared/identifiers.ts"
import { problemOf } from "../../model/shared/text.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { HandOver, Turn } from "../Provider.ts"
import type { OrchestrationAck, UnclaimedTurn } from "../ProviderDriver.ts"
import { InvalidInput, ProviderError } from "../ProviderError.ts"
import { sizeOfAck, Unstorable } from "./encoding.ts"

/** Undefined for good input. */
export type Problem = readonly [field: string, problem: string] | undefined

/** The call, unless its input has a problem: then `InvalidInput`, as for an item that cannot be encoded. */
export const checked = <A>(
  operation: string,
  problems: ReadonlyArray<Problem>,
  call: () => Effect.Effect<A, ProviderError>
): Effect.Effect<A, ProviderError> => {
  const found = problems.find((problem) => problem !== undefined)
  if (found !== undefined) return refused(operation, found)
  return Effect.catchDefect(
    Effect.suspend(call),
    (defect) => defect instanceof Unstorable ? refused(operation, ["item", defect.problem]) : Effect.die(defect)
  )
}

export const refused = (operation: string, [field, problem]: readonly [field: string, problem: string]) =>
  Effect.fail(new ProviderError({ operation, reason: new InvalidInput({ field, problem }) }))

// -- texts -----------------------------------------------------------------------------------------

export const text = (field: string, value: string | undefined): Problem => {
  const problem = value === undefined ? undefined : problemOf(value)
  return problem === undefined ? undefined : [field, problem]
}

export const texts = (field: string, values: ReadonlyArray<string>): Problem =>
  values.map((value) => text(field, value)).find((problem) => problem !== undefined)

export const id = (field: string, value: string | null | undefined, maxBytes?: number): Problem => {
  const problem = value === null || value === undefined ? undefined : problemOfId(value, maxBytes)
  return problem === undefined ? undefined : [field, problem]
}

/** The id of a new instance without a parent. */
export const rootId = (field: string, value: string): Problem => {
  const problem = problemOfRootId(value)
  return problem === undefined ? undefined : [field, problem]
}

/** The name or the version of a definition. */
export const name = (field: string, value: string | null | undefined): Problem => id(field, value, maxNameBytes)

export const tag = (field: string, value: string | undefined): Problem => id(field, value, maxTagBytes)

/** A text that is not empty: in the store that stands for all of them. */
export const given = (
  field: string,
  value: string | undefined,
  problem: (field: string, value: string | undefined) => Problem
): Problem => value === "" ? [field, "is empty"] : problem(field, value)

/** A value that is only without types something else. */
export const oneOf = (field: string, value: string | undefined, values: ReadonlyArray<string>): Problem =>
  value === undefined || values.includes(value)
    ? undefined
    : [field, `it is ${JSON.stringify(value)}, but must be one of ${values.join(", ")}`]

// -- items -----------------------------------------------------------------------------------------

export const activity = (item: WorkItem.Of<"ActivityExecute">): Problem =>
  id("instance", item.instance) ?? name("name", item.name) ?? id("sessionId", item.sessionId, maxGivenIdBytes) ??
    id("tag", item.tag, maxTagBytes)

export const message = (item: WorkItem.WorkItem): Problem =>
  id("instance", WorkItem.target(item)) ?? (
    item._tag === "StartOrchestration" || item._tag === "ContinueAsNew"
      ? name("orchestration", item.orchestration) ?? name("version", item.version)
      : undefined
  )

/** A chunk, or a set of them, for a stream. */
export const chunk = (chunk: {
  readonly stream: string
  readonly chunk?: string
  readonly chunks?: ReadonlyArray<string>
  readonly keepChunks: number
  readonly keepBytes: number
}): Problem =>
  name("stream", chunk.stream) ?? text("chunk", chunk.chunk) ?? texts("chunks", chunk.chunks ?? []) ??
    whole("keepChunks", chunk.keepChunks, 1) ?? whole("keepBytes", chunk.keepBytes, 1)

export const event = (event: Event.Event): Problem => whole("eventId", event.eventId, 1) ?? keyOf(event)

const keyOf = (event: Event.Event): Problem => {
  if (event._tag !== "KeyValueSet" && event._tag !== "KeyValueCleared") return undefined
  const problem = problemOfKey(event.key, event.instanceId)
  return problem === undefined ? undefined : ["key", problem]
}

/** What a turn stores, except its size. */
export const turn = (turn: Turn): ReadonlyArray<Problem> => [
  whole("executionId", turn.executionId, 1),
  ...turn.historyDelta.map(event),
  ...turn.workerItems.map(activity),
  ...turn.orchestratorItems.map(message),
  text("output", turn.metadata.output),
  name("orchestrationName", turn.metadata.orchestrationName),
  name("orchestrationVersion", turn.metadata.orchestrationVersion),
  id("parentInstanceId", turn.metadata.parentInstanceId),
  turn.metadata.pinnedVersion && version("pinnedVersion", turn.metadata.pinnedVersion),
  ...(turn.left ?? []).map((messageId) => whole("left", messageId, Number.MIN_SAFE_INTEGER)),
  ...(turn.requeued ?? []).map((eventId) => whole("requeued", eventId)),
  ...(turn.chunks ?? []).map(chunk),
  ...turn.cancelledActivities.map(({ activityId, executionId, instanceId }) =>
    text("cancelledActivities", instanceId) ?? whole("cancelledActivities", executionId) ??
      whole("cancelledActivities", activityId)
  )
]

export const handOver = (handOver: HandOver | undefined): ReadonlyArray<Problem> =>
  handOver === undefined ? [] : [
    whole("handOver.limit", handOver.limit, 1),
    whole("handOver.spare", handOver.spare ?? 0, 0),
    length("handOver.lockTimeout", handOver.lockTimeout, 1),
    texts("handOver.activities", handOver.activities),
    "tags" in handOver.tags ? texts("handOver.tags", handOver.tags.tags) : undefined
  ]

export const turnSize = (encoded: UnclaimedTurn | OrchestrationAck): Problem => {
  const bytes = sizeOfAck(encoded)
  return bytes <= maxTurnBytes ? undefined : [
    "turn",
    `it stores ${bytes} bytes of events, activities and messages, more than ${maxTurnBytes}: pass references ` +
    "instead of large values, or fewer of them at once"
  ]
}

/**
 * Bytes of texts that one turn may store. PostgreSQL takes 256 MB of JSON in one value and Node half a gigabyte in one
 * text; each text is escaped once more on its way.
 */
const maxTurnBytes = 64 * 1024 * 1024

// -- numbers ---------------------------------------------------------------------------------------

export const whole = (
  field: string,
  value: number | undefined,
  least = 0,
  most = Number.MAX_SAFE_INTEGER
): Problem =>
  value === undefined || (Number.isInteger(value) && value >= least && value <= most)
    ? undefined
    : [field, `it is ${value}, but must be a whole number from ${least} to ${most}`]

export const version = (field: string, { major, minor, patch }: CoreVersion): Problem =>
  [major, minor, patch].map((part) => whole(field, part, 0, 2 ** 31 - 1)).find((problem) => problem !== undefined)

export const versionRange = (versions: Option.Option<VersionRange>): Problem =>
  Option.isNone(versions)
    ? undefined
    : version("versions", versions.value.min) ?? version("versions", versions.value.max)

// -- durations -------------------------------------------------------------------------------------

export const length = (field: string, value: Duration.Duration, leastMs: 0 | 1): Problem => {
  const millis = wholeMillis(value)
  return millis >= leastMs && millis <= longestMs ? undefined : [
    field,
    `it is ${millis} ms, but must be ${leastMs === 0 ? "at least 0" : "more than 0"} and at most ${longestMs} ms`
  ]
}

export const delay = (delay: Option.Option<Duration.Duration>): Problem =>
  Option.isSome(delay) ? length("delay", delay.value, 0) : undefined

/** Milliseconds since the Unix epoch. */
export const instant = (field: string, value: number | undefined): Problem =>
  value === undefined || value >= 0 && value <= longestMs
    ? undefined
    : [field, `it is ${value}, but must be milliseconds from the year 1970 to 9999`]

/** Whole milliseconds, which drivers take; a part of one counts as one. */
export const wholeMillis = (value: Duration.Duration) => Math.ceil(Duration.toMillis(value))

/** Milliseconds of a delay, as drivers take it; null without one. */
export const millisOrNull = (delay: Option.Option<Duration.Duration>) =>
  Option.getOrNull(Option.map(delay, wholeMillis))

/** The end of the year 9999, milliseconds since the Unix epoch. */
const longestMs = 253_402_300_799_999
