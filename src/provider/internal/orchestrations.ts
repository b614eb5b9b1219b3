/**
 * The operations on claimed instances: a batch of messages, and the turn that answers it.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Metrics from "../../model/Metrics.ts"
import { aboutInstance } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import * as tracing from "../../model/shared/tracing.ts"
import * as pump from "../../waking/pump.ts"
import * as renewal from "../../waking/renewal.ts"
import type { StoreClock } from "../../waking/storeClock.ts"
import type { Claimed, OrchestrationItem, Provider } from "../Provider.ts"
import { fullBatch } from "../ProviderDriver.ts"
import type {
  Abandon,
  ClaimedInstance,
  FetchOrchestrationItems,
  OrchestrationAck,
  ProviderDriver,
  Renewal,
  Settled
} from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { closed, failUnlessDone, retried, shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import { makeSuspects } from "../shared/suspects.ts"
import type { Suspects } from "../shared/suspects.ts"
import * as check from "./check.ts"
import { checked, refused } from "./check.ts"
import * as claimBytes from "./claimBytes.ts"
import { emptyAck, encodeTurn, sizeOfAck, unreadablePauseMs } from "./encoding.ts"
import { measured } from "./gate.ts"
import type { Claim } from "./locks.ts"
import { assemble, complete, historyEnd } from "./orchestrationItem.ts"
import type { Assembled, Undecoded } from "./orchestrationItem.ts"
import type { Wakeups } from "./wakeups.ts"

type Service = Provider["Service"]
type Driver = ProviderDriver["Service"]
type Send<Item> = (item: Item) => Effect.Effect<Settled, ProviderError>

/** What the operations share. */
interface Parts {
  readonly clock: Clock.Clock
  readonly driver: Driver
  readonly wakeups: Wakeups
  readonly suspects: Suspects
  readonly claimBytes: claimBytes.ClaimBytes
  readonly storeClock: StoreClock
  readonly sendAck: Send<OrchestrationAck>
  readonly sendAbandon: Send<Abandon>
  readonly sendRenewal: Send<Renewal>
  readonly sendDeferral: Send<{ lockToken: string; ids: ReadonlyArray<number>; delayMs: number }>
}

export const make = Effect.fnUntraced(function*(
  driver: Driver,
  wakeups: Wakeups,
  storeClock: StoreClock,
  options: Sharing & pump.Polling
) {
  const clock = yield* Clock.Clock
  const parts: Parts = {
    clock,
    driver,
    wakeups,
    suspects: makeSuspects(clock, (forMs) => wakeups.roomLater("orchestrator", forMs)),
    claimBytes: claimBytes.make(),
    storeClock,
    sendAck: yield* shared("ackOrchestrationItem", driver.ackOrchestrationItems, {
      ...options,
      patience: Duration.min(options.patience, turnPatience),
      sizeOf: sizeOfAck
    }),
    sendAbandon: yield* shared("abandonOrchestrationItem", driver.abandonOrchestrationItems, options),
    sendRenewal: yield* shared("renewOrchestrationItemLock", driver.renewOrchestrationItemLocks, options),
    sendDeferral: yield* shared("deferMessages", driver.deferMessages, options)
  }
  const take = pump.byFilter<Claimed<Undecoded>, ProviderError>({
    ...options,
    abandon: ({ lockToken }) => Effect.ignore(abandonOrchestrationItem(parts)({ lockToken, ...asIfNotFetched })),
    queue: wakeups.orchestrators,
    leftSome: () => wakeups.leftSome("orchestrator"),
    closed: closed("fetchOrchestrationItem")
  })
  return {
    fetchOrchestrationItem: fetchOrchestrationItem(parts, take),
    ackOrchestrationItem: ackOrchestrationItem(parts),
    dropOrchestrationItem: dropOrchestrationItem(parts),
    abandonOrchestrationItem: abandonOrchestrationItem(parts),
    wakeBlocked: wakeBlocked(parts),
    renewOrchestrationItemLock: renewOrchestrationItemLock(parts)
  }
})

// -- fetch -----------------------------------------------------------------------------------------

type Take = ReturnType<typeof pump.byFilter<Claimed<Undecoded>, ProviderError>>

