/**
 * Plays one sequence on two drivers at once and dies at the first answer that differs. Fails if a store could not
 * answer.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import type { AdminDriver, Listing, ListPosition } from "../../../src/provider/AdminDriver.ts"
import type { ChunksPage, HandedOver, ProviderDriver, UnclaimedTurn } from "../../../src/provider/ProviderDriver.ts"
import type { ProviderError } from "../../../src/provider/ProviderError.ts"
import { completed, encoded, encodedEvent, work, workItem } from "./encoded.ts"
import type * as operations from "./operations.ts"
import { instanceIds, lastExecutionId } from "./operations.ts"
import type { Tables } from "./tables.ts"

type Driver = ProviderDriver["Service"]
type Admin = AdminDriver["Service"]

/** What one driver answered so far, so that both can be asked about the same claim. */
interface Side {
  readonly name: string
  readonly driver: Driver
  readonly admin: Admin
  readonly turns: Array<
    Claim & { readonly instanceId: string; readonly executionId: number; readonly ids: ReadonlyArray<number> }
  >
  readonly activities: Array<Claim & { readonly instanceId: string; readonly activityId: number }>
}

interface Claim {
  readonly lockToken: string
  settled: boolean
}

/** The drivers of one store, and everything it holds. */
export interface Store {
  readonly driver: Driver
  readonly admin: Admin
  readonly tables: Effect.Effect<Tables>
}

export const play = Effect.fnUntraced(function*(
  one: Store,
  other: Store,
  sequence: ReadonlyArray<operations.Operation>
) {
  const sides = [side(one), side(other)] as const
  for (const [step, operation] of sequence.entries()) {
    if (operation.call === "wait") {
      yield* TestClock.adjust(operation.ms)
      continue
    }
    yield* compare(sides, `operation ${step}, ${operation.call}`, (side) => perform(side, operation, step))
  }
  yield* compare(sides, "what they read at the end", read)
  const now = yield* Clock.currentTimeMillis
  const [ofOne, ofOther] = [withLiveLocks(yield* one.tables, now), withLiveLocks(yield* other.tables, now)]
  assert.deepStrictEqual(ofOne, ofOther, `the tables differ at the end: ${difference(ofOne, ofOther)}`)
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** An expired lock is equivalent to no lock, and a claim that finds nothing may delete it. */
const withLiveLocks = (tables: Tables, now: number): Tables => ({
  ...tables,
  instance_locks: tables["instance_locks"]!.filter(([, untilMs]) => Number(untilMs) > now)
})

const side = ({ admin, driver }: Store): Side => ({ name: driver.name, driver, admin, turns: [], activities: [] })

const compare = Effect.fnUntraced(function*<A>(
  sides: readonly [Side, Side],
  what: string,
  ask: (side: Side) => Effect.Effect<A, ProviderError>
) {
  const answers = yield* Effect.forEach(
    sides,
    (side) =>
      Effect.catch(answered(ask(side)), (error) =>
        // Not an answer to compare.
        error.isRetryable ? Effect.fail(error) : Effect.succeed({ failure: error.reason._tag }))
  )
  const where = difference(answers[0], answers[1])
  assert.deepStrictEqual(answers[0], answers[1], `${sides[0].name} and ${sides[1].name} differ in ${what}: ${where}`)
})

/** The first place where two answers differ: a reader of a log has no other view of them. */
const difference = (one: unknown, other: unknown, path = ""): string | undefined => {
  if (one === null || other === null || typeof one !== "object" || typeof other !== "object") {
    return Object.is(one, other) ? undefined : `${path} ${short(one)} and ${short(other)}`
  }
  const names = new Set([...Object.keys(one), ...Object.keys(other)])
  return [...names].map((name) =>
    difference(
      (one as Record<string, unknown>)[name],
      (other as Record<string, unknown>)[name],
      `${path}.${name}`
    )
  ).find((found) => found !== undefined)
}

const short = (value: unknown) => {
  const text = JSON.stringify(value) ?? "undefined"
  return text.length > 200 ? `${text.slice(0, 200)}…` : text
}

/**
 * Calls again if the server had no connection to spare: other test files share it. Such a call has changed nothing. The
 * pause is one of the real clock, which the sequences do not use.
 */
const answered = <A>(call: Effect.Effect<A, ProviderError>, timesLeft = 20): Effect.Effect<A, ProviderError> =>
  Effect.catchIf(
    call,
    ({ reason }) => reason._tag === "Unavailable" && timesLeft > 0,
    () => Effect.andThen(realPause, answered(call, timesLeft - 1))
  )

const realPause = Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 250)))

