/**
 * Starts orchestrations, talks to them, and waits for what becomes of them.
 *
 * A client needs the store only, no runtime: any process can use it.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import type * as KeyValue from "./KeyValue.ts"
import type * as Mailbox from "./Mailbox.ts"
import * as ErrorDetails from "./model/ErrorDetails.ts"
import * as Event from "./model/Event.ts"
import type { InstanceState } from "./model/Instance.ts"
import { anyRust, current } from "./model/internal/coreVersion.ts"
import { idOf } from "./model/internal/definitions.ts"
import type { Ids } from "./model/internal/definitions.ts"
import { checkId, checkRootId, checkText } from "./model/internal/identifiers.ts"
import type { Unfit } from "./model/internal/identifiers.ts"
import type { PayloadArgument, PayloadMismatch, PayloadSchema, PayloadTooLarge } from "./model/internal/payload.ts"
import type * as Orchestration from "./Orchestration.ts"
import { Provider } from "./provider/Provider.ts"
import { InvalidInput, ProviderError } from "./provider/ProviderError.ts"
import type * as Signal from "./Signal.ts"

export {
  /**
   * A payload does not fit its Schema; nothing was sent.
   *
   * @category errors
   * @since 0.1.0
   */
  PayloadMismatch,
  /**
   * A payload is larger than 4 MiB of JSON text; nothing was sent.
   *
   * @category errors
   * @since 0.1.0
   */
  PayloadTooLarge
} from "./model/internal/payload.ts"

/**
 * The id is taken, by a running or an ended instance; nothing was started.
 *
 * @category errors
 * @since 0.1.0
 */
export class InstanceAlreadyExists extends Schema.TaggedError<InstanceAlreadyExists>(
  "duroxide-prisma/Client/InstanceAlreadyExists"
)("InstanceAlreadyExists", { instanceId: Schema.String }) {
  override get message() {
    return `instance ${this.instanceId} exists already; choose another id, or start it with ifExists: "ignore"`
  }
}

/**
 * The instance was cancelled, for this reason.
 *
 * @category errors
 * @since 0.1.0
 */
export class InstanceCancelled
  extends Schema.TaggedError<InstanceCancelled>("duroxide-prisma/Client/InstanceCancelled")("InstanceCancelled", {
    instanceId: Schema.String,
    reason: Schema.String
  })
{
  override get message() {
    return `instance ${this.instanceId} was cancelled: ${this.reason}`
  }
}

/**
 * The instance ended without a typed result: it died, it was poisoned, or its code and history do not fit together.
 * `details` says which.
 *
 * @category errors
 * @since 0.1.0
 */
