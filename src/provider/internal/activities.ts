/**
 * The operations on claimed activities, and on the sessions that bind some of them to a process.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Metrics from "../../model/Metrics.ts"
import * as tracing from "../../model/shared/tracing.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import * as pump from "../../waking/pump.ts"
import type { Claimed, Provider } from "../Provider.ts"
import type { Abandon, FetchWorkItems, ProviderDriver, Renewal, Settled, WorkItemRenewed } from "../ProviderDriver.ts"
import { Contention, ProviderError } from "../ProviderError.ts"
import { closed, failUnlessDone, shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import { makeSuspects } from "../shared/suspects.ts"
import type { Suspects } from "../shared/suspects.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import * as claimCount from "./claimCount.ts"
import { encodeItem, sizeOfItem, unreadablePauseMs } from "./encoding.ts"
import { measured } from "./gate.ts"
import type { Wakeups } from "./wakeups.ts"

type Service = Provider["Service"]
type Driver = ProviderDriver["Service"]
type ClaimedActivity = Claimed<WorkItem.Of<"ActivityExecute">>
type Send<Item, Answer = Settled> = (item: Item) => Effect.Effect<Answer, ProviderError>

/** What the operations share. */
interface Parts {
  readonly driver: Driver
  readonly wakeups: Wakeups
  readonly suspects: Suspects
  readonly count: claimCount.ClaimCount
  readonly sendAck: Send<{ lockToken: string; completion: { instanceId: string; workItem: string } | null }>
  readonly sendAbandon: Send<Abandon>
  readonly sendRenewal: Send<Renewal & { readonly sufficientMs?: number }, WorkItemRenewed>
}

export const make = Effect.fnUntraced(function*(
  driver: Driver,
  wakeups: Wakeups,
  options: Sharing & pump.Polling & {
    /** The lock of an activity has ended with a transaction of the application. */
    readonly released: (lockToken: string) => void
  }
) {
  const clock = yield* Clock.Clock
  const manyAtOnce = 16 * options.maxBatch
  const parts: Parts = {
    driver,
    wakeups,
    count: claimCount.make(),
    suspects: makeSuspects(clock, (forMs) => wakeups.roomLater("worker", forMs)),
    sendAck: yield* shared("ackWorkItem", driver.ackWorkItems, {
      ...options,
      sizeOf: ({ completion }) => completion === null ? 0 : sizeOfItem(completion)
    }),
    sendAbandon: yield* shared("abandonWorkItem", driver.abandonWorkItems, options),
    // All of a process at once, if possible: one that waits for the set before may come too late over a slow link.
    sendRenewal: yield* shared("renewWorkItemLock", driver.renewWorkItemLocks, { ...options, maxBatch: manyAtOnce })
  }
  const take = pump.byFilter<ClaimedActivity, ProviderError>({
    ...options,
    maxBatch: manyAtOnce, // the process has room for so many, and `claimCount` bounds their bytes
    abandon: ({ lockToken }) => Effect.ignore(abandonWorkItem(parts)({ lockToken, ...asIfNotFetched })),
    queue: wakeups.workers,
    leftSome: () => wakeups.leftSome("worker"),
    closed: closed("fetchWorkItems")
  })
  return {
    fetchWorkItems: fetchWorkItems(parts, take),
    ackWorkItem: ackWorkItem(parts),
    ...(driver.ackWorkItemWithin !== undefined && {
      ackWorkItemWithin: ackWorkItemWithin(parts, driver.ackWorkItemWithin, options.released)
    }),
    abandonWorkItem: abandonWorkItem(parts),
    renewWorkItemLock: renewWorkItemLock(parts),
    renewSessionLock: renewSessionLock(parts),
    cleanupOrphanedSessions: driver.cleanupOrphanedSessions
  }
})

// -- fetch -----------------------------------------------------------------------------------------

type Take = ReturnType<typeof pump.byFilter<ClaimedActivity, ProviderError>>

