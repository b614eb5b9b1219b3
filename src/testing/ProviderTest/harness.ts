/**
 * The verbs of the validation suite: calls of a provider without envelopes and options.
 *
 * Verbs that fetch have three forms: `fetchWork` returns an option, `claimWork` requires an item, `expectNoWork`
 * requires that there is no item. Unless a test says otherwise, locks last 30 seconds, and fetches do not wait. Time
 * passes through `elapse`: virtual time moves at once, real time is slept.
 *
 * @since 0.1.0
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import type * as Event from "../../model/Event.ts"
import type { CoreVersion, TagFilter } from "../../model/Instance.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import type { Claimed, ExecutionMetadata, HistoryEnd, OrchestrationItem, Turn } from "../../provider/Provider.ts"
import { ProviderError } from "../../provider/ProviderError.ts"

// -----------------------------------------------------------------------------
// services
// -----------------------------------------------------------------------------

/**
 * Changes that tests make to a store without its provider. Each driver has its own.
 *
 * @category services
 * @since 0.1.0
 */
export class Backdoor extends Context.Service<Backdoor, {
  /** Overwrites the text of every event of the instance. */
  readonly corruptInstanceHistory: (instanceId: string, eventData: string) => Effect.Effect<void>
  /** Highest attempt count among the instance's messages, 0 when it has none. */
  readonly getMaxAttemptCount: (instanceId: string) => Effect.Effect<number>
  /** Puts a message with this text, readable or not, into the orchestrator queue, visible now. */
  readonly insertMessage: (instanceId: string, workItem: string) => Effect.Effect<void>
  /** Puts an activity with this text, readable or not, into the worker queue, visible now. */
  readonly insertActivity: (workItem: string) => Effect.Effect<void>
}>()("duroxide-prisma/testing/ProviderTest/Backdoor") {}

/**
 * The settings of the suite, shared by all its tests.
 *
 * @category services
 * @since 0.1.0
 */
export class Settings extends Context.Service<Settings, {
  /** The lock timeout of tests that wait for a lock to expire. */
  readonly lockTimeout: Duration.Duration
  /** Whether a fetch waits up to its poll timeout or returns at once. */
  readonly polling: "short" | "long"
  readonly time: "virtual" | "real"
  /** Longest time an empty fetch may take when it does not wait. */
  readonly shortPollThreshold: Duration.Duration
  /** Whether the provider stores turns without a claim, where that is possible. */
  readonly optimisticTurns: boolean
  /** Runs an effect on another fresh provider. */
  readonly onFreshProvider: <A, E>(effect: Effect.Effect<A, E, Services>) => Effect.Effect<A, unknown>
}>()("duroxide-prisma/testing/ProviderTest/Settings") {}

/** The services of a test. */
export type Services = Provider | Admin | Backdoor | Settings

/** The tests of one topic, by name. */
export interface Topic {
  readonly name: string
  readonly tests: (settings: Pick<Settings["Service"], "polling">) => Readonly<Record<string, Test>>
}

export type Test = Effect.Effect<unknown, unknown, Services>

/** A topic whose tests are the same for every provider. */
export const topic = (name: string, tests: Readonly<Record<string, Test>>): Topic => ({ name, tests: () => tests })

// -----------------------------------------------------------------------------
// time
// -----------------------------------------------------------------------------

/** The suite's lock timeout, times `factor`. */
export const lockTimeout = (factor = 1): Effect.Effect<Duration.Duration, never, Settings> =>
  Effect.map(Settings, (settings) => Duration.millis(Duration.toMillis(settings.lockTimeout) * factor))

/** Lets this time pass. No other function sleeps. */
export const elapse = (duration: Duration.Input): Effect.Effect<void, never, Settings> =>
  Effect.gen(function*() {
    const { time } = yield* Settings
    const clockMovesByItself = time === "real" || (yield* InParallel)
    yield* clockMovesByItself ? Effect.sleep(duration) : TestClock.adjust(duration)
  })