/**
 * Where callers keep histories in memory, longer ones are not handed out with a claim; a caller that lacks one reads
 * it. At about this length its events cost as much as the second statement.
 */
const historyLimit = 128

const fetchOrchestrationItem = (parts: Parts, take: Take): Service["fetchOrchestrationItem"] => (options) => {
  const { isKnown, lockTimeout, onLook, pollTimeout, serves, versions } = options
  return checked("fetchOrchestrationItem", [
    check.length("lockTimeout", lockTimeout, 1),
    check.versionRange(versions)
  ], () => {
    const filter = {
      lockTimeoutMs: check.wholeMillis(lockTimeout),
      versions: Option.getOrNull(versions),
      ...(serves !== undefined && { serves }),
      ...(isKnown !== undefined && { historyLimit })
    }
    const decode = (claimed: Claimed<Undecoded>) => {
      const end = historyEnd(claimed.item)
      const rows = end !== undefined && isKnown?.(end) === true
        ? Effect.succeed(null)
        : claimed.item.isWholeHistory
        ? Effect.succeed(claimed.item.rows)
        : readHistory(parts, claimed, lockTimeout)
      return Effect.map(
        rows,
        (rows): Claimed<OrchestrationItem> => ({ ...claimed, item: complete(claimed.item, rows) })
      )
    }
    return Effect.flatMap(
      take(
        filter,
        (limit, isThorough) =>
          Effect.suspend(() => {
            const begun = parts.wakeups.locked.beginClaim()
            return Effect.ensuring(
              claim(parts, { ...filter, limit, isThorough, suspects: parts.suspects.room() }, begun),
              Effect.sync(() => parts.wakeups.locked.endClaim(begun))
            )
          }),
        pollTimeout,
        { onLook }
      ),
      ([claimed]) => claimed === undefined ? Effect.succeedNone : Effect.asSome(decode(claimed))
    )
  })
}

/**
 * Reads the whole history of a claimed instance and renews its lock meanwhile: the caller does not have the token yet.
 */
const readHistory = (parts: Parts, { item, lockToken }: Claimed<Undecoded>, lockTimeout: Duration.Duration) =>
  Effect.raceFirst(
    parts.driver.readHistory({ instanceId: item.instanceId, executionId: item.executionId }),
    Effect.andThen(
      renewal.untilLost(
        lockTimeout,
        renewOrchestrationItemLock(parts)({ lockToken, extendFor: lockTimeout }),
        "Provider: lock of an instance not renewed yet"
      ),
      Effect.never
    )
  ).pipe(
    Effect.onError(() => Effect.ignore(abandonOrchestrationItem(parts)({ lockToken, ...asIfNotFetched })))
  )

/** One statement; instances whose messages cannot be delivered are abandoned. */
const claim = Effect.fnUntraced(function*(parts: Parts, request: FetchOrchestrationItems, begun: Claim) {
  let begunMs = 0
  let maxBytes = 0
  const claimed = parts.wakeups.claiming("orchestrator")
  const claimedSlots = parts.wakeups.claimingSlots("orchestrator")
  let isAwaited = false
  const { claimSpan, found: claims } = yield* tracing.claiming(measured(
    Metrics.fetchOrchestrationItemDuration,
    retried(Effect.suspend(() => {
      begunMs = monotonicMs(parts.clock)
      maxBytes = parts.claimBytes.current()
      return parts.driver.fetchOrchestrationItems({
        ...request,
        maxBytes,
        onLocked: () => parts.wakeups.metLocked("orchestrator"),
        onNext: (timeMs) => parts.wakeups.workDueAt("orchestrator", timeMs),
        onAwaited: () => {
          isAwaited = true
        }
      })
    }))
  ))
  claimedSlots(isAwaited)
  if (claims.length > 0) parts.storeClock.heard(claims[0]!.nowMs)
  const isSlow = claims.length > 0 && parts.claimBytes.arrived({
    bytes: sizeOfMessages(claims),
    tookMs: monotonicMs(parts.clock) - begunMs,
    lockTimeoutMs: request.lockTimeoutMs
  })
  const isCut = mayBeCut(claims, maxBytes)
  // When their turns are settled, there is a look for the other messages of these instances.
  if (isCut) begun.isAllWoken = true
  const items: Array<Claimed<Undecoded>> = []
  const texts: Array<string> = []
  for (const claim of isSlow ? yield* stillHeld(parts, claims, request.lockTimeoutMs) : claims) {
    const { instanceId, lockToken } = claim
    parts.wakeups.locked.lock(lockToken, instanceId, begun)
    const assembled = assemble(claim)
    if (assembled.unreadable.length > 0) {
      yield* Effect.logError("Provider: a message cannot be read by this version; it is hidden for a while").pipe(
        aboutInstance({ instance_id: instanceId, error: assembled.unreadable[0]!.problem })
      )
    }
    if (assembled._tag === "Item") {
      const { attemptCount, item } = assembled
      if (assembled.unreadable.length > 0) yield* Effect.ignore(deferUnreadable(parts, claim, assembled))
      else for (const { workItem } of claim.messages) texts.push(workItem)
      parts.suspects.lock(lockToken, attemptCount - 1, request.lockTimeoutMs)
      items.push({ item, lockToken, attemptCount, ...(claimSpan !== undefined && { claimSpan }) })
    } else yield* abandonUndelivered(parts, claim, assembled)
  }
  claimed(texts)
  return { items, more: isCut || items.length < claims.length }
})

