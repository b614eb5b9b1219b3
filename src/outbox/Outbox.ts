/**
 * Messages that are written in the transaction that gives rise to them, and sent later by a publisher: both the rows
 * of the application and the message are stored, or neither.
 *
 * Delivery is at-least-once and without order. A message is sent after its transaction has committed, never before; it
 * may be sent twice, and is never lost. No other part of the package publishes, except that a new task may store its
 * first wake-up in a `PgQueue` of the same database.
 *
 * @since 0.2.0
 */
import type * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Predicate from "effect/Predicate"
import type * as Scope from "effect/Scope"
import * as Metrics from "../model/Metrics.ts"
import { seriesOf } from "../model/shared/labelled.ts"
import { ours } from "../model/shared/logging.ts"
import type { PayloadFields } from "../model/shared/payload.ts"
import * as variables from "../model/shared/queueEnvironment.ts"
import * as sampledGauges from "../model/shared/sampledGauges.ts"
import { PayloadCodec } from "../provider/PayloadCodec.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { answeredAlike, shared } from "../provider/shared/statement.ts"
import type { Message, Value } from "../queue/Message.ts"
import { Queue } from "../queue/Queue.ts"
import type { Payload } from "../queue/Queue.ts"
import { InvalidInput } from "../queue/QueueError.ts"
import type { QueueError } from "../queue/QueueError.ts"
import * as check from "../queue/shared/check.ts"
import { maxPayloadBytes } from "../queue/shared/declarations.ts"
import { storedIn } from "../queue/shared/stored.ts"
import type { Stored } from "../queue/shared/stored.ts"
import { Topic, Topics } from "../waking/Topics.ts"
import * as outboxCleaner from "./internal/cleaner.ts"
import * as publishing from "./internal/publisher.ts"
import { OutboxDriver } from "./OutboxDriver.ts"
import type { Backlog, NewMessage } from "./OutboxDriver.ts"
import * as sealed from "./shared/sealed.ts"

/**
 * Writes a message for `queue`, which becomes visible there after `delay`; without one, soon after the commit. The
 * delay can be up to 10 years: what a queue does not hold back, PostgreSQL does.
 *
 * Fails with `QueueError`, before anything is sent to the database, if the input cannot be a message: `PayloadInvalid`,
 * `PayloadTooLarge` (more than 262,144 bytes of JSON in UTF-8), `DelayTooLong`, or `InvalidInput` for the name of the
 * queue or a delay that is not a duration. Fails with `ProviderError` if the statement fails. A message for a queue
 * that no publisher has stays in the outbox.
 *
 * @category models
 * @since 0.2.0
 */
export interface Add {
  /** A message of a kind, whose value is checked against its Schema. */
  <const Kind extends string, Fields extends PayloadFields>(
    queue: string,
    message: Message<Kind, Fields>,
    value: Value<Fields>,
    options?: AddOptions
  ): Effect.Effect<void, QueueError | ProviderError>
  /** A plain payload, of a kind that has no Schema here. */
  (queue: string, payload: Payload, options?: AddOptions): Effect.Effect<void, QueueError | ProviderError>
}

/**
 * Options of a message.
 *
 * @category options
 * @since 0.2.0
 */
export interface AddOptions {
  /** Not visible before. Up to 10 years; defaults to none. */
  readonly delay?: Duration.Input | undefined
}

/**
 * Writes messages in transactions of their own. Calls that are made at the same time share a statement.
 *
 * @category services
 * @since 0.2.0
 */
export class Outbox extends Context.Service<Outbox, {
  readonly add: Add
}>()("duroxide-prisma/Outbox") {}

