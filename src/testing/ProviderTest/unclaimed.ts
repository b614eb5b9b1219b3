/**
 * The verbs of turns that are stored without a claim.
 *
 * Of a provider whose driver cannot store such turns, they expect what it does instead, and then store the turn after a
 * claim. So the same tests hold for both, and show that both lead to the same.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Event from "../../model/Event.ts"
import type { TagFilter } from "../../model/Instance.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import type * as Providers from "../../provider/Provider.ts"
import {
  ack,
  activityCompleted,
  activityItem,
  activityScheduled,
  claimActivity,
  claimInstance,
  create,
  enqueueStart,
  named,
  parallel,
  Settings,
  stamp,
  started,
  startItem,
  turnOf,
  version
} from "./harness.ts"
import type { Ack, ClaimedWork, EventInput } from "./harness.ts"

// -----------------------------------------------------------------------------
// handover
// -----------------------------------------------------------------------------

export interface HandOver {
  /** Defaults to 10. */
  readonly limit?: number
  /** Defaults to 0. */
  readonly spare?: number
  readonly lockTimeout?: Duration.Input
  /** Defaults to `TestActivity`. */
  readonly activities?: ReadonlyArray<string>
  /** Defaults to activities without a tag. */
  readonly tags?: TagFilter
}

const handOverOf = (handOver: HandOver | undefined): Providers.HandOver | undefined =>
  handOver && {
    limit: handOver.limit ?? 10,
    spare: handOver.spare,
    lockTimeout: Duration.fromInputUnsafe(handOver.lockTimeout ?? "30 seconds"),
    activities: handOver.activities ?? ["TestActivity"],
    tags: handOver.tags ?? { _tag: "DefaultOnly" }
  }

/**
 * Requires that these activities were handed over, in any order. Of a provider that hands over nothing, claims them, as
 * the first that a claim takes.
 */
export const receives = (
  handedOver: ReadonlyArray<ClaimedWork>,
  ids: ReadonlyArray<number>,
  { activities, lockTimeout, tags }: HandOver = {}
) =>
  Effect.gen(function*() {
    const { optimisticTurns } = yield* Settings
    const received = optimisticTurns
      ? [...handedOver].sort((a, b) => a.item.id - b.item.id)
      : yield* Effect.forEach(ids, (id) =>
        claimActivity(id, {
          activities: activities ?? ["TestActivity"],
          ...(lockTimeout !== undefined && { lockTimeout }),
          ...(tags !== undefined && { tags })
        }))
    assert.deepStrictEqual(received.map(({ item }) => item.id), ids)
    if (!optimisticTurns) assert.lengthOf(handedOver, 0)
    return received
  })

// -----------------------------------------------------------------------------
// results
// -----------------------------------------------------------------------------

/** An instance whose first turn has scheduled activities; the last of them is its last event. */
export const scheduling = (instance: string, ids: ReadonlyArray<number> = [2]) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    yield* ack(yield* claimInstance(instance), {
      executionId: 1,
      events: [started(), ...ids.map((id) => activityScheduled(id))],
      workers: ids.map((id) => activityItem(instance, id)),
      metadata: named()
    })
  })

/** Schedules the activities of an instance, and claims them. */
export const working = (instance: string, ids: ReadonlyArray<number> = [2]) =>
  Effect.gen(function*() {
    yield* scheduling(instance, ids)
    return yield* Effect.forEach(ids, (id) => claimActivity(id))
  })

/** The event of a completion. */
export const completion = (eventId: number, activityId: number, result = `result-${activityId}`): EventInput => ({
  _tag: "ActivityCompleted",
  eventId,
  sourceEventId: activityId,
  result
})

export interface Advance extends Omit<Ack, "left"> {
  /** Defaults to the id before that of the first event. */
  readonly lastEventId?: number
  /** How the caller's last event differs from the stored one. */
  readonly lastEvent?: Pick<Event.Event, "timestampMs"> | Pick<Event.Of<"ActivityScheduled">, "input">
  /** How far the caller's clock is off. */
  readonly clockOffMs?: number
  readonly handOver?: HandOver
}

type Ended = Pick<ClaimedWork, "lockToken" | "item">

const completionOf = ({ item }: Ended): WorkItem.Of<"ActivityCompleted"> => ({
  ...activityCompleted(item.instance, item.id),
  executionId: item.executionId
})

/** Stores results together with the turn they lead to, if that is possible. */
export const advance = (instanceId: string, ended: ReadonlyArray<Ended>, turn: Advance) =>
  Effect.gen(function*() {
    const provider = yield* Provider
    const executionId = turn.executionId ?? 1
    const eventId = turn.lastEventId ?? turn.events![0]!.eventId - 1
    const history = yield* provider.readWithExecution(instanceId, executionId)
    const lastEvent = history.find((event) => event.eventId === eventId) ??
      stamp(instanceId, executionId, activityScheduled(eventId))
    return yield* provider.advanceOrchestration({
      instanceId,
      lastEvent: { ...lastEvent, ...turn.lastEvent },
      results: ended.map((one) => ({ lockToken: one.lockToken, completion: completionOf(one) })),
      turn: turnOf(instanceId, executionId, turn),
      clockMs: (provider.storeNowMs() ?? (yield* Clock.currentTimeMillis)) + (turn.clockOffMs ?? 0),
      handOver: handOverOf(turn.handOver)
    })
  })