export class InstanceFailed
  extends Schema.TaggedError<InstanceFailed>("duroxide-prisma/Client/InstanceFailed")("InstanceFailed", {
    instanceId: Schema.String,
    details: ErrorDetails.ErrorDetails
  })
{
  override get message() {
    const { details } = this
    // What poisoned an instance is a payload, unless the runtime had something to say.
    const reason = details._tag === "Poison" && !/^[[{]/.test(details.message) ? `: ${details.message}` : ""
    return `instance ${this.instanceId} failed: ${ErrorDetails.display(details)}${reason}`
  }
}

/**
 * The instance had not ended when the time was over. It goes on.
 *
 * @category errors
 * @since 0.1.0
 */
export class WaitTimeout extends Schema.TaggedError<WaitTimeout>("duroxide-prisma/Client/WaitTimeout")("WaitTimeout", {
  instanceId: Schema.String,
  timeoutMs: Schema.Number
}) {
  override get message() {
    return `instance ${this.instanceId} had not ended after ${this.timeoutMs} ms; it goes on`
  }
}

/**
 * The current status of an instance. `output` is encoded, as the orchestration's Schema wrote it.
 *
 * @category models
 * @since 0.1.0
 */
export type Status =
  | { readonly _tag: "NotFound" }
  | { readonly _tag: "Running"; readonly executionId: number; readonly customStatus: Option.Option<string> }
  | { readonly _tag: "Completed"; readonly output: string; readonly customStatus: Option.Option<string> }
  | {
    readonly _tag: "Failed"
    readonly details: ErrorDetails.ErrorDetails
    readonly customStatus: Option.Option<string>
  }
  | { readonly _tag: "Cancelled"; readonly reason: string; readonly customStatus: Option.Option<string> }

type Definition<
  Payload extends PayloadSchema,
  Success extends PayloadSchema,
  Error extends PayloadSchema,
  Id extends Ids = any
> = Orchestration.Startable<any, Payload, Success, Error, any, Id>

/**
 * Which instance to start, with what, and how.
 *
 * **Details**
 *
 * An id is taken until the instance is deleted. A meaningful one makes a start idempotent.
 *
 * @category models
 * @since 0.1.0
 */
export type StartOptions<Payload, Id extends Ids = undefined> = Orchestration.Start<Payload, Id> & {
  /**
   * What becomes of a start whose id is taken, by an instance of whatever orchestration and version: `refuse` fails with
   * `InstanceAlreadyExists`, `ignore` leaves the instance as it is. Defaults to `refuse`.
   */
  readonly ifExists?: "refuse" | "ignore" | undefined
  /**
   * Which program runs: that of the definition's version, or the newest one of the process that takes the start. It reads
   * the payload by its own Schema. Defaults to `own`.
   */
  readonly version?: "own" | "newest" | undefined
}

/**
 * @category models
 * @since 0.1.0
 */
export interface WaitOptions {
  /** Longest wait. Defaults to no limit. */
  readonly timeout?: Duration.Input | undefined
}

/**
 * **Details**
 *
 * Every method fails with `ProviderError` when the store does. Bad input (`InvalidInput` as its reason,
 * `PayloadMismatch`, `PayloadTooLarge`) is refused before anything is written.
 *
 * @category services
 * @since 0.1.0
 */
export class Client extends Context.Service<Client, {
  /**
   * Starts an instance. When this returns, the start is stored: it will run, whatever becomes of this process.
   *
   * A process that does not serve the orchestration in this version leaves the start to others. While none serves it, the
   * instance waits, however long.
   *
   * After `ConnectionLost` it may be stored or not. The same start again, with `ifExists: "ignore"`, makes sure of it:
   * there is one instance then, never two.
   */
  readonly start: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema, Id extends Ids>(
    orchestration: Definition<P, S, E, Id>,
    options: StartOptions<P["Type"], Id>
  ) => Effect.Effect<void, InstanceAlreadyExists | PayloadMismatch | PayloadTooLarge | ProviderError>

  /**
   * Waits until the instance has ended, and answers with its typed result or failure. An unknown id is waited for.
   */
  readonly wait: <P extends PayloadSchema, S extends PayloadSchema, E extends PayloadSchema>(
    orchestration: Definition<P, S, E>,
    instanceId: string,
    options?: WaitOptions
  ) => Effect.Effect<
    S["Type"],
    E["Type"] | InstanceFailed | InstanceCancelled | WaitTimeout | PayloadMismatch | ProviderError
  >

  /** `start`, then `wait`. */
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

  /** Reads the instance's row, not its history. */
  readonly status: (instanceId: string) => Effect.Effect<Status, ProviderError>

  /**
   * Sends a signal. It reaches the oldest open wait of its name; without one it is lost. An ended instance swallows it,
   * and one for an unknown id stays in the queue until there is a start, which comes too late for it.
   *
   * After `ConnectionLost` it may be sent or not: to send it again until that succeeds is to send it at least once.
   */
  readonly raise: <P extends PayloadSchema>(
    signal: Signal.Signal<P>,
    instanceId: string,
    ...payload: PayloadArgument<P["Type"]>
  ) => Effect.Effect<void, PayloadMismatch | PayloadTooLarge | ProviderError>

  /**
   * Puts a message into a mailbox of an instance, where it stays until it is read. For an id without an instance it waits
   * for the start, until `RuntimeConfig.orphanRetention` is over. An ended instance drops it.
   */
  readonly send: <P extends PayloadSchema>(
    mailbox: Mailbox.Mailbox<P>,
    instanceId: string,
    ...payload: PayloadArgument<P["Type"]>
  ) => Effect.Effect<void, PayloadMismatch | PayloadTooLarge | ProviderError>

  /** Reads a value of an instance as it is now; `none` when it is not set or the instance unknown. */
  readonly read: <V extends PayloadSchema>(
    keyValue: KeyValue.KeyValue<V>,
    instanceId: string
  ) => Effect.Effect<Option.Option<V["Type"]>, PayloadMismatch | ProviderError>

  /**
   * Asks an instance to end. It is `Cancelled` at its next turn, and its open activities are cancelled. An ended
   * instance is left alone; for an unknown id the request waits, as a message does, and an instance that is started under
   * it is cancelled in its first turn.
   */
  readonly cancel: (instanceId: string, reason: string) => Effect.Effect<void, ProviderError>
}>()("duroxide-prisma/Client") {}

/**
 * A client of the `Provider` in context.
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
export type Sender = Pick<Client["Service"], "start" | "raise" | "send" | "cancel">

/**
 * `start`, `raise`, `send` and `cancel` that go through the given queues, with the checks of the client.
 *
 * **When to use**
 *
 * Use to start an orchestration in the transaction that writes the application's own rows, so that both are there or
 * neither is: `Client.within(Transaction.make(tx, { schema }))`, with `Transaction` of `duroxide-prisma/prisma`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const within = (queues: Queues): Sender => ({
  start: Effect.fn("Client.start")(function*(orchestration, options) {
    const { ifExists, payload, version } = options
    const input = yield* orchestration.codecs.payload.encode(payload)
    const instanceId = idOf(orchestration, options)
    yield* refused("Client.start")(checkRootId(instanceId))
    const answer = yield* queues.startOrchestration({
      start: {
        _tag: "StartOrchestration",
        instance: instanceId,
        orchestration: orchestration.name,
        input,
        version: version === "newest" ? null : orchestration.version,
        parentInstance: null,
        parentId: null,
        executionId: 1
      },
      pinnedVersion: orchestration.servedBy === "rust" ? anyRust : current,
      delay: Option.none()
    })
    if (answer === "AlreadyExists" && ifExists !== "ignore") {
      return yield* new InstanceAlreadyExists({ instanceId })
    }
  }),

  raise: (signal, instanceId, ...[payload]) =>
    message(queues, "Client.raise", "ExternalRaised", signal, instanceId, payload),

  send: (mailbox, instanceId, ...[payload]) =>
    message(queues, "Client.send", "QueueMessage", mailbox, instanceId, payload),

  cancel: Effect.fn("Client.cancel")(function*(instanceId, reason) {
    yield* checkInstanceId("Client.cancel", instanceId)
    yield* refused("Client.cancel")(checkText("reason", reason))
    yield* queues.enqueueForOrchestrator({ _tag: "CancelInstance", instance: instanceId, reason }, Option.none())
  })
})

// internal

/** Where starts and messages go: a `Provider`, or a transaction of the application. */
type Queues = Pick<Provider["Service"], "startOrchestration" | "enqueueForOrchestrator">

/** What `raise` and `send` do, in a span of their name. */
const message = Effect.fnUntraced(
  function*<P extends PayloadSchema>(
    queues: Queues,
    operation: string,
    tag: "ExternalRaised" | "QueueMessage",
    to: Signal.Signal<P> | Mailbox.Mailbox<P>,
    instanceId: string,
    payload: P["Type"]
  ) {
    yield* checkInstanceId(operation, instanceId)
    const data = yield* to.codec.encode(payload)
    yield* queues.enqueueForOrchestrator({ _tag: tag, instance: instanceId, name: to.name, data }, Option.none())
  },
  (self, _, operation) => Effect.withSpan(self, operation)
)

const make = (provider: Provider["Service"]): Client["Service"] => {
  const client: Client["Service"] = {
    ...within(provider),

    wait: Effect.fn("Client.wait")(function*(orchestration, instanceId, options) {
      yield* checkInstanceId("Client.wait", instanceId)
      const timeout = options?.timeout === undefined ? undefined : Duration.fromInputUnsafe(options.timeout)
      const ended = untilEnded(provider, instanceId)
      const state = timeout === undefined ? yield* ended : yield* Effect.timeoutOrElse(ended, {
        duration: timeout,
        orElse: () => Effect.fail(new WaitTimeout({ instanceId, timeoutMs: Duration.toMillis(timeout) }))
      })
      if (state.status === "Completed") return yield* orchestration.codecs.success.decode(state.output ?? "null")
      const details = failureOf(state)
      const reason = reasonOf(details)
      if (reason !== undefined) return yield* new InstanceCancelled({ instanceId, reason })
      const typed = details._tag === "Application" && details.kind === "OrchestrationFailed"
        ? orchestration.codecs.error.decodeOption(details.message)
        : Option.none()
      return yield* Option.isSome(typed)
        ? Effect.fail(typed.value)
        : Effect.fail(new InstanceFailed({ instanceId, details }))
    }),

    execute: Effect.fn("Client.execute")(function*(orchestration, options) {
      yield* client.start(orchestration, options)
      return yield* client.wait(orchestration, idOf(orchestration, options), { timeout: options.timeout })
    }),

    status: Effect.fn("Client.status")(function*(instanceId) {
      yield* checkInstanceId("Client.status", instanceId)
      const found = yield* provider.readInstance(instanceId)
      if (Option.isNone(found)) return { _tag: "NotFound" }
      const state = found.value
      const customStatus = Option.fromNullOr(state.customStatus)
      if (state.status === "Completed") return { _tag: "Completed", output: state.output ?? "null", customStatus }
      if (state.status !== "Failed") return { _tag: "Running", executionId: state.executionId, customStatus }
      const details = failureOf(state)
      const reason = reasonOf(details)
      return reason === undefined
        ? { _tag: "Failed", details, customStatus }
        : { _tag: "Cancelled", reason, customStatus }
    }),

    read: Effect.fn("Client.read")(function*(keyValue, instanceId) {
      yield* checkInstanceId("Client.read", instanceId)
      const text = yield* provider.getKvValue(instanceId, keyValue.key)
      return Option.isNone(text) ? Option.none() : Option.some(yield* keyValue.codec.decode(text.value))
    })
  }
  return client
}

/** Looks at once when this process stored the instance's last turn, else after 5, 10, 20, … 500 milliseconds. */
const untilEnded = (provider: Provider["Service"], instanceId: string): Effect.Effect<InstanceState, ProviderError> => {
  const look = (pauseMs: number): Effect.Effect<InstanceState, ProviderError> =>
    Effect.flatMap(
      provider.readInstance(instanceId),
      (state) =>
        Option.isSome(state) && (state.value.status === "Completed" || state.value.status === "Failed")
          ? Effect.succeed(state.value)
          : Effect.raceFirst(provider.awaitEnd(instanceId), Effect.sleep(pauseMs)).pipe(
            Effect.andThen(Effect.suspend(() => look(Math.min(pauseMs * 2, 500))))
          )
    )
  return look(5)
}

const failureOf = (state: InstanceState): ErrorDetails.ErrorDetails => {
  const event = state.failure === null ? undefined : Result.getOrUndefined(Event.decode(state.failure))
  return event?._tag === "OrchestrationFailed"
    ? event.details
    // Never taken for a typed failure of the program.
    : { _tag: "Infrastructure", operation: "readInstance", message: state.output ?? "", retryable: false }
}

/** Why it was cancelled; undefined when it failed otherwise. */
const reasonOf = (details: ErrorDetails.ErrorDetails): string | undefined =>
  details._tag === "Application" && typeof details.kind === "object" ? details.kind.Cancelled.reason : undefined

const refused = (operation: string) =>
  Effect.mapError(({ field, problem }: Unfit) =>
    new ProviderError({ operation, reason: new InvalidInput({ field, problem }) })
  )

const checkInstanceId = (operation: string, instanceId: string) => refused(operation)(checkId(instanceId))