/** One call; its result without tokens, row ids, and unspecified orders. */
const perform = Effect.fnUntraced(function*(
  side: Side,
  operation: Exclude<operations.Operation, { readonly call: "wait" }>,
  step: number
): Effect.fn.Return<unknown, Effect.Error<ReturnType<Driver["appendHistory"]>>> {
  const { admin, driver } = side
  const now = yield* Clock.currentTimeMillis
  switch (operation.call) {
    case "startOrchestrations": {
      // When mail arrives that was sent before a delayed start, or with it, is unspecified to the millisecond.
      const early = yield* Effect.forEach(operation.starts, ({ delayMs, instanceId }) =>
        delayMs === null
          ? Effect.succeed(false)
          : Effect.map(
            admin.readMessages({ instanceId, limit: 1, maxBytes: 0 }),
            (messages) => messages.length > 0
          ))
      const answers = yield* driver.startOrchestrations(
        operation.starts.map(({ firstTurn = null, hasMessage = false, replaces = null, ...start }, position) => ({
          ...start,
          ...(replaces !== null && { replaces }),
          ...(hasMessage &&
            { message: { workItem: workItem({ instanceId: start.instanceId, kind: "cancel" }, step) } }),
          delayMs: early[position] === true || hasMessage ? null : start.delayMs,
          orchestrationName: "Started",
          workItem: workItem({ instanceId: start.instanceId, kind: "start" }, step),
          ...(step % 3 > 0 && { attributes: attributesOf(step + position) }),
          ...(firstTurn !== null && {
            firstTurn: {
              turn: storedTurn(side, firstTurn.turn, {
                instanceId: start.instanceId,
                executionId: 1,
                now,
                step,
                position
              }),
              handOver: firstTurn.handOver
            }
          })
        }))
      )
      return answers.map((answer, position) =>
        typeof answer === "string" || answer._tag === "Started"
          ? answer
          : { ...answer, handedOver: keepClaims(side, operation.starts[position]!.firstTurn!.turn, answer.handedOver) }
      )
    }
    case "advanceOrchestrations":
      return yield* advance(side, operation.turns, now, step)
    case "enqueueForOrchestrator":
      return yield* driver.enqueueForOrchestrator(operation.messages.map((message) => encoded(message, now, step)))
    case "enqueueForWorker":
      return yield* driver.enqueueForWorker(operation.activities.map((activity) => work(activity, step)))
    case "fetchOrchestrationItems":
      return yield* claimTurns(side, operation)
    case "ackOrchestrationItems": {
      const acks = operation.turns.map((turn, position) => {
        const claim = find(side.turns, turn.token)
        const { executionOffset, leaves } = turn
        const { executionId = 1, instanceId = null } = claim
        return {
          ...storedTurn(side, { ...turn, executionOffset: executionOffset ?? 0 }, {
            instanceId,
            executionId,
            now,
            step,
            position
          }),
          lockToken: claim.lockToken,
          ...(executionOffset === null && { executionId: null }),
          ...(leaves !== undefined && { left: leaves.flatMap((place) => claim.ids?.[place] ?? []) })
        }
      })
      return yield* ending(side.turns, driver.ackOrchestrationItems, acks)
    }
    case "abandonOrchestrationItems":
      return yield* ending(
        side.turns,
        driver.abandonOrchestrationItems,
        withTokens(side.turns, operation.items).map((item, index, { length }) => ({
          ...item,
          // In which order it puts what begins executions of several instances in front is unspecified.
          ...(item.beginsFirst === true && length > 1 && { beginsFirst: index === 0 })
        }))
      )
    case "wakeBlocked":
      return yield* driver.wakeBlocked(operation)
    case "setLimit":
      return [yield* admin.setLimit(operation), yield* limitsOf(side)]
    case "removeLimit":
      return [yield* admin.removeLimit(operation), yield* limitsOf(side)]
    case "pause":
      return [yield* admin.pause(operation), yield* driver.readPaused]
    case "resume":
      return [yield* admin.resume(operation.target), yield* driver.readPaused]
    case "renewOrchestrationItemLocks":
      return yield* driver.renewOrchestrationItemLocks(withTokens(side.turns, operation.items))
    case "deferMessages":
      return yield* driver.deferMessages(operation.items.map(({ delayMs, positions, token }) => {
        const { ids, lockToken } = find(side.turns, token)
        return { lockToken, delayMs, ids: positions.flatMap((position) => ids?.[position] ?? []) }
      }))
    case "sweepMessages":
      return (yield* driver.sweepMessages({ maxAgeMs: operation.maxAgeMs, limit: 100, after: null })).deleted
    case "fetchWorkItems":
      return yield* claimActivities(side, operation)
    case "ackWorkItems":
      return yield* ending(
        side.activities,
        driver.ackWorkItems,
        operation.items.map(({ completes, token }) => ({
          lockToken: find(side.activities, token).lockToken,
          completion: completes === null ? null : { instanceId: completes, workItem: completed(step) }
        }))
      )
    case "abandonWorkItems":
      return yield* ending(
        side.activities,
        driver.abandonWorkItems,
        withTokens(side.activities, operation.items)
      )
    case "renewWorkItemLocks":
      return yield* driver.renewWorkItemLocks(withTokens(side.activities, operation.items))
    case "appendChunks":
      return yield* driver.appendChunks(operation.items.map(({ delivery, otherInstanceId, token, ...item }) => {
        const { activityId = 1, instanceId = "a", lockToken } = find(side.activities, token)
        return {
          ...item,
          lockToken,
          instanceId: otherInstanceId ?? instanceId,
          writer: `1/${activityId}/1/${delivery}/x`
        }
      }))
    case "readChunks":
      return pages(yield* driver.readChunks(operation.items))
    case "resumeChunks":
      return yield* driver.resumeChunks({ ...operation, call: `1/${operation.activityId}/` })
    case "renewSessionLocks":
      return yield* driver.renewSessionLocks(operation)
    case "cleanupOrphanedSessions":
      return yield* driver.cleanupOrphanedSessions
    case "appendHistory": {
      // Unspecified: what a tool gives an instance before its delayed start. Mail may arrive with the start, or before.
      const queued = yield* admin.readMessages({ instanceId: operation.instanceId, limit: 100, maxBytes: 1_000_000 })
      if (queued.some(({ kind, visibleAtMs }) => kind === "StartOrchestration" && visibleAtMs > now)) return
      return yield* driver.appendHistory({
        ...operation,
        history: operation.history.map((event, index) => encodedEvent(event, 1000 + step * 100 + index))
      })
    }
    case "readInstanceStats":
      return yield* driver.readInstanceStats(operation.instanceId)
    case "readKeyValues":
      return sorted(yield* driver.readKeyValues(operation), ({ key }) => key)
    case "readHistory":
      return yield* driver.readHistory(operation)
    case "holdInstances": {
      const { force, holdForMs, instanceIds } = operation
      const outcome = yield* admin.holdInstances({ instanceIds, mustHaveEnded: force ? [] : instanceIds, holdForMs })
      return outcome._tag === "Held" ? texts(outcome.childIds) : outcome._tag
    }
    case "deleteInstances": {
      const { force, instanceIds } = operation
      const outcome = yield* admin.deleteInstances({ instanceIds, mustHaveEnded: force ? [] : instanceIds })
      // Which of several obstacles is reported is unspecified.
      return outcome._tag === "Deleted" ? outcome : outcome._tag
    }
    case "pruneExecutions":
      return yield* admin.pruneExecutions({ ...operation, completedBeforeMs: ago(now, operation.completedAgoMs) })
    case "cutHistory": {
      const { changed, instanceId, lastEventOffset, messages, removes, stored, ...cut } = operation
      const [state] = yield* admin.readInstances([instanceId])
      const executionId = state?.executionId ?? 1
      const ids = (yield* driver.readHistory({ instanceId, executionId })).map((text) => JSON.parse(text).event_id)
      return yield* admin.cutHistory({
        ...cut,
        instanceId,
        executionId,
        lastEventId: (ids.at(-1) ?? 0) + lastEventOffset,
        status: state?.status ?? "Running",
        event: {
          eventId: (ids.at(-1) ?? 0) + 1,
          eventType: "ExternalEventPersistent",
          eventData: JSON.stringify({ event_id: (ids.at(-1) ?? 0) + 1, type: "ExternalEventPersistent" })
        },
        keep: ids.at(-1 - removes) ?? ids[0] ?? 0,
        reason: "random",
        attributes: attributesOf(step),
        stored: stored === null ? null : [{ key: "k", value: stored, executionId: 1, lastUpdatedAtMs: 7 }],
        changed: [{ key: "k", value: changed, lastUpdatedAtMs: 8 }],
        messages: Array.from(
          { length: messages },
          (_, i) => `{"CancelInstance":{"instance":"","reason":"${step} ${i}"}}`
        ),
        withdrawn: [],
        tasks: []
      })
    }
    case "forkInstance": {
      const { changed, messages, stored, ...fork } = operation
      return yield* admin.forkInstance({
        ...fork,
        of: "a",
        orchestrationName: "One",
        orchestrationVersion: "1.0.0",
        pinnedVersion: { major: 1000, minor: 0, patch: 0 },
        history: [1, 2].map((eventId) => ({
          eventId,
          eventType: "TimerFired",
          eventData: JSON.stringify({ event_id: eventId, type: "TimerFired", step })
        })),
        attributes: attributesOf(step),
        stored: stored === null ? [] : [{ key: "k", value: stored, executionId: 1, lastUpdatedAtMs: 7 }],
        changed: [{ key: "k", value: changed, lastUpdatedAtMs: 8 }],
        messages: Array.from(
          { length: messages },
          (_, i) => `{"CancelInstance":{"instance":"","reason":"${step} ${i}"}}`
        )
      })
    }
    case "selectInstances":
      return texts(
        yield* admin.selectInstances({
          ...operation,
          completedBeforeMs: ago(now, operation.completedAgoMs),
          limit: instanceIds.length
        })
      )
    case "listInstances":
      return yield* listsOf(side, operation, step, now)
    case "listChildren":
      return texts(yield* admin.listChildren(operation.instanceIds))
    case "readExecution":
      return yield* admin.readExecution(operation)
    case "listExecutions":
      return yield* admin.listExecutions(operation.instanceId)
    case "systemMetrics":
      return yield* admin.systemMetrics
    case "queueDepths":
      return yield* admin.queueDepths
  }
})

