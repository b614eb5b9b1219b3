/**
 * Starts orchestrations, sends them signals, reads their state, and waits for their results.
 *
 * A client needs a store but no runtime, so any process can use it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { checkInstanceId, describe, describeSend, durationIn, producer, reader, refused } from "./client/calls.ts"
import {
  InstanceAlreadyExists,
  InstanceCancelled,
  InstanceEnded,
  InstanceFailed,
  WaitTimeout
} from "./client/errors.ts"
import type { PayloadMismatch, PayloadTooLarge } from "./client/errors.ts"
import * as requests from "./client/requests.ts"
import type { RequestError, RequestOptions } from "./client/requests.ts"
import * as starting from "./client/starts.ts"
import type { Replaces, StartOutcome, StartTime } from "./client/starts.ts"
import { statusOf } from "./client/status.ts"
import type { Status } from "./client/status.ts"
import { endingWait, outcome, progress } from "./client/waits.ts"
import type {
  CustomStatus,
  InterruptOptions,
  StatusWaitOptions,
  ValueWaitOptions,
  WaitOptions
} from "./client/waits.ts"
import * as watching from "./client/watch.ts"
import type { WatchEvent, WatchOptions } from "./client/watch.ts"
import type * as KeyValue from "./KeyValue.ts"
import type { Ids, LimitKey, ServedBy } from "./model/shared/definitions.ts"
import { checkText } from "./model/shared/identifiers.ts"
import * as interruptSignal from "./model/shared/interruptSignal.ts"
import type { Payload as Codec, PayloadArgument, PayloadSchema } from "./model/shared/payload.ts"
import { setAsideMessages } from "./model/shared/recordedArrivals.ts"
import * as tracing from "./model/shared/tracing.ts"
import type * as WorkItem from "./model/WorkItem.ts"
import type * as Orchestration from "./Orchestration.ts"
import type * as ProgressStream from "./ProgressStream.ts"
import { Provider } from "./provider/Provider.ts"
import {
  InstanceEnded as InstanceEndedReason,
  InstanceNotFound,
  InvalidInput,
  ProviderError
} from "./provider/ProviderError.ts"
import type { Reason } from "./provider/ProviderError.ts"
import { endOf } from "./provider/shared/endOf.ts"
import { readStream } from "./provider/shared/readStream.ts"
import type { ChunksMissing } from "./provider/shared/readStream.ts"
import type * as Request from "./Request.ts"
import type * as Signal from "./Signal.ts"

export * from "./client/errors.ts"
export type { RequestError, RequestOptions } from "./client/requests.ts"
export type { Replaces, StartOutcome, StartTime } from "./client/starts.ts"
export type { Ended, Status } from "./client/status.ts"
export type {
  CustomStatus,
  InterruptOptions,
  StatusWaitOptions,
  ValueWaitOptions,
  WaitOptions
} from "./client/waits.ts"
export type { WatchEvent, WatchOptions } from "./client/watch.ts"

type Definition<
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema,
  Id extends Ids = any
> = Orchestration.Startable<any, Payload, Success, Error, any, Id>

/**
 * What `start` needs of a definition: without result and error, which editors would show where it is called. Not an
 * interface, which declarations that are inferred could not name.
 */
type Startable<Payload extends PayloadSchema, Id extends Ids> = {
  readonly name: string
  readonly version: string
  readonly servedBy: ServedBy
  readonly payload: Payload
  readonly instanceId: Id
  readonly limitKey: LimitKey
  readonly codecs: { readonly payload: Codec<Payload["Type"]> }
}

/**
 * Why an instance was not started; after `ConnectionLost` it may have been.
 *
 * @category errors
 * @since 0.3.0
 */
export type StartError = InstanceAlreadyExists | PayloadMismatch | PayloadTooLarge | ProviderError

/**
 * Names the instance to start, its payload, and how to start it.
 *
 * **Details**
 *
 * An id is taken until its instance is deleted. A meaningful id makes a start idempotent.
 *
 * @category models
 * @since 0.1.0
 */