/** Lets a lock that was just taken with the suite's lock timeout expire. */
export const elapseLockTimeout: Effect.Effect<void, never, Settings> = Effect.flatMap(
  lockTimeout(),
  (timeout) => elapse(Duration.sum(timeout, Duration.millis(100)))
)

/** Runs effects at the same time, with time passing while they wait; inside, `elapse` waits for that. */
export const parallel = <A, E, R>(
  effects: ReadonlyArray<Effect.Effect<A, E, R>>
): Effect.Effect<ReadonlyArray<A>, E, R | Settings> =>
  Effect.gen(function*() {
    const { time } = yield* Settings
    const all = Effect.all(effects, { concurrency: "unbounded" }).pipe(Effect.provideService(InParallel, true))
    if (time === "real") return yield* all
    const fiber = yield* Effect.forkChild(all)
    while (fiber.pollUnsafe() === undefined) yield* TestClock.adjust(1)
    return yield* Fiber.join(fiber)
  })

/** The outcome of an effect together with the milliseconds it took. */
export const timed = <A, E, R>(
  effect: Effect.Effect<A, E, R>
): Effect.Effect<{ readonly outcome: A; readonly millis: number }, E, R | Settings> =>
  Effect.gen(function*() {
    const start = yield* Clock.currentTimeMillis
    const [outcome] = yield* parallel([effect])
    return { outcome: outcome as A, millis: (yield* Clock.currentTimeMillis) - start }
  })

// -----------------------------------------------------------------------------
// messages, activities, events
// -----------------------------------------------------------------------------

type Fields<A> = Partial<Omit<A, "_tag">>

export const startItem = (
  instance: string,
  fields: Fields<WorkItem.Of<"StartOrchestration">> = {}
): WorkItem.Of<"StartOrchestration"> => ({
  _tag: "StartOrchestration",
  instance,
  orchestration: "TestOrch",
  input: "{}",
  version: "1.0.0",
  parentInstance: null,
  parentId: null,
  executionId: 1,
  ...fields
})

/** A start message of a child of `parent`. */
export const childStartItem = (
  instance: string,
  parent: string,
  fields: Fields<WorkItem.Of<"StartOrchestration">> = {}
): WorkItem.Of<"StartOrchestration"> => startItem(instance, { parentInstance: parent, parentId: 1, ...fields })

export const continueAsNewItem = (
  instance: string,
  fields: Fields<WorkItem.Of<"ContinueAsNew">> = {}
): WorkItem.Of<"ContinueAsNew"> => ({
  _tag: "ContinueAsNew",
  instance,
  orchestration: "TestOrch",
  input: "{}",
  version: "1.0.0",
  ...fields
})

export const activityItem = (
  instance: string,
  id: number,
  fields: Fields<WorkItem.Of<"ActivityExecute">> = {}
): WorkItem.Of<"ActivityExecute"> => ({
  _tag: "ActivityExecute",
  instance,
  executionId: 1,
  id,
  name: "TestActivity",
  input: "{}",
  ...fields
})

export const activityCompleted = (
  instance: string,
  id: number,
  result = `result-${id}`
): WorkItem.Of<"ActivityCompleted"> => ({ _tag: "ActivityCompleted", instance, executionId: 1, id, result })

/** Due at once unless a time is given. */
export const timerFired = (instance: string, id: number, fireAtMs = 0): WorkItem.Of<"TimerFired"> => ({
  _tag: "TimerFired",
  instance,
  executionId: 1,
  id,
  fireAtMs
})

export const externalRaised = (instance: string, name = "poke", data = ""): WorkItem.Of<"ExternalRaised"> => ({
  _tag: "ExternalRaised",
  instance,
  name,
  data
})

export const queueMessage = (instance: string, name: string, data: string): WorkItem.Of<"QueueMessage"> => ({
  _tag: "QueueMessage",
  instance,
  name,
  data
})

export const cancelItem = (instance: string, reason = "test"): WorkItem.Of<"CancelInstance"> => ({
  _tag: "CancelInstance",
  instance,
  reason
})

type Envelope = "sourceEventId" | "instanceId" | "executionId" | "timestampMs" | "duroxideVersion"
type Input<A extends Event.Event> = A extends unknown ? Omit<A, Envelope> & Partial<Pick<A, Envelope>> : never