/**
 * The outbox of a database.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make: Effect.Effect<Outbox["Service"], never, OutboxDriver | Topics | Scope.Scope> = Effect.gen(
  function*() {
    const driver = yield* OutboxDriver
    const { announce } = yield* Topics
    const send = yield* shared<NewMessage, void>(
      "addToOutbox",
      (messages) => answeredAlike(messages, driver.add(messages)),
      { lanes: 2, maxBatch: 500, patience: Duration.seconds(30), sizeOf: ({ payload }) => payload.length }
    )
    const codec = yield* Effect.serviceOption(PayloadCodec)
    const sent = Option.isNone(codec)
      ? send
      : (message: NewMessage) => Effect.flatMap(sealed.sealing(codec.value)(message), send)
    return Outbox.of({ add: addBy((message) => Effect.andThen(sent(message), announce([{ topic: Topic.outbox }]))) })
  }
)

/**
 * Provides the outbox of a database.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer: Layer.Layer<Outbox, never, OutboxDriver | Topics> = Layer.effect(Outbox, make)

/**
 * The outbox inside a transaction of the application, that of `Transaction` of `duroxide-prisma/prisma`: each call is
 * one statement on its connection.
 *
 * **Details**
 *
 * After a `ProviderError` the transaction is aborted, as after every failed statement in PostgreSQL; a `QueueError`
 * leaves it usable.
 *
 * **Gotchas**
 *
 * - The caller must begin the transaction: on a plain client or a pool, every call commits on its own.
 * - The commit notifies the publishers, once for all messages of the transaction. PostgreSQL commits transactions that
 *   notify one at a time, and refuses `PREPARE TRANSACTION` after a notification: `SET LOCAL duroxide.notify = off`
 *   prevents it. Publishers then find the message with their next look, up to a minute later.
 *
 * **Example** (An order and the message about it)
 *
 * ```ts
 * await prisma.$transaction(async (tx) => {
 *   await tx.order.create({ data: { id: "o-1", totalCents: 4200 } })
 *   const outbox = Outbox.within(Transaction.make(tx, { schema: "duroxide" }))
 *   await Effect.runPromise(outbox.add("orders", OrderPlaced, { order_id: "o-1" }))
 * })
 * ```
 *
 * @category constructors
 * @since 0.2.0
 */
export const within = (
  { outbox }: { readonly outbox: Pick<OutboxDriver["Service"], "add"> }
): Outbox["Service"] => ({ add: addBy((message) => outbox.add([message])) })

/**
 * How a publisher works. Everything has a default.
 *
 * @category options
 * @since 0.2.0
 */
export interface PublisherOptions {
  /** Most messages of one claim, 1 to 1,000. Defaults to 100. */
  readonly batchSize?: number | undefined
  /**
   * How long a claimed message belongs to this publisher, 1 second to 12 hours. If the process dies, others send its
   * messages after that time. The queue must accept the message within two thirds of it. Defaults to 30 seconds.
   */
  readonly lease?: Duration.Input | undefined
  /**
   * How long sent messages stay in the table, for people to look at; hints of `QueueNotifier` do not. Defaults to 1
   * day. With 0, messages that go to `PgQueue` in the same schema are deleted as they are sent, which is cheaper.
   */
  readonly keepSent?: Duration.Input | undefined
}

/**
 * The options of `publisher` that environment variables give, as `docs/configuration.md` lists them; one error names
 * each that cannot be used.
 *
 * @category configuration
 * @since 0.2.0
 */
export const environment: Config.Config<PublisherOptions> = variables.publisherConfig

/**
 * Sends the messages of the outbox to their queues, until the layer is closed. Any number of processes may have one: a
 * message belongs to one of them at a time. It takes only messages of the queues that its `Queue` has.
 *
 * **Details**
 *
 * A message that the queue does not accept is tried again after 1 second, then after twice as long each time, up to 5
 * minutes; one that the queue refuses (too large for it, for example) every 5 minutes. Other messages do not wait for
 * it. While nothing happens, it sends one statement a minute.
 *
 * Fails with `QueueError`, reason `InvalidInput`, if an option is out of its range.
 *
 * @category layers
 * @since 0.2.0
 */
