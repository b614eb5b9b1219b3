/**
 * Reads for operators and tools from a standby of the database: lists, states, histories, metrics.
 *
 * Nothing else goes there. A claim, a turn, a deletion, and what a runtime or a client reads go to the primary, because
 * they decide by what they read. What a replica answers may be old, by its lag.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as Metrics from "../model/Metrics.ts"
import { ours } from "../model/shared/logging.ts"
import { monotonicMs } from "../model/shared/monotonic.ts"
import * as sampledGauges from "../model/shared/sampledGauges.ts"
import { Admin } from "../provider/Admin.ts"
import { AdminDriver } from "../provider/AdminDriver.ts"
import * as FromDriver from "../provider/FromDriver.ts"
import { ProviderDriver } from "../provider/ProviderDriver.ts"
import { ConfigurationInvalid, ProviderError, Unavailable } from "../provider/ProviderError.ts"
import { isOfTheCall } from "../provider/shared/isOfTheCall.ts"
import { Notifier } from "../waking/Notifier.ts"
import * as Database from "./Database.ts"
import { Prisma } from "./internal/client.ts"
import * as Connection from "./internal/connection.ts"
import { opening } from "./internal/opening.ts"
import { ReadOnly } from "./internal/readOnly.ts"
import * as PrismaAdmin from "./PrismaAdmin.ts"
import * as PrismaDriver from "./PrismaDriver.ts"

/**
 * How to reach the replica, and what its reads may be.
 *
 * **Details**
 *
 * `url` leads to the standby. `maxConnections` defaults to 2 and `applicationName` to `duroxide-prisma reader`; the
 * other options of the connection have the defaults of `Database`.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options extends Omit<Database.Options, "pool"> {
  /** Most that the replica may be behind; else its reads fail with `Unavailable`. Defaults to no limit. */
  readonly maxLag?: Duration.Input | undefined
  /**
   * What an `Admin` with this replica does when the replica cannot answer: fail with its error (`none`), or ask the
   * primary (`primary`), which then carries the load of these reads. Defaults to `none`.
   */
  readonly fallback?: "none" | "primary" | undefined
}

/**
 * The calls of `Admin` that only read.
 *
 * @category models
 * @since 0.2.0
 */
export type Reads = Omit<
  Admin["Service"],
  | "deleteInstance"
  | "deleteInstancesAtomic"
  | "deleteInstanceBulk"
  | "pause"
  | "pruneExecutions"
  | "pruneExecutionsBulk"
  | "recordAction"
  | "removeLimit"
  | "resume"
  | "setLimit"
  | "retry"
  | "fork"
>

/**
 * A standby that is read.
 *
 * **Details**
 *
 * The first read connects. Reads that come meanwhile wait for the same attempt. When it fails, reads fail at once for
 * as long as it took; then the next one connects again. The sessions take no writes, even if the URL leads to a
 * primary, unless `preparedStatements` is false: a pooler shares its sessions. Every call fails with `ProviderError`. A
 * read that fails with a retryable error is sent once more, for example when the standby cancels it because it
 * conflicts with what is replayed (40001).
 *
 * @category services
 * @since 0.2.0
 */
export class ReadReplica extends Context.Service<ReadReplica, {
  /** `host:port/database`, fit for messages. */
  readonly address: string
  /**
   * How far the standby is behind, in milliseconds: 0 when it has replayed all that it received and is connected to its
   * primary, otherwise the age of the newest transaction that it has replayed. Null if the server is not a standby.
   *
   * A standby whose primary is silent counts as connected for its `wal_receiver_timeout`, a minute by default.
   */
  readonly lagMs: Effect.Effect<number | null, ProviderError>
  /** Answered by the replica. */
  readonly reads: Reads
  readonly fallback: "none" | "primary"
}>()("duroxide-prisma/prisma/ReadReplica") {}