/** An event without its envelope, which the ack fills in; a test may give parts of it. */
export type EventInput = Input<Event.Event>

/** `OrchestrationStarted`, event 1. */
export const started = (fields: Fields<Event.Of<"OrchestrationStarted">> = {}): EventInput => ({
  _tag: "OrchestrationStarted",
  eventId: 1,
  name: "TestOrch",
  version: "1.0.0",
  input: "{}",
  parentInstance: null,
  parentId: null,
  ...fields
})

export const completed = (eventId: number, output = "done"): EventInput => ({
  _tag: "OrchestrationCompleted",
  eventId,
  output
})

export const activityScheduled = (eventId: number, name = "TestActivity"): EventInput => ({
  _tag: "ActivityScheduled",
  eventId,
  name,
  input: "{}"
})

export const valueSet = (eventId: number, key: string, value: string, lastUpdatedAtMs = 0): EventInput => ({
  _tag: "KeyValueSet",
  eventId,
  key,
  value,
  lastUpdatedAtMs
})

export const valueCleared = (eventId: number, key: string): EventInput => ({ _tag: "KeyValueCleared", eventId, key })

export const valuesCleared = (eventId: number): EventInput => ({ _tag: "KeyValuesCleared", eventId })

export const customStatus = (eventId: number, status: string | null): EventInput => ({
  _tag: "CustomStatusUpdated",
  eventId,
  status
})

/** `1.2.3` as a version. */
export const version = (text: string): CoreVersion => {
  const [major = 0, minor = 0, patch = 0] = text.split(".").map(Number)
  return { major, minor, patch }
}

/** Fills in what a test left out of an event. */
export const stamp = (instanceId: string, executionId: number, event: EventInput): Event.Event => ({
  sourceEventId: null,
  instanceId,
  executionId,
  timestampMs: 1_700_000_000_000,
  duroxideVersion: "1000.0.0",
  ...event
})

// -----------------------------------------------------------------------------
// orchestrator queue
// -----------------------------------------------------------------------------

/** Enqueues for the orchestrator. */
export const send = (item: WorkItem.WorkItem, delay?: Duration.Input) =>
  Effect.flatMap(Provider, (provider) => provider.enqueueForOrchestrator({ message: item, delay: duration(delay) }))

export const enqueueStart = (instance: string, fields?: Fields<WorkItem.Of<"StartOrchestration">>) =>
  send(startItem(instance, fields))

/** A message that only wakes the instance. */
export const poke = (instance: string, name = "poke") => send(externalRaised(instance, name))

export interface FetchOrchestration {
  readonly lockTimeout?: Duration.Input
  readonly pollTimeout?: Duration.Input
  /** Ends included: `["1.0.0", "1.9.9"]`. */
  readonly versions?: readonly [min: string, max: string]
  readonly isKnown?: (end: HistoryEnd) => boolean
  /** `TestOrch` in these versions. */
  readonly serves?: ReadonlyArray<string>
}

export type ClaimedOrchestration = Claimed<OrchestrationItem>

export const fetchOrchestration = (options: FetchOrchestration = {}) =>
  Effect.flatMap(Provider, (provider) =>
    provider.fetchOrchestrationItem({
      lockTimeout: Duration.fromInputUnsafe(options.lockTimeout ?? "30 seconds"),
      pollTimeout: Duration.fromInputUnsafe(options.pollTimeout ?? 0),
      versions: Option.map(
        Option.fromUndefinedOr(options.versions),
        ([min, max]) => ({ min: version(min), max: version(max) })
      ),
      isKnown: options.isKnown,
      ...(options.serves !== undefined && { serves: [{ name: "TestOrch", versions: options.serves }] })
    }))

export const claimOrchestration = (options?: FetchOrchestration) =>
  Effect.map(fetchOrchestration(options), (found) => some(found, "an instance to claim"))

/** Claims, and requires that it is this instance. */
export const claimInstance = (instance: string, options?: FetchOrchestration) =>
  Effect.map(claimOrchestration(options), (claimed) => {
    assert.strictEqual(claimed.item.instanceId, instance)
    return claimed
  })

