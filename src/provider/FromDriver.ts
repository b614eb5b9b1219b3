/**
 * Makes the typed services of drivers: `Provider` of a `ProviderDriver`, `Admin` of an `AdminDriver`.
 *
 * Decoding, retries, batching, waiting and the rules of deletion are done here, once for every driver.
 *
 * Each operation is one function that checks its input, encodes it, sends it, reads the answer and wakes those that
 * wait for it. It stands in the file of its subject in `internal`, such as `orchestrations`, `starts`, `streams`
 * or `admin`. `coalescer` lets calls share statements; `operations` and `gate` decide how often a statement is sent and
 * who learns of its outcome; every wake-up inside the process passes through `wakeups`.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Event from "../model/Event.ts"
import * as closedTogether from "../model/shared/closedTogether.ts"
import { durationOf } from "../model/shared/durations.ts"
import { ours } from "../model/shared/logging.ts"
import * as tracing from "../model/shared/tracing.ts"
import { make as makeHints } from "../waking/hints.ts"
import { Notifier } from "../waking/Notifier.ts"
import type * as pollMode from "../waking/pollMode.ts"
import * as storeClocks from "../waking/storeClock.ts"
import { Admin } from "./Admin.ts"
import { AdminDriver } from "./AdminDriver.ts"
import * as activities from "./internal/activities.ts"
import * as admin from "./internal/admin.ts"
import * as enqueue from "./internal/enqueue.ts"
import * as gates from "./internal/gate.ts"
import * as optimistic from "./internal/optimistic.ts"
import * as orchestrations from "./internal/orchestrations.ts"
import * as pausesOf from "./internal/pauses.ts"
import * as processes from "./internal/processes.ts"
import * as reads from "./internal/reads.ts"
import * as sealedEnqueue from "./internal/sealedEnqueue.ts"
import * as sealedProvider from "./internal/sealedProvider.ts"
import * as sealings from "./internal/sealing.ts"
import * as storeGauges from "./internal/storeGauges.ts"
import * as waits from "./internal/waits.ts"
import { make as makeWakeups } from "./internal/wakeups.ts"
import { PayloadCodec } from "./PayloadCodec.ts"
import { Provider } from "./Provider.ts"
import { ProviderDriver } from "./ProviderDriver.ts"

/**
 * How a fetch waits for work: woken, and polling as far as it cannot rely on being woken.
 *
 * What wakes it is the `Notifier`. Without one, or while that is not connected, it polls.
 *
 * @category models
 * @since 0.2.0
 */
export interface LongPolling {
  /**
   * Whether a fetch waits for work, up to its poll timeout. If not, it looks once and returns at once, for callers that
   * do the waiting themselves. Defaults to true.
   */
  readonly enabled?: boolean | undefined
  /**
   * Longest pause between two looks for work while a fetch waits to be woken, and between two looks on behalf of a
   * caller that waits for an end, a status or a value. Defaults to 5 minutes.
   */
  readonly fallbackPollInterval?: Duration.Input | undefined
  /** Longest time that a fetch waits, whatever its poll timeout. Defaults to 30 seconds. */
  readonly maxWaitTime?: Duration.Input | undefined
  /**
   * Added to the time at which work falls due, for the difference between the clocks of the store and of this process.
   * Where the store has said its time lately, 5 milliseconds of it are enough. Defaults to 100 milliseconds.
   */
  readonly timerGracePeriod?: Duration.Input | undefined
  /** Shortest time that a provider polls after something made it. Defaults to 60 seconds. */
  readonly aggressivePollDuration?: Duration.Input | undefined
  /** Looks without work and without a failure, one after another, before a provider stops polling. Defaults to 5. */
  readonly aggressiveExitThreshold?: number | undefined
  /** Longest time a hint may wait in this process without a warning. Defaults to 100 milliseconds. */
  readonly notifyDeliveryTimeout?: Duration.Input | undefined
  /**
   * Pause between two looks for work while a provider polls. Work that this process enqueues is claimed at once.
   * Defaults to 100 milliseconds.
   */
  readonly aggressivePollInterval?: Duration.Input | undefined
}

/**
 * How a provider made from a driver batches and waits. An impossible value, such as a count below 1 or a negative
 * duration, is a `RangeError` that names it: the layer or `make` dies with it.
 *
 * @category models
 * @since 0.2.0
 */
