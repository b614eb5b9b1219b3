/**
 * The news of queues, outbox and tasks: what processes tell each other, and themselves.
 *
 * A signal says that a topic may have news. It may be lost, late, doubled or wrong: it only leads to a look at the store,
 * and what no signal announces is found by a fallback look.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"

/** What a subscriber waits for. */
export type Topic = `m ${string}` | "o" | `t ${string}` | "t"

export const Topic = {
  /** Messages of a queue, of a name that `check.queueName` accepts. */
  messages: (queue: string): Topic => `m ${queue}`,
  /** Rows of the outbox. */
  outbox: "o",
  /** The end of a task. */
  task: (id: string): Topic => `t ${id}`,
  /** For subscribers: the end of any task. */
  tasks: "t",
  /** The task of a signal of `tasks`. */
  taskId: (topic: Topic): string => topic.slice(2)
} as const

export interface Signal {
  readonly topic: Topic
  /** When there is news, by the clock of the database, milliseconds since the Unix epoch; absent: now. */
  readonly atMs?: number | undefined
}

/** Called by the signals. None of the functions throws or waits. */
export interface Subscriber {
  /** `atMs` is 0 for now. `topic` is that of the signal. */
  readonly received: (atMs: number, topic: Topic) => void
  /** Signals of other processes arrive from now on; anything may have happened before. Called at once if they do already. */
  readonly connected?: (() => void) | undefined
  /** Signals of other processes are lost from now on: poll. */
  readonly disconnected?: (() => void) | undefined
}

export class QueueSignals extends Context.Service<QueueSignals, {
  /** Returns at once. */
  readonly announce: (signals: ReadonlyArray<Signal>) => Effect.Effect<void>
  /** Until the scope is closed. */
  readonly subscribe: (topic: Topic, subscriber: Subscriber) => Effect.Effect<void, never, Scope.Scope>
  /** Whether signals of other processes arrive. False before the first subscriber. */
  readonly isConnected: () => boolean
}>()("duroxide-prisma/queue/QueueSignals") {}
