/**
 * Keeps the connection of a `Database` that listens, one for all that listen in this process: opened for the first of
 * them, checked by a notification to itself, opened again after a loss, with pauses that grow and differ between
 * processes, and closed with the last one.
 */
import * as Clock from "effect/Clock"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Schedule from "effect/Schedule"
import type * as Scope from "effect/Scope"
import { ours } from "../../model/shared/logging.ts"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { growingMs, sleepUpTo } from "../../model/shared/trouble.ts"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import type { Notification } from "./channels.ts"
import * as ListenerSession from "./listenerSession.ts"
import type { Login } from "./login.ts"

/** A part of the process that listens. None of the functions throws or waits. */
export interface Listener {
  /** The listeners of one server and user share a connection. */
  readonly login: Login
  /** Unquoted. Two listeners of the same channels have a connection each: others count them by their connections. */
  readonly channels: ReadonlyArray<string>
  /** Name of the connection. Of several listeners, the first by the alphabet counts. */
  readonly applicationName: () => string
  /** Keys of shared advisory locks that the connection holds. */
  readonly locks?: (() => ReadonlyArray<string>) | undefined
  /** Called whenever it has connected, with all locks that it holds, those of other listeners among them. */
  readonly locked?: ((locks: ReadonlyArray<string>) => void) | undefined
  /** What the heartbeats of the connection say, one word each: others find it in pg_stat_activity. */
  readonly shows?: (() => ReadonlyArray<string>) | undefined
  /** Opened when `applicationName` or `locks` have changed. */
  readonly renamed?: Latch.Latch | undefined
  /** What `sendEcho` sends, through the pool. Only once it has arrived is the connection relied on. */
  readonly echo: Notification
  readonly sendEcho: Effect.Effect<unknown, ProviderError.ProviderError>
  /** From now on notifications arrive. Those of the time before are lost. */
  readonly connected: () => void
  /** From now on notifications are lost; `problem` says why, without secrets. */
  readonly disconnected: (problem: string) => void
  readonly receive: (notification: Notification) => void
}

/** Listens in the background until the scope is closed. Through a pooler it does not: it says so in the log. */
export type Listen = (listener: Listener) => Effect.Effect<void, never, Scope.Scope>

/**
 * `onRetired` is that of the pool. After a failover the connection may lead to the old server, which still answers: it
 * is relied on further only if another echo arrives.
 */
export const make = (
  onRetired: (listener: () => void) => Effect.Effect<void, never, Scope.Scope>
): Listen => {
  const connections: Array<Connection> = []
  return (listener) =>
    Effect.suspend(() => {
      if (listener.login.pooled) return cannotListen(listener.login)
      let connection = connections.find((one) => one.takes(listener))
      if (connection === undefined) {
        connection = makeConnection(listener.login, onRetired)
        connections.push(connection)
      }
      return connection.join(listener)
    })
}

export const log = (line: Effect.Effect<void>, annotations: Record<string, unknown>) =>
  line.pipe(
    ours({ operation: "listen", ...annotations })
  )

// internal

/** The delays before the next connection, in milliseconds: each doubles the last one. */
interface Backoff {
  readonly firstMs: number
  readonly longestMs: number
}

/** After a loss, or while the server is unreachable. */
const short: Backoff = { firstMs: 100, longestMs: 30_000 }

/** After a refusal that ends when someone changes the server or the settings. */
const long: Backoff = { firstMs: 120_000, longestMs: 600_000 }

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

interface Connection {
  readonly takes: (listener: Listener) => boolean
  readonly join: (listener: Listener) => Effect.Effect<void, never, Scope.Scope>
}

/** A listener that shares a connection with others. */
interface Member {
  readonly listener: Listener
  /** The server has accepted its channels. */
  isListening: boolean
  /** Whether notifications are known to arrive. */
  isConnected: boolean
  /** Opened when it no longer listens. */
  readonly left: Latch.Latch
}

/** What the loop below works with. */
interface Shared extends Pick<ListenerSession.Options, "login" | "wanted" | "changed" | "accepted"> {
  readonly connected: () => void
  readonly disconnected: (problem: string) => void
  readonly receive: (notification: Notification) => void
  /** A member whose channels the server has accepted; waits for the first. */
  readonly anyListening: Effect.Effect<Member>
}