const fetchWorkItems = (parts: Parts, take: Take): Service["fetchWorkItems"] => (options) => {
  const { activities, lockTimeout, most, onLook, pollTimeout, tags } = options
  const session = Option.getOrUndefined(options.session)
  return checked("fetchWorkItems", [
    check.length("lockTimeout", lockTimeout, 1),
    "tags" in tags ? check.texts("tags", tags.tags) : undefined,
    session && check.text("workerId", session.workerId),
    session && check.length("session.lockTimeout", session.lockTimeout, 1)
  ], () => {
    if (tags._tag === "None") return Effect.succeed([])
    const filter = {
      lockTimeoutMs: check.wholeMillis(lockTimeout),
      tags,
      ...(activities !== undefined && { activities })
    }
    const sessionClaim = session === undefined
      ? null
      : { workerId: session.workerId, lockTimeoutMs: check.wholeMillis(session.lockTimeout) }
    const maxNew = session?.maxNew
    return take(
      { ...filter, session: sessionClaim, isLimited: maxNew !== undefined },
      (limit, isThorough) =>
        Effect.suspend(() =>
          claim(parts, {
            ...filter,
            limit: Math.min(limit, parts.count.most()),
            isThorough,
            suspects: parts.suspects.room(),
            session: sessionClaim === null || maxNew === undefined
              ? sessionClaim
              : { ...sessionClaim, maxNew: maxNew() }
          })
        ),
      pollTimeout,
      { most, onLook }
    )
  })
}

/** One statement; rows this version cannot read are abandoned. */
const claim = Effect.fnUntraced(
  function*({ count, driver, sendAbandon, suspects, wakeups }: Parts, request: FetchWorkItems) {
    const claimed = wakeups.claiming("worker")
    const claimedSlots = wakeups.claimingSlots("worker")
    let isAwaited = false
    const { claimSpan, found: rows } = yield* tracing.claiming(measured(
      Metrics.dequeueWorkerDuration,
      driver.fetchWorkItems({
        ...request,
        onLocked: () => wakeups.metLocked("worker"),
        onNext: (timeMs) => wakeups.workDueAt("worker", timeMs),
        onAwaited: () => {
          isAwaited = true
        }
      })
    ))
    claimedSlots(isAwaited)
    const items: Array<ClaimedActivity> = []
    const texts: Array<string> = []
    for (const { attemptCount, isLimited, lockToken, workItem } of rows) {
      const item = WorkItem.decode(workItem)
      if (Result.isSuccess(item) && item.success._tag === "ActivityExecute") {
        if (isLimited === true) wakeups.slotTaken(lockToken, item.success)
        if (item.success.sessionId !== undefined && request.session !== null) {
          wakeups.sessionsHeld(request.session.lockTimeoutMs)
        }
        suspects.lock(lockToken, attemptCount - 1, request.lockTimeoutMs)
        items.push({ item: item.success, lockToken, attemptCount, ...(claimSpan !== undefined && { claimSpan }) })
        texts.push(workItem)
        continue
      }
      const problem = Result.isFailure(item) ? item.failure.problem : `${item.success._tag} is not an activity`
      yield* Effect.logError("Provider: an activity cannot be read by this version; it is hidden for a while").pipe(
        Effect.annotateLogs({ error: problem })
      )
      yield* Effect.ignore(sendAbandon({ lockToken, delayMs: unreadablePauseMs, ignoreAttempt: true }))
      wakeups.workAbandoned("worker", unreadablePauseMs)
    }
    claimed(texts)
    count.arrived(rows)
    return { items, more: items.length < rows.length || rows.length === request.limit }
  }
)

const asIfNotFetched = { delay: Option.none(), ignoreAttempt: true }

// -- settle ----------------------------------------------------------------------------------------

const ackWorkItem = (parts: Parts): Service["ackWorkItem"] => (lockToken, completion) =>
  checked("ackWorkItem", [
    check.text("lockToken", lockToken),
    Option.isNone(completion) || isCompletion(completion.value)
      ? undefined
      : ["completion", "only ActivityCompleted and ActivityFailed end an activity"]
  ], () => {
    const message = Option.map(completion, (item) => ({ instanceId: item.instance, workItem: encodeItem(item) }))
    return measured(
      Metrics.ackWorkerDuration,
      parts.sendAck({ lockToken, completion: Option.getOrNull(message) })
    ).pipe(
      Effect.tap(() => release(parts, lockToken)),
      Effect.flatMap((settled) => failUnlessDone("ackWorkItem", lockToken, settled)),
      Effect.tap(() =>
        Effect.sync(() =>
          Option.isSome(message) &&
          parts.wakeups.messageSent(message.value.instanceId, null, () => message.value.workItem)
        )
      )
    )
  })