/** What a turn stores, whether it was claimed or not. */
const storedTurn = (
  side: Side,
  turn: operations.UnclaimedTurn,
  { executionId, instanceId, now, position, step }: {
    readonly instanceId: string | null
    readonly executionId: number
    readonly now: number
    readonly step: number
    readonly position: number
  }
): UnclaimedTurn => {
  const orchestratorItems = turn.orchestratorItems.map((message, index) => ({
    ...encoded(message, now, step),
    // A turn of an id without an instance would see an incomplete instance.
    ...(message.creates && message.kind.includes("tart") && !isClaimed(side, message.instanceId) && {
      start: {
        orchestrationName: "Started",
        orchestrationVersion: turn.orchestrationVersion,
        parentInstanceId: instanceId,
        pinnedVersion: { major: 1000, minor: 2, patch: 0 },
        ...((step + index) % 2 === 0 && { attributes: attributesOf(step + index) })
      }
    })
  }))
  const history = turn.history.map((event, index) => encodedEvent(event, 1000 + step * 100 + position * 10 + index))
  return {
    ...turn,
    executionId: executionId + turn.executionOffset,
    // A turn that begins an execution says so: which status its instance has otherwise is unspecified.
    ...(turn.executionOffset > 0 && turn.status === null && { status: "Running" as const }),
    ...(turn.clockOffMs !== undefined && { clockMs: () => now + turn.clockOffMs! }),
    history,
    workerItems: turn.workerItems.map((activity) => work(activity, step)),
    orchestratorItems,
    ...((step + position) % 3 > 0 && {
      attributes: [
        ...attributesOf(step + position + 1),
        ...((step + position) % 5 === 0 ? [{ name: "b", value: null }] : []),
        ...((step + position) % 7 === 0 ? attributesOf(step + position) : [])
      ]
    }),
    ...((step + position) % 4 === 0 && {
      chunks: ["s", "t", "s"].map((stream, index) => ({
        stream,
        chunk: text(step, index),
        keepChunks: 4,
        keepBytes: 200
      }))
    }),
    ...(turn.requeues !== undefined && {
      requeued: turn.requeues.flatMap((place) => [place, ...history.slice(place, place + 1).map(idOf)])
    }),
    ...(turn.cancelsItems === true && { cancelledTimers: orchestratorItems.map(({ workItem }) => workItem) })
  }
}