const sizeOfMessages = (claims: ReadonlyArray<ClaimedInstance>) => {
  let bytes = 0
  for (const { messages } of claims) for (const { workItem } of messages) bytes += workItem.length
  return bytes
}

/** Whether the store may have left messages or instances for the next claim. A character has three bytes at most. */
const mayBeCut = (claims: ReadonlyArray<ClaimedInstance>, maxBytes: number) => {
  let characters = sizeOfMessages(claims)
  for (const { history } of claims) for (const event of history) characters += event.length
  return 3 * characters >= maxBytes || claims.some(({ messages }) => messages.length >= fullBatch)
}

/**
 * Keeps the claims of a slow statement whose locks can be renewed. The others are not run: their locks were taken over,
 * or the store does not answer.
 */
const stillHeld = (parts: Parts, claims: ReadonlyArray<ClaimedInstance>, lockTimeoutMs: number) =>
  Effect.filter(claims, ({ lockToken }) =>
    parts.sendRenewal({ lockToken, extendForMs: lockTimeoutMs }).pipe(
      Effect.map((settled) => settled === "Done"),
      Effect.catch(() =>
        Effect.as(
          Effect.ignore(parts.sendAbandon({ lockToken, delayMs: null, ignoreAttempt: true })),
          false
        )
      )
    ), { concurrency: "unbounded" })

const deferUnreadable = ({ sendDeferral, wakeups }: Parts, { lockToken }: ClaimedInstance, { unreadable }: Assembled) =>
  Effect.tap(
    sendDeferral({ lockToken, ids: unreadable.map(({ id }) => id), delayMs: unreadablePauseMs }),
    () => Effect.sync(() => wakeups.workAbandoned("orchestrator", unreadablePauseMs))
  )

/** An error with one instance of a claim leaves the others alone: its lock expires, and it is claimed again. */
const abandonUndelivered = (
  parts: Parts,
  claim: ClaimedInstance,
  assembled: Exclude<Assembled, { readonly _tag: "Item" }>
) => {
  const { instanceId, lockToken } = claim
  const beginsFirst = assembled._tag === "Orphan"
  const delayMs = beginsFirst ? orphanPauseMs : null
  return (assembled._tag === "Unreadable" ? deferUnreadable(parts, claim, assembled) : Effect.void).pipe(
    Effect.andThen(parts.sendAbandon({ lockToken, delayMs, ignoreAttempt: true, beginsFirst })),
    Effect.catch((error) =>
      Effect.logWarning("Provider: an instance whose messages cannot be delivered was not abandoned").pipe(
        aboutInstance({
          instance_id: instanceId,
          operation: error.operation,
          error_type: error.reason._tag,
          error: error.message
        })
      )
    ),
    Effect.ensuring(Effect.sync(() => {
      parts.wakeups.released(lockToken)
      parts.wakeups.workAbandoned("orchestrator", delayMs)
    }))
  )
}

