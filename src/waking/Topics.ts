/**
 * Hints about topics: messages of a queue, rows of the outbox, schedules, ends of tasks.
 *
 * They reach the subscribers of this process at once, and those of other processes by a `Notifier`. **Announcing**
 * never waits and never fails; what could not be sent is sent again. **Listening** begins with the first subscriber. A
 * hint may be lost, late, doubled or wrong: it only leads to a look at the store, and what no hint announces is found
 * by a fallback look.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Scope from "effect/Scope"
import { ours } from "../model/shared/logging.ts"
import { Hint } from "./Notifier.ts"
import type { Notifier } from "./Notifier.ts"
import * as senders from "./sender.ts"

/**
 * What a subscriber waits for.
 *
 * @category models
 * @since 0.2.0
 */
export type Topic = `m ${string}` | "o" | "s" | `t ${string}` | "t"

/**
 * Makes topics, and reads them.
 *
 * @category constructors
 * @since 0.2.0
 */
export const Topic = {
  /** Messages of a queue. */
  messages: (queue: string): Topic => `m ${queue}`,
  /** Rows of the outbox. */
  outbox: "o",
  /** Schedules that have changed. */
  schedules: "s",
  /** The end of a task. */
  task: (id: string): Topic => `t ${id}`,
  /** For subscribers: the end of any task. */
  tasks: "t",
  /** The task of a hint of `tasks`. */
  taskId: (topic: Topic): string => topic.slice(2)
} as const

/**
 * A hint about a topic.
 *
 * @category models
 * @since 0.2.0
 */
export interface TopicHint {
  readonly topic: Topic
  /** When to look, by the clock of the database, milliseconds since the Unix epoch; absent: now. */
  readonly atMs?: number | undefined
}

/**
 * Who waits for a topic. None of the functions throws or waits.
 *
 * @category models
 * @since 0.2.0
 */
export interface Subscriber {
  /** `atMs` is 0 for now. `topic` is that of the hint. */
  readonly received: (atMs: number, topic: Topic) => void
  /**
   * Hints of other processes arrive from now on; anything may have happened before. Called at once if they do already.
   */
  readonly connected?: (() => void) | undefined
  /** Hints of other processes are lost from now on: poll. */
  readonly disconnected?: (() => void) | undefined
}

/**
 * Announces hints about topics, and subscribes to them.
 *
 * @category services
 * @since 0.2.0
 */
export class Topics extends Context.Service<Topics, {
  /** Returns at once. */
  readonly announce: (hints: ReadonlyArray<TopicHint>) => Effect.Effect<void>
  /** Subscribes until the scope is closed. */
  readonly subscribe: (topic: Topic, subscriber: Subscriber) => Effect.Effect<void, never, Scope.Scope>
  /** Whether hints of other processes arrive. False before the first subscriber. */
  readonly isConnected: () => boolean
}>()("duroxide-prisma/Topics") {}

/**
 * Topics whose hints reach other processes by this notifier.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(function*(
  notifier: Notifier["Service"]
): Effect.fn.Return<Topics["Service"], never, Scope.Scope> {
  const scope = yield* Effect.scope
  const byTopic = new Map<Topic, Set<Subscriber>>()
  const all = () => [...byTopic.values()].flatMap((some) => [...some])
  const deliver = (topic: Topic, atMs: number) => {
    for (const subscriber of byTopic.get(topic) ?? []) subscriber.received(atMs, topic)
    if (!topic.startsWith("t ")) return
    for (const subscriber of byTopic.get(Topic.tasks) ?? []) subscriber.received(atMs, topic)
  }

  /** The earliest time of each topic. */
  const unsent = new Map<Topic, number>()
  const add = (topic: Topic, atMs: number) => {
    if (unsent.size >= mostUnsent && !unsent.has(topic)) return
    unsent.set(topic, Math.min(atMs, unsent.get(topic) ?? Infinity))
  }

  const send = Effect.suspend(() => {
    const hints = [...unsent]
    unsent.clear()
    if (hints.length === 0) return Effect.succeed("Nothing" as const)
    return Effect.matchEffect(notifier.announce(hints.map(([topic, atMs]) => Hint.Topic({ topic, atMs }))), {
      onSuccess: () => Effect.succeed("Done" as const),
      onFailure: (error) => {
        for (const [topic, atMs] of hints) add(topic, atMs)
        return Effect.logDebug("Queues: hints to other processes were not sent yet").pipe(
          ours({ error: error.message }),
          Effect.as("Again" as const)
        )
      }
    })
  })
  const sendSoon = yield* senders.make({ send, farewellMs })

  let isConnected = false
  let isListening = false
  const listen = Effect.suspend(() => {
    if (isListening) return Effect.void
    isListening = true
    return notifier.listen({
      connected: () => {
        isConnected = true
        for (const { connected } of all()) connected?.()
      },
      disconnected: () => {
        isConnected = false
        for (const { disconnected } of all()) disconnected?.()
      },
      receive: ({ hint }) => {
        if (hint._tag === "Topic") deliver(hint.topic as Topic, hint.atMs)
      }
    })
  })

  return Topics.of({
    announce: (hints) =>
      Effect.sync(() => {
        for (const { atMs = 0, topic } of hints) {
          deliver(topic, atMs)
          add(topic, atMs)
        }
        sendSoon()
      }),
    subscribe: (topic, subscriber) =>
      Effect.acquireRelease(
        Effect.sync(() => {
          byTopic.set(topic, (byTopic.get(topic) ?? new Set()).add(subscriber))
          if (isConnected) subscriber.connected?.()
        }),
        () =>
          Effect.sync(() => {
            const some = byTopic.get(topic)
            some?.delete(subscriber)
            if (some?.size === 0) byTopic.delete(topic)
          })
      ).pipe(Effect.andThen(Scope.provide(listen, scope))),
    isConnected: () => isConnected
  })
})

// internal

/** Most topics that wait while hints cannot be sent. Others look at the store when they have connected again. */
const mostUnsent = 10_000

const farewellMs = 1_000
