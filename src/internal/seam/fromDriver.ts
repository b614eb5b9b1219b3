/**
 * `Provider.fromDriver`: everything between one typed call and one statement for many.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schedule from "effect/Schedule"
import * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import * as Event from "../../Event.ts"
import * as Metrics from "../../Metrics.ts"
import type { Claimed, ExecutionMetadata, Provider, Turn } from "../../Provider.ts"
import type {
  ClaimedInstance,
  KeyValueChange,
  OrchestrationAck,
  ProviderDriver,
  Settled
} from "../../ProviderDriver.ts"
import { DataCorrupted, DuplicateEvent, InvalidInput, LockLost, ProviderError } from "../../ProviderError.ts"
import * as WorkItem from "../../WorkItem.ts"
import * as coalescer from "./coalescer.ts"
import * as fetchPump from "./fetchPump.ts"
import * as leases from "./leases.ts"
import { assemble } from "./orchestrationItem.ts"
import type { OrchestrationItem } from "./orchestrationItem.ts"

type Service = Provider["Service"]
type Driver = ProviderDriver["Service"]

export interface Options {
  readonly pollInterval: Duration.Duration
  readonly lanes: number
  readonly maxBatch: number
}

// Rows nobody can read, and messages that may have overtaken their start, come back after these pauses: long enough
// not to spin, short enough for a deploy that can read them.
const unreadablePause = Duration.seconds(60)
const orphanPause = Duration.seconds(1)

export const make = Effect.fnUntraced(function*(
  driver: Driver,
  options: Options
): Effect.fn.Return<Service, never, Scope.Scope> {
  const scope = yield* Effect.scope
  const clock = yield* Clock.Clock
  const held = leases.make()
  const orchestratorPumps = new Map<string, fetchPump.FetchPump<Claimed<OrchestrationItem>, ProviderError>>()
  const workerPumps = new Map<string, fetchPump.FetchPump<ClaimedActivity, ProviderError>>()
  const endWatchers = new Map<string, Set<() => void>>()

  const together = <Item, A>(
    send: (items: ReadonlyArray<Item>) => Effect.Effect<ReadonlyArray<A>, ProviderError>
  ) =>
    coalescer.make<Item, A, ProviderError>({
      lanes: options.lanes,
      maxBatch: options.maxBatch,
      send,
      splitOn: (error) => !error.isRetryable
    })

  // -- wake-ups inside the process ---------------------------------------------------------------

  const wakeOrchestrators = () => orchestratorPumps.forEach((pump) => pump.wake())
  const wakeWorkers = () => workerPumps.forEach((pump) => pump.wake())
  const wakeAt = (pumps: ReadonlyMap<string, fetchPump.FetchPump<unknown, unknown>>, timeMs: number) =>
    pumps.forEach((pump) => pump.wakeAt(timeMs))
  const wakeInstance = (instanceId: string) => {
    if (!held.keepWakeup(instanceId)) wakeOrchestrators()
  }
  const wakeAfter = (
    pumps: ReadonlyMap<string, fetchPump.FetchPump<unknown, unknown>>,
    delay: Option.Option<Duration.Duration>,
    wakeNow: () => void
  ) =>
    Option.isNone(delay)
      ? wakeNow()
      : wakeAt(pumps, clock.currentTimeMillisUnsafe() + Duration.toMillis(delay.value))
  const release = (lockToken: string) => {
    if (held.release(lockToken)) wakeOrchestrators()
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

  const ackTurns = yield* together((acks: ReadonlyArray<OrchestrationAck>) =>
    retried(driver.ackOrchestrationItems(acks), Metric.update(Metrics.ackOrchestrationRetries, 1))
  )
  const abandonTurns = yield* together(driver.abandonOrchestrationItems)
  const renewTurns = yield* together((items: Parameters<Driver["renewOrchestrationItemLocks"]>[0]) =>
    retried(driver.renewOrchestrationItemLocks(items))
  )
  const deferMessages = yield* together(driver.deferMessages)
  const enqueueMessages = yield* together((items: Parameters<Driver["enqueueForOrchestrator"]>[0]) =>
    answeredAlike(items, driver.enqueueForOrchestrator(items))
  )
  const enqueueActivities = yield* together((items: Parameters<Driver["enqueueForWorker"]>[0]) =>
    answeredAlike(items, driver.enqueueForWorker(items))
  )
  const startInstances = yield* together(driver.startOrchestrations)
  const ackActivities = yield* together(driver.ackWorkItems)
  const abandonActivities = yield* together(driver.abandonWorkItems)
  const renewActivities = yield* together((items: Parameters<Driver["renewWorkItemLocks"]>[0]) =>
    retried(driver.renewWorkItemLocks(items))
  )
  const readInstances = yield* together((instanceIds: ReadonlyArray<string>) =>
    Effect.map(retried(driver.readInstances([...new Set(instanceIds)])), (states) => {
      const byId = new Map(states.map((state) => [state.instanceId, state]))
      return instanceIds.map((instanceId) => Option.fromUndefinedOr(byId.get(instanceId)))
    })
  )

  // -- claims ------------------------------------------------------------------------------------

  const claimInstances = (
    fetch: Effect.Effect<ReadonlyArray<ClaimedInstance>, ProviderError>
  ): Effect.Effect<{ items: ReadonlyArray<Claimed<OrchestrationItem>>; more: boolean }, ProviderError> =>
    Effect.gen(function*() {
      const claims = yield* measured("fetch", Metrics.fetchOrchestrationItemDuration, retried(fetch))
      const items: Array<Claimed<OrchestrationItem>> = []
      let setAside = 0
      for (const claim of claims) {
        const assembled = assemble(claim)
        const { attemptCount, instanceId, lockToken } = claim
        held.hold(lockToken, instanceId)
        if (assembled._tag !== "Orphan" && assembled.unreadable.length > 0) {
          yield* Effect.logError("A message cannot be read by this version; it is hidden for a while").pipe(
            Effect.annotateLogs({ instanceId, problem: assembled.unreadable[0]!.problem, attemptCount })
          )
          const ids = assembled.unreadable.map(({ id }) => id)
          yield* deferMessages({ lockToken, ids, delayMs: Duration.toMillis(unreadablePause) })
        }
        if (assembled._tag === "Item") {
          items.push({ item: assembled.item, lockToken, attemptCount })
          continue
        }
        setAside++
        if (assembled._tag === "Orphan" && assembled.deletable) {
          yield* Effect.logWarning("Queue messages for an instance that was never started are dropped").pipe(
            Effect.annotateLogs({ instanceId })
          )
          yield* ackTurns(emptyAck(lockToken))
        } else {
          const pause = assembled._tag === "Orphan" ? orphanPause : Duration.zero
          yield* abandonTurns({ lockToken, delayMs: Duration.toMillis(pause) || null, ignoreAttempt: true })
        }
        held.release(lockToken)
      }
      return { items, more: setAside > 0 }
    })

  const pumpFor = <A>(
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
        pollInterval: options.pollInterval
      }).pipe(
        Scope.provide(scope),
        Effect.map((pump) => {
          pumps.set(key, pump)
          return pump
        })
      )
    })

  const service: Service = {
    fetchOrchestrationItem: ({ lockTimeout, pollTimeout, versions }) => {
      const filter = { lockTimeoutMs: Duration.toMillis(lockTimeout), versions: Option.getOrNull(versions) }
      return pumpFor(
        orchestratorPumps,
        filter,
        (limit) => claimInstances(driver.fetchOrchestrationItems({ ...filter, limit })),
        ({ lockToken }) => service.abandonOrchestrationItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
      ).pipe(Effect.flatMap((pump) => pump.take(pollTimeout)))
    },

    ackOrchestrationItem: (lockToken, turn) =>
      Effect.suspend(() => {
        if (turn.historyDelta.some((event) => event.eventId < 1)) {
          return refused("ackOrchestrationItem", "eventId", "event ids start at 1")
        }
        return measured("ack_orch", Metrics.ackOrchestrationItemDuration, ackTurns(encodeTurn(lockToken, turn))).pipe(
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
            wakeAfter(orchestratorPumps, delay, wakeOrchestrators)
          })
        )
      ),

    renewOrchestrationItemLock: ({ extendFor, lockToken }) =>
      renewTurns({ lockToken, extendForMs: Duration.toMillis(extendFor) }).pipe(
        Effect.flatMap((settled) => settle("renewOrchestrationItemLock", lockToken, settled))
      ),

    enqueueForOrchestrator: (item, delay) =>
      item._tag === "ActivityExecute"
        ? refused("enqueueForOrchestrator", "item", "ActivityExecute belongs to the worker queue")
        : measured(
          "enqueue",
          Metrics.enqueueOrchestratorDuration,
          enqueueMessages({ ...encodeMessage(item), delayMs: millisOrNull(delay) })
        ).pipe(Effect.tap(() =>
          Effect.sync(() => wakeAfter(orchestratorPumps, delay, () => wakeInstance(WorkItem.target(item))))
        )),

    enqueueForWorker: (item) =>
      enqueueActivities(encodeActivity(item)).pipe(Effect.tap(() => Effect.sync(wakeWorkers))),

    startOrchestration: ({ delay, pinnedVersion, start }) =>
      measured(
        "enqueue",
        Metrics.enqueueOrchestratorDuration,
        startInstances({
          instanceId: start.instance,
          orchestrationName: start.orchestration,
          workItem: WorkItem.encode(start),
          pinnedVersion,
          delayMs: millisOrNull(delay)
        })
      ).pipe(Effect.tap((answer) =>
        Effect.sync(() => {
          if (answer === "Started") wakeAfter(orchestratorPumps, delay, () => wakeInstance(start.instance))
        })
      )),

    fetchWorkItem: ({ lockTimeout, pollTimeout, session, tags }) => {
      if (tags._tag === "None") return Effect.succeed(Option.none())
      const filter = {
        lockTimeoutMs: Duration.toMillis(lockTimeout),
        tags,
        session: Option.getOrNull(
          Option.map(session, (config) => ({
            ownerId: config.ownerId,
            lockTimeoutMs: Duration.toMillis(config.lockTimeout)
          }))
        )
      }
      return pumpFor<ClaimedActivity>(
        workerPumps,
        filter,
        (limit) => claimActivities({ ...filter, limit }),
        ({ lockToken }) => service.abandonWorkItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
      ).pipe(Effect.flatMap((pump) => pump.take(pollTimeout)))
    },

    ackWorkItem: (lockToken, completion) =>
      measured(
        "ack_worker",
        Metrics.ackWorkerDuration,
        ackActivities({
          lockToken,
          completion: Option.getOrNull(
            Option.map(completion, (item) => ({ instanceId: item.instance, workItem: WorkItem.encode(item) }))
          )
        })
      ).pipe(
        Effect.flatMap((settled) => settle("ackWorkItem", lockToken, settled)),
        Effect.tap(() => Effect.sync(() => Option.isSome(completion) && wakeInstance(completion.value.instance)))
      ),

    abandonWorkItem: ({ delay, ignoreAttempt, lockToken }) =>
      abandonActivities({ lockToken, delayMs: millisOrNull(delay), ignoreAttempt }).pipe(
        Effect.flatMap((settled) => settle("abandonWorkItem", lockToken, settled)),
        Effect.tap(() => Effect.sync(() => wakeAfter(workerPumps, delay, wakeWorkers)))
      ),

    renewWorkItemLock: ({ extendFor, lockToken }) =>
      renewActivities({ lockToken, extendForMs: Duration.toMillis(extendFor) }).pipe(
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

  const claimActivities = (
    request: Parameters<Driver["fetchWorkItems"]>[0]
  ): Effect.Effect<{ items: ReadonlyArray<ClaimedActivity>; more: boolean }, ProviderError> =>
    Effect.gen(function*() {
      const rows = yield* measured("fetch", Metrics.dequeueWorkerDuration, retried(driver.fetchWorkItems(request)))
      const items: Array<ClaimedActivity> = []
      for (const { attemptCount, lockToken, workItem } of rows) {
        const item = WorkItem.decode(workItem)
        if (Result.isSuccess(item) && item.success._tag === "ActivityExecute") {
          items.push({ item: item.success, lockToken, attemptCount })
          continue
        }
        const problem = Result.isFailure(item) ? item.failure.problem : `${item.success._tag} is no activity`
        yield* Effect.logError("An activity cannot be read by this version; it is hidden for a while").pipe(
          Effect.annotateLogs({ problem, attemptCount })
        )
        yield* abandonActivities({ lockToken, delayMs: Duration.toMillis(unreadablePause), ignoreAttempt: false })
      }
      return { items, more: items.length < rows.length }
    })

  return service
})

// internal

type ClaimedActivity = Claimed<WorkItem.Of<"ActivityExecute">>

/** Contract 10.3: three more tries of a retryable failure, after 50, 100 and 150 milliseconds. */
const retryPolicy = Schedule.recurs(3).pipe(
  Schedule.addDelay(({ attempt }) => Effect.succeed(Duration.millis(50 * attempt)))
)

