/**
 * Queues in PostgreSQL, in the tables `queue_messages` and `queue_dead`.
 *
 * A receive leases messages for the visibility timeout. A receiver whose lease has ended can no longer settle the
 * message, whether or not another one has received it meanwhile. Processes wake each other; an idle one sends one
 * statement per queue and minute.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import type * as Config from "effect/Config"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import * as Scope from "effect/Scope"
import * as closedTogether from "../model/shared/closedTogether.ts"
import { wholeMs } from "../model/shared/durations.ts"
import { InBackground } from "../model/shared/inBackground.ts"
import * as variables from "../model/shared/queueEnvironment.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as statement from "../provider/shared/statement.ts"
import { Queue } from "../queue/Queue.ts"
import type { Payload, Received } from "../queue/Queue.ts"
import {
  AccessDenied,
  Closed,
  InvalidInput,
  PayloadInvalid,
  QueueError,
  ReceiptExpired,
  Unavailable,
  Unexpected
} from "../queue/QueueError.ts"
import type { Reason } from "../queue/QueueError.ts"
import * as check from "../queue/shared/check.ts"
import { countAcks, counted, countReceived, died, exhausted } from "../queue/shared/counted.ts"
import * as declarations from "../queue/shared/declarations.ts"
import * as queueGauges from "../queue/shared/gauges.ts"
import type { Receipt } from "../queue/shared/receipts.ts"
import * as receipts from "../queue/shared/receipts.ts"
import type { Lease, Leased, Receive, ReceiveBy, Stored } from "../queue/shared/stored.ts"
import * as pumps from "../waking/pump.ts"
import * as StoreClock from "../waking/storeClock.ts"
import { Topic, Topics } from "../waking/Topics.ts"
import { Database } from "./Database.ts"
import { Prisma } from "./internal/client.ts"
import { leased, leasing } from "./internal/queue/leased.ts"
import type { LeasedRow } from "./internal/queue/leased.ts"
import * as messageLooks from "./internal/queue/messageLooks.ts"
import * as statements from "./internal/statements.ts"

/**
 * Options of the layer. `queues` is required.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /** The queues by name: 1 to 75 letters, digits, hyphens and underscores. */
  readonly queues: Readonly<Record<string, declarations.Declaration>>
  /**
   * The clock that decides what is visible and which lease is live: that of the database, which all processes share, or
   * Effect's `Clock`, which tests control. Defaults to `database`.
   */
  readonly clock?: "database" | "effect" | undefined
  /**
   * How often a receive that waits looks for messages while the process cannot listen, at least 1 millisecond. Defaults
   * to 1 second.
   */
  readonly pollInterval?: Duration.Input | undefined
  /**
   * How often a receive that waits looks for messages whose notification was lost, at least 1 millisecond. Defaults to
   * 1 minute.
   */
  readonly fallbackPollInterval?: Duration.Input | undefined
}

/**
 * The options that environment variables give, as `docs/configuration.md` lists them. One error names each that cannot
 * be used. `queues` is set in code.
 *
 * @category configuration
 * @since 0.2.0
 */
export const environment: Config.Config<Partial<Omit<Options, "queues">>> = variables.queueConfig