export const expectNoOrchestration = (options?: FetchOrchestration) =>
  Effect.map(fetchOrchestration(options), (found) => none(found, ({ item }) => item.instanceId))

export interface Ack {
  /** Defaults to the item's execution. */
  readonly executionId?: number
  readonly events?: ReadonlyArray<EventInput>
  readonly workers?: Turn["workerItems"]
  readonly forRust?: Turn["forRust"]
  readonly items?: Turn["orchestratorItems"]
  readonly metadata?: ExecutionMetadata
  readonly cancelled?: Turn["cancelledActivities"]
  readonly cancelledTimers?: Turn["cancelledTimers"]
  readonly left?: Turn["left"]
  readonly requeued?: Turn["requeued"]
  /** Starts among `items` create their instances, pinned to this version. */
  readonly pinsStartsTo?: string
}

/** A turn; whatever is left out is empty. */
export const turnOf = (instanceId: string, executionId: number, turn: Ack): Turn => ({
  executionId,
  historyDelta: (turn.events ?? []).map((event) => stamp(instanceId, executionId, event)),
  workerItems: turn.workers ?? [],
  orchestratorItems: turn.items ?? [],
  metadata: turn.metadata ?? {},
  cancelledActivities: turn.cancelled ?? [],
  ...(turn.forRust !== undefined && { forRust: turn.forRust }),
  ...(turn.cancelledTimers !== undefined && { cancelledTimers: turn.cancelledTimers }),
  ...(turn.left !== undefined && { left: turn.left }),
  ...(turn.requeued !== undefined && { requeued: turn.requeued }),
  ...(turn.pinsStartsTo !== undefined && {
    startsPinnedTo: new Map((turn.items ?? []).map((item) => [item, version(turn.pinsStartsTo!)]))
  })
})

/** Stores a turn. */
export const ack = (
  claimed: { readonly lockToken: string; readonly item: Pick<OrchestrationItem, "instanceId" | "executionId"> },
  turn: Ack = {}
) =>
  Effect.flatMap(Provider, (provider) => {
    const { executionId, instanceId } = { ...claimed.item, executionId: turn.executionId ?? claimed.item.executionId }
    return provider.ackOrchestrationItem(claimed.lockToken, turnOf(instanceId, executionId, turn))
  })

/** Metadata that creates the instance row. */
export const named = (metadata: ExecutionMetadata = {}): ExecutionMetadata => ({
  orchestrationName: "TestOrch",
  orchestrationVersion: "1.0.0",
  ...metadata
})

export const abandon = (
  lockToken: string,
  options: { readonly delay?: Duration.Input; readonly ignoreAttempt?: boolean; readonly beginsFirst?: boolean } = {}
) =>
  Effect.flatMap(Provider, (provider) =>
    provider.abandonOrchestrationItem({
      lockToken,
      delay: duration(options.delay),
      ignoreAttempt: options.ignoreAttempt ?? false,
      beginsFirst: options.beginsFirst
    }))

export const renew = (lockToken: string, extendFor: Duration.Input) =>
  Effect.flatMap(
    Provider,
    (provider) => provider.renewOrchestrationItemLock({ lockToken, extendFor: Duration.fromInputUnsafe(extendFor) })
  )

// -----------------------------------------------------------------------------
// worker queue
// -----------------------------------------------------------------------------

export const enqueueWork = (item: WorkItem.Of<"ActivityExecute">) =>
  Effect.flatMap(Provider, (provider) => provider.enqueueForWorker(item))

/** Enqueues activity `id` of the instance. */
export const enqueueActivity = (instance: string, id: number, fields?: Fields<WorkItem.Of<"ActivityExecute">>) =>
  enqueueWork(activityItem(instance, id, fields))

export interface FetchWork {
  readonly lockTimeout?: Duration.Input
  readonly pollTimeout?: Duration.Input
  /** Defaults to activities without a tag. */
  readonly tags?: TagFilter
  readonly session?: { readonly workerId: string; readonly lockTimeout?: Duration.Input; readonly maxNew?: number }
  readonly activities?: ReadonlyArray<string>
}

