/**
 * Wake-ups of queues, outbox and tasks, within a process and between processes.
 *
 * A signal says that a topic may have news. It may be lost, late, doubled or wrong: it only leads to a look at the store,
 * and what no signal announces is found by a fallback look. Between processes, signals are notifications of PostgreSQL on
 * one channel of the schema. A payload has one signal per line:
 *
 *     <topic>[ @<milliseconds since the Unix epoch>][ ~<sender>]
 *
 * SQL writes the same with `dx_signal`, without a sender.
 *
 * **Announcing** never waits and never fails. Signals reach the subscribers of this process at once. For other processes
 * up to five statements leave at once, then one each 20 milliseconds for all signals of that time, because PostgreSQL
 * commits transactions that notify one at a time. What could not be sent is sent again.
 *
 * **Listening** begins with the first subscriber: on one connection for all of them, that of the `Database`, which the
 * provider of a runtime uses, too. Without one, subscribers poll.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import type * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { InBackground } from "../../../model/shared/inBackground.ts"
import { withHarmlessLoggers } from "../../../model/shared/logging.ts"
import { monotonicMs } from "../../../model/shared/monotonic.ts"
import { forkLoop } from "../../../model/shared/underWay.ts"
import * as ProviderError from "../../../provider/ProviderError.ts"
import { QueueSignals, Topic } from "../../../queue/internal/signals.ts"
import type { Subscriber } from "../../../queue/internal/signals.ts"
import { Database } from "../../Database.ts"
import type { Tls } from "../../Database.ts"
import * as Channels from "../channels.ts"
import { Prisma } from "../client.ts"
import * as Login from "../login.ts"

export interface Options {
  /** Address of the server itself. With `pgbouncer=true` it is that of a pooler, so that this process polls. */
  readonly url: string | Redacted.Redacted<string>
  readonly tls?: Tls | undefined
  /** False for a process that polls: it opens no connection, and still wakes the others. Defaults to true. */
  readonly listens?: boolean | undefined
}

/** Fails with `ProviderError`, operation `listen` and reason `ConfigurationInvalid`, if the URL cannot be read. */
export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<QueueSignals["Service"], ProviderError.ProviderError, Database | Scope.Scope> {
  const { listen: keepListening, query, schema } = yield* Database
  const login = yield* Login.make({ url: options.url, schema, tls: options.tls }).pipe(
    Effect.mapError((reason) => new ProviderError.ProviderError({ operation: "listen", reason }))
  )
  const channel = Channels.queueChannelOf(schema)
  const sender = Channels.makeSender()
  const subscribers = makeSubscribers()

  // -- sending -----------------------------------------------------------------------------------

  const notify = (operation: string, payloads: ReadonlyArray<string>) =>
    query(
      operation,
      Prisma.sql`SELECT pg_notify(${channel}, p)::text FROM unnest(${payloads}::text[]) AS one (p)`
    )

  const clock = yield* Clock.Clock
  const waiting = Latch.makeUnsafe()
  /** The earliest time of each topic. */
  const unsent = new Map<Topic, number>()
  const add = (topic: Topic, atMs: number) => {
    if (unsent.size >= mostUnsent && !unsent.has(topic)) return
    unsent.set(topic, Math.min(atMs, unsent.get(topic) ?? Infinity))
  }

  const send = Effect.suspend(() => {
    const signals = [...unsent]
    unsent.clear()
    if (signals.length === 0) return Effect.succeed(true)
    return notify("signalQueues", encode(signals, sender)).pipe(
      Effect.as(true),
      Effect.catch((error) =>
        Effect.logDebug("Queues: signals to other processes were not sent yet").pipe(
          Effect.annotateLogs({ package: "duroxide-prisma", error: error.message }),
          withHarmlessLoggers,
          Effect.andThen(Effect.sync(() => {
            for (const [topic, atMs] of signals) add(topic, atMs)
            return false
          }))
        )
      )
    )
  })

  /** Statements that may leave at once. */
  let credit = mostAtOnce
  let creditedMs = monotonicMs(clock)
  const pauseAfter = (isSent: boolean) => {
    if (!isSent) return Effect.sleep(retryMs)
    const nowMs = monotonicMs(clock)
    credit = Math.min(mostAtOnce, credit + (nowMs - creditedMs) / betweenMs) - 1
    creditedMs = nowMs
    return credit >= 1 ? Effect.void : Effect.sleep(Math.ceil((1 - credit) * betweenMs))
  }

  yield* Effect.forever(Effect.suspend(() => {
    waiting.closeUnsafe()
    return unsent.size === 0 ? waiting.await : Effect.flatMap(Effect.uninterruptible(send), pauseAfter)
  })).pipe(Effect.provideService(InBackground, true), forkLoop)

  // The sender is interrupted first: what it had no time for leaves now.
  yield* Effect.addFinalizer(() => Effect.ignore(Effect.timeout(send, farewellMs)))

  // -- listening ---------------------------------------------------------------------------------

  const scope = yield* Effect.scope
  const echo = { channel, payload: `${sender} echo` }
  let isConnected = false
  let isListening = options.listens === false
  const listen = Effect.suspend(() => {
    if (isListening) return Effect.void
    isListening = true
    return keepListening({
      login,
      channels: [channel],
      applicationName: () => `duroxide-prisma queues ${Channels.hashOf(schema).slice(0, 16)}`,
      echo,
      sendEcho: notify("checkNotifications", [echo.payload]),
      connected: () => {
        isConnected = true
        for (const { connected } of subscribers.all()) connected?.()
      },
      disconnected: () => {
        isConnected = false
        for (const { disconnected } of subscribers.all()) disconnected?.()
      },
      receive: ({ payload }) => {
        for (const signal of decode(payload)) {
          if (signal.sender !== sender) subscribers.deliver(signal.topic, signal.atMs)
        }
      }
    })
  })

  return QueueSignals.of({
    announce: (signals) =>
      Effect.sync(() => {
        for (const { atMs = 0, topic } of signals) {
          subscribers.deliver(topic, atMs)
          add(topic, atMs)
        }
        waiting.openUnsafe()
      }),
    subscribe: (topic, subscriber) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          subscribers.add(topic, subscriber)
          if (isConnected) subscriber.connected?.()
        }),
        () => Effect.sync(() => subscribers.remove(topic, subscriber))
      ).pipe(Effect.andThen(Scope.provide(listen, scope))),
    isConnected: () => isConnected
  })
})

