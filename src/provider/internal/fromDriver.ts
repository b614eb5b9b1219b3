/**
 * `FromDriver.make`: everything between one typed call and one statement for many.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Metrics from "../../model/Metrics.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Claimed, OrchestrationItem, Provider } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { closed, measured, refused, retried, settle } from "./calls.ts"
import type { ClaimedActivity } from "./claims.ts"
import * as claims from "./claims.ts"
import { carriedMessages, decodeHistory, emptyAck, encodeEvent, encodeItem, encodeTurn } from "./encoding.ts"
import * as enqueues from "./enqueue.ts"
import * as fetchPump from "./fetchPump.ts"
import { guardProvider } from "./input.ts"
import * as leases from "./leases.ts"
import { complete, historyEnd } from "./orchestrationItem.ts"
import type { Undecoded } from "./orchestrationItem.ts"
import * as outages from "./outages.ts"
import * as renewal from "./renewal.ts"
import * as suspects from "./suspects.ts"
import * as travelling from "./travelling.ts"

type Service = Provider["Service"]
type Driver = ProviderDriver["Service"]

export interface Options {
  readonly polling: "long" | "short"
  readonly pollInterval: Duration.Duration
  readonly lanes: number
  readonly maxBatch: number
  /** How long a call goes on while another transaction holds what it writes. */
  readonly patience: Duration.Duration
}

/**
 * Bytes of texts that one turn may store. PostgreSQL takes 256 MB of JSON in one value and Node half a gigabyte in one
 * text; each text is escaped once more on its way.
 */
const maxTurnBytes = 64 * 1024 * 1024

// Rows of one statement of a sweep.
const sweepLimit = 1_000

/**
 * Where callers keep histories in memory, longer ones are not handed out with a claim; a caller that lacks one reads
 * it. At about this length its events cost as much as the second statement.
 */
const historyLimit = 128

