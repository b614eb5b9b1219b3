/**
 * Processes that share a schema wake each other by LISTEN and NOTIFY.
 *
 * Hints are sent as one statement through the pool, and arrive on one connection of the process's own, which leads
 * straight to the server: a pooler in transaction mode accepts LISTEN and delivers nothing. So a process relies on its
 * connection only after a notification that it has sent to itself has arrived.
 *
 * Without such a connection nothing is lost: `Notifier` reports that it is not connected, and the process polls. The
 * connection is opened again by itself, after pauses that grow and differ between processes.
 *
 * @since 0.2.0
 */
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import type * as ProviderError from "../provider/ProviderError.ts"
import { Notifier } from "../waking/Notifier.ts"
import type { Queue, SlotsInUse } from "../waking/Notifier.ts"
import { Database } from "./Database.ts"
import type { Pool, Tls } from "./Database.ts"
import { hashOf } from "./internal/channels.ts"
import { Prisma } from "./internal/client.ts"
import * as notifying from "./internal/notifying.ts"

/**
 * How to reach the server. Only `url` is required.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /**
   * Address of the server itself, with the same database as `Database`. With `pgbouncer=true` it is that of a pooler,
   * so nothing listens.
   */
  readonly url: string | Redacted.Redacted<string>
  /** TLS settings, as for `Database`. */
  readonly tls?: Tls | undefined
  /** False for a process that polls: it opens no connection, and still wakes the others. Defaults to true. */
  readonly listens?: boolean | undefined
  /** Another way to reach it: `PoolOptions`. */
  readonly pool?: undefined
}

/**
 * How to reach the server as a pool of the application does.
 *
 * @category options
 * @since 0.3.0
 */
export interface PoolOptions extends Pick<Options, "listens"> {
  /** The pool whose options say how to log in. The connection that listens is not one of the pool. */
  readonly pool: Pool
  readonly url?: undefined
}

/**
 * The notifier of the schema of `Database`. Opens no connection before `listen`.
 *
 * Fails with `ProviderError`, operation `listen` and reason `ConfigurationInvalid`, if the URL or the pool cannot be
 * used.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(
  function*(
    options: Options | PoolOptions
  ): Effect.fn.Return<Notifier["Service"], ProviderError.ProviderError, Database> {
    const { query, schema } = yield* Database
    const listenerName = `duroxide-prisma listener ${hashOf(schema).slice(0, 16)}`
    /** The queues that this process has said it serves. With both, the name has 61 bytes; the server keeps 63. */
    const serves = new Set<Queue>()
    const renamed = Latch.makeUnsafe()
    /** By the key of their lock (dx_process_key). */
    const alive = new Map<string, Alive>()
    const notifier = yield* notifying.make(options, {
      channels: ["orchestrator", "worker", "changes"],
      applicationName: () => [listenerName, ...[...serves].sort()].join(" "),
      locks: () => [...alive.keys()],
      // Read by dx_read_processes.
      shows: () =>
        [...alive].map(([key, { slotsInUse }]) => {
          const { activities, orchestrations } = slotsInUse()
          return `${key}=${orchestrations}/${activities}`
        }),
      locked: (locks) => {
        for (const key of locks) alive.get(key)?.shown.openUnsafe()
      },
      renamed
    })

    return Notifier.of({
      ...notifier,
      announce: (hints) =>
        Effect.suspend(() => {
          for (const hint of hints) {
            if (hint._tag !== "Serves" || serves.has(hint.queue)) continue
            serves.add(hint.queue)
            renamed.openUnsafe()
          }
          return notifier.announce(hints)
        }),
      showAlive: Effect.fnUntraced(function*(processId, slotsInUse) {
        const key = BigInt.asIntN(64, BigInt(`0x${processId.replaceAll("-", "").slice(0, 16)}`)).toString()
        const shown = yield* Effect.acquireRelease(
          Effect.sync(() => {
            const shown = Latch.makeUnsafe()
            alive.set(key, { shown, slotsInUse })
            renamed.openUnsafe()
            return shown
          }),
          () =>
            Effect.sync(() => {
              alive.delete(key)
              renamed.openUnsafe()
            })
        )
        yield* shown.await
      }),
      processes: query<Readonly<Record<Queue, number>>>(
        "countListeners",
        Prisma.sql`SELECT
            count(*) FILTER (WHERE application_name LIKE '% orchestrator%')::integer AS orchestrator,
            count(*) FILTER (WHERE application_name LIKE '% worker%')::integer AS worker
          FROM pg_stat_activity
          WHERE datname = current_database() AND starts_with(application_name, ${listenerName})`
      ).pipe(
        Effect.map(([row]) => row ?? { orchestrator: 0, worker: 0 }),
        Effect.mapError(notifying.notifierError)
      )
    })
  }
)

/**
 * Provides the notifier of a `Database`.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: Options | PoolOptions): Layer.Layer<Notifier, ProviderError.ProviderError, Database> =>
  Layer.effect(Notifier, make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** A process of this session that lives. */
interface Alive {
  /** Opened when its lock is held. */
  readonly shown: Latch.Latch
  readonly slotsInUse: () => SlotsInUse
}