const retried = <A>(call: Effect.Effect<A, ProviderError>, onRetry: Effect.Effect<void> = Effect.void) =>
  Effect.retry(call, {
    schedule: Schedule.tap(
      retryPolicy,
      ({ input }: { readonly input: unknown }) =>
        Effect.logWarning("A provider call is tried again").pipe(
          Effect.annotateLogs({ problem: (input as ProviderError).message }),
          Effect.andThen(onRetry)
        )
    ),
    while: (error) => error.isRetryable
  })

const measured = <A>(
  operation: string,
  histogram: Metric.Metric<number, unknown>,
  call: Effect.Effect<A, ProviderError>
) =>
  Effect.flatMap(
    Clock.currentTimeMillis,
    (start) =>
      Effect.onExit(call, (exit) =>
        Effect.flatMap(Clock.currentTimeMillis, (end) => {
          const duration = Metric.update(histogram, end - start)
          const reason = Exit.isFailure(exit) ? exit.cause.reasons[0] : undefined
          return reason?._tag !== "Fail" ? duration : Effect.andThen(
            duration,
            Metric.update(
              Metric.withAttributes(Metrics.infrastructureErrors, { operation, error_type: errorType(reason.error) }),
              1
            )
          )
        }))
  )

const errorType = ({ reason }: ProviderError) =>
  reason._tag !== "Contention"
    ? reason._tag === "ConnectionLost" || reason._tag === "Unavailable" ? "transaction_failed" : "unknown"
    : reason.sqlState === "55P03"
    ? "lock_timeout"
    : "serialization_error"