export interface Options {
  /** How a fetch waits for work. Defaults to on, with the defaults of `LongPolling`. */
  readonly longPolling?: LongPolling | undefined
  /** Statements of one kind under way at once. Defaults to 2. */
  readonly lanes?: number | undefined
  /** Most items in one statement. Defaults to 64. Looks for instances that have ended take up to 1,000. */
  readonly maxBatch?: number | undefined
  /**
   * How long a call keeps trying while another transaction locks the rows it writes; then it fails with `Contention`.
   * The ack of a turn tries for half a second at most. Defaults to 30 seconds. `PrismaProvider` has one setting for
   * this and for its statements.
   */
  readonly statementTimeout?: Duration.Input | undefined
}

/**
 * Joins a driver with batching, waiting, decoding and retries.
 *
 * **Details**
 *
 * If the context has a `Notifier`, hints of other processes wake it, and it sends hints to them. If it has a
 * `PayloadCodec`, payloads pass through that. Its loops end with the scope. Callers must be gone by then.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make: (
  driver: ProviderDriver["Service"],
  options?: Options
) => Effect.Effect<Provider["Service"], never, Scope.Scope> = Effect.fnUntraced(function*(driver, options) {
  const longPolling = pollSettings(options?.longPolling)
  const settings = {
    longPolling,
    openPump: yield* closedTogether.make,
    lanes: count("lanes", options?.lanes ?? 2),
    maxBatch: count("maxBatch", options?.maxBatch ?? 64),
    patience: Duration.millis(millis("statementTimeout", options?.statementTimeout ?? "30 seconds", 1))
  }
  if (!longPolling.isEnabled) yield* logPolling
  const clock = yield* Clock.Clock
  const { reportTo, store } = gates.make(driver, clock)
  const notifier = yield* Effect.serviceOption(Notifier)
  const storeClock = storeClocks.make(clock)
  const hints = yield* makeHints(Option.getOrUndefined(notifier), { ...longPolling, storeNowMs: storeClock.nowMs })
  const waiting = yield* waits.make(store, hints, settings)
  let wake = () => {}
  const pauses = yield* pausesOf.make(store.readPaused, store.pauseListeners, hints, longPolling, () => wake())
  const { readNextDue } = store
  const { locks, wakeups } = yield* makeWakeups(
    readNextDue === undefined
      ? store
      : { ...store, readNextDue: Effect.tap(readNextDue, (due) => Effect.sync(() => pauses.heard(due))) },
    waiting.stored,
    { hints, storeClock, settings: longPolling }
  )
  wake = () => {
    wakeups.orchestrators.wake("Stored")
    wakeups.workers.wake("Stored")
  }
  reportTo(locks)
  // A driver that stores no optimistic turns would have them run for nothing.
  const storeNowMs = store.advanceOrchestrations === undefined ? () => undefined : storeClock.nowMs
  // Without repetitions, which would hold up a process that starts during an outage.
  const askClock = Effect.suspend(() =>
    store.advanceOrchestrations === undefined || driver.readNextDue === undefined || storeClock.nowMs() !== undefined
      ? Effect.void
      : Effect.map(driver.readNextDue, ({ nowMs }) => storeClock.heard(nowMs))
  ).pipe(Effect.timeout("1 second"), Effect.ignore)
  const firstTurns = optimistic.makeFirstTurns(storeNowMs, clock, askClock)
  const codec = yield* Effect.serviceOption(PayloadCodec)
  const sealing = Option.getOrUndefined(Option.map(codec, (codec) => sealings.make(codec, reads.isOfRust(store))))
  const released = (lockToken: string) => locks.worker.release(lockToken)
  const ofActivities = yield* activities.make(store, wakeups, { ...settings, released })
  const ofReads = yield* reads.make(store, settings)
  yield* storeGauges.make(ofReads.readBacklog, hints)
  const provider: Provider["Service"] = {
    ...(yield* orchestrations.make(store, wakeups, storeClock, settings)),
    ...ofActivities,
    ...(yield* optimistic.make(store, wakeups, storeClock, ofActivities.ackWorkItem, settings)),
    ...enqueue.make({
      ...(yield* enqueue.sharing(store, wakeups, firstTurns, storeClock, settings)),
      sealTurn: sealing?.turn
    }),
    ...processes.make(store, hints, Option.getOrUndefined(notifier)),
    activity: wakeups.activity,
    onStart: firstTurns.onStart,
    storeNowMs,
    sealsPayloads: sealing !== undefined,
    storedText: Event.encode,
    ...ofReads,
    ...waiting.operations,
    onPaused: pauses.onPaused,
    onCancelled: wakeups.onCancelled
  }
  return sealing === undefined ? provider : sealedProvider.make(provider, sealing, clock)
}, Effect.updateContext(tracing.withoutSpan))

/**
 * The enqueue operations of `Provider` over a driver on one connection of the application, inside its transaction.
 *
 * **Details**
 *
 * Each call is one statement: it is not batched with others and never retried, and it wakes no caller of this process,
 * because nothing is visible before the commit. `payloads` is what encodes payloads; without it they are stored plain.
 *
 * @category constructors
 * @since 0.2.0
 */