const text = (step: number, index: number) => `"${step} ${"ü".repeat(10 * index)}"`

/** The ids of streams differ. */
const pages = (pages: ReadonlyArray<ChunksPage>) =>
  pages.map((page) => ({ ...page, streamId: page.streamId === null ? null : "some" }))

/** Each turn takes its instance to be where it is, apart from its offsets. */
const advance = Effect.fnUntraced(function*(
  side: Side,
  turns: ReadonlyArray<operations.OptimisticTurn>,
  now: number,
  step: number
) {
  const { driver } = side
  const given = new Set<string>()
  const optimistic = yield* Effect.forEach(
    turns,
    ({ handOver, instanceId, isOther, lastEventOffset, results, turn }, position) =>
      Effect.gen(function*() {
        const [state] = yield* driver.readInstances([instanceId])
        const executionId = state?.executionId ?? 1
        const lastEvent = (yield* driver.readHistory({ instanceId, executionId })).at(-1)
        const own = side.activities.filter((activity) => activity.instanceId === instanceId)
        // One activity in two turns of a set is unspecified.
        const tokens = results.map(({ isOwn, token }) => find(isOwn ? own : side.activities, token).lockToken)
          .filter((token) => !given.has(token))
        for (const token of tokens) given.add(token)
        return {
          instanceId,
          lastEventId: lastEventOffset + (lastEvent === undefined ? 0 : JSON.parse(lastEvent).event_id as number),
          lastEvent: isOther ? `${lastEvent} ` : lastEvent ?? "",
          results: (tokens.length > 0 ? tokens : ["1.x"]).map((lockToken) => ({
            lockToken,
            workItem: completed(step)
          })),
          turn: storedTurn(side, turn, { instanceId, executionId, now, step, position }),
          handOver
        }
      })
  )
  const answers = yield* driver.advanceOrchestrations!(optimistic)
  const ended = new Set(answers.flatMap((answer, position) =>
    optimistic[position]!.results
      .filter((_, index) => answer._tag === "Advanced" || answer.results[index] === "Done")
      .map(({ lockToken }) => lockToken)
  ))
  for (const activity of side.activities) activity.settled ||= ended.has(activity.lockToken)
  return answers.map((answer, position) =>
    answer._tag === "Queued"
      ? answer
      : { ...answer, handedOver: keepClaims(side, turns[position]!.turn, answer.handedOver) }
  )
})

