/**
 * Why instances do not continue, in groups: those that wait for the same.
 */
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import { shownTarget } from "../model/shared/pauses.ts"
import * as Admin from "../provider/Admin.ts"
import { Cause } from "../provider/Explanation.ts"
import type { AwaitedActivity, Explanation } from "../provider/Explanation.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { definitionOf } from "../provider/shared/unserved.ts"

/** Instances of one orchestration that wait for the same. */
export interface Group {
  readonly orchestration: string
  readonly cause: Cause["_tag"]
  /** One text for all of them. */
  readonly reason: string
  /** When the first of them began to wait; null where that is not known, or of no use. Milliseconds. */
  sinceMs: number | null
  /** When the first of them continues by itself, or is tried again; null: never. Milliseconds. */
  nextMs: number | null
  readonly instanceIds: Array<string>
}

export interface Explained extends Pick<Explanation, "cause" | "instanceId"> {
  readonly orchestration: string
}

/** The largest group first. */
export const grouped = (all: ReadonlyArray<Explained>): ReadonlyArray<Group> => {
  const groups = new Map<string, Group>()
  for (const { cause, instanceId, orchestration } of all) {
    const reason = reasonOf(cause)
    const key = JSON.stringify([orchestration, reason])
    const [sinceMs, nextMs] = timesOf(cause)
    const group = groups.get(key) ?? { orchestration, cause: cause._tag, reason, sinceMs, nextMs, instanceIds: [] }
    group.sinceMs = earliest(group.sinceMs, sinceMs)
    group.nextMs = earliest(group.nextMs, nextMs)
    group.instanceIds.push(instanceId)
    groups.set(key, group)
  }
  return [...groups.values()].toSorted((one, other) => other.instanceIds.length - one.instanceIds.length)
}

export interface Reasons {
  readonly groups: ReadonlyArray<Group>
  /** How many instances are in the groups. */
  readonly instances: number
  /** Whether more instances match than were looked at. */
  readonly isMore: boolean
}

/** Looks at the oldest `limit` instances that match: at running ones, unless the search names a status. */
export const explainMany = Effect.fnUntraced(function*<R = never>(
  { limit, onProgress, search }: {
    readonly search: Admin.InstanceSearch
    readonly limit: number
    /** Called after every instance, with how many were looked at. */
    readonly onProgress?: ((looked: number) => Effect.Effect<void, never, R>) | undefined
  }
): Effect.fn.Return<Reasons, ProviderError, Admin.Admin | R> {
  const admin = yield* Admin.Admin
  const found = yield* Admin.stream({ ...search, status: search.status ?? "Running", orderBy: "oldest" }).pipe(
    Stream.take(limit + 1),
    Stream.map(({ instanceId, orchestrationName }) => ({ instanceId, orchestration: orchestrationName })),
    Stream.runCollect
  )
  let looked = 0
  const explained = (yield* Effect.forEach(found.slice(0, limit), (one) =>
    admin.explain(one.instanceId).pipe(
      Effect.map(({ cause }): ReadonlyArray<Explained> => [{ ...one, cause }]),
      // Deleted meanwhile.
      Effect.catchIf((error) => error.reason._tag === "InstanceNotFound", () => Effect.succeed([])),
      Effect.tap(() => onProgress?.(++looked) ?? Effect.void)
    ), { concurrency })).flat()
  return { groups: grouped(explained), instances: explained.length, isMore: found.length > limit }
})

// internal

/** Instances that are looked at side by side. */
const concurrency = 8

const earliest = (one: number | null, other: number | null) =>
  one === null ? other : other === null ? one : Math.min(one, other)

const named = ({ name, tag }: AwaitedActivity) => definitionOf({ kind: "activity", name, tag, version: null })

const reasonOf = Cause.$match({
  Ended: ({ error }) => error === null ? "completed" : `ended: ${error}`,
  Paused: ({ pause: { reason, target } }) =>
    `paused${target._tag === "Instance" ? "" : ` with ${shownTarget(target)}`}${reason === null ? "" : `: ${reason}`}`,
  Blocked: ({ block }) => `blocked: ${block.problem}`,
  OfDuroxide: ({ version }) => `of Duroxide ${version}`,
  TakesTurn: () => "takes a turn",
  Unserved: ({ name, version }) =>
    `no process serves ${definitionOf({ kind: "orchestration", name, version, tag: null })}`,
  Queued: () => "waits for a free slot",
  Limited: ({ key }) => `waits for a slot of its limit${key === "" ? "" : `, key ${key}`}`,
  StartsLater: () => "starts later",
  ActivityUnserved: ({ activity }) => `no process takes ${named(activity)}`,
  ActivityPaused: ({ activity, pause }) => `${named(activity)} is paused with ${shownTarget(pause.target)}`,
  Retries: ({ activity }) => `tries ${named(activity)} again: ${activity.lastError}`,
  ActivityDelayed: ({ activity }) => `${named(activity)} is delivered again`,
  ActivityLimited: ({ activity, key }) =>
    `${named(activity)} waits for a slot of its limit${key === "" ? "" : `, key ${key}`}`,
  ActivityQueued: ({ activity }) => `${named(activity)} waits for a free slot`,
  ActivityRuns: ({ activity }) => `${named(activity)} runs`,
  Child: ({ isInterrupted, name }) => `waits for a child ${name}${isInterrupted ? ", which cleans up" : ""}`,
  Task: ({ name }) => `waits for task ${name}`,
  Completion: ({ name }) => `waits for a completion of ${name} from outside`,
  Signal: ({ name }) => `waits for signal ${name}`,
  Request: ({ name }) => `waits for requests ${name}`,
  Timer: () => "sleeps",
  Nothing: () => "waits for nothing that is stored"
})

/** Since when, and until when. */
const timesOf = Cause.$match({
  Ended: ({ atMs }) => [atMs, null] as const,
  Paused: ({ pause }) => [pause.sinceMs, null] as const,
  Blocked: ({ block }) => [block.sinceMs, null] as const,
  OfDuroxide: () => [null, null] as const,
  TakesTurn: ({ untilMs }) => [null, untilMs] as const,
  Unserved: () => [null, null] as const,
  Queued: ({ sinceMs }) => [sinceMs, null] as const,
  Limited: ({ sinceMs }) => [sinceMs, null] as const,
  StartsLater: ({ atMs }) => [null, atMs] as const,
  ActivityUnserved: ({ activity }) => [activity.scheduledAtMs, null] as const,
  ActivityPaused: ({ pause }) => [pause.sinceMs, null] as const,
  Retries: ({ activity, atMs }) => [activity.scheduledAtMs, atMs] as const,
  ActivityDelayed: ({ activity, atMs }) => [activity.scheduledAtMs, atMs] as const,
  ActivityLimited: ({ activity }) => [activity.scheduledAtMs, null] as const,
  ActivityQueued: ({ activity }) => [activity.scheduledAtMs, null] as const,
  ActivityRuns: ({ activity, untilMs }) => [activity.scheduledAtMs, untilMs] as const,
  Child: ({ sinceMs }) => [sinceMs, null] as const,
  Task: ({ sinceMs }) => [sinceMs, null] as const,
  Completion: ({ sinceMs, untilMs }) => [sinceMs, untilMs] as const,
  Signal: ({ sinceMs, untilMs }) => [sinceMs, untilMs] as const,
  Request: ({ sinceMs, untilMs }) => [sinceMs, untilMs] as const,
  Timer: ({ untilMs }) => [null, untilMs] as const,
  Nothing: () => [null, null] as const
})