export type StartOptions<Payload, Id extends Ids = undefined> = Orchestration.Start<Payload, Id> & StartTime & {
  /**
   * What happens if the id is taken, by an instance of any orchestration and version. `refuse` fails with
   * `InstanceAlreadyExists`. `ignore` leaves the instance as it is. `replaceEnded` deletes an instance that has ended,
   * with its descendants, and starts anew, in one transaction; `replaceFailed` does so only if the instance has failed
   * or was cancelled. Both fail with `InstanceAlreadyExists` if the instance or a descendant still runs, if it is a
   * child, or if it has more than 1,000 descendants. They need the role `worker`. Defaults to `refuse`.
   */
  readonly ifExists?: "refuse" | "ignore" | Replaces | undefined
  /**
   * Which version runs: that of the definition (`own`), or the newest version that is served by the process that
   * claims the start (`newest`). The version that runs decodes the payload by its own Schema. Defaults to `own`;
   * `continueAsNew` defaults to `newest`.
   */
  readonly version?: "own" | "newest" | undefined
}

/**
 * One of many starts. Its own `startAt` or `delay` replaces that of `StartManyOptions`.
 *
 * @category models
 * @since 0.3.0
 */
export type ManyStart<Payload, Id extends Ids = undefined> = Orchestration.Start<Payload, Id> & StartTime

/**
 * Options of `startMany`, for all its starts.
 *
 * @category models
 * @since 0.3.0
 */
export interface StartManyOptions extends StartTime {
  /**
   * What happens if an id is taken. `ignore` leaves its instance as it is; for the others see `StartOptions`. The
   * outcome of this start is `AlreadyExists`, unless the instance is replaced. Defaults to `ignore`.
   */
  readonly ifExists?: "ignore" | Replaces | undefined
  /** Which version runs, as in `StartOptions`. Defaults to `own`. */
  readonly version?: "own" | "newest" | undefined
}

/**
 * The start that `send` makes if the instance does not exist.
 *
 * @category models
 * @since 0.3.0
 */
export type OrStart<P extends PayloadSchema, Id extends Ids = any> =
  & { readonly orchestration: Startable<P, Id> }
  & Omit<StartOptions<P["Type"], Id>, "instanceId" | "ifExists">
  & {
    /** What happens if the instance has ended, as in `StartOptions`. Defaults to `InstanceAlreadyExists`. */
    readonly ifExists?: Replaces | undefined
  }

/**
 * The payload of a request, which may be left out if it is void, and its options.
 *
 * @category models
 * @since 0.3.0
 */
export type RequestArguments<Payload> = [Payload] extends [void] ? [payload?: Payload, options?: RequestOptions]
  : [payload: Payload, options?: RequestOptions]

/**
 * Options of `readStream`.
 *
 * @category options
 * @since 0.3.0
 */
export interface ReadStreamOptions {
  /** The first offset to read, from 0. Defaults to the oldest chunk that is kept. */
  readonly from?: number | undefined
  /**
   * Whether to wait for further chunks until the instance has ended; if not, it ends with those stored now. Defaults to
   * true.
   */
  readonly follow?: boolean | undefined
}

/**
 * Starts, messages, reads, awaits and ends instances in the store of the `Provider` it was made with.
 *
 * **Details**
 *
 * Every method fails with `ProviderError` when the store fails. Bad input is refused before anything is written:
 * `PayloadMismatch`, `PayloadTooLarge`, or a `ProviderError` with the reason `InvalidInput`.
 *
 * @category services
 * @since 0.1.0
 */
export class Client extends Context.Service<Client, {
  /**
   * Starts an instance. When this returns, the start is stored: the instance will run even if this process ends.
   *
   * Only processes that serve this version of the orchestration claim the start. Until there is one, the instance
   * waits.
   *
   * After `ConnectionLost` the start may be stored or not. Repeat it with `ifExists: "ignore"`: this never makes a
   * second instance.
   */
  readonly start: <P extends PayloadSchema, Id extends Ids>(
    orchestration: Startable<P, Id>,
    options: StartOptions<P["Type"], Id>
  ) => Effect.Effect<void, StartError>

  /**
   * Starts many instances, and returns the outcome of each, in order. If one start has bad input, all are refused
   * before anything is written. If two starts have the same id, the first counts.
   *
   * One statement stores up to 10,000 starts, or 8 MiB of their texts, together or not at all. After a failure, the
   * starts of earlier statements are stored; after `ConnectionLost`, those of the last statement may be, too. Repeat
   * the call: it never makes a second instance, unless it replaces.
   */
  readonly startMany: <P extends PayloadSchema, Id extends Ids>(
    orchestration: Startable<P, Id>,
    starts: ReadonlyArray<ManyStart<P["Type"], Id>>,
    options?: StartManyOptions
  ) => Effect.Effect<ReadonlyArray<StartOutcome>, PayloadMismatch | PayloadTooLarge | ProviderError>