export const make = Effect.fnUntraced(function*(
  unwatched: Driver,
  options: Options
): Effect.fn.Return<Service, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const clock = yield* Clock.Clock
  const driver = outages.watched(unwatched, outages.make(clock))
  const held = leases.make()
  const suspectTurns = suspects.make(clock)
  const suspectActivities = suspects.make(clock)
  const orchestratorPumps = new Map<string, fetchPump.FetchPump<Claimed<Undecoded>, ProviderError>>()
  const workerPumps = new Map<string, fetchPump.FetchPump<ClaimedActivity, ProviderError>>()
  const endWatchers = new Map<string, Set<() => void>>()
  const wait = (pollTimeout: Duration.Duration) => options.polling === "long" ? pollTimeout : Duration.zero

  // -- wake-ups inside the process ---------------------------------------------------------------

  const wakeOrchestrators = () => orchestratorPumps.forEach((pump) => pump.wake())
  const wakeWorkers = () => workerPumps.forEach((pump) => pump.wake())
  const wakeAt = (pumps: ReadonlyMap<string, fetchPump.FetchPump<unknown, unknown>>, timeMs: number) =>
    pumps.forEach((pump) => pump.wakeAt(timeMs))
  const wakeInstance = (instanceId: string) => {
    if (!held.keepWakeup(instanceId)) wakeOrchestrators()
  }
  // Not for work given back with a pause, which is left to the next look of any process: woken to the moment, one without
  // a handler would be the first to have it again, each time, until it is poison.
  const wakeAfter = (delay: Option.Option<Duration.Duration>, wakeNow: () => void) =>
    Option.isNone(delay)
      ? wakeNow()
      : wakeAt(orchestratorPumps, clock.currentTimeMillisUnsafe() + Duration.toMillis(delay.value))
  const release = (lockToken: string) => {
    const wasSuspect = suspectTurns.settle(lockToken)
    if (held.release(lockToken) || wasSuspect) wakeOrchestrators()
  }
  const releaseActivity = (lockToken: string) => {
    if (suspectActivities.settle(lockToken)) wakeWorkers()
  }
  const announceEnd = (instanceId: string) => endWatchers.get(instanceId)?.forEach((notify) => notify())

  yield* driver.wakeups.pipe(
    Stream.runForEach((wakeup) =>
      Effect.sync(() => {
        const pumps = wakeup.queue === "worker" ? workerPumps : orchestratorPumps
        if (wakeup.visibleAtMs !== null && wakeup.visibleAtMs > clock.currentTimeMillisUnsafe()) {
          wakeAt(pumps, wakeup.visibleAtMs)
        } else if (wakeup.queue === "worker") wakeWorkers()
        else if (wakeup.instanceId === null) wakeOrchestrators()
        else wakeInstance(wakeup.instanceId)
      })
    ),
    Effect.ignore,
    Effect.forkScoped
  )

  // -- calls that travel together ----------------------------------------------------------------

  const {
    abandonActivities,
    abandonTurns,
    ackActivities,
    ackTurns,
    deferMessages,
    enqueueActivities,
    enqueueMessages,
    readInstances,
    renewActivities,
    renewTurns,
    startInstances
  } = yield* travelling.make(driver, options)
  const enqueue = enqueues.make({
    sendStart: (start) => measured("enqueue", Metrics.enqueueOrchestratorDuration, startInstances(start)),
    sendMessage: (message) => measured("enqueue", Metrics.enqueueOrchestratorDuration, enqueueMessages(message)),
    sendActivity: enqueueActivities
  })

  // -- claims ------------------------------------------------------------------------------------

  const { claimActivities, claimInstances } = claims.make({
    driver,
    held,
    suspectTurns,
    suspectActivities,
    deferMessages,
    abandonTurns,
    abandonActivities
  })

  const pumpFor = <A>(
    operation: string,
    pumps: Map<string, fetchPump.FetchPump<A, ProviderError>>,
    filter: object,
    fetch: (limit: number) => Effect.Effect<{ items: ReadonlyArray<A>; more: boolean }, ProviderError>,
    giveBack: (item: A) => Effect.Effect<void, ProviderError>
  ) =>
    Effect.suspend(() => {
      const key = JSON.stringify(filter)
      const existing = pumps.get(key)
      if (existing !== undefined) return Effect.succeed(existing)
      return fetchPump.make<A, ProviderError>({
        fetch,
        giveBack: (item) => Effect.ignore(giveBack(item)),
        maxBatch: options.maxBatch,
        pollInterval: options.pollInterval,
        closed: closed(operation)
      }).pipe(
        Scope.provide(scope),
        Effect.map((pump) => {
          pumps.set(key, pump)
          return pump
        })
      )
    })

  const service: Service = {
    fetchOrchestrationItem: ({ isKnown, lockTimeout, onLook, pollTimeout, serves, versions }) => {
      const filter = {
        lockTimeoutMs: Duration.toMillis(lockTimeout),
        versions: Option.getOrNull(versions),
        ...(serves !== undefined && { serves }),
        ...(isKnown !== undefined && { historyLimit })
      }
      const decode = ({ attemptCount, item, lockToken }: Claimed<Undecoded>) => {
        const end = historyEnd(item)
        const isLeftOut = end !== undefined && isKnown !== undefined && isKnown(end)
        const rows = isLeftOut
          ? Effect.succeed(null)
          : item.isWholeHistory
          ? Effect.succeed(item.rows)
          : Effect.raceFirst(
            retried(driver.readHistory({ instanceId: item.instanceId, executionId: item.executionId })),
            // The caller does not know its lease yet.
            Effect.andThen(
              renewal.untilLost(lockTimeout, service.renewOrchestrationItemLock({ lockToken, extendFor: lockTimeout })),
              Effect.never
            )
          ).pipe(
            Effect.onError(() =>
              Effect.ignore(service.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true }))
            )
          )
        return Effect.map(rows, (rows): Claimed<OrchestrationItem> => ({
          item: complete(item, rows),
          lockToken,
          attemptCount
        }))
      }
      return pumpFor(
        "fetchOrchestrationItem",
        orchestratorPumps,
        filter,
        (limit) =>
          claimInstances(
            filter.lockTimeoutMs,
            Effect.suspend(() =>
              driver.fetchOrchestrationItems({ ...filter, limit, suspects: suspectTurns.count() === 0 })
            )
          ),
        ({ lockToken }) => service.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
      ).pipe(
        Effect.flatMap((pump) => pump.take(wait(pollTimeout), onLook)),
        Effect.flatMap(Option.match({
          onNone: () => Effect.succeed(Option.none()),
          onSome: (claimed) => Effect.asSome(decode(claimed))
        }))
      )
    },

    ackOrchestrationItem: (lockToken, turn) =>
      Effect.suspend(() => {
        if (turn.historyDelta.some((event) => event.eventId < 1)) {
          return refused("ackOrchestrationItem", "eventId", "event ids start at 1")
        }
        const ack = encodeTurn(lockToken, turn)
        const bytes = travelling.sizeOfAck(ack)
        if (bytes > maxTurnBytes) {
          return refused(
            "ackOrchestrationItem",
            "turn",
            `it stores ${bytes} bytes of events, activities and messages, more than ${maxTurnBytes}: pass references ` +
              "instead of large values, or fewer of them at once"
          )
        }
        return measured("ack_orch", Metrics.ackOrchestrationItemDuration, ackTurns(ack)).pipe(
          Effect.flatMap((settled) => settle("ackOrchestrationItem", lockToken, settled, turn)),
          Effect.onExit((exit) =>
            Effect.sync(() => {
              release(lockToken)
              if (Exit.isFailure(exit)) return
              if (turn.workerItems.length > 0) wakeWorkers()
              const now = clock.currentTimeMillisUnsafe()
              for (const item of turn.orchestratorItems) {
                if (item._tag === "TimerFired" && item.fireAtMs > now) wakeAt(orchestratorPumps, item.fireAtMs)
                else wakeInstance(WorkItem.target(item))
              }
              const ended = turn.historyDelta.find(({ _tag }) =>
                _tag === "OrchestrationCompleted" || _tag === "OrchestrationFailed"
              )
              if (ended !== undefined) announceEnd(ended.instanceId)
            })
          )
        )
      }),

    dropOrchestrationItem: (lockToken) =>
      ackTurns(emptyAck(lockToken)).pipe(
        Effect.flatMap((settled) => settle("ackOrchestrationItem", lockToken, settled)),
        Effect.onExit(() => Effect.sync(() => release(lockToken)))
      ),

    abandonOrchestrationItem: ({ delay, ignoreAttempt, lockToken }) =>
      abandonTurns({ lockToken, delayMs: millisOrNull(delay), ignoreAttempt }).pipe(
        Effect.flatMap((settled) => settle("abandonOrchestrationItem", lockToken, settled)),
        Effect.onExit(() =>
          Effect.sync(() => {
            release(lockToken)
            if (Option.isNone(delay)) wakeOrchestrators()
          })
        )
      ),

    renewOrchestrationItemLock: ({ extendFor, lockToken }) =>
      renewTurns({ lockToken, extendForMs: Duration.toMillis(extendFor) }).pipe(
        Effect.tap((settled) =>
          Effect.sync(() => settled === "Done" && suspectTurns.renew(lockToken, Duration.toMillis(extendFor)))
        ),
        Effect.flatMap((settled) => settle("renewOrchestrationItemLock", lockToken, settled))
      ),

    enqueueForOrchestrator: (item, delay) =>
      Effect.tap(
        enqueue.enqueueForOrchestrator(item, delay),
        () => Effect.sync(() => wakeAfter(delay, () => wakeInstance(WorkItem.target(item))))
      ),

    enqueueForWorker: (item) => Effect.tap(enqueue.enqueueForWorker(item), () => Effect.sync(wakeWorkers)),

    startOrchestration: (options) =>
      Effect.tap(enqueue.startOrchestration(options), (answer) =>
        Effect.sync(() => {
          const { delay, start } = options
          if (answer === "Started") wakeAfter(delay, () => wakeInstance(start.instance))
        })),

    fetchWorkItem: ({ activities, lockTimeout, onLook, pollTimeout, session, tags }) => {
      if (tags._tag === "None") return Effect.succeed(Option.none())
      const maxNew = Option.getOrUndefined(session)?.maxNew
      const filter = {
        lockTimeoutMs: Duration.toMillis(lockTimeout),
        tags,
        ...(activities !== undefined && { activities })
      }
      const sessionClaim = Option.getOrNull(
        Option.map(session, (config) => ({
          ownerId: config.ownerId,
          lockTimeoutMs: Duration.toMillis(config.lockTimeout)
        }))
      )
      return pumpFor<ClaimedActivity>(
        "fetchWorkItem",
        workerPumps,
        { ...filter, session: sessionClaim, isLimited: maxNew !== undefined },
        (limit) =>
          Effect.suspend(() =>
            claimActivities({
              ...filter,
              limit,
              suspects: suspectActivities.count() === 0,
              session: sessionClaim === null || maxNew === undefined
                ? sessionClaim
                : { ...sessionClaim, maxNew: maxNew() }
            })
          ),
        ({ lockToken }) => service.abandonWorkItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
      ).pipe(Effect.flatMap((pump) => pump.take(wait(pollTimeout), onLook)))
    },

    ackWorkItem: (lockToken, completion) =>
      Option.isSome(completion) && !isCompletion(completion.value)
        ? refused("ackWorkItem", "completion", "only ActivityCompleted and ActivityFailed end an activity")
        : measured(
          "ack_worker",
          Metrics.ackWorkerDuration,
          ackActivities({
            lockToken,
            completion: Option.getOrNull(
              Option.map(completion, (item) => ({ instanceId: item.instance, workItem: encodeItem(item) }))
            )
          })
        ).pipe(
          Effect.tap(() => Effect.sync(() => releaseActivity(lockToken))),
          Effect.flatMap((settled) => settle("ackWorkItem", lockToken, settled)),
          Effect.tap(() => Effect.sync(() => Option.isSome(completion) && wakeInstance(completion.value.instance)))
        ),

    abandonWorkItem: ({ delay, ignoreAttempt, lockToken }) =>
      abandonActivities({ lockToken, delayMs: millisOrNull(delay), ignoreAttempt }).pipe(
        Effect.ensuring(Effect.sync(() => releaseActivity(lockToken))),
        Effect.flatMap((settled) => settle("abandonWorkItem", lockToken, settled)),
        Effect.tap(() => Effect.sync(() => Option.isNone(delay) && wakeWorkers()))
      ),

    renewWorkItemLock: ({ extendFor, lockToken, sufficient }) =>
      renewActivities({
        lockToken,
        extendForMs: Duration.toMillis(extendFor),
        ...(sufficient !== undefined && { sufficientMs: Duration.toMillis(sufficient) })
      }).pipe(
        Effect.tap((settled) =>
          Effect.sync(() =>
            settled === "Done"
              ? suspectActivities.renew(lockToken, Duration.toMillis(extendFor))
              : releaseActivity(lockToken)
          )
        ),
        Effect.flatMap((settled) => settle("renewWorkItemLock", lockToken, settled))
      ),

    read: (instanceId) =>
      Effect.flatMap(
        retried(driver.readHistory({ instanceId, executionId: null })),
        (rows) => decodeHistory(instanceId, rows)
      ),

    readWithExecution: (instanceId, executionId) =>
      Effect.flatMap(
        retried(driver.readHistory({ instanceId, executionId })),
        (rows) => decodeHistory(instanceId, rows)
      ),

    appendWithExecution: (instanceId, executionId, events) =>
      events.some((event) => event.eventId < 1)
        ? refused("appendWithExecution", "eventId", "event ids start at 1")
        : events.length === 0
        ? Effect.void
        : driver.appendHistory({ instanceId, executionId, history: events.map(encodeEvent) }),

    readInstance: readInstances,

    getCustomStatus: (instanceId, lastSeenVersion) =>
      Effect.map(
        readInstances(instanceId),
        Option.flatMap(({ customStatus, customStatusVersion }) =>
          customStatusVersion > lastSeenVersion
            ? Option.some({ status: Option.fromNullOr(customStatus), version: customStatusVersion })
            : Option.none()
        )
      ),

    getKvValue: (instanceId, key) =>
      Effect.map(
        retried(driver.readKeyValues({ instanceId, key })),
        ([entry]) => Option.map(Option.fromUndefinedOr(entry), ({ value }) => value)
      ),

    getKvAllValues: (instanceId) =>
      Effect.map(
        retried(driver.readKeyValues({ instanceId, key: null })),
        (entries) => new Map(entries.map(({ key, value }) => [key, value]))
      ),

    getInstanceStats: (instanceId) =>
      Effect.map(
        retried(driver.readInstanceStats(instanceId)),
        (sizes) =>
          Option.map(Option.fromNullOr(sizes), (sizes) => ({
            historyEventCount: sizes.eventCount,
            historySizeBytes: sizes.historyBytes,
            queuePendingCount: carriedMessages(sizes.firstEvent),
            kvUserKeyCount: sizes.keyCount,
            kvTotalValueBytes: sizes.valueBytes
          }))
      ),

    renewSessionLock: ({ extendFor, idleTimeout, ownerIds }) =>
      ownerIds.length === 0 ? Effect.succeed(0) : retried(driver.renewSessionLocks({
        ownerIds,
        extendForMs: Duration.toMillis(extendFor),
        idleTimeoutMs: Duration.toMillis(idleTimeout)
      })),

    sweepMessages: ({ maxAge }) =>
      Effect.gen(function*() {
        const maxAgeMs = Duration.toMillis(maxAge)
        let total = 0
        let after: string | null = null
        do {
          const { deleted, next }: Effect.Success<ReturnType<Driver["sweepMessages"]>> = yield* retried(
            driver.sweepMessages({ maxAgeMs, limit: sweepLimit, after })
          )
          total += deleted
          after = next
        } while (after !== null)
        return total
      }),

    cleanupOrphanedSessions: driver.cleanupOrphanedSessions,

    awaitEnd: (instanceId) =>
      Effect.callback<void>((resume) => {
        const watchers = endWatchers.get(instanceId) ?? new Set()
        endWatchers.set(instanceId, watchers)
        const forget = () => {
          watchers.delete(notify)
          if (watchers.size === 0) endWatchers.delete(instanceId)
        }
        const notify = () => {
          forget()
          resume(Effect.void)
        }
        watchers.add(notify)
        return Effect.sync(forget)
      })
  }

  return guardProvider(service)
})

// internal

/** For callers without types: anything else would reach the instance as a message that was never sent. */
const isCompletion = (item: WorkItem.WorkItem) => item._tag === "ActivityCompleted" || item._tag === "ActivityFailed"

const millisOrNull = (delay: Option.Option<Duration.Duration>) => Option.getOrNull(Option.map(delay, Duration.toMillis))
