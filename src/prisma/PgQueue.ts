/**
 * Queues in PostgreSQL, in the tables `queue_messages` and `queue_dead`.
 *
 * A receive leases messages for the visibility timeout. A receiver whose lease has ended can no longer settle the message,
 * whether or not another one has received it meanwhile. Processes wake each other, so that an idle one sends no statements.
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
import { monotonicMs } from "../model/shared/monotonic.ts"
import * as statement from "../provider/internal/statement.ts"
import * as StoreClock from "../provider/internal/storeClock.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import * as check from "../queue/internal/check.ts"
import { countAcks, counted, countReceived, died, exhausted } from "../queue/internal/counted.ts"
import * as declarations from "../queue/internal/declarations.ts"
import * as queueGauges from "../queue/internal/gauges.ts"
import type { Receipt } from "../queue/internal/receipts.ts"
import * as receipts from "../queue/internal/receipts.ts"
import { QueueSignals, Topic } from "../queue/internal/signals.ts"
import { Queue } from "../queue/Queue.ts"
import type { Payload, Received } from "../queue/Queue.ts"
import type { QueueError } from "../queue/QueueError.ts"
import { InvalidInput, ReceiptExpired } from "../queue/QueueError.ts"
import { makeClaimId, servesArgs } from "../tasks/internal/store.ts"
import { takenTasks } from "../tasks/internal/taken.ts"
import type { Taken, TaskColumns } from "../tasks/internal/taken.ts"
import { Database } from "./Database.ts"
import { Prisma } from "./internal/client.ts"
import * as variables from "./internal/queue/environment.ts"
import { queueError } from "./internal/queue/faults.ts"
import * as receivePump from "./internal/queue/receivePump.ts"
import type { Found, ReceivePump } from "./internal/queue/receivePump.ts"
import * as sameDatabase from "./internal/queue/sameDatabase.ts"
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
   * How often a receive that waits looks for messages while the process cannot listen, at least 1 millisecond. Defaults to
   * 1 second.
   */
  readonly pollInterval?: Duration.Input | undefined
  /**
   * How often a receive that waits looks for messages whose notification was lost, at least 1 millisecond. Defaults to
   * 1 minute.
   */
  readonly fallbackPollInterval?: Duration.Input | undefined
}