  /**
   * Waits until the instance has ended, and returns its typed result or failure. If the id is unknown, waits for its
   * start as well.
   *
   * An end that this process stores is known at once and without a read. One in another process is known within
   * milliseconds if the processes notify each other, otherwise within half a second (`docs/architecture.md`). Waits
   * share their statements, so a process may have thousands. With 10,000 and without hints, an end is known within 3
   * seconds.
   */
  readonly wait: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    orchestration: Definition<P, S, E>,
    instanceId: string,
    options?: WaitOptions
  ) => Effect.Effect<
    S["Type"],
    E["Type"] | InstanceFailed | InstanceCancelled | WaitTimeout | PayloadMismatch | ProviderError
  >

  /**
   * Sends again a signal that was set aside. The instance receives it as the newest of its name. Two calls send it
   * twice.
   *
   * Fails with `InstanceNotFound`; with `InstanceEnded` if nothing would read it; with `InstanceFull`; and with
   * `InvalidInput` if the event is not a signal that was set aside. `execution` defaults to the current one.
   */
  readonly redrive: (
    instanceId: string,
    options: { readonly event: number; readonly execution?: number | undefined }
  ) => Effect.Effect<void, ProviderError>

  /** Starts an instance and waits for its outcome: `start`, then `wait`. */
  readonly execute: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema, Id extends Ids>(
    orchestration: Definition<P, S, E, Id>,
    options: StartOptions<P["Type"], Id> & WaitOptions
  ) => Effect.Effect<
    S["Type"],
    | E["Type"]
    | InstanceAlreadyExists
    | InstanceFailed
    | InstanceCancelled
    | WaitTimeout
    | PayloadMismatch
    | PayloadTooLarge
    | ProviderError
  >

  /** Reads the status of an instance from its row, not from its history. */
  readonly status: (instanceId: string) => Effect.Effect<Status, ProviderError>

  /**
   * Sends a signal. The instance keeps it until its program takes it. For an unknown id it waits for the start, and is
   * deleted after `RuntimeConfig.orphanRetention`. An ended instance drops it.
   *
   * A signal that is defined as `lost` if it is not awaited reaches the oldest open wait of its name, and no later one;
   * sent before the start it is lost as well.
   *
   * After `ConnectionLost` it may be sent or not. Repeating it until it succeeds sends it at least once.
   *
   * With `orStart`, it also starts the instance if the id has no instance, in the same transaction: start and signal
   * are stored together or not at all. A signal that is defined as `lost` then reaches the waits that the first turn
   * opens. If several calls do this at once, one of them starts the instance, and all signals arrive. Fails with
   * `InstanceAlreadyExists` if the instance of this id has ended, unless its `ifExists` replaces it.
   */
  readonly send: {
    <P extends PayloadSchema>(
      signal: Signal.Signal<P>,
      instanceId: string,
      ...payload: PayloadArgument<P["Type"]>
    ): Effect.Effect<void, PayloadMismatch | PayloadTooLarge | ProviderError>
    <P extends PayloadSchema, Q extends PayloadSchema>(
      signal: Signal.Signal<P>,
      instanceId: string,
      payload: P["Type"],
      options: { readonly orStart: OrStart<Q> }
    ): Effect.Effect<void, StartError>
  }

  /**
   * Asks a running instance, and waits for its answer; if the program refuses the question, fails with its error. If
   * the id is unknown, waits for its start as well. The question is then kept for `RuntimeConfig.orphanRetention`, as a
   * signal is.
   *
   * The program takes a question once for each `requestId`, even if several callers ask it, or if it continues as new:
   * all of them get the same answer. So it is safe to repeat the call after `ConnectionLost`. The call itself repeats
   * for some seconds.
   *
   * Fails with `InstanceEnded` if the instance ends without an answer, with `RequestFailed` if the handler died, and
   * with `WaitTimeout`, whose `progress` says how far the question has come. How soon an answer is known: as in `wait`.
   */
  readonly request: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    request: Request.Request<P, S, E>,
    instanceId: string,
    ...payload: RequestArguments<P["Type"]>
  ) => Effect.Effect<S["Type"], E["Type"] | RequestError>

  /**
   * Streams the custom statuses of an instance, its values of `keys`, and its end, which is the last event. If the id
   * is unknown, waits for its start. The current status and values come first; with `after`, only what the caller has
   * not seen. If changes follow each other quickly, some may be left out, but never the last one.
   *
   * Many streams share their statements. How soon a change is known: as in `wait`.
   */
  readonly watch: <V extends PayloadSchema = never>(
    instanceId: string,
    options?: WatchOptions<KeyValue.KeyValue<V>>
  ) => Stream.Stream<WatchEvent<V["Type"]>, PayloadMismatch | ProviderError>

  /** Reads the current value of a key of an instance; `none` if it is not set or the instance is unknown. */
  readonly read: <V extends PayloadSchema>(
    keyValue: KeyValue.KeyValue<V>,
    instanceId: string
  ) => Effect.Effect<Option.Option<V["Type"]>, PayloadMismatch | ProviderError>

  /**
   * Waits for a custom status that is newer than the one seen last, and returns it with its version. If the id is
   * unknown, waits for its start as well. Statuses that follow each other quickly may be passed over, but never the
   * last one.
   *
   * Fails with `InstanceEnded` if the instance has ended and has no newer status. How soon a status is known: as in
   * `wait`.
   */
  readonly waitForStatus: (
    instanceId: string,
    options?: StatusWaitOptions
  ) => Effect.Effect<CustomStatus, InstanceEnded | WaitTimeout | ProviderError>

  /**
   * Waits until the instance has a value of this key, or one that `until` accepts, and returns it. If the id is
   * unknown, waits for its start as well. Values that follow each other quickly may be passed over, but never the last
   * one.
   *
   * Fails with `InstanceEnded` if the instance has ended without such a value. How soon a value is known: as in `wait`.
   */
  readonly waitForValue: <V extends PayloadSchema>(
    keyValue: KeyValue.KeyValue<V>,
    instanceId: string,
    options?: ValueWaitOptions<V["Type"]>
  ) => Effect.Effect<V["Type"], InstanceEnded | WaitTimeout | PayloadMismatch | ProviderError>

  /**
   * Reads a stream of an instance, each chunk once and in order, until the instance has ended and all is read.
   *
   * **Details**
   *
   * After a break, a reader continues with `from`, the last offset plus 1, in any process. If the instance does not
   * exist yet, waits for its start. How soon a chunk is known: as in `wait`. Readers of a process share statements. A
   * slow reader holds at most a page of 256 KiB.
   *
   * Fails with `ProgressStream.ChunksMissing` if the next chunk is no longer kept, and with `InstanceNotFound` if the
   * instance was deleted meanwhile.
   *
   * **Example** (Reading on after a break)
   *
   * ```ts
   * const rest = client.readStream(Tokens, instanceId, { from: lastOffset + 1 })
   * ```
   */
  readonly readStream: <C extends PayloadSchema>(
    stream: ProgressStream.ProgressStream<C>,
    instanceId: string,
    options?: ReadStreamOptions
  ) => Stream.Stream<ProgressStream.Entry<C["Type"]>, ChunksMissing | PayloadMismatch | ProviderError>

  /**
   * Interrupts the program of an instance, as Effect interrupts a fiber: what it waits for is given up, its children
   * are interrupted, its finalizers run durably, and then it becomes `Cancelled`; or `Failed`, if its clean-up fails.
   * Further interruptions change nothing but the deadline.
   *
   * An ended instance stays as it is. For an unknown id the request waits, as a message does, and interrupts the
   * instance that is started with this id in its first turn. An instance that Duroxide runs knows no interruption: it
   * is terminated at the deadline.
   *
   * After `ConnectionLost` it may be interrupted or not, with its deadline or without it. Repeat the call.
   */
  readonly interrupt: (
    instanceId: string,
    reason: string,
    options?: InterruptOptions
  ) => Effect.Effect<void, ProviderError>

  /**
   * Ends an instance without its program: **no finalizer and no compensation runs**. It becomes `Cancelled` at its next
   * turn, its open activities are cancelled, and its children are terminated. `interrupt` lets it clean up.
   *
   * An ended instance stays as it is. For an unknown id the request waits, as a message does, and ends an instance that
   * is started with this id in its first turn.
   */
  readonly terminate: (instanceId: string, reason: string) => Effect.Effect<void, ProviderError>
}>()("duroxide-prisma/Client") {}