/**
 * The replica of a URL; its connections are closed with the scope.
 *
 * Fails with `ProviderError`, operation `connect` and reason `ConfigurationInvalid`, if the URL or `maxLag` cannot be
 * used. If the replica cannot be reached, the reads fail, not this.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(
  function*(options: Options): Effect.fn.Return<ReadReplica["Service"], ProviderError, Scope.Scope> {
    const { address } = yield* Effect.fromResult(Connection.parse(options.url, options.schema)).pipe(
      Effect.mapError(cannotConnect)
    )
    const maxLagMs = options.maxLag === undefined
      ? Infinity
      : Duration.toMillis(Duration.fromInputUnsafe(options.maxLag))
    if (!(maxLagMs >= 0)) {
      return yield* cannotConnect(new ConfigurationInvalid({ problem: "maxLag must be at least 0" }))
    }
    const opened = yield* opening(open(options))
    const clock = yield* Clock.Clock
    let look = { atMs: Number.NEGATIVE_INFINITY, lagMs: null as number | null }
    const lagMs = Effect.flatMap(
      opened,
      ({ lagMs }) => Effect.tap(lagMs, (lagMs) => Effect.sync(() => void (look = { atMs: monotonicMs(clock), lagMs })))
    )

    const inTime = Effect.suspend(() =>
      monotonicMs(clock) - look.atMs < lagTrustedMs ? Effect.succeed(look.lagMs) : lagMs
    ).pipe(Effect.flatMap((lagMs) =>
      lagMs === null || lagMs <= maxLagMs ? Effect.void : Effect.fail(
        new ProviderError({
          operation: "readReplica",
          reason: new Unavailable({
            sqlState: null,
            problem: `the replica at ${address} is ${Math.round(lagMs)} ms behind; maxLag is ${maxLagMs} ms`
          })
        })
      )
    ))

    yield* sampledGauges.make({
      samples: Metrics.replicaSamples,
      read: lagMs,
      gauges: (lagMs) => lagMs === null ? [] : [[Metrics.replicaLag, lagMs / 1000]]
    })
    return ReadReplica.of({
      address,
      lagMs,
      reads: readsBy((read) => {
        const answer = Effect.flatMap(opened, ({ reads }) => Effect.retry(read(reads), onceMore))
        return maxLagMs === Infinity ? answer : Effect.andThen(inTime, answer)
      }),
      fallback: options.fallback ?? "none"
    })
  }
)

/**
 * Provides the replica of a URL, for `PrismaProvider.layer` or by itself, without a primary.
 *
 * **Example** (Lists from a replica)
 *
 * ```ts
 * const StoreLive = PrismaProvider.layer({ url }).pipe(
 *   Layer.provide(ReadReplica.layer({ url: replicaUrl, fallback: "primary" }))
 * )
 * ```
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: Options): Layer.Layer<ReadReplica, ProviderError> =>
  Layer.effect(ReadReplica, make(options))

/**
 * `layer` with options from configuration, for example `{ url: Config.Redacted("READ_DATABASE_URL") }`.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerConfig = (
  options: Config.Wrap<Options>
): Layer.Layer<ReadReplica, ProviderError | Config.ConfigError> =>
  Layer.effect(ReadReplica, Effect.flatMap(Config.unwrap(options), make))

/**
 * `Admin` of the drivers in context, as `FromDriver.layerAdmin`, except that it reads from the `ReadReplica` in
 * context, if there is one. What it deletes it has read from the primary.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerAdmin: Layer.Layer<Admin, never, AdminDriver> = Layer.effect(
  Admin,
  Effect.gen(function*() {
    const notifier = Option.getOrUndefined(yield* Effect.serviceOption(Notifier))
    const primary = FromDriver.makeAdmin(yield* AdminDriver, notifier)
    return Option.match(yield* Effect.serviceOption(ReadReplica), {
      onNone: () => primary,
      onSome: (replica) => ({ ...primary, ...readsOf(replica, primary) })
    })
  })
)

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** A lag is looked at again by the first read after this time. */
const lagTrustedMs = 1000

const cannotConnect = (reason: ConfigurationInvalid) => new ProviderError({ operation: "connect", reason })

const onceMore = { times: 1, while: ({ isRetryable }: ProviderError) => isRetryable }

interface Opened {
  readonly lagMs: Effect.Effect<number | null, ProviderError>
  readonly reads: Reads
}

const open = Effect.fnUntraced(
  function*(options: Options): Effect.fn.Return<Opened, ProviderError, Scope.Scope> {
    const database = yield* Database.make({
      ...options,
      maxConnections: options.maxConnections ?? 2,
      applicationName: options.applicationName ?? "duroxide-prisma reader"
    })
    const driver = yield* Effect.provideService(PrismaDriver.make(), Database.Database, database)
    const adminDriver = yield* PrismaAdmin.make().pipe(
      Effect.provideService(Database.Database, database),
      Effect.provideService(ProviderDriver, driver)
    )
    return {
      lagMs: Effect.map(
        Effect.retry(database.query<{ readonly lag_ms: number | null }>("readLag", lagSql), onceMore),
        ([row]) => row!.lag_ms
      ),
      reads: FromDriver.makeAdmin(adminDriver)
    }
  },
  Effect.provideService(ReadOnly, true)
)

