/**
 * What retries would do, and what speaks against them.
 *
 * The store does not know which build has run the last turn of an instance. But it knows which builds are alive, which
 * instances of the same definition these could not continue, and at which event. An instance with an event like that
 * may block as well; one with another event there was begun by other code.
 */
import * as Effect from "effect/Effect"
import * as Stream from "effect/Stream"
import type * as Event from "../model/Event.ts"
import { groupsOf } from "../model/shared/groups.ts"
import { count, counted } from "../model/shared/quantities.ts"
import { Admin } from "../provider/Admin.ts"
import type { InstanceInfo, Retried, RetriedActivity, RetriedInstance, RetryOptions } from "../provider/Admin.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as Bulk from "./bulk.ts"

export interface Plan extends Retried {
  /** Sentences for people. */
  readonly warnings: ReadonlyArray<string>
}

/** Plans the retry of one instance, and of the children that are retried with it. */
export const planOne = Effect.fnUntraced(function*(
  instanceId: string,
  { from }: Pick<RetryOptions, "from">
): Effect.fn.Return<Plan, ProviderError, Admin> {
  const { instances } = yield* (yield* Admin).retry(instanceId, { from, dryRun: true })
  return { instances, warnings: yield* warningsOf(instances, instances.length === 1 ? "this one" : "these") }
})

/** Calls of an activity. */
export interface Calls {
  readonly name: string
  readonly calls: number
}

/** What the retries of many instances would do, together. */
export interface Sum {
  /** How many instances were looked at: the first ones, at most `mostLooked`. */
  readonly looked: number
  /** How many of these would be refused. */
  readonly refused: number
  /** Activities that run again, with the same idempotency keys; the most calls first, as the next one. */
  readonly again: ReadonlyArray<Calls>
  /** Activities whose calls are removed; their effects stay. */
  readonly forgotten: ReadonlyArray<Calls>
  readonly warnings: ReadonlyArray<string>
}

/** Each look reads a history. */
export const mostLooked = 50

/** Plans the retries of the first ones. */
export const planMany = Effect.fnUntraced(function*<E, R>(
  items: Stream.Stream<Bulk.Item, E, R>
): Effect.fn.Return<Sum, E | ProviderError, R | Admin> {
  const admin = yield* Admin
  const found: Array<RetriedInstance> = []
  const { done, refusals } = yield* Bulk.each({
    items: Stream.take(items, mostLooked),
    act: (id) => Effect.map(admin.retry(id, { dryRun: true }), ({ instances }) => void found.push(...instances))
  })
  return {
    looked: done + refusals,
    refused: refusals,
    again: callsOf(found.flatMap(({ again }) => again)),
    forgotten: callsOf(found.flatMap(({ forgotten }) => forgotten)),
    warnings: yield* warningsOf(found, "these")
  }
})

// internal

/** Blocked instances of a definition that are looked at. */
const mostBlocked = 1000

/** Events at which these stopped; of each, one of them is read. */
const mostStops = 5

const callsOf = (activities: ReadonlyArray<RetriedActivity>): ReadonlyArray<Calls> =>
  [...groupsOf(activities, ({ name }) => name)].map(([name, { length }]) => ({ name, calls: length }))
    .toSorted((one, other) => other.calls - one.calls)

interface Retrying {
  readonly info: InstanceInfo
  /** The last event that stays. */
  readonly keep: number
}

const warningsOf = Effect.fnUntraced(function*(retried: ReadonlyArray<RetriedInstance>, whom: "this one" | "these") {
  const admin = yield* Admin
  const all = (yield* Effect.forEach(
    retried.slice(0, mostLooked),
    ({ from, instanceId }) =>
      admin.getInstanceInfo(instanceId).pipe(
        Effect.map((info): ReadonlyArray<Retrying> => [{ info, keep: from }]),
        // Deleted meanwhile.
        Effect.catchIf(({ reason }) => reason._tag === "InstanceNotFound", () => Effect.succeed([]))
      ),
    { concurrency: 8 }
  )).flat()
  if (all.length === 0) return []
  const processes = yield* admin.listProcesses
  const sentences: Array<string> = []
  for (const same of groupsOf(all, ({ info }) => definitionOf(info, "@")).values()) {
    const { info } = same[0]!
    const alive = new Set(
      processes.flatMap(({ build, isAlive, orchestrations }) =>
        isAlive && orchestrations.includes(definitionOf(info, "@")) ? [build] : []
      )
    )
    if (alive.size > 0) sentences.push(...yield* warningsOfDefinition(same, alive, whom))
  }
  return sentences
})