/**
 * The queues of the schema of the `Database`. Fails with `QueueError` if an option is out of its range.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: Options): Layer.Layer<Queue, QueueError, Database | Topics> =>
  Layer.effect(Queue, make(options))

/**
 * Opens the queue for the current scope.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Queue["Service"], QueueError, Database | Topics | Scope.Scope> {
  const queues = yield* declarations.read(options.queues)
  const pollMs = yield* interval("pollInterval", options.pollInterval ?? "1 second")
  const fallbackMs = yield* interval("fallbackPollInterval", options.fallbackPollInterval ?? "1 minute")
  const topics = yield* Topics
  const clock = yield* Clock.Clock
  const storeClock = StoreClock.make(clock)
  const scope = yield* Effect.scope
  const database = yield* Database
  const { answer, rows } = statements.make(database, options)

  const storeNowMs = () =>
    (options.clock === "effect" ? undefined : storeClock.nowMs()) ?? clock.currentTimeMillisUnsafe()

  const declared = (operation: string, queue: string) => check.declared(operation, queues, queue)

  // -- publishing --------------------------------------------------------------------------------

  const insert = yield* statement.shared<Publishing, number>("publishMessages", (messages) =>
    Effect.gen(function*() {
      const nowMs = Number(
        yield* answer<bigint>("publishMessages", "dx_publish_messages", [messagesJson(messages)], {
          items: messages.length,
          isQuiet: true
        })
      )
      yield* topics.announce(messages.map(({ delayMs, queue }) => ({
        topic: Topic.messages(queue),
        ...(delayMs > 0 && { atMs: nowMs + delayMs })
      })))
      return messages.map(() => nowMs)
    }), { ...sharing, sizeOf: ({ json }) => json.length })

  // -- settling ----------------------------------------------------------------------------------

  const settling = <Item extends Receipt>(
    operation: string,
    name: string,
    args: (items: ReadonlyArray<Item>) => ReadonlyArray<Prisma.Sql>,
    isRenewal = false
  ) =>
    statement.shared<Item, Outcome>(operation, (items) =>
      answer<ReadonlyArray<Outcome>>(
        operation,
        name,
        [
          Prisma.sql`${items.map(({ id }) => id)}::text[]::bigint[]`,
          Prisma.sql`${items.map(({ token }) => token)}::text[]`,
          ...args(items)
        ],
        { items: items.length, isQuiet: true, isRenewal }
      ), sharing)

  const deleteLeased = yield* settling("ackMessages", "dx_settle_messages", () => [Prisma.sql`NULL::text[]`])
  const bury = yield* settling<Receipt & { readonly reason: string }>(
    "buryMessages",
    "dx_settle_messages",
    (items) => [Prisma.sql`${items.map(({ reason }) => reason)}::text[]`]
  )
  const extend = yield* settling<Receipt & { readonly leaseMs: number; readonly isUncounted: boolean }>(
    "extendMessages",
    "dx_extend_messages",
    (items) => [
      Prisma.sql`${items.map(({ leaseMs }) => leaseMs)}::bigint[]`,
      Prisma.sql`${items.map(({ isUncounted }) => isUncounted)}::boolean[]`
    ],
    true
  )

  /** Wakes those who wait, if the message comes earlier than they know. */
  const moved = (queue: string, leaseMs: number) => (outcome: Outcome) =>
    outcome !== "Sooner" ? Effect.void : topics.announce([
      { topic: Topic.messages(queue), ...(leaseMs > 0 && { atMs: storeNowMs() + leaseMs }) }
    ])

  const settled = (operation: string, queue: string, outcome: Effect.Effect<Outcome, ProviderError>) =>
    outcome.pipe(
      Effect.mapError(queueError(operation, queue)),
      Effect.tap((outcome) =>
        outcome === "Expired" ? check.fail(operation, queue, new ReceiptExpired({})) : Effect.void
      )
    )

  // -- receiving ---------------------------------------------------------------------------------

  /** Only plain SQL inserts such messages. One that cannot be moved comes again. */
  const buryForeign = (queue: string, lease: Receipt) =>
    bury({ ...lease, reason: "the payload is not an object whose kind is a text" }).pipe(
      Effect.andThen(died(queue, 1)),
      Effect.ignore
    )

  const leaseOf = (queue: string, limit: number, visibilityMs: number): Lease => ({
    queue,
    limit,
    token: receipts.makeToken(queue),
    visibilityMs
  })

  const claim = (queue: string) => (limit: number, visibilityMs: number): Effect.Effect<Found<Received>, QueueError> =>
    Effect.suspend(() => {
      const lease = leaseOf(queue, limit, visibilityMs)
      return rows<LeasedRow>("receiveMessages", "dx_receive_messages", leasing(lease), { isUnflushed: true }).pipe(
        Effect.flatMap(([row]) => read(lease, limit, leased(row!))),
        Effect.mapError(queueError("receive", queue))
      )
    })

  const read = Effect.fnUntraced(
    function*({ queue, token }: Lease, limit: number, { attempts, died, ids, nextMs, nowMs, payloads }: Leased) {
      storeClock.heard(nowMs)
      if (died > 0) yield* exhausted(queue, died)
      const messages: Array<Received> = []
      for (const [i, id] of (ids ?? []).entries()) {
        const payload: unknown = JSON.parse(payloads![i]!)
        if (isPayload(payload)) {
          const receipt = receipts.format({ id: String(id), token })
          messages.push({ payload, receipt, deliveryCount: attempts![i]! })
        } else yield* buryForeign(queue, { id: String(id), token })
      }
      const count = ids?.length ?? 0
      // Behind those that died, and those that the statement of another room took, there may be others.
      return { items: messages, more: count === limit || died > 0 || nextMs === nowMs, nextMs }
    }
  )

  /** Where the statement of another room cannot be sent, messages are received without it. */
  const claimBy = <A>(queue: string, { fetch }: ReceiveBy<A>) => {
    const receive = claim(queue)
    return (limit: number, visibilityMs: number): Effect.Effect<Found<A | Received>, QueueError> =>
      Effect.suspend(() => {
        const lease = leaseOf(queue, limit, visibilityMs)
        return fetch(lease).pipe(
          Effect.flatMap(({ left, taken }): Effect.Effect<Found<A | Received>> => {
            if (taken.length === limit) {
              storeClock.heard(left.nowMs)
              return Effect.succeed({ items: taken, more: true, nextMs: null })
            }
            return Effect.map(
              read(lease, limit - taken.length, left),
              ({ items, ...next }) => ({ ...next, items: [...taken, ...items] })
            )
          }),
          Effect.catch((error) =>
            statement.isOfOneCall(error) && error.reason._tag !== "PermissionDenied"
              ? receive(limit, visibilityMs)
              : Effect.fail(queueError("receive", queue)(error))
          )
        )
      })
  }

  const giveBack = (queue: string) => ({ receipt }: Received) =>
    receipts.parse("receive", queue, receipt).pipe(
      Effect.flatMap((lease) => extend({ ...lease, leaseMs: 0, isUncounted: true })),
      Effect.flatMap(moved(queue, 0)),
      Effect.ignore
    )

  const makeReceiver = Effect.fnUntraced(function*<A>(
    queue: string,
    fetch: (limit: number, visibilityMs: number) => Effect.Effect<Found<A>, QueueError>,
    abandon: (one: A) => Effect.Effect<void>
  ) {
    const looks = messageLooks.make({ clock, isConnected: topics.isConnected, storeNowMs, pollMs, fallbackMs })
    const pump = yield* pumps.make<A, QueueError>({
      fetch: (limit, _, visibilityMs) =>
        Effect.tap(
          fetch(limit, visibilityMs),
          ({ more, nextMs }) => Effect.sync(() => more || nextMs === null ? undefined : looks.nextVisible(nextMs))
        ),
      abandon,
      maxBatch: mostReceived,
      lockTimeoutMs: 0,
      queue: looks.queue,
      leftSome: () => {},
      closed: queueError("receive", queue)(statement.closed("receive"))
    }).pipe(Effect.provideService(InBackground, true))
    return {
      subscribe: topics.subscribe(Topic.messages(queue), looks.subscriber),
      receive: ({ maxMessages, visibilityMs, waitMs }: Parameters<Receive<A>>[0]) =>
        pump.take(Duration.millis(waitMs), { most: () => maxMessages, lockTimeoutMs: visibilityMs })
    }
  })

  const receivers = new Map<string, Effect.Success<ReturnType<typeof makeReceiver<Received>>>>()
  const openReceiver = yield* closedTogether.make
  for (const queue of Object.keys(queues)) {
    receivers.set(queue, yield* openReceiver(makeReceiver(queue, claim(queue), giveBack(queue))))
  }

  const receiveBy: Stored["receiveBy"] = <A extends object>(queue: string, by: ReceiveBy<A>) =>
    Effect.gen(function*() {
      const { receive, subscribe } = yield* makeReceiver<A | Received>(
        queue,
        claimBy(queue, by),
        (one) => isMessage(one) ? giveBack(queue)(one) : by.giveBack(one)
      )
      yield* subscribe
      return (asking: Parameters<Receive<A>>[0]) =>
        Effect.tap(receive(asking), (some) => {
          const messages = some.filter(isMessage)
          const again = messages.filter(({ deliveryCount }) => deliveryCount > 1).length
          return Effect.andThen(
            countReceived(queue, some.length, again),
            countAcks(queue, some.length - messages.length)
          )
        })
    })

  /** A process that only publishes does not listen. */
  const subscribed = new Set<string>()
  const subscribedTo = (queue: string, subscribe: Effect.Effect<void, never, Scope.Scope>) =>
    Effect.suspend(() => {
      if (subscribed.has(queue)) return Effect.void
      subscribed.add(queue)
      return Scope.provide(Effect.uninterruptible(subscribe), scope)
    })

  // -- counting ----------------------------------------------------------------------------------

  const readDepth = Effect.fnUntraced(function*(queue: string, limit: number | null) {
    const [row] = yield* rows<DepthRow>("readQueueDepth", "dx_read_queue_depth", [
      Prisma.sql`${queue}::text`,
      Prisma.sql`${limit}::integer`
    ]).pipe(Effect.mapError(queueError("depth", queue)))
    return {
      visible: Number(row!.out_visible),
      delayed: Number(row!.out_delayed),
      inFlight: Number(row!.out_in_flight),
      dead: Number(row!.out_dead),
      oldestVisibleMs: row!.out_oldest_ms === null ? null : Number(row!.out_oldest_ms)
    }
  })
  yield* queueGauges.make(Object.keys(queues), (queue) => readDepth(queue, mostCounted))

  const service = counted({
    name: "postgresql",
    queues: Object.keys(queues),
    maxDelayMs: declarations.maxDelayMs,
    maxPayloadBytes: declarations.maxPayloadBytes,

    publish: Effect.fnUntraced(function*(queue, payload, options) {
      const { maxAttempts } = yield* declared("publish", queue)
      const json = yield* check.payload("publish", queue, payload, declarations.maxPayloadBytes)
      const delayMs = yield* check.delay("publish", queue, options?.delay, declarations.maxDelayMs)
      yield* Effect.mapError(insert({ queue, json, delayMs, maxAttempts }), queueError("publish", queue))
    }),

    receive: Effect.fnUntraced(function*(queue, options) {
      yield* declared("receive", queue)
      const asking = yield* check.receiving(queue, options)
      const { receive, subscribe } = receivers.get(queue)!
      yield* subscribedTo(queue, subscribe)
      return yield* receive(asking)
    }),

    ack: Effect.fnUntraced(function*(queue, receipt) {
      yield* declared("ack", queue)
      yield* settled("ack", queue, deleteLeased(yield* receipts.parse("ack", queue, receipt)))
    }),

    extendVisibility: Effect.fnUntraced(function*(queue, receipt, timeout) {
      yield* declared("extendVisibility", queue)
      const leaseMs = yield* check.timeout("extendVisibility", queue, "timeout", timeout)
      const lease = yield* receipts.parse("extendVisibility", queue, receipt)
      const outcome = yield* settled("extendVisibility", queue, extend({ ...lease, leaseMs, isUncounted: false }))
      yield* moved(queue, leaseMs)(outcome)
    }),

    deadLetter: Effect.fnUntraced(function*(queue, { receipt }, reason) {
      yield* declared("deadLetter", queue)
      const lease = yield* receipts.parse("deadLetter", queue, receipt)
      yield* settled("deadLetter", queue, bury({ ...lease, reason: check.reason(reason) }))
    }),

    redrive: Effect.fnUntraced(function*(queue, { limit }) {
      yield* declared("redrive", queue)
      const count = yield* check.count("redrive", queue, "limit", limit)
      const moved = yield* answer<bigint>("redriveMessages", "dx_redrive_messages", [
        Prisma.sql`${queue}::text`,
        Prisma.sql`${count}::integer`
      ], { items: count, isQuiet: true }).pipe(Effect.mapError(queueError("redrive", queue)))
      if (moved > 0) yield* topics.announce([{ topic: Topic.messages(queue) }])
      return Number(moved)
    }),

    depth: (queue) => Effect.andThen(declared("depth", queue), readDepth(queue, null))
  })
  return Queue.of({
    ...service,
    stored: {
      database,
      clock: options.clock ?? "database",
      maxAttempts: Object.fromEntries(Object.entries(queues).map(([name, { maxAttempts }]) => [name, maxAttempts])),
      publish: service.publish,
      receive: service.receive,
      receiveBy
    }
  })
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