/**
 * Before an instance is claimed again whose messages do not say which orchestration it is. Only claims without `serves`
 * meet such instances.
 */
const orphanPauseMs = 1_000

const asIfNotFetched = { delay: Option.none(), ignoreAttempt: true }

// -- settle ----------------------------------------------------------------------------------------

/**
 * How long a turn waits for what another transaction locks. Its caller keeps a slot meanwhile, which other instances
 * need; it can run the turn again later.
 */
const turnPatience = Duration.millis(500)

const ackOrchestrationItem = (parts: Parts): Service["ackOrchestrationItem"] => (lockToken, turn) =>
  checked("ackOrchestrationItem", [
    check.text("lockToken", lockToken),
    ...check.turn(turn)
  ], () => {
    const { wakeups } = parts
    const ack = encodeTurn(lockToken, turn)
    const tooBig = check.turnSize(ack)
    if (tooBig !== undefined) return refused("ackOrchestrationItem", tooBig)
    return measured(Metrics.ackOrchestrationItemDuration, parts.sendAck(ack)).pipe(
      Effect.flatMap((settled) => failUnlessDone("ackOrchestrationItem", lockToken, settled, turn)),
      Effect.onExit((exit) =>
        Effect.sync(() => {
          release(parts, lockToken)
          if (Exit.isSuccess(exit)) wakeups.turnStored(turn, 0)
        })
      )
    )
  })

const dropOrchestrationItem = (parts: Parts): Service["dropOrchestrationItem"] => (lockToken) =>
  checked("dropOrchestrationItem", [check.text("lockToken", lockToken)], () =>
    parts.sendAck(emptyAck(lockToken)).pipe(
      Effect.flatMap((settled) => failUnlessDone("dropOrchestrationItem", lockToken, settled)),
      Effect.onExit(() => Effect.sync(() => release(parts, lockToken)))
    ))

const abandonOrchestrationItem =
  (parts: Parts): Service["abandonOrchestrationItem"] =>
  ({ beginsFirst = false, block, delay, ignoreAttempt, lockToken }) =>
    checked(
      "abandonOrchestrationItem",
      [check.text("lockToken", lockToken), check.delay(delay)],
      () =>
        parts.sendAbandon({
          lockToken,
          delayMs: check.millisOrNull(delay),
          ignoreAttempt,
          beginsFirst,
          block
        }).pipe(
          Effect.flatMap((settled) => failUnlessDone("abandonOrchestrationItem", lockToken, settled)),
          Effect.onExit(() =>
            Effect.sync(() => {
              release(parts, lockToken)
              parts.wakeups.workAbandoned("orchestrator", check.millisOrNull(delay))
              if (beginsFirst) parts.wakeups.workAbandoned("orchestrator", null)
            })
          )
        )
    )

const wakeBlocked = ({ driver, wakeups }: Parts): Service["wakeBlocked"] => ({ activities, orchestrations }) =>
  checked(
    "wakeBlocked",
    [check.texts("orchestrations", orchestrations), check.texts("activities", activities)],
    () =>
      Effect.tap(driver.wakeBlocked({ orchestrations, activities }), (count) =>
        Effect.sync(() => {
          if (count === 0) return
          wakeups.workAbandoned("orchestrator", null)
          wakeups.workAbandoned("worker", null)
        }))
  )

const renewOrchestrationItemLock =
  (parts: Parts): Service["renewOrchestrationItemLock"] => ({ extendFor, lockToken }) =>
    checked("renewOrchestrationItemLock", [
      check.text("lockToken", lockToken),
      check.length("extendFor", extendFor, 1)
    ], () => {
      const extendForMs = check.wholeMillis(extendFor)
      return parts.sendRenewal({ lockToken, extendForMs }).pipe(
        Effect.tap((settled) => Effect.sync(() => settled === "Done" && parts.suspects.renew(lockToken, extendForMs))),
        Effect.flatMap((settled) => failUnlessDone("renewOrchestrationItemLock", lockToken, settled))
      )
    })

/** What came meanwhile may be claimed now; and so may further suspects, if this was one. */
const release = ({ suspects, wakeups }: Parts, lockToken: string) => {
  if (suspects.release(lockToken)) wakeups.orchestrators.wake("Stored")
  wakeups.released(lockToken)
}