export type ClaimedWork = Claimed<WorkItem.Of<"ActivityExecute">>

export const fetchWork = (options: FetchWork = {}) =>
  Effect.flatMap(Provider, (provider) =>
    provider.fetchWorkItems({
      lockTimeout: Duration.fromInputUnsafe(options.lockTimeout ?? "30 seconds"),
      pollTimeout: Duration.fromInputUnsafe(options.pollTimeout ?? 0),
      tags: options.tags ?? { _tag: "DefaultOnly" },
      session: Option.map(Option.fromUndefinedOr(options.session), ({ lockTimeout, maxNew, workerId }) => ({
        workerId,
        lockTimeout: Duration.fromInputUnsafe(lockTimeout ?? "30 seconds"),
        ...(maxNew !== undefined && { maxNew: () => maxNew })
      })),
      activities: options.activities
    })).pipe(Effect.map(([claimed]) => Option.fromUndefinedOr(claimed)))

export const claimWork = (options?: FetchWork) =>
  Effect.map(fetchWork(options), (found) => some(found, "an activity to claim"))

/** Claims, and requires that it is the activity with this id. */
export const claimActivity = (id: number, options?: FetchWork) =>
  Effect.map(claimWork(options), (claimed) => {
    assert.strictEqual(claimed.item.id, id)
    return claimed
  })

export const expectNoWork = (options?: FetchWork) =>
  Effect.map(fetchWork(options), (found) => none(found, ({ item }) => `activity ${item.id}`))

/** Without a completion the activity is deleted only. */
export const ackWork = (
  lockToken: string,
  completion?: WorkItem.Of<"ActivityCompleted"> | WorkItem.Of<"ActivityFailed">
) => Effect.flatMap(Provider, (provider) => provider.ackWorkItem(lockToken, Option.fromUndefinedOr(completion)))

export const abandonWork = (
  lockToken: string,
  options: { readonly delay?: Duration.Input; readonly ignoreAttempt?: boolean } = {}
) =>
  Effect.flatMap(Provider, (provider) =>
    provider.abandonWorkItem({
      lockToken,
      delay: duration(options.delay),
      ignoreAttempt: options.ignoreAttempt ?? false
    }))

export const renewWork = (lockToken: string, extendFor: Duration.Input) =>
  Effect.flatMap(
    Provider,
    (provider) => provider.renewWorkItemLock({ lockToken, extendFor: Duration.fromInputUnsafe(extendFor) })
  )

// -----------------------------------------------------------------------------
// whole instances
// -----------------------------------------------------------------------------

/** An instance after its first turn, running. */
export const create = (instance: string, metadata?: ExecutionMetadata) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    yield* ack(yield* claimInstance(instance), { executionId: 1, events: [started()], metadata: named(metadata) })
  })

export const running = (instance: string) => create(instance)

/** A turn of an instance that exists. */
export const turn = (instance: string, parts: Ack) =>
  Effect.gen(function*() {
    yield* poke(instance)
    yield* ack(yield* claimInstance(instance), parts)
  })

/** Ends execution `executionId` of the instance. */
export const complete = (instance: string, executionId = 1) =>
  turn(instance, {
    executionId,
    events: [completed(9999)],
    metadata: named({ status: "Completed", output: "done" })
  })

/** Ends execution `executionId` - 1 of the instance and starts `executionId`. */
export const continueAsNew = (instance: string, executionId: number) =>
  Effect.gen(function*() {
    yield* turn(instance, { executionId: executionId - 1, metadata: named({ status: "ContinuedAsNew" }) })
    yield* send(continueAsNewItem(instance))
    yield* ack(yield* claimInstance(instance), { executionId, events: [started()], metadata: named() })
  })

/** An instance that ended with its first turn, a child of `parent` if given. */
export const done = (instance: string, parent?: string, metadata: ExecutionMetadata = {}) =>
  Effect.gen(function*() {
    yield* send(parent === undefined ? startItem(instance) : childStartItem(instance, parent))
    yield* ack(yield* claimInstance(instance), {
      executionId: 1,
      events: [started(parent === undefined ? {} : { parentInstance: parent, parentId: 1 })],
      metadata: named({
        status: "Completed",
        output: "done",
        ...(parent === undefined ? {} : { parentInstanceId: parent }),
        ...metadata
      })
    })
  })