/** Later calls may use what was handed over; gives the indexes. */
const keepClaims = (
  { activities }: Side,
  { workerItems }: operations.UnclaimedTurn,
  handedOver: ReadonlyArray<HandedOver>
) =>
  handedOver.map(({ index, lockToken }) => {
    const { activityId, instanceId } = workerItems[index]!
    activities.push({ lockToken, settled: false, instanceId, activityId })
    return index
  })

const isClaimed = ({ turns }: Side, instanceId: string) =>
  turns.some((turn) => !turn.settled && turn.instanceId === instanceId)

const claimTurns = (side: Side, options: Parameters<Driver["fetchOrchestrationItems"]>[0]) =>
  Effect.map(
    side.driver.fetchOrchestrationItems(options),
    (claims) =>
      claims.map(({ lockToken, messages, ...claim }) => {
        const { executionId, instanceId } = claim
        side.turns.push({ lockToken, settled: false, instanceId, executionId, ids: messages.map(({ id }) => id) })
        return {
          ...claim,
          messages: messages.map(({ attemptCount, workItem }) => ({ attemptCount, workItem })),
          keyValues: sorted(claim.keyValues, ({ key }) => key)
        }
      })
  )

const claimActivities = (side: Side, options: Parameters<Driver["fetchWorkItems"]>[0]) =>
  Effect.map(side.driver.fetchWorkItems(options), (claims) =>
    claims.map(({ lockToken, ...claim }) => {
      const { ActivityExecute: { activityId, instanceId } } = JSON.parse(claim.workItem) as {
        ActivityExecute: operations.Activity
      }
      side.activities.push({ lockToken, settled: false, instanceId, activityId })
      return claim
    }))