/**
 * Provides a client of the `Provider` in context.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer: Layer.Layer<Client, never, Provider> = Layer.effect(
  Client,
  Effect.map(Provider, (provider) => make(provider))
)

/**
 * The methods of a client that only write.
 *
 * @category models
 * @since 0.1.0
 */
export type Sender = Pick<Client["Service"], "start" | "startMany" | "send" | "interrupt" | "terminate">

/**
 * Returns `start`, `startMany`, `send`, `interrupt` and `terminate` that write to the given queues, with the checks of
 * the client.
 *
 * **When to use**
 *
 * Use to start an orchestration in the transaction that writes the application's own rows, so that both are stored or
 * neither is: `Client.within(Transaction.make(tx, { schema }))`, with `Transaction` of `duroxide-prisma/prisma`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const within = (queues: Queues): Sender => ({
  start: Effect.fn("Client.start", producer)(function*(orchestration, options) {
    yield* starting.send(queues, yield* starting.checkedStart(orchestration, options), options.ifExists)
  }, tracing.endingBare),

  startMany: Effect.fn("Client.startMany", producer)(function*(orchestration, starts, options = {}) {
    return yield* starting.startMany(queues, orchestration, starts, options)
  }, tracing.endingBare),

  send: (
    signal: Signal.Signal<any>,
    instanceId: string,
    ...[payload, options]: readonly [payload?: any, options?: { readonly orStart: OrStart<any> }]
  ): Effect.Effect<void, any> => sendSignal(queues, signal, instanceId, payload, options?.orStart),

  interrupt: Effect.fn("Client.interrupt", producer)(function*(instanceId, reason, options) {
    yield* checkInstanceId("Client.interrupt", instanceId)
    yield* refused("Client.interrupt")(checkText("reason", reason))
    const deadline = yield* durationIn("Client.interrupt", "deadline", options?.deadline)
    yield* describeSend("interrupt", undefined, instanceId)
    yield* queues.enqueueForOrchestrator({
      message: yield* tracing.withTraceparent<WorkItem.Of<"QueueMessage">>({
        _tag: "QueueMessage",
        instance: instanceId,
        name: interruptSignal.name,
        data: interruptSignal.encode(reason)
      }),
      delay: Option.none()
    })
    // After the interruption, so that nothing that comes between them ends an instance without its clean-up.
    if (deadline !== undefined && Duration.toMillis(deadline) < longestDeadlineMs) {
      yield* enqueueTermination(queues, instanceId, interruptSignal.pastDeadline(reason), deadline)
    }
  }, tracing.endingBare),

  terminate: Effect.fn("Client.terminate", producer)(function*(instanceId, reason) {
    yield* checkInstanceId("Client.terminate", instanceId)
    yield* refused("Client.terminate")(checkText("reason", reason))
    yield* describeSend("terminate", undefined, instanceId)
    yield* enqueueTermination(queues, instanceId, reason)
  }, tracing.endingBare)
})

// internal

/** Where starts and messages go: a `Provider`, or a transaction of the application. */
type Queues = Pick<Provider["Service"], "startOrchestration" | "startOrchestrations" | "enqueueForOrchestrator">