/** Requires that the turn is stored; gives what was handed over. */
export const advances = (instanceId: string, ended: ReadonlyArray<Ended>, turn: Advance) =>
  Effect.gen(function*() {
    const { optimisticTurns } = yield* Settings
    const answer = yield* advance(instanceId, ended, turn)
    if (optimisticTurns) {
      assert(answer._tag === "Advanced", "expected the turn to be stored")
      return answer.handedOver
    }
    assert.deepStrictEqual(answer, { _tag: "Queued", results: ended.map(() => "Done" as const) })
    const claimed = yield* claimInstance(instanceId)
    assert.sameDeepMembers([...claimed.item.messages], ended.map(completionOf))
    yield* ack(claimed, turn)
    return []
  })

/** Requires that only the results are stored, as far as their locks are live. */
export const queues = (
  instanceId: string,
  ended: ReadonlyArray<Ended>,
  turn: Advance,
  results: ReadonlyArray<"Done" | "LockLost"> = ended.map(() => "Done" as const)
) =>
  Effect.map(
    advance(instanceId, ended, turn),
    (answer) => assert.deepStrictEqual(answer, { _tag: "Queued", results })
  )

// -----------------------------------------------------------------------------
// starts
// -----------------------------------------------------------------------------

export interface Begin extends Omit<Ack, "left"> {
  readonly handOver?: HandOver
  readonly pinned?: string
  readonly delay?: Duration.Input
}

/** Starts an instance with a first turn, perhaps several times at once; says what became of both. */
export const begin = (instance: string, turn: Begin, starts = 1) =>
  Effect.scoped(Effect.gen(function*() {
    const provider = yield* Provider
    const { optimisticTurns } = yield* Settings
    // A provider asks for first turns once it has heard the store's time, which a claim says.
    if (optimisticTurns && provider.storeNowMs() === undefined) yield* create("clock")
    const settled: Array<Option.Option<ReadonlyArray<ClaimedWork>>> = []
    let asked = 0
    yield* provider.onStart((start) => {
      asked++
      return {
        turn: turnOf(start.instance, turn.executionId ?? 1, turn),
        handOver: handOverOf(turn.handOver),
        settled: (stored) => void settled.push(stored)
      }
    })
    const start = provider.startOrchestration({
      start: startItem(instance),
      pinnedVersion: version(turn.pinned ?? "1.0.0"),
      delay: Option.map(Option.fromUndefinedOr(turn.delay), Duration.fromInputUnsafe)
    })
    const answers = yield* parallel(Array.from({ length: starts }, () => start))
    assert.lengthOf(settled, asked, "each first turn is settled once")
    return { answers, settled }
  }))

/** Requires that instance and first turn are stored; gives what was handed over. */
export const begins = (instance: string, turn: Begin) =>
  Effect.gen(function*() {
    const { optimisticTurns } = yield* Settings
    const { answers, settled: [settled] } = yield* begin(instance, turn)
    assert.deepStrictEqual(answers, ["Started"])
    if (optimisticTurns) {
      assert(settled !== undefined && Option.isSome(settled), "expected the first turn to be stored")
      return settled.value
    }
    assert.isUndefined(settled, "of a driver without optimistic turns no first turn is asked for")
    const claimed = yield* claimInstance(instance)
    assert.deepStrictEqual(claimed.item.messages, [startItem(instance)])
    yield* ack(claimed, turn)
    return []
  })

/** Requires that the start is stored without its first turn, or not at all. */
export const beginsNot = (instance: string, turn: Begin, expected: "Started" | "AlreadyExists") =>
  Effect.gen(function*() {
    const { optimisticTurns } = yield* Settings
    const outcome = yield* begin(instance, turn)
    assert.deepStrictEqual(outcome, { answers: [expected], settled: optimisticTurns ? [Option.none()] : [] })
  })

// -----------------------------------------------------------------------------
// readers
// -----------------------------------------------------------------------------

/** Everything a reader sees of an instance, without times. */
export const seen = (instance: string) =>
  Effect.gen(function*() {
    const [provider, admin] = [yield* Provider, yield* Admin]
    const { createdAtMs: _created, updatedAtMs: _updated, ...state } = Option.getOrThrow(
      yield* provider.readInstance(instance)
    )
    return {
      state,
      customStatus: yield* provider.getCustomStatus(instance, 0),
      histories: yield* Effect.forEach(
        yield* admin.listExecutions(instance),
        (executionId) => provider.readWithExecution(instance, executionId)
      ),
      values: [...yield* provider.getKvAllValues(instance)],
      stats: yield* provider.getInstanceStats(instance),
      queues: yield* admin.getQueueDepths
    }
  })