type Outcome = "Done" | "Sooner" | "Expired"

interface Publishing {
  readonly queue: string
  readonly json: string
  readonly delayMs: number
  readonly maxAttempts: number
}

interface DepthRow {
  readonly out_visible: bigint
  readonly out_delayed: bigint
  readonly out_in_flight: bigint
  readonly out_dead: bigint
  readonly out_oldest_ms: bigint | null
}

/** What a look has found. */
interface Found<A> {
  readonly items: ReadonlyArray<A>
  /** There may be more now. */
  readonly more: boolean
  /** When the next message becomes visible, in the time of the store; null without one. */
  readonly nextMs: number | null
}

/** What a statement has taken has no receipt. */
const isMessage = (one: object): one is Received => "receipt" in one

const isPayload = (payload: unknown): payload is Payload =>
  Predicate.isObject(payload) && typeof payload.kind === "string"

/** Messages of one statement. */
const mostReceived = 1_000

/** Messages of one sample of a queue. */
const mostCounted = 10_000

/** How calls share statements; `patience` as in `statement.ts`. */
const sharing = { lanes: 2, maxBatch: 256, patience: Duration.seconds(5) }

/** The payloads are JSON already. */
const messagesJson = (messages: ReadonlyArray<Publishing>) => {
  const rows = messages.map(({ delayMs, json, maxAttempts, queue }) =>
    `{"queue":"${queue}","payload":${json},"delay_ms":${delayMs},"max_attempts":${maxAttempts}}`
  )
  return Prisma.sql`${`[${rows.join()}]`}::jsonb`
}

const interval = (field: string, input: Duration.Input) => {
  const ms = wholeMs(input)
  return ms !== undefined && ms >= 1
    ? Effect.succeed(ms)
    : check.fail("open", "", new InvalidInput({ field, problem: "it must be a duration of at least 1 millisecond" }))
}

/** A failure of the database as a failure of a queue. */
const queueError = (operation: string, queue: string) => ({ reason }: ProviderError) =>
  new QueueError({ operation, queue, reason: reasonOf(operation, reason) })

const reasonOf = (operation: string, reason: ProviderError["reason"]): Reason => {
  const problem = reason.message
  if (reason.isRetryable) return new Unavailable({ problem })
  switch (reason._tag) {
    case "Closed":
      return new Closed({})
    case "AuthenticationFailed":
    case "PermissionDenied":
      return new AccessDenied({ problem })
    case "DataRefused":
      return operation === "publish" ? new PayloadInvalid({ kind: null, problem }) : new Unexpected({ problem })
    default:
      return new Unexpected({ problem })
  }
}
