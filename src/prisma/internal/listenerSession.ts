/**
 * One connection that listens: opened, watched and closed. It belongs to one listener and never comes from the pool,
 * since a notification reaches only the session that asked for it.
 */
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import type * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import * as net from "node:net"
import type { Duplex } from "node:stream"
import * as pg from "pg"
import * as ProviderError from "../../provider/ProviderError.ts"
import * as SqlFault from "../../provider/SqlFault.ts"
import type { Notification } from "./channels.ts"
import { located, quoted } from "./connection.ts"
import type { Login } from "./login.ts"
import { connectTimeoutMs } from "./pool.ts"
import { isUnsupported } from "./unsupported.ts"

export interface Options {
  readonly login: Login
  /** What the session is to be now. The channels are unquoted; `locks` are keys of shared advisory locks. */
  readonly wanted: () => {
    readonly applicationName: string
    readonly channels: ReadonlyArray<string>
    readonly locks: ReadonlyArray<string>
    /** Words that the heartbeats say. */
    readonly shows: ReadonlyArray<string>
  }
  /** Opened when `wanted` has changed. */
  readonly changed: Latch.Latch
  /**
   * Called when the server listens to these channels, and to no others, and the session has these locks: none where the
   * server has no such locks.
   */
  readonly accepted: (channels: ReadonlyArray<string>, locks: ReadonlyArray<string>) => void
  /** Called for every notification, from the moment the server accepts the listener. */
  readonly onNotification: (notification: Notification) => void
}

export interface Session {
  /** Fails when the connection is found dead; never succeeds. */
  readonly watched: Effect.Effect<never, ProviderError.Reason>
}

/**
 * Listens for the current scope, whose end closes the connection at once.
 *
 * **Details**
 *
 * A connection can die without a sign: the server's machine is gone, a firewall has forgotten it. So an empty query is
 * sent every 30 seconds, which the server answers without running a statement.
 */
export const open = Effect.fnUntraced(
  function*(options: Options): Effect.fn.Return<Session, ProviderError.Reason, Scope.Scope> {
    const { address } = options.login
    const lost = Deferred.makeUnsafe<never, ProviderError.Reason>()
    const lose = (reason: ProviderError.Reason) => Deferred.doneUnsafe(lost, Effect.fail(located(reason, address)))
    const answered = <A>(ask: () => Promise<A>) =>
      Effect.tryPromise({ try: ask, catch: (thrown) => located(SqlFault.classify(thrown), address) })

    const state = { isOpen: false }
    const { client } = yield* Effect.acquireRelease(
      Effect.try({ try: () => prepare(options), catch: SqlFault.classify }),
      ({ client, socket }) =>
        Effect.promise(() => client.end()).pipe(
          Effect.timeoutOption(farewellMs),
          // Without a live connection, there is no one to say goodbye to.
          Effect.when(Effect.sync(() => state.isOpen && !Deferred.isDoneUnsafe(lost))),
          Effect.andThen(Effect.sync(() => socket.destroy()))
        )
    )
    client.on("error", (error) => void lose(SqlFault.classify(error)))
    client.on("end", () => void lose(new ProviderError.ConnectionLost({ problem: "the connection was closed" })))
    client.on("notification", ({ channel, payload }) => options.onNotification({ channel, payload: payload ?? "" }))

    yield* answered(() => client.connect())
    state.isOpen = true
    /** A comment alone is an empty query. It says in pg_stat_activity what the connection is for. */
    const heartbeat = () => {
      const { channels, shows } = options.wanted()
      const slots = shows.length === 0 ? "" : `; slots ${shows.join(" ")}`
      return `-- duroxide-prisma listens on ${channels.map(quoted).join(", ")}${slots}`
    }
    const held = new Set<string>()
    let hasLocks = true
    // One transaction: what was listened to before, and still is, misses nothing.
    const adapt = Effect.gen(function*() {
      options.changed.closeUnsafe()
      const { applicationName, channels, ...wanted } = options.wanted()
      const names = channels.map(quoted)
      const statements = [
        // The server may be set to end sessions that are idle.
        "SET idle_session_timeout = 0",
        // It is to notice soon that the host of this process is gone, and to drop the locks then.
        "SET tcp_keepalives_idle = 30; SET tcp_keepalives_interval = 10; SET tcp_keepalives_count = 3",
        `SET application_name = ${pg.escapeLiteral(applicationName)}`,
        "UNLISTEN *",
        ...names.map((name) => `LISTEN ${name}`)
      ]
      const send = (locks: ReadonlyArray<string>) =>
        answered(() =>
          client.query([
            ...statements,
            // Shared: the server may not know yet that the connection before this one is lost.
            ...locks.filter((key) => !held.has(key)).map((key) => `SELECT pg_advisory_lock_shared('${key}')`),
            ...[...held].filter((key) => !locks.includes(key)).map((key) =>
              `SELECT pg_advisory_unlock_shared('${key}')`
            )
          ].join("; "))
        )
      // A server without such locks may have notifications.
      const locks = yield* Effect.as(send(hasLocks ? wanted.locks : []), hasLocks ? wanted.locks : []).pipe(
        Effect.catchIf(isUnsupported, (reason) => {
          if (!hasLocks || wanted.locks.length === 0) return Effect.fail(reason)
          hasLocks = false
          return Effect.as(send([]), [])
        })
      )
      held.clear()
      for (const key of locks) held.add(key)
      options.accepted(channels, locks)
    })
    yield* adapt
    const beat = Effect.raceFirst(
      answered(() => client.query(heartbeat())),
      Effect.andThen(
        patience(heartbeatTimeoutMs),
        Effect.fail(
          new ProviderError.ConnectionLost({
            problem: `${address}: no answer to a heartbeat for ${heartbeatTimeoutMs / 1000} seconds`
          })
        )
      )
    )
    return {
      watched: Effect.raceAllFirst([
        Deferred.await(lost),
        Effect.forever(Effect.andThen(Effect.sleep(heartbeatIntervalMs), beat)),
        Effect.forever(Effect.andThen(options.changed.await, adapt))
      ])
    }
  }
)

/**
 * Waits for an answer, in two halves. After the event loop was blocked, the first timer fires before Node reads what
 * has already arrived; when the second one fires, it has been read.
 */
export const patience = (ms: number): Effect.Effect<void> => Effect.andThen(Effect.sleep(ms / 2), Effect.sleep(ms / 2))

// internal

const heartbeatIntervalMs = 30_000

const heartbeatTimeoutMs = 10_000

/** For the last message, which lets the server end the session without a line in its log. */
const farewellMs = 1000

const prepare = ({ login, wanted }: Options) => {
  const { stream } = login.config
  // A pool of the application may have a tunnel of its own.
  const socket: Duplex = (typeof stream === "function" ? stream() : undefined) ?? new net.Socket()
  const client = new login.Client({
    ...login.config,
    application_name: wanted().applicationName, // whatever the URL gives to the pool's connections
    connectionTimeoutMillis: connectTimeoutMs,
    keepAlive: true,
    keepAliveInitialDelayMillis: heartbeatIntervalMs,
    stream: () => socket
  })
  return { client, socket }
}