/** Signals over a `Database`. */
export const layer = (options: Options): Layer.Layer<QueueSignals, ProviderError.ProviderError, Database> =>
  Layer.effect(QueueSignals, make(options))

// internal

/** On average. */
const betweenMs = 20

const mostAtOnce = 5

/** After a failure. */
const retryMs = 1000

/** While they cannot be sent. Others look at the store when they have connected again. */
const mostUnsent = 10_000

const farewellMs = 1000

/** PostgreSQL accepts fewer than 8,000 bytes. Topics are plain ASCII. */
const maxPayload = 7500

const encode = (signals: ReadonlyArray<readonly [Topic, number]>, sender: string): ReadonlyArray<string> => {
  const payloads: Array<string> = []
  let payload = ""
  for (const [topic, atMs] of signals) {
    const line = `${topic}${atMs === 0 ? "" : ` @${Math.ceil(atMs)}`} ~${sender}\n`
    if (payload.length + line.length > maxPayload) {
      payloads.push(payload)
      payload = ""
    }
    payload += line
  }
  return [...payloads, payload]
}

interface Received {
  readonly topic: Topic
  readonly atMs: number
  readonly sender: string | undefined
}

const line = /^(o|[mt] \S+)(?: @(\d{1,15}))?(?: ~([0-9a-z]{12}))?$/

/** What cannot be read is ignored. */
const decode = (payload: string): ReadonlyArray<Received> =>
  payload.split("\n").flatMap((text) => {
    const [, topic, digits, sender] = line.exec(text) ?? []
    return topic === undefined ? [] : [{ topic: topic as Topic, atMs: Number(digits ?? 0), sender }]
  })

const makeSubscribers = () => {
  const byTopic = new Map<Topic, Set<Subscriber>>()
  return {
    add: (topic: Topic, subscriber: Subscriber) => {
      byTopic.set(topic, (byTopic.get(topic) ?? new Set()).add(subscriber))
    },
    remove: (topic: Topic, subscriber: Subscriber) => {
      const some = byTopic.get(topic)
      some?.delete(subscriber)
      if (some?.size === 0) byTopic.delete(topic)
    },
    deliver: (topic: Topic, atMs: number) => {
      for (const subscriber of byTopic.get(topic) ?? []) subscriber.received(atMs, topic)
      if (!topic.startsWith("t ")) return
      for (const subscriber of byTopic.get(Topic.tasks) ?? []) subscriber.received(atMs, topic)
    },
    all: () => [...byTopic.values()].flatMap((some) => [...some])
  }
}