/**
 * The lag of a standby that has replayed nothing counts from its start. Without a connection to its primary it cannot
 * know what it lacks.
 */
const lagSql = Prisma.sql`
  SELECT (CASE
    WHEN NOT pg_is_in_recovery() THEN NULL
    WHEN pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn() AND EXISTS (SELECT FROM pg_stat_wal_receiver) THEN 0
    ELSE GREATEST(0, 1000 * extract(
      epoch FROM clock_timestamp() - COALESCE(pg_last_xact_replay_timestamp(), pg_postmaster_start_time())
    ))
  END)::float8 AS lag_ms`

/** The reads of `Admin`, each sent by `send`. */
const readsBy = (
  send: <A>(read: (reads: Reads) => Effect.Effect<A, ProviderError>) => Effect.Effect<A, ProviderError>
) => {
  const reads: Reads = {
    list: (search) => send((reads) => reads.list(search)),
    count: (options) => send((reads) => reads.count(options)),
    explain: (instanceId) => send((reads) => reads.explain(instanceId)),
    listStreams: (instanceId) => send((reads) => reads.listStreams(instanceId)),
    readChunks: (instanceId, stream, selection) => send((reads) => reads.readChunks(instanceId, stream, selection)),
    listExecutions: (instanceId) => send((reads) => reads.listExecutions(instanceId)),
    latestExecutionId: (instanceId) => send((reads) => reads.latestExecutionId(instanceId)),
    readHistory: (instanceId) => send((reads) => reads.readHistory(instanceId)),
    readHistoryWithExecutionId: (instanceId, executionId) =>
      send((reads) => reads.readHistoryWithExecutionId(instanceId, executionId)),
    getInstanceInfo: (instanceId) => send((reads) => reads.getInstanceInfo(instanceId)),
    getExecutionInfo: (instanceId, executionId) => send((reads) => reads.getExecutionInfo(instanceId, executionId)),
    getSystemMetrics: send((reads) => reads.getSystemMetrics),
    getQueueDepths: send((reads) => reads.getQueueDepths),
    countMessagesBeforeStart: send((reads) => reads.countMessagesBeforeStart),
    listMessagesBeforeStart: (options) => send((reads) => reads.listMessagesBeforeStart(options)),
    getQueueLoads: send((reads) => reads.getQueueLoads),
    findUnserved: send((reads) => reads.findUnserved),
    getPauses: send((reads) => reads.getPauses),
    getLimits: send((reads) => reads.getLimits),
    getLimit: (kind, name, key) => send((reads) => reads.getLimit(kind, name, key)),
    listActions: (options) => send((reads) => reads.listActions(options)),
    getQueuedWork: (instanceId) => send((reads) => reads.getQueuedWork(instanceId)),
    listProcesses: send((reads) => reads.listProcesses),
    listChildren: (instanceId) => send((reads) => reads.listChildren(instanceId)),
    getParentId: (instanceId) => send((reads) => reads.getParentId(instanceId)),
    getInstanceTree: (instanceId) => send((reads) => reads.getInstanceTree(instanceId))
  }
  return reads
}

/** Reads from the replica, and from the primary where `fallback` says so. Logs one warning each time that begins. */
const readsOf = ({ address, fallback, reads }: ReadReplica["Service"], primary: Reads): Reads => {
  if (fallback === "none") return reads
  let isMissed = false
  return readsBy((read) =>
    read(reads).pipe(
      Effect.tap(() => Effect.sync(() => void (isMissed = false))),
      Effect.catchIf((error) => !isOfTheCall(error), (error) => {
        const warn = isMissed ? Effect.void : missed(address, error)
        isMissed = true
        return Effect.andThen(warn, read(primary))
      })
    )
  )
}

const missed = (address: string, { message, reason }: ProviderError) =>
  Effect.logWarning("Read replica: it cannot answer, so the primary does").pipe(
    ours({ address, error_type: reason._tag, error: message })
  )