const refused = (operation: string, field: string, problem: string) =>
  Effect.fail(new ProviderError({ operation, reason: new InvalidInput({ field, problem }) }))

const settle = (operation: string, lockToken: string, settled: Settled, turn?: Turn) => {
  if (settled === "Done") return Effect.void
  const reason = settled === "LockLost"
    ? new LockLost({ lockToken })
    : new DuplicateEvent({
      instanceId: turn?.historyDelta[0]?.instanceId ?? "",
      executionId: turn?.executionId ?? 0
    })
  return Effect.fail(new ProviderError({ operation, reason }))
}

const answeredAlike = <A>(items: ReadonlyArray<unknown>, call: Effect.Effect<A, ProviderError>) =>
  Effect.map(call, (answer) => items.map(() => answer))

const millisOrNull = (delay: Option.Option<Duration.Duration>) => Option.getOrNull(Option.map(delay, Duration.toMillis))

const decodeHistory = (instanceId: string, rows: ReadonlyArray<string>) =>
  Effect.forEach(rows, (row) => {
    const event = Event.decode(row)
    return Result.isSuccess(event) ? Effect.succeed(event.success) : Effect.fail(
      new ProviderError({
        operation: "read",
        reason: new DataCorrupted({ instanceId, problem: event.failure.problem })
      })
    )
  })