/** Everything that can be read from the driver without changing it. */
const read = Effect.fnUntraced(function*({ driver }: Side) {
  const executionIds = [null, ...Array.from({ length: lastExecutionId }, (_, index) => index + 1)]
  return {
    locks: yield* driver.readLocks!,
    instances: sorted(yield* driver.readInstances(instanceIds), ({ instanceId }) => instanceId),
    ends: sorted(yield* driver.readEnds(instanceIds), ({ instanceId }) => instanceId),
    progress: yield* driver.readProgress(
      instanceIds.flatMap((instanceId) =>
        [null, "k", "", "ключ 😀"].map((key) => ({ instanceId, key, executionId: 1, lastEventId: 2 }))
      )
    ),
    perInstance: yield* Effect.forEach(instanceIds, (instanceId) =>
      Effect.all({
        stats: driver.readInstanceStats(instanceId),
        streams: Effect.map(
          driver.readChunks(
            ["s", "t"].map((stream) => ({ instanceId, stream, from: null, maxBytes: 1_000_000 }))
          ),
          pages
        ),
        keyValues: Effect.map(
          driver.readKeyValues({ instanceId, key: null }),
          (entries) => sorted(entries, ({ key }) => key)
        ),
        histories: Effect.forEach(
          executionIds,
          (executionId) => driver.readHistory({ instanceId, executionId }),
          { concurrency: "unbounded" }
        )
      }, { concurrency: "unbounded" }))
  }
})

const find = <C extends Claim>(claims: ReadonlyArray<C>, handle: operations.Handle): Partial<C> & Claim => {
  const open = claims.filter(({ settled }) => !settled)
  const claim = "open" in handle
    ? open[open.length - 1 - handle.open % open.length]
    : "any" in handle
    ? claims[claims.length - 1 - handle.any % claims.length]
    : undefined
  return claim ?? { lockToken: "forged" in handle ? handle.forged : "", settled: true } as Partial<C> & Claim
}

