/**
 * Notifiers over LISTEN and NOTIFY: the one of a provider, and the one for topics of queues, outbox and tasks. Both
 * share the connection of their `Database` that listens.
 */
import * as Effect from "effect/Effect"
import type * as Latch from "effect/Latch"
import * as LogLevel from "effect/LogLevel"
import * as ProviderError from "../../provider/ProviderError.ts"
import { NotifierError } from "../../waking/Notifier.ts"
import type { Notifier, Received } from "../../waking/Notifier.ts"
import * as topics from "../../waking/Topics.ts"
import { Database } from "../Database.ts"
import * as Channels from "./channels.ts"
import { Prisma } from "./client.ts"
import * as Listening from "./listening.ts"
import * as Login from "./login.ts"

export interface Options extends Login.Place {
  readonly listens?: boolean | undefined
}

/** How a notifier listens. */
export interface Ear {
  /** The last one also carries the echo. */
  readonly channels: ReadonlyArray<keyof Channels.Channels>
  readonly applicationName: () => string
  readonly renamed?: Latch.Latch
  readonly locks?: () => ReadonlyArray<string>
  readonly shows?: () => ReadonlyArray<string>
  readonly locked?: (locks: ReadonlyArray<string>) => void
}

/** Fails with `ProviderError`, operation `listen` and reason `ConfigurationInvalid`, if the URL cannot be read. */
export const make = Effect.fnUntraced(function*(
  { listens, ...place }: Options,
  { applicationName, channels: heard, locked, locks, renamed, shows }: Ear
): Effect.fn.Return<Notifier["Service"], ProviderError.ProviderError, Database> {
  const { listen, notifies, query, schema } = yield* Database
  const login = yield* Login.make({ ...place, schema }).pipe(
    Effect.mapError((reason) => new ProviderError.ProviderError({ operation: "listen", reason }))
  )
  const channels = Channels.channelsOf(schema)
  const sender = Channels.makeSender()
  const echo = Channels.echoOn(channels[heard.at(-1)!], sender)

  /** One statement, and one lock of the server, for all of them. */
  const notify = (operation: string, notifications: ReadonlyArray<Channels.Notification>) =>
    query(
      operation,
      Prisma.sql`SELECT pg_notify(c, p)::text FROM unnest(
        ${notifications.map(({ channel }) => channel)}::text[],
        ${notifications.map(({ payload }) => payload)}::text[]
      ) AS one (c, p)`
    )

  return {
    name: "listen-notify",
    listen: ({ connected, disconnected, receive }) =>
      listens === false ?
        Effect.void :
        !notifies ?
        cannotNotify :
        Effect.flatMap(hintLogger, (logHint) =>
          listen({
            login,
            channels: heard.map((name) => channels[name]),
            applicationName,
            locks,
            locked,
            renamed,
            shows,
            echo,
            sendEcho: notify("checkNotifications", [echo]),
            connected,
            disconnected,
            receive: (notification) => {
              const hints = Channels.decode(channels, notification)
              if (hints.length === 0) logHint(notification.channel, undefined)
              for (const received of hints) {
                if (received.sender === sender) continue
                logHint(notification.channel, received)
                receive(received)
              }
            }
          })),
    announce: (hints) =>
      Effect.suspend(() => {
        const notifications = notifies ? Channels.encode(channels, sender, hints) : []
        return notifications.length === 0
          ? Effect.void
          : Effect.asVoid(Effect.mapError(notify("announce", notifications), notifierError))
      })
  }
})

/** Hints about topics over a `Database`. Fails as `make` does. */
export const makeTopics = Effect.fnUntraced(function*(options: Options) {
  const { schema } = yield* Database
  const notifier = yield* make(options, {
    channels: ["topics"],
    applicationName: () => `duroxide-prisma queues ${Channels.hashOf(schema).slice(0, 16)}`
  })
  return yield* topics.make(notifier)
})

export const notifierError = ({ message }: ProviderError.ProviderError) => new NotifierError({ problem: message })

// internal

const cannotNotify = Listening.log(
  Effect.logWarning("Listener: the server refuses pg_notify, so the queues are polled"),
  {}
)

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