export const publisher = (
  options?: PublisherOptions
): Layer.Layer<never, QueueError, OutboxDriver | Topics | Queue> =>
  Layer.effectDiscard(Effect.gen(function*() {
    const settings = yield* readSettings(options)
    const queue = yield* Queue
    const log = (line: Effect.Effect<void>, annotations: Record<string, unknown> = {}) =>
      ours({ queue_server: queue.name, ...annotations })(line)
    yield* log(Effect.logInfo("Outbox: publisher started"), { queues: queue.queues.join(", ") || "none" })
    yield* Effect.addFinalizer(() => log(Effect.logInfo("Outbox: publisher stopped")))
    const topics = yield* Topics
    const driver = yield* OutboxDriver
    const cleaner = yield* outboxCleaner.make(driver, settings.keepMs)
    yield* sampledGauges.make({ samples: Metrics.outboxSamples, read: driver.readBacklog, gauges: backlogGauges })
    yield* publishing.make({
      settings,
      driver,
      queue,
      wakeups: {
        subscribe: (wake) => topics.subscribe(Topic.outbox, { received: wake, connected: wake, disconnected: wake }),
        isConnected: topics.isConnected
      },
      marked: cleaner.marked,
      moves: movesTo(queue, storedIn("publish", queue, driver.database, driver.clock), topics)
    })
  }))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const addBy =
  (send: (message: NewMessage) => Effect.Effect<void, ProviderError>): Add =>
  (queue: string, what: Payload | AnyMessage, ...others: ReadonlyArray<unknown>) =>
    isMessage(what)
      ? what.encode(others[0] as Value<any>).pipe(
        Effect.catch((reason) => check.fail("add", queue, reason)),
        Effect.flatMap((payload) => addPayload(send, queue, payload, others[1] as AddOptions | undefined))
      )
      : addPayload(send, queue, what, others[0] as AddOptions | undefined)

type AnyMessage = Message<string, any>

/** No payload has a function. */
const isMessage = (what: unknown): what is AnyMessage =>
  Predicate.isObject(what) && "encode" in what && typeof what.encode === "function"

const addPayload = (
  send: (message: NewMessage) => Effect.Effect<void, ProviderError>,
  queue: string,
  payload: Payload,
  options: AddOptions | undefined
) =>
  Effect.gen(function*() {
    const problem = typeof queue === "string" ? check.queueName(queue) : "it is not a text"
    if (problem !== undefined) {
      return yield* check.fail("add", queue, new InvalidInput({ field: "queue", problem }))
    }
    const json = yield* check.payload("add", queue, payload, maxPayloadBytes)
    const delayMs = yield* check.delay("add", queue, options?.delay, maxMs)
    yield* send({ queue, payload: json, delayMs })
  })

/** 10 years. */
const maxMs = 315_360_000_000

const readSettings = Effect.fnUntraced(function*(options: PublisherOptions = {}) {
  const batchSize = yield* check.count("publish", "outbox", "batchSize", options.batchSize ?? 100)
  const leaseMs = yield* check.timeout("publish", "outbox", "lease", options.lease ?? "30 seconds")
  if (leaseMs < leastLeaseMs) {
    const problem = "it is shorter than 1 second"
    return yield* check.fail("publish", "outbox", new InvalidInput({ field: "lease", problem }))
  }
  return {
    batchSize,
    leaseMs,
    keepMs: yield* check.retention("publish", "outbox", "keepSent", options.keepSent ?? "1 day")
  }
})

const leastLeaseMs = 1000

/** The move to queues in the outbox's own schema; undefined if a queue is elsewhere. */
const movesTo = (
  { queues }: Queue["Service"],
  stored: Stored | undefined,
  { announce }: Topics["Service"]
): publishing.Moves | undefined =>
  stored === undefined || queues.some((queue) => stored.maxAttempts[queue] === undefined) ? undefined : {
    maxAttempts: queues.map((queue) => stored.maxAttempts[queue]!),
    announce: (moved) => announce(moved.map((queue) => ({ topic: Topic.messages(queue) })))
  }

const messages = seriesOf(Metrics.outboxMessages)

const backlogGauges = ({ delayed, failing, oldestAgeMs, waiting }: Backlog) =>
  [
    [messages("waiting"), waiting],
    [messages("delayed"), delayed],
    [messages("failing"), failing],
    [Metrics.outboxOldestAge, oldestAgeMs / 1000]
  ] as const