/** Settles claims, and remembers which ones that ended. */
const ending = <Item extends { readonly lockToken: string }, E>(
  claims: ReadonlyArray<Claim>,
  settle: (items: ReadonlyArray<Item>) => Effect.Effect<ReadonlyArray<string>, E>,
  items: ReadonlyArray<Item>
) =>
  Effect.tap(settle(items), (answers) =>
    Effect.sync(() => {
      const done = new Set(items.filter((_, index) => answers[index] === "Done").map(({ lockToken }) => lockToken))
      for (const claim of claims) claim.settled ||= done.has(claim.lockToken)
    }))

const withTokens = <Item extends { readonly token: operations.Handle }>(
  claims: ReadonlyArray<Claim>,
  items: ReadonlyArray<Item>
) => items.map((item) => ({ ...item, lockToken: find(claims, item.token).lockToken }))

const idOf = ({ eventId }: { readonly eventId: number }) => eventId

const sorted = <A>(items: ReadonlyArray<A>, by: (item: A) => string): ReadonlyArray<A> =>
  [...items].sort((a, b) => by(a) < by(b) ? -1 : 1)

/** Lists, from their pages, and counts; every few operations have another order, and other filters. */
const listsOf = Effect.fnUntraced(function*(
  { admin }: Side,
  { isBlocked, isPaused, status, ...search }: Extract<operations.Operation, { readonly call: "listInstances" }>,
  step: number,
  now: number
) {
  const each = <A>(every: number, value: A) => step % every === 0 ? value : null
  const listing: Omit<Listing, "after"> = {
    ...search,
    status: isBlocked ? "Blocked" : isPaused ? "Paused" : status,
    orchestrationVersion: each(5, "1.0.0"),
    isRoot: step % 7 === 0,
    isRetrying: false,
    createdFromMs: each(3, now - 10),
    createdBeforeMs: each(11, now),
    updatedFromMs: each(8, now - 10),
    updatedBeforeMs: each(13, now),
    endedBeforeMs: each(12, now),
    exceptDuroxide: step % 10 === 0,
    customStatus: each(9, "F"),
    error: each(4, "a"),
    attributes: conditionsOf(step),
    orderBy: (["newest", "oldest", "id"] as const)[step % 3]!,
    limit: 1 + step % 4
  }
  const ids: Array<string> = []
  let after: ListPosition | null = null
  do {
    const page: Effect.Success<ReturnType<typeof admin.listInstances>> = yield* admin.listInstances({
      ...listing,
      after
    })
    ids.push(...page.instanceIds)
    after = page.next
  } while (after !== null)
  const { orchestrationName } = search
  const attributes = conditionsOf(step)
  const counting = { status, orchestrationName, attributes, byVersion: step % 2 === 0, exactUpTo: 1_000 }
  const counts = yield* admin.countInstances(counting)
  return { ids, counts: texts(counts.map((count) => JSON.stringify(count))) }
})

/** The limits and their use. */
const limitsOf = ({ admin }: Side) => admin.readLimits({ of: null, key: null, mostKeys: 2 })

/** Those that an instance begins with, or that a turn changes; null removes one. */
const attributesOf = (step: number) => [
  { name: "a", value: ["x", step % 3, { timeMs: step }, "X"][step % 4]! },
  ...(step % 3 === 0 ? [{ name: "b", value: step % 5 }] : [])
]

const conditionsOf = (step: number): Listing["attributes"] =>
  ([
    [],
    [{ name: "a", equals: "x" }],
    [{ name: "a", kind: "number", from: 1, below: null }],
    [{ name: "a", kind: "time", from: null, below: step }, { name: "b", kind: "number", from: null, below: 3 }],
    [{ name: "b", equals: step % 5 }, { name: "a", equals: "X" }],
    []
  ] as const)[step % 6]!

const texts = (items: ReadonlyArray<string>) => sorted(items, (item) => item)

const ago = (now: number, ms: number | null) => ms === null ? null : now - ms
