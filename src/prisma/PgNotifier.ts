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
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as LogLevel from "effect/LogLevel"
import * as Random from "effect/Random"
import type * as Redacted from "effect/Redacted"
import type * as Scope from "effect/Scope"
import { withHarmlessLoggers } from "../model/internal/logging.ts"
import { monotonicMs } from "../model/internal/monotonic.ts"
import { Notifier, NotifierError } from "../provider/Notifier.ts"
import type { Hint, Listener } from "../provider/Notifier.ts"
import * as ProviderError from "../provider/ProviderError.ts"
import { Database } from "./Database.ts"
import * as Channels from "./internal/channels.ts"
import { Prisma } from "./internal/client.ts"
import * as Connection from "./internal/connection.ts"
import * as ListenerSession from "./internal/listenerSession.ts"
import * as SqlFault from "./internal/SqlFault.ts"

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
    const { query, schema } = yield* Database
    const connection = yield* Effect.fromResult(Connection.parse(options.url, schema)).pipe(
      Effect.mapError((reason) => new ProviderError.ProviderError({ operation: "listen", reason }))
    )
    const channels = Channels.channelsOf(schema)
    const sender = Channels.makeSender()
    const applicationName = `duroxide-prisma listener ${Channels.hashOf(schema).slice(0, 16)}`

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
        options.listens === false ? Effect.void : connection.pooled ? cannotListen(connection) : Effect.asVoid(
          Effect.forkScoped(
            keepListening({
              connection,
              channels,
              applicationName,
              sender,
              listener,
              sendEcho: notify("checkNotifications", [Channels.echoOf(channels, sender)])
            })
          )
        ),
      announce: (hints: ReadonlyArray<Hint>) =>
        Effect.suspend(() => {
          const notifications = Channels.encodeHints(channels, sender, hints)
          return notifications.length === 0
            ? Effect.void
            : Effect.asVoid(Effect.mapError(notify("announce", notifications), notifierError))
        }),
      processes: query<{ readonly count: number }>(
        "countListeners",
        Prisma.sql`SELECT count(*)::integer AS count FROM pg_stat_activity
          WHERE datname = current_database() AND application_name = ${applicationName}`
      ).pipe(
        Effect.map(([row]) => row?.count ?? 0),
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

interface Listening {
  readonly connection: Connection.Connection
  readonly channels: Channels.Channels
  readonly applicationName: string
  readonly sender: string
  readonly listener: Listener
  readonly sendEcho: Effect.Effect<unknown, ProviderError.ProviderError>
}

/** The pauses before the next connection, in milliseconds: each doubles the last one. */
interface Pauses {
  readonly firstMs: number
  readonly longestMs: number
}

/** After a loss, or while the server is unreachable. */
const short: Pauses = { firstMs: 100, longestMs: 30_000 }

/** After a refusal that ends when someone changes the server or the settings. */
const long: Pauses = { firstMs: 120_000, longestMs: 600_000 }

/** A connection that lasted longer was a good one. */
const steadyMs = 30_000

const echoTimeoutMs = 5000

const notifierError = ({ message }: ProviderError.ProviderError) => new NotifierError({ problem: message })

const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
  line.pipe(
    Effect.annotateLogs({ package: "duroxide-prisma", operation: "listen", ...annotations }),
    withHarmlessLoggers
  )

const cannotListen = ({ address }: Connection.Connection) =>
  log(
    Effect.logWarning(
      "Listener: the URL leads to a pooler, so the queues are polled; set directUrl to the address of the server"
    ),
    { address }
  )

/** Connects, again and again. */
const keepListening = Effect.fnUntraced(function*(options: Listening): Effect.fn.Return<never> {
  const { connection: { address }, listener } = options
  const clock = yield* Clock.Clock
  let failures = 0
  let connectedAtMs: number | undefined
  let lostAtMs: number | undefined
  /** Reasons reported since the last connection: one warning each. A loss is an error, and covers those that pass. */
  const warned = new Set<string>()

  const connected = Effect.suspend(() => {
    const line = lostAtMs === undefined
      ? log(Effect.logInfo("Listener: listening; hints of other processes arrive"), { address })
      : log(Effect.logInfo("Listener: listening again"), {
        address,
        attempts: failures,
        duration_ms: Math.round(monotonicMs(clock) - lostAtMs)
      })
    connectedAtMs = monotonicMs(clock)
    lostAtMs = undefined
    warned.clear()
    listener.connected()
    return line
  })

  const disconnected = (reason: ProviderError.Reason) => {
    const error = { address, error_type: reason._tag, error: reason.message }
    if (connectedAtMs !== undefined) {
      const nowMs = monotonicMs(clock)
      if (nowMs - connectedAtMs > steadyMs) failures = 0
      connectedAtMs = undefined
      lostAtMs = nowMs
      listener.disconnected(reason.message)
      return log(Effect.logError("Listener: the connection is lost; the queues are polled until it is back"), error)
    }
    const isKnown = warned.has(reason._tag) || (lostAtMs !== undefined && reason.isRetryable)
    if (isKnown) return log(Effect.logDebug("Listener: not connected yet"), error)
    warned.add(reason._tag)
    return log(Effect.logWarning("Listener: cannot listen, so the queues are polled; it is tried again"), error)
  }

  return yield* Effect.forever(Effect.gen(function*() {
    const reason = yield* Effect.scoped(listenOnce(options, connected)).pipe(
      Effect.catchDefect((defect) => Effect.fail(SqlFault.classify(defect))),
      Effect.flip
    )
    yield* disconnected(reason)
    const { firstMs, longestMs } = reason.isRetryable ? short : long
    // Processes that lose their connections together do not return together.
    yield* Effect.sleep((yield* Random.nextBetween(0.5, 1)) * Math.min(firstMs * 2 ** failures, longestMs))
    failures++
  }))
})

/** From connecting to the loss of the connection. */
const listenOnce = Effect.fnUntraced(function*(
  { listener, sendEcho, sender, ...options }: Listening,
  connected: Effect.Effect<void>
): Effect.fn.Return<never, ProviderError.Reason, Scope.Scope> {
  const { channels } = options
  const logsHints = yield* LogLevel.isEnabled("Debug")
  const fork = Effect.runForkWith(yield* Effect.context<never>())
  const echo = Channels.echoOf(channels, sender)
  const echoed = Deferred.makeUnsafe<void>()
  let isConnected = false

  const { watched } = yield* ListenerSession.open({
    ...options,
    onNotification: (notification) => {
      const { channel, payload } = notification
      if (channel === echo.channel && payload === echo.payload) return void Deferred.doneUnsafe(echoed, Effect.void)
      if (!isConnected) return
      const received = Channels.decodeNotification(channels, notification)
      if (received?.sender === sender) return
      if (logsHints) {
        fork(
          received === undefined
            ? log(Effect.logDebug("Listener: a notification without a hint"), { channel })
            : log(Effect.logDebug("Listener: hint received"), {
              channel,
              hint: received.hint._tag,
              sender: received.sender
            })
        )
      }
      if (received !== undefined) listener.receive(received)
    }
  })

  const arrives = Effect.raceFirst(
    Deferred.await(echoed),
    Effect.andThen(ListenerSession.patience(echoTimeoutMs), undelivered)
  )
  return yield* Effect.raceFirst(
    watched,
    Effect.mapError(sendEcho, ({ reason }) => reason).pipe(
      Effect.andThen(arrives),
      Effect.andThen(Effect.sync(() => {
        isConnected = true
      })),
      Effect.andThen(connected),
      Effect.andThen(Effect.never)
    )
  )
})

const undelivered = Effect.failSync(() =>
  new ProviderError.ConfigurationInvalid({
    problem: "the server accepts LISTEN, but notifications do not arrive: the URL leads to a pooler or to another " +
      "database. Set directUrl to the address of the server, with the same database"
  })
)