export const makeEnqueue = (
  driver: Pick<
    ProviderDriver["Service"],
    "startOrchestrations" | "enqueueForOrchestrator" | "enqueueForWorker" | "readProgress"
  >,
  payloads?: PayloadCodec["Service"]
): enqueue.Enqueue => {
  const { enqueueForOrchestrator, enqueueForWorker, startOrchestrations } = gates.counted(driver)
  const provider = enqueue.make({
    sendStarts: startOrchestrations,
    sendStart: (start) => Effect.map(startOrchestrations([start]), ([answer]) => answer!),
    sendMessage: (message) => Effect.map(enqueueForOrchestrator([message]), ([answer]) => answer!),
    sendActivity: (activity) => enqueueForWorker([activity])
  })
  return payloads === undefined
    ? provider
    : sealedEnqueue.make(provider, sealings.make(payloads, reads.isOfRust(driver)))
}

/**
 * The provider of the `ProviderDriver` in context, and of the `Notifier`, if there is one.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options?: Options): Layer.Layer<Provider, never, ProviderDriver> =>
  Layer.effect(Provider, Effect.flatMap(ProviderDriver, (driver) => make(driver, options)))

/**
 * Joins a management driver with the rules of the contract. With a notifier, processes that only it reaches learn at
 * once of what is paused and resumed.
 *
 * @category constructors
 * @since 0.2.0
 */
export const makeAdmin = (driver: AdminDriver["Service"], notifier?: Notifier["Service"]): Admin["Service"] =>
  admin.make(gates.counted(driver), notifier)

/**
 * The management service of the driver in context.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerAdmin: Layer.Layer<Admin, never, AdminDriver> = Layer.effect(
  Admin,
  Effect.gen(function*() {
    return makeAdmin(yield* AdminDriver, Option.getOrUndefined(yield* Effect.serviceOption(Notifier)))
  })
)

// internal

const logPolling = Effect.logInfo(
  "Provider: long polling is off, so each dispatcher looks for work every 100 milliseconds"
).pipe(ours())

const pollSettings = (options: LongPolling = {}): pollMode.Settings => ({
  isEnabled: options.enabled ?? true,
  fallbackPollMs: millis("longPolling.fallbackPollInterval", options.fallbackPollInterval ?? "5 minutes", 1),
  maxWaitMs: millis("longPolling.maxWaitTime", options.maxWaitTime ?? "30 seconds"),
  timerGraceMs: millis("longPolling.timerGracePeriod", options.timerGracePeriod ?? "100 millis"),
  aggressiveDurationMs: millis("longPolling.aggressivePollDuration", options.aggressivePollDuration ?? "60 seconds"),
  aggressiveExitThreshold: count("longPolling.aggressiveExitThreshold", options.aggressiveExitThreshold ?? 5),
  notifyDeliveryTimeoutMs: millis("longPolling.notifyDeliveryTimeout", options.notifyDeliveryTimeout ?? "100 millis"),
  aggressivePollMs: millis("longPolling.aggressivePollInterval", options.aggressivePollInterval ?? "100 millis", 1)
})

const millis = (name: string, input: Duration.Input, least = 0): number => {
  const duration = durationOf(input)
  if (duration === undefined) throw new RangeError(`${name} is not a duration`)
  const ms = Duration.toMillis(duration)
  if (!(ms >= least)) throw new RangeError(`${name} is ${ms} milliseconds; it must be at least ${least}`)
  return ms
}

const count = (name: string, value: number): number => {
  if (!(Number.isInteger(value) && value >= 1)) {
    throw new RangeError(`${name} is ${value}; it must be a whole number of at least 1`)
  }
  return value
}