const ackWorkItemWithin = (
  parts: Parts,
  send: NonNullable<Driver["ackWorkItemWithin"]>,
  released: (lockToken: string) => void
): NonNullable<Service["ackWorkItemWithin"]> =>
({ completion, connection, lockToken }) =>
  checked("ackWorkItemWithin", [check.text("lockToken", lockToken)], () => {
    const message = { instanceId: completion.instance, workItem: encodeItem(completion) }
    return measured(Metrics.ackWorkerDuration, send({ connection, lockToken, completion: message })).pipe(
      Effect.flatMap((settled) => failUnlessDone("ackWorkItemWithin", lockToken, settled)),
      Effect.as({
        committed: Effect.andThen(
          release(parts, lockToken),
          Effect.sync(() => {
            released(lockToken)
            parts.wakeups.messageSent(message.instanceId, null, () => message.workItem)
          })
        )
      })
    )
  })

const abandonWorkItem = (parts: Parts): Service["abandonWorkItem"] => ({ block, delay, ignoreAttempt, lockToken }) =>
  checked(
    "abandonWorkItem",
    [check.text("lockToken", lockToken), check.delay(delay)],
    () =>
      parts.sendAbandon({ lockToken, delayMs: check.millisOrNull(delay), ignoreAttempt, block }).pipe(
        Effect.ensuring(release(parts, lockToken)),
        Effect.flatMap((settled) => failUnlessDone("abandonWorkItem", lockToken, settled)),
        Effect.tap(() => Effect.sync(() => parts.wakeups.workAbandoned("worker", check.millisOrNull(delay))))
      )
  )

const renewWorkItemLock = (parts: Parts): Service["renewWorkItemLock"] => ({ extendFor, lockToken, sufficient }) =>
  checked("renewWorkItemLock", [
    check.text("lockToken", lockToken),
    check.length("extendFor", extendFor, 1)
  ], () => {
    const extendForMs = check.wholeMillis(extendFor)
    return parts.sendRenewal({
      lockToken,
      extendForMs,
      ...(sufficient !== undefined && { sufficientMs: check.wholeMillis(sufficient) })
    }).pipe(
      Effect.flatMap((answer) => {
        switch (answer) {
          case "Done":
            return Effect.sync(() => parts.suspects.renew(lockToken, extendForMs))
          case "LockLost":
            return Effect.andThen(release(parts, lockToken), failUnlessDone("renewWorkItemLock", lockToken, answer))
          case "Locked":
            return Effect.fail(new ProviderError({ operation: "renewWorkItemLock", reason: heldElsewhere }))
        }
      })
    )
  })

const heldElsewhere = new Contention({ sqlState: "55P03", problem: "another transaction has locked the activity" })

/** A suspect fewer, or a slot of a limit more: now further ones may be claimed. */
const release = ({ suspects, wakeups }: Parts, lockToken: string) =>
  Effect.sync(() => {
    if (suspects.release(lockToken)) wakeups.workers.wake("Stored")
    wakeups.slotFreed(lockToken)
  })

// -- sessions --------------------------------------------------------------------------------------

const renewSessionLock =
  ({ driver, wakeups }: Parts): Service["renewSessionLock"] => ({ extendFor, idleTimeout, workerIds }) =>
    checked("renewSessionLock", [
      check.texts("workerIds", workerIds),
      check.length("extendFor", extendFor, 1),
      check.length("idleTimeout", idleTimeout, 0)
    ], () =>
      workerIds.length === 0 ? Effect.succeed(0) : Effect.tap(
        driver.renewSessionLocks({
          workerIds,
          extendForMs: check.wholeMillis(extendFor),
          idleTimeoutMs: check.wholeMillis(idleTimeout)
        }),
        (renewed) => Effect.sync(() => renewed > 0 && wakeups.sessionsHeld(check.wholeMillis(extendFor)))
      ))

// internal

/** For callers without types: anything else would reach the instance as a message that was never sent. */
const isCompletion = (item: WorkItem.WorkItem) => item._tag === "ActivityCompleted" || item._tag === "ActivityFailed"