const definitionOf = ({ orchestrationName, orchestrationVersion }: InstanceInfo, between: string) =>
  `${orchestrationName}${between}${orchestrationVersion ?? ""}`

const warningsOfDefinition = Effect.fnUntraced(function*(
  same: ReadonlyArray<Retrying>,
  alive: ReadonlySet<string>,
  whom: "this one" | "these"
) {
  const { orchestrationName: name, orchestrationVersion } = same[0]!.info
  const sentences: Array<string> = []
  // Where the event is removed, the code that runs decides what follows.
  const stuck = same.filter(({ info: { block }, keep }) =>
    block !== null && alive.has(block.build) && block.eventId <= keep
  )
  if (stuck.length > 0) {
    const [who, it] = stuck.length === 1
      ? [`${stuck[0]!.info.instanceId} is`, "it"]
      : [`${counted(stuck.length, "instance")} of them are`, "them"]
    sentences.push(
      `${who} blocked at an event that stays: ${buildsOf(stuck.map(({ info }) => info))}, ` +
        `could not continue ${it}, and may block ${it} again.`
    )
  }
  const ended = same.filter(({ info }) => info.block === null)
  if (ended.length === 0) return sentences
  const page = yield* (yield* Admin).list({
    status: "Blocked",
    name,
    version: orchestrationVersion ?? undefined,
    limit: mostBlocked
  })
  const blocked = page.instances.filter(({ block }) => block !== null && alive.has(block.build))
  const alike = yield* beginningAlike(ended, blocked)
  if (alike.instances > 0) {
    const are = blocked.length === 1 && page.next === null ? "is" : "are"
    const who = whom === "this one" ? "This one has" : `${count(alike.instances)} of these have`
    sentences.push(
      `${page.next === null ? "" : "At least "}${counted(blocked.length, "instance")} of ` +
        `${definitionOf(same[0]!.info, " ")} ${are} blocked: ${buildsOf(blocked)}, could not continue ` +
        `${are === "is" ? "it" : "them"}. ${who} the same event ${alike.eventId} where ${
          are === "is" ? "it" : "they"
        } ` +
        "stopped, and may block as well. Ask the developers first."
    )
  }
  return sentences
})

/** How many of these have an event like that at which blocked ones stopped: the code may ask for another one there. */
const beginningAlike = Effect.fnUntraced(function*(
  ended: ReadonlyArray<Retrying>,
  blocked: ReadonlyArray<InstanceInfo>
) {
  const admin = yield* Admin
  // Deleted meanwhile, or not to be decoded: it says nothing.
  const eventsOf = ({ instanceId }: InstanceInfo) =>
    Effect.orElseSucceed(admin.readHistory(instanceId), (): ReadonlyArray<Event.Event> => [])
  const stops: Array<Event.Event> = []
  for (const [eventId, [sample]] of [...groupsOf(blocked, ({ block }) => block!.eventId)].slice(0, mostStops)) {
    stops.push(...(yield* eventsOf(sample!)).filter((event) => event.eventId === eventId))
  }
  let instances = 0
  let eventId: number | undefined
  if (stops.length > 0) {
    for (const { info, keep } of ended) {
      const own = yield* eventsOf(info)
      const stop = stops.find((stop) =>
        stop.eventId <= keep && own.some((event) => event.eventId === stop.eventId && callOf(event) === callOf(stop))
      )
      if (stop === undefined) continue
      instances++
      eventId ??= stop.eventId
    }
  }
  return { instances, eventId }
})

/** Kind and name of what an event records. */
const callOf = (event: Event.Event) => JSON.stringify([event._tag, "name" in event ? event.name : null])

/** The subject of a sentence: build 2.0, which runs now. */
const buildsOf = (blocked: ReadonlyArray<InstanceInfo>): string => {
  const builds = [...new Set(blocked.flatMap(({ block }) => block?.build ?? []))]
  const shown = builds.slice(0, 3).join(", ")
  const others = builds.length - 3
  return `${builds.length === 1 ? "build" : "builds"} ${shown}${others > 0 ? ` and ${count(others)} more` : ""}, ` +
    `which ${builds.length === 1 ? "runs" : "run"} now`
}