/** An instance with executions 1 to `executions`, all but the last continued as new. */
export const multi = (
  instance: string,
  executions: number,
  last: ExecutionMetadata = { status: "Completed", output: "done" }
) =>
  Effect.gen(function*() {
    for (let executionId = 1; executionId <= executions; executionId++) {
      yield* send(executionId === 1 ? startItem(instance) : continueAsNewItem(instance))
      yield* ack(yield* claimInstance(instance), {
        executionId,
        events: [started()],
        metadata: named(executionId < executions ? { status: "ContinuedAsNew" } : last)
      })
    }
  })

/** An instance pinned to a version, with one visible message. */
export const seed = (instance: string, pinned: string) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    const others: Array<string> = []
    let claimed = yield* claimOrchestration()
    while (claimed.item.instanceId !== instance) {
      others.push(claimed.lockToken)
      claimed = yield* claimOrchestration()
    }
    yield* ack(claimed, {
      executionId: 1,
      events: [started({ duroxideVersion: pinned })],
      items: [externalRaised(instance, "ping")],
      metadata: named({ pinnedVersion: version(pinned) })
    })
    yield* Effect.forEach(others, (token) => abandon(token, { ignoreAttempt: true }))
  })

/** A turn that schedules activities of execution 1, without making an instance row. */
export const schedule = (instance: string, ids: ReadonlyArray<number>, turn: Ack = {}) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    yield* ack(yield* claimInstance(instance), {
      executionId: 1,
      events: [started()],
      workers: ids.map((id) => activityItem(instance, id)),
      metadata: { orchestrationName: "TestOrch", status: "Running" },
      ...turn
    })
  })

// -----------------------------------------------------------------------------
// expectations
// -----------------------------------------------------------------------------

/** The value of an option, or a failed assertion that names what is missing. */
export const some = <A>(option: Option.Option<A>, what: string): A => {
  assert(Option.isSome(option), `expected ${what}, found nothing`)
  return option.value
}

/** Requires that the call fails permanently, with a message that matches. */
export const fails = <A, R>(
  call: Effect.Effect<A, ProviderError, R>,
  message: RegExp = /./
): Effect.Effect<ProviderError, never, R> =>
  Effect.map(Effect.exit(call), (exit) => {
    assert(exit._tag === "Failure", "expected the call to fail")
    const reason = exit.cause.reasons[0]
    assert(reason?._tag === "Fail" && reason.error instanceof ProviderError, "expected a ProviderError")
    assert.isFalse(reason.error.isRetryable, `expected a permanent error, not ${reason.error.message}`)
    assert.match(reason.error.message, message)
    return reason.error
  })

/** Requires that the instances exist. */
export const expectInstances = (...instances: ReadonlyArray<string>) =>
  Effect.flatMap(Admin, (admin) =>
    Effect.forEach(instances, (instance) =>
      Effect.map(
        admin.getInstanceInfo(instance),
        ({ instanceId }) => assert.strictEqual(instanceId, instance)
      ), { discard: true }))

/** Requires that none of the instances exists. */
export const expectGone = (...instances: ReadonlyArray<string>) =>
  Effect.flatMap(
    Admin,
    (admin) =>
      Effect.forEach(instances, (instance) => fails(admin.getInstanceInfo(instance), /not found/), { discard: true })
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Whether another fiber moves the clock. */
const InParallel = Context.Reference("duroxide-prisma/testing/ProviderTest/InParallel", { defaultValue: () => false })

const duration = (input: Duration.Input | undefined) =>
  Option.map(Option.fromUndefinedOr(input), Duration.fromInputUnsafe)

const none = <A>(option: Option.Option<A>, name: (value: A) => string): void =>
  assert(Option.isNone(option), `expected nothing, found ${Option.isSome(option) ? name(option.value) : ""}`)
