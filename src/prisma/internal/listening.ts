/**
 * Keeps a connection that listens: opened, checked by a notification to itself, and opened again after a loss, with pauses
 * that grow and differ between processes.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { withHarmlessLoggers } from "../../model/internal/logging.ts"
import { monotonicMs } from "../../model/internal/monotonic.ts"
import * as ProviderError from "../../provider/ProviderError.ts"
import type { Database } from "../Database.ts"
import type { Notification } from "./channels.ts"
import * as ListenerSession from "./listenerSession.ts"
import type { Login } from "./login.ts"
import * as SqlFault from "./SqlFault.ts"

/** None of the functions throws or waits. */
export interface Listening {
  readonly login: Login
  /** Unquoted. */
  readonly channels: ReadonlyArray<string>
  readonly applicationName: () => string
  /** Opened when `applicationName` has changed. */
  readonly renamed?: Latch.Latch | undefined
  /** What `sendEcho` sends, through the pool. Only once it has arrived is the connection relied on. */
  readonly echo: Notification
  readonly sendEcho: Effect.Effect<unknown, ProviderError.ProviderError>
  /**
   * Of the pool. After a failover this connection may lead to the old server, which still answers: it is relied on further
   * only if another echo arrives.
   */
  readonly onRetired: Database["Service"]["onRetired"]
  /** From now on notifications arrive. Those of the time before are lost. */
  readonly connected: () => void
  /** From now on notifications are lost; `problem` says why, without secrets. */
  readonly disconnected: (problem: string) => void
  readonly receive: (notification: Notification) => void
}

/** Listens in the background until the scope is closed. Through a pooler it does not: it says so in the log. */
export const keep = (options: Listening): Effect.Effect<void, never, Scope.Scope> =>
  options.login.pooled ? cannotListen(options.login) : Effect.gen(function*() {
    const doubted = Latch.makeUnsafe()
    yield* options.onRetired(() => doubted.openUnsafe())
    yield* Effect.forkScoped(connectAgain(options, doubted))
  })

export const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
  line.pipe(
    Effect.annotateLogs({ package: "duroxide-prisma", operation: "listen", ...annotations }),
    withHarmlessLoggers
  )

// internal

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

const echoRetryMs = 1000

const cannotListen = ({ address }: Login) =>
  log(
    Effect.logWarning(
      "Listener: the URL leads to a pooler, so the queues are polled; set directUrl to the address of the server"
    ),
    { address }
  )

/** Connects, again and again. */
const connectAgain = Effect.fnUntraced(function*(options: Listening, doubted: Latch.Latch): Effect.fn.Return<never> {
  const { login: { address } } = options
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
    options.connected()
    return line
  })

  const disconnected = (reason: ProviderError.Reason) => {
    const error = { address, error_type: reason._tag, error: reason.message }
    if (connectedAtMs !== undefined) {
      const nowMs = monotonicMs(clock)
      if (nowMs - connectedAtMs > steadyMs) failures = 0
      connectedAtMs = undefined
      lostAtMs = nowMs
      options.disconnected(reason.message)
      return log(Effect.logError("Listener: the connection is lost; the queues are polled until it is back"), error)
    }
    const isKnown = warned.has(reason._tag) || (lostAtMs !== undefined && reason.isRetryable)
    if (isKnown) return log(Effect.logDebug("Listener: not connected yet"), error)
    warned.add(reason._tag)
    return log(Effect.logWarning("Listener: cannot listen, so the queues are polled; it is tried again"), error)
  }

  return yield* Effect.forever(Effect.gen(function*() {
    const reason = yield* options.login.onceMore(Effect.scoped(listenOnce(options, doubted, connected))).pipe(
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
  { echo, receive, sendEcho, ...options }: Listening,
  doubted: Latch.Latch,
  connected: Effect.Effect<void>
): Effect.fn.Return<never, ProviderError.Reason, Scope.Scope> {
  let echoed = Deferred.makeUnsafe<void>()
  let isConnected = false

  const { watched } = yield* ListenerSession.open({
    ...options,
    onNotification: (notification) => {
      const { channel, payload } = notification
      if (channel === echo.channel && payload === echo.payload) return void Deferred.doneUnsafe(echoed, Effect.void)
      if (isConnected) receive(notification)
    }
  })

  const arrives = (otherwise: Effect.Effect<never, ProviderError.Reason>) =>
    Effect.raceFirst(
      Effect.suspend(() => Deferred.await(echoed)),
      Effect.andThen(ListenerSession.patience(echoTimeoutMs), otherwise)
    )
  const checkAgain = Effect.gen(function*() {
    yield* doubted.await
    doubted.closeUnsafe()
    echoed = Deferred.makeUnsafe<void>()
    // While the pool reaches no server, there is nothing to compare with.
    yield* Effect.retry(sendEcho, Schedule.spaced(echoRetryMs)).pipe(Effect.orDie)
    yield* arrives(astray)
  })
  return yield* Effect.raceFirst(
    watched,
    Effect.mapError(sendEcho, ({ reason }) => reason).pipe(
      Effect.andThen(arrives(undelivered)),
      Effect.andThen(Effect.sync(() => {
        isConnected = true
        doubted.closeUnsafe()
      })),
      Effect.andThen(connected),
      Effect.andThen(Effect.forever(checkAgain))
    )
  )
})

const astray = Effect.failSync(() =>
  new ProviderError.ConnectionLost({ problem: "notifications no longer arrive: the pool reaches another server" })
)

const undelivered = Effect.failSync(() =>
  new ProviderError.ConfigurationInvalid({
    problem: "the server accepts LISTEN, but notifications do not arrive: the URL leads to a pooler or to another " +
      "database. Set directUrl to the address of the server, with the same database"
  })
)