const makeConnection = (login: Login, onRetired: Parameters<typeof make>[0]): Connection => {
  const members = new Set<Member>()
  const changed = Latch.makeUnsafe()
  const accepted = Latch.makeUnsafe()
  let isConnected = false
  let fiber: Fiber.Fiber<never> | undefined

  const announce = () => {
    if (!isConnected) return
    for (const member of members) {
      if (!member.isListening || member.isConnected) continue
      member.isConnected = true
      member.listener.connected()
    }
  }

  const anyListening: Effect.Effect<Member> = Effect.suspend(() => {
    for (const member of members) if (member.isListening) return Effect.succeed(member)
    accepted.closeUnsafe()
    return Effect.andThen(accepted.await, anyListening)
  })

  const shared: Shared = {
    login,
    changed,
    wanted: () => {
      const listeners = [...members].map(({ listener }) => listener)
      return {
        applicationName: listeners.map(({ applicationName }) => applicationName()).sort()[0] ?? "",
        channels: listeners.flatMap(({ channels }) => channels),
        locks: listeners.flatMap(({ locks }) => locks?.() ?? []),
        shows: listeners.flatMap(({ shows }) => shows?.() ?? [])
      }
    },
    accepted: (channels, locks) => {
      for (const member of members) {
        member.isListening = channels.includes(member.listener.echo.channel)
        member.listener.locked?.(locks)
      }
      accepted.openUnsafe()
      announce()
    },
    connected: () => {
      isConnected = true
      announce()
    },
    disconnected: (problem) => {
      isConnected = false
      for (const member of members) {
        if (member.isConnected) member.listener.disconnected(problem)
        member.isConnected = false
      }
    },
    receive: (notification) => {
      for (const { isConnected, listener } of members) {
        if (isConnected && listener.channels.includes(notification.channel)) listener.receive(notification)
      }
    },
    anyListening
  }

  const run = Effect.scoped(Effect.gen(function*() {
    const doubted = Latch.makeUnsafe()
    yield* onRetired(() => doubted.openUnsafe())
    return yield* connectAgain(shared, doubted)
  }))

  return {
    takes: (listener) =>
      listener.login.address === login.address && listener.login.config.user === login.config.user &&
      [...members].every((member) => member.listener.echo.channel !== listener.echo.channel),
    join: Effect.fnUntraced(function*(listener) {
      yield* Effect.acquireRelease(
        Effect.gen(function*() {
          const member = { listener, isListening: false, isConnected: false, left: Latch.makeUnsafe() }
          members.add(member)
          changed.openUnsafe()
          fiber ??= yield* Effect.forkDetach(run)
          return member
        }),
        (member) =>
          Effect.suspend(() => {
            members.delete(member)
            member.left.openUnsafe()
            changed.openUnsafe()
            if (members.size > 0 || fiber === undefined) return Effect.void
            const last = fiber
            fiber = undefined
            isConnected = false
            return Fiber.interrupt(last)
          })
      )
      const { renamed } = listener
      if (renamed === undefined) return
      yield* Effect.forkScoped(Effect.forever(Effect.andThen(
        renamed.await,
        Effect.sync(() => {
          renamed.closeUnsafe()
          changed.openUnsafe()
        })
      )))
    })
  }
}

/** Connects, again and again. */
const connectAgain = Effect.fnUntraced(function*(options: Shared, doubted: Latch.Latch): Effect.fn.Return<never> {
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
    yield* sleepUpTo(growingMs(firstMs, longestMs, failures))
    failures++
  }))
})

/** Runs from connecting to the loss of the connection. */
const listenOnce = Effect.fnUntraced(function*(
  { anyListening, receive, ...options }: Shared,
  doubted: Latch.Latch,
  connected: Effect.Effect<void>
): Effect.fn.Return<never, ProviderError.Reason, Scope.Scope> {
  let echoed = Deferred.makeUnsafe<void>()
  let expected = ""
  let isConnected = false

  const { watched } = yield* ListenerSession.open({
    ...options,
    onNotification: (notification) => {
      if (notification.payload === expected) return void Deferred.doneUnsafe(echoed, Effect.void)
      if (isConnected) receive(notification)
    }
  })

  /**
   * Ends when an echo has arrived. That of a member that leaves meanwhile may not, which says nothing: another one is
   * asked.
   */
  const check = (
    send: (sendEcho: Listener["sendEcho"]) => Effect.Effect<unknown, ProviderError.Reason>,
    otherwise: Effect.Effect<never, ProviderError.Reason>
  ) =>
    Effect.flatMap(anyListening, ({ left, listener }) => {
      const arrives = Deferred.makeUnsafe<void>()
      echoed = arrives
      expected = listener.echo.payload
      return Effect.raceFirst(
        Effect.as(left.await, false),
        send(listener.sendEcho).pipe(
          Effect.andThen(Effect.raceFirst(
            Deferred.await(arrives),
            Effect.andThen(ListenerSession.patience(echoTimeoutMs), otherwise)
          )),
          Effect.as(true)
        )
      )
    }).pipe(Effect.repeat({ until: (hasArrived) => hasArrived }))
  const checkAgain = Effect.gen(function*() {
    yield* doubted.await
    doubted.closeUnsafe()
    // While the pool reaches no server, there is nothing to compare with.
    yield* check((sendEcho) => Effect.orDie(Effect.retry(sendEcho, Schedule.spaced(echoRetryMs))), astray)
  })
  return yield* Effect.raceFirst(
    watched,
    check((sendEcho) => Effect.mapError(sendEcho, ({ reason }) => reason), undelivered).pipe(
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