const encodeEvent = (event: Event.Event) => ({ eventId: event.eventId, eventData: Event.encode(event) })

const encodeActivity = (item: WorkItem.Of<"ActivityExecute">) => ({
  workItem: WorkItem.encode(item),
  instanceId: item.instance,
  executionId: item.executionId,
  activityId: item.id,
  sessionId: item.sessionId ?? null,
  tag: item.tag ?? null
})

const encodeMessage = (item: WorkItem.WorkItem) => ({
  instanceId: WorkItem.target(item),
  workItem: WorkItem.encode(item),
  visibleAtMs: item._tag === "TimerFired" && item.fireAtMs > 0 ? item.fireAtMs : null,
  delayMs: null
})

const emptyAck = (lockToken: string): OrchestrationAck => ({
  ...encodeMetadata({}),
  lockToken,
  executionId: null,
  history: [],
  customStatus: null,
  keyValues: [],
  workerItems: [],
  orchestratorItems: [],
  cancelledActivities: []
})

const encodeMetadata = (metadata: ExecutionMetadata) => ({
  status: metadata.status ?? null,
  output: metadata.output ?? null,
  orchestrationName: metadata.orchestrationName ?? null,
  orchestrationVersion: metadata.orchestrationVersion ?? null,
  parentInstanceId: metadata.parentInstanceId ?? null,
  pinnedVersion: metadata.pinnedVersion ?? null
})

const encodeTurn = (lockToken: string, turn: Turn): OrchestrationAck => ({
  ...encodeMetadata(turn.metadata),
  lockToken,
  executionId: turn.executionId,
  history: turn.historyDelta.map(encodeEvent),
  customStatus: lastCustomStatus(turn.historyDelta),
  keyValues: turn.historyDelta.flatMap(keyValueChange),
  workerItems: turn.workerItems.map(encodeActivity),
  orchestratorItems: turn.orchestratorItems.map(encodeMessage),
  cancelledActivities: turn.cancelledActivities
})

const lastCustomStatus = (events: ReadonlyArray<Event.Event>) => {
  const event = events.findLast((event) => event._tag === "CustomStatusUpdated")
  return event === undefined ? null : { value: event.status }
}

const keyValueChange = (event: Event.Event): ReadonlyArray<KeyValueChange> => {
  switch (event._tag) {
    case "KeyValueSet":
      return [{ action: "set", key: event.key, value: event.value, lastUpdatedAtMs: event.lastUpdatedAtMs ?? 0 }]
    case "KeyValueCleared":
      return [{ action: "clear_key", key: event.key }]
    case "KeyValuesCleared":
      return [{ action: "clear_all" }]
    default:
      return []
  }
}