/** A hundred years. A deadline that is later never comes. */
const longestDeadlineMs = 100 * 365 * 86_400_000

const enqueueTermination = Effect.fnUntraced(
  function*(queues: Queues, instanceId: string, reason: string, delay?: Duration.Duration) {
    yield* queues.enqueueForOrchestrator({
      message: yield* tracing.withTraceparent<WorkItem.Of<"CancelInstance">>({
        _tag: "CancelInstance",
        instance: instanceId,
        reason
      }),
      delay: Option.fromUndefinedOr(delay)
    })
  }
)

const sendSignal = Effect.fnUntraced(
  function*<P extends PayloadSchema>(
    queues: Queues,
    { codec, name, unawaited }: Signal.Signal<P>,
    instanceId: string,
    payload: P["Type"],
    orStart: OrStart<any> | undefined
  ) {
    yield* checkInstanceId("Client.send", instanceId)
    const signal = {
      _tag: unawaited === "kept" ? "QueueMessage" as const : "ExternalRaised" as const,
      instance: instanceId,
      name,
      data: yield* codec.encode(payload)
    }
    if (orStart !== undefined) return yield* starting.sendWithSignal(queues, signal, orStart)
    yield* describeSend("send", name, instanceId)
    yield* queues.enqueueForOrchestrator({
      message: yield* tracing.withTraceparent<WorkItem.Of<"ExternalRaised" | "QueueMessage">>(signal),
      delay: Option.none()
    })
  },
  (self) => Effect.withSpan(tracing.endingBare(self), "Client.send", producer)
)