/**
 * The options that environment variables give, as `docs/configuration.md` lists them; one error names each that cannot be
 * used. `queues` is set in code.
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
export const layer = (options: Options): Layer.Layer<Queue, QueueError, Database | QueueSignals> =>
  Layer.effect(Queue, make(options))

/**
 * As `layer`, without a layer.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Queue["Service"], QueueError, Database | QueueSignals | Scope.Scope> {
  const queues = yield* declarations.read(options.queues)
  const pollMs = yield* interval("pollInterval", options.pollInterval ?? "1 second")
  const fallbackMs = yield* interval("fallbackPollInterval", options.fallbackPollInterval ?? "1 minute")
  const signals = yield* QueueSignals
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
      yield* signals.announce(messages.map(({ delayMs, queue }) => ({
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
    isUnflushed = false
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
        { items: items.length, isQuiet: true, isUnflushed }
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
    outcome !== "Sooner" ? Effect.void : signals.announce([
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

  const leasing = (limit: number, queue: string, token: string, visibilityMs: number) =>
    [
      Prisma.sql`${limit}::integer`,
      Prisma.sql`${queue}::text`,
      Prisma.sql`${token}::text`,
      Prisma.sql`${visibilityMs}::bigint`
    ] as const

  const claim = (queue: string) => (limit: number, visibilityMs: number) =>
    Effect.suspend(() => {
      const token = receipts.makeToken(queue)
      return rows<ReceivedRow>("receiveMessages", "dx_receive_messages", leasing(limit, queue, token, visibilityMs), {
        isUnflushed: true
      }).pipe(
        Effect.flatMap(([row]) => read(queue, limit, token, row!)),
        Effect.mapError(queueError("receive", queue))
      )
    })

  const read = Effect.fnUntraced(
    function*(queue: string, limit: number, token: string, row: ReceivedRow) {
      const { out_attempts, out_died, out_ids, out_next_ms, out_now_ms, out_payloads } = row
      storeClock.heard(Number(out_now_ms))
      if (out_died > 0) yield* exhausted(queue, out_died)
      const ids = out_ids ?? []
      const messages: Array<Received> = []
      for (const [i, id] of ids.entries()) {
        const payload: unknown = JSON.parse(out_payloads![i]!)
        if (isPayload(payload)) {
          const receipt = receipts.format({ id: String(id), token })
          messages.push({ payload, receipt, deliveryCount: out_attempts![i]! })
        } else yield* buryForeign(queue, { id: String(id), token })
      }
      return {
        messages,
        isMore: ids.length === limit || (ids.length === 0 && out_died > 0),
        nextMs: out_next_ms === null ? null : Number(out_next_ms)
      }
    }
  )

  const take = (queue: string, { returnClaim, serves, watch }: sameDatabase.TakingOptions) => {
    const servesSql = servesArgs(serves)
    const receive = claim(queue)
    return (limit: number, visibilityMs: number): Effect.Effect<Found<Taken>, QueueError> =>
      Effect.suspend(() => {
        const token = receipts.makeToken(queue)
        const claimId = makeClaimId()
        const claimedMs = monotonicMs(clock)
        return rows<TakenRow>("takeTasks", "dx_take_tasks", [
          ...leasing(limit, queue, token, visibilityMs),
          ...servesSql,
          Prisma.sql`${claimId}::integer`
        ]).pipe(
          Effect.tapError((error) => statement.isAnswerLost(error) ? returnClaim(claimId) : Effect.void),
          watch((found) => found.some(({ out_ids, out_tasks }) => (out_tasks ?? out_ids) !== null)),
          Effect.flatMap((found) => {
            const tasks = found.flatMap(({ out_tasks }) => out_tasks === null ? [] : takenTasks(out_tasks, claimedMs))
            const last = found.at(-1)!
            storeClock.heard(Number(last.out_now_ms))
            if (tasks.length === limit) return Effect.succeed({ messages: tasks, isMore: true, nextMs: null })
            return Effect.map(
              read(queue, limit - tasks.length, token, last),
              ({ messages, ...next }) => ({ ...next, messages: [...tasks, ...messages] })
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

  const giveBack = (queue: string) => (messages: ReadonlyArray<Received>) =>
    Effect.forEach(messages, ({ receipt }) =>
      receipts.parse("receive", queue, receipt).pipe(
        Effect.flatMap((lease) => extend({ ...lease, leaseMs: 0, isUncounted: true })),
        Effect.flatMap(moved(queue, 0)),
        Effect.ignore
      ), { concurrency: "unbounded", discard: true })

  const makePump = <A>(queue: string, options: Pick<receivePump.Options<A, QueueError>, "fetch" | "giveBack">) =>
    receivePump.make<A, QueueError>({
      ...options,
      isConnected: signals.isConnected,
      storeNowMs,
      pollMs,
      fallbackMs,
      closed: queueError("receive", queue)(statement.closed("receive"))
    })

  const pumps = new Map<string, ReceivePump<Received, QueueError>>()
  for (const queue of Object.keys(queues)) {
    pumps.set(queue, yield* makePump(queue, { fetch: claim(queue), giveBack: giveBack(queue) }))
  }

  const taking: sameDatabase.Stored["taking"] = Effect.fnUntraced(function*(queue, options) {
    const pump = yield* makePump<Taken>(queue, {
      fetch: take(queue, options),
      giveBack: (some) =>
        Effect.andThen(
          giveBack(queue)(some.filter((one) => "receipt" in one)),
          Effect.forEach(some, (one) => "receipt" in one ? Effect.void : options.giveBack(one.claimed), {
            concurrency: "unbounded",
            discard: true
          })
        )
    })
    yield* signals.subscribe(Topic.messages(queue), pump.subscriber)
    return (asking) =>
      Effect.tap(pump.receive(asking), (some) => {
        const again = some.filter((one) => "receipt" in one && one.deliveryCount > 1).length
        const tasks = some.filter((one) => "claimed" in one).length
        return Effect.andThen(countReceived(queue, some.length, again), countAcks(queue, tasks))
      })
  })

  /** A process that only publishes does not listen. */
  const subscribed = new Set<string>()
  const subscribe = (queue: string, { subscriber }: ReceivePump<Received, QueueError>) =>
    Effect.suspend(() => {
      if (subscribed.has(queue)) return Effect.void
      subscribed.add(queue)
      return Scope.provide(Effect.uninterruptible(signals.subscribe(Topic.messages(queue), subscriber)), scope)
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

  const service = counted(Queue.of({
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
      const pump = pumps.get(queue)!
      yield* subscribe(queue, pump)
      return yield* pump.receive(asking)
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
      if (moved > 0) yield* signals.announce([{ topic: Topic.messages(queue) }])
      return Number(moved)
    }),

    depth: (queue) => Effect.andThen(declared("depth", queue), readDepth(queue, null))
  }))
  sameDatabase.register(service, {
    database,
    clock: options.clock ?? "database",
    maxAttempts: Object.fromEntries(Object.entries(queues).map(([name, { maxAttempts }]) => [name, maxAttempts])),
    taking
  })
  return service
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

interface ReceivedRow {
  readonly out_ids: ReadonlyArray<bigint> | null
  readonly out_payloads: ReadonlyArray<string> | null
  readonly out_attempts: ReadonlyArray<number> | null
  readonly out_died: number
  readonly out_now_ms: bigint
  readonly out_next_ms: bigint | null
}

interface TakenRow extends ReceivedRow {
  readonly out_tasks: TaskColumns | null
}

interface DepthRow {
  readonly out_visible: bigint
  readonly out_delayed: bigint
  readonly out_in_flight: bigint
  readonly out_dead: bigint
  readonly out_oldest_ms: bigint | null
}

const isPayload = (payload: unknown): payload is Payload =>
  Predicate.isObject(payload) && typeof payload.kind === "string"

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
  const ms = check.wholeMs(input)
  return ms !== undefined && ms >= 1
    ? Effect.succeed(ms)
    : check.fail("open", "", new InvalidInput({ field, problem: "it must be a duration of at least 1 millisecond" }))
}
