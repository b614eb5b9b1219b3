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
import * as LogLevel from "effect/LogLevel"
import type * as Redacted from "effect/Redacted"
import * as ProviderError from "../provider/ProviderError.ts"
import { Notifier, NotifierError } from "../waking/Notifier.ts"
import type { Hint, Queue, Received } from "../waking/Notifier.ts"
import { Database } from "./Database.ts"
import type { Tls } from "./Database.ts"
import * as Channels from "./internal/channels.ts"
import { Prisma } from "./internal/client.ts"
import * as Listening from "./internal/listening.ts"
import * as Login from "./internal/login.ts"

/**
 * How to reach the server. Only `url` is required.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /**
   * Address of the server itself, with the same database as `Database`. With `pgbouncer=true` it is that of a pooler, so
   * nothing listens.
   */
  readonly url: string | Redacted.Redacted<string>
  /** As for `Database`. */
  readonly tls?: Tls | undefined
  /** False for a process that polls: it opens no connection, and still wakes the others. Defaults to true. */
  readonly listens?: boolean | undefined
}

/**
 * The notifier of the schema of `Database`. Opens no connection before `listen`.
 *
 * Fails with `ProviderError`, operation `listen` and reason `ConfigurationInvalid`, if the URL cannot be read.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(
  function*(options: Options): Effect.fn.Return<Notifier["Service"], ProviderError.ProviderError, Database> {
    const { listen, query, schema } = yield* Database
    const login = yield* Login.make({ url: options.url, schema, tls: options.tls }).pipe(
      Effect.mapError((reason) => new ProviderError.ProviderError({ operation: "listen", reason }))
    )
    const channels = Channels.channelsOf(schema)
    const sender = Channels.makeSender()
    const echo = Channels.echoOf(channels, sender)
    const listenerName = `duroxide-prisma listener ${Channels.hashOf(schema).slice(0, 16)}`
    /** The queues that this process has said it serves. With both, the name has 61 bytes; the server keeps 63. */
    const serves = new Set<Queue>()
    const renamed = Latch.makeUnsafe()
    const serve = (queue: Queue) => {
      if (serves.has(queue)) return
      serves.add(queue)
      renamed.openUnsafe()
    }

    /** One statement, and one lock of the server, for all of them. */
    const notify = (operation: string, notifications: ReadonlyArray<Channels.Notification>) =>
      query(
        operation,
        Prisma.sql`SELECT pg_notify(c, p)::text FROM unnest(
          ${notifications.map(({ channel }) => channel)}::text[],
          ${notifications.map(({ payload }) => payload)}::text[]
        ) AS one (c, p)`
      )

    return Notifier.of({
      name: "listen-notify",
      listen: (listener) =>
        options.listens === false ? Effect.void : Effect.flatMap(hintLogger, (logHint) =>
          listen({
            login,
            channels: Object.values(channels),
            applicationName: () => [listenerName, ...[...serves].sort()].join(" "),
            renamed,
            echo,
            sendEcho: notify("checkNotifications", [echo]),
            connected: listener.connected,
            disconnected: listener.disconnected,
            receive: (notification) => {
              const received = Channels.decodeNotification(channels, notification)
              if (received?.sender === sender) return
              logHint(notification.channel, received)
              if (received !== undefined) listener.receive(received)
            }
          })),
      announce: (hints: ReadonlyArray<Hint>) =>
        Effect.suspend(() => {
          for (const hint of hints) if (hint._tag === "Serves") serve(hint.queue)
          const notifications = Channels.encodeHints(channels, sender, hints)
          return notifications.length === 0
            ? Effect.void
            : Effect.asVoid(Effect.mapError(notify("announce", notifications), notifierError))
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
        Effect.mapError(notifierError)
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
export const layer = (options: Options): Layer.Layer<Notifier, ProviderError.ProviderError, Database> =>
  Layer.effect(Notifier, make(options))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const notifierError = ({ message }: ProviderError.ProviderError) => new NotifierError({ problem: message })

/** Logs what arrives, at level Debug. */
const hintLogger = Effect.gen(function*() {
  const isLogged = yield* LogLevel.isEnabled("Debug")
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  return (channel: string, received: Received | undefined): void => {
    if (!isLogged) return
    fork(
      received === undefined
        ? Listening.log(Effect.logDebug("Listener: a notification without a hint"), { channel })
        : Listening.log(Effect.logDebug("Listener: hint received"), {
          channel,
          hint: received.hint._tag,
          sender: received.sender
        })
    )
  }
})