const make = (provider: Provider["Service"]): Client["Service"] => ({
  ...within(provider),

  wait: Effect.fn("Client.wait", reader)(function*(orchestration, instanceId, options) {
    yield* checkInstanceId("Client.wait", instanceId)
    yield* describe(instanceId)
    return yield* outcome(provider, orchestration, instanceId, options)
  }, tracing.endingBare),

  redrive: Effect.fn("Client.redrive", producer)(function*(instanceId, { event: eventId, execution }) {
    const operation = "Client.redrive"
    yield* checkInstanceId(operation, instanceId)
    const refuse = (reason: Reason) => Effect.fail(new ProviderError({ operation, reason }))
    const found = yield* provider.readInstance(instanceId)
    if (Option.isNone(found)) return yield* refuse(new InstanceNotFound({ instanceId }))
    if (endOf(found.value) !== undefined) return yield* refuse(new InstanceEndedReason({ instanceId }))
    const executionId = execution ?? found.value.executionId
    const events = yield* provider.readWithExecution(instanceId, executionId)
    const message = setAsideMessages(events).get(eventId)
    if (message === undefined) {
      const problem = `event ${eventId} of execution ${executionId} is not a signal that was set aside`
      return yield* refuse(new InvalidInput({ field: "event", problem }))
    }
    yield* describeSend("redrive", message.name, instanceId)
    yield* provider.enqueueForOrchestrator({ message: yield* tracing.withTraceparent(message), delay: Option.none() })
  }, tracing.endingBare),

  // Without a span of its own: it would be the parent of the start, but end after the instance, or with the process.
  execute: Effect.fn(function*(orchestration, options) {
    const start = yield* starting.checkedStart(orchestration, options)
    const { instance } = start.start
    const caller = yield* tracing.currentSpan
    const sent = tracing.inSpan(starting.send(provider, start, options.ifExists), "Client.start", "producer", caller)
    const ended = Effect.andThen(describe(instance), outcome(provider, orchestration, instance, options, sent))
    return yield* tracing.inSpan(ended, "Client.wait", "client", caller)
  }),

  request: (request, instanceId, ...[payload, options]) =>
    requests.ask(provider, request, instanceId, payload, options),

  watch: (instanceId, options = {}) => watching.watch(provider, instanceId, options),

  status: Effect.fn("Client.status", reader)(function*(instanceId): Effect.fn.Return<Status, ProviderError> {
    yield* checkInstanceId("Client.status", instanceId)
    yield* describe(instanceId)
    const found = yield* provider.readInstance(instanceId)
    return Option.isNone(found) ? { _tag: "NotFound" } : statusOf(found.value)
  }, tracing.endingBare),

  read: Effect.fn("Client.read", reader)(function*(keyValue, instanceId) {
    yield* checkInstanceId("Client.read", instanceId)
    yield* describe(instanceId)
    const text = yield* provider.getKvValue(instanceId, keyValue.key)
    return Option.isNone(text) ? Option.none() : Option.some(yield* keyValue.codec.decode(text.value))
  }, tracing.endingBare),

  readStream: (stream, instanceId, { follow = true, from } = {}) =>
    Stream.unwrap(Effect.as(
      checkInstanceId("Client.readStream", instanceId),
      readStream(provider, { instanceId, stream: stream.name, from: from ?? null, follows: follow }).pipe(
        Stream.mapEffect((entry) => Effect.map(stream.codec.decode(entry.chunk), (chunk) => ({ ...entry, chunk })))
      )
    )),

  waitForStatus: Effect.fn("Client.waitForStatus", reader)(function*(instanceId, { after = 0, timeout } = {}) {
    yield* checkInstanceId("Client.waitForStatus", instanceId)
    if (!Number.isSafeInteger(after)) {
      const reason = new InvalidInput({ field: "after", problem: `it is ${after}, but must be a whole number` })
      return yield* new ProviderError({ operation: "Client.waitForStatus", reason })
    }
    yield* describe(instanceId)
    return yield* progress(provider, "status", instanceId, timeout, {
      until: ({ status, statusVersion: version }) => version > after ? Option.some({ status, version }) : Option.none()
    })
  }, endingWait),

  waitForValue: Effect.fn("Client.waitForValue", reader)(
    function*(keyValue, instanceId, { timeout, until = () => true } = {}) {
      yield* checkInstanceId("Client.waitForValue", instanceId)
      yield* describe(instanceId)
      const found = yield* progress(provider, "value", instanceId, timeout, {
        key: keyValue.key,
        until: ({ value }) =>
          Option.flatMap(value, (text) => {
            const exit = keyValue.codec.decode(text)
            return Exit.isFailure(exit) || until(exit.value) ? Option.some(exit) : Option.none()
          })
      })
      return yield* found
    },
    endingWait
  )
})
