/**
 * How processes that share a store wake each other: by LISTEN/NOTIFY, by a message queue, or not at all.
 *
 * A notifier carries hints. A hint may be lost, late, doubled or wrong: it only leads to a look at the store, and what
 * no hint announces is found by polling. So a notifier need not be reliable; it need only say whether it is connected.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import * as Data from "effect/Data"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"

/**
 * A queue of the store: messages for instances, or activities.
 *
 * @category models
 * @since 0.2.0
 */
export type Queue = "orchestrator" | "worker"

/**
 * What one process announces to the others.
 *
 * - `Work`: a queue has work for any process that serves it, visible from `visibleAtMs` on, milliseconds since the Unix
 *   epoch by the store's clock; 0 for what is visible already. With `only`, it is about one item.
 * - `Taken`: the sender has claimed everything that these hints of work announced, each about one item. A process that
 *   has not looked for them yet need not.
 * - `Serves`: from now on the sender looks for work in this queue. Announced again whenever it has connected.
 * - `Locks`: the sender's locks in this queue end at `untilMs`, unless it announces a later time; null: it has none
 *   now. If it has died, others may claim its work after that time, and whatever it has stored without announcing it.
 *   The sender also announces this before a statement that stores work.
 * - `Changed`: instances have ended, have a new status or value, or have cancelled activities. A fingerprint is the
 *   first 8 hexadecimal digits of the SHA-256 of an instance id.
 * - `Waiting`: the sender has callers that wait for such changes, for the next five minutes.
 * - `Sampled`: the sender has just read the gauges of the store, so the others need not.
 * - `Paused`: an operator has paused or resumed something. A store that notifies says it, too.
 * - `Hello`: the sender has just connected, and asks for the `Waiting` of the others.
 * - `Topic`: who waits for this topic of queues, outbox, tasks or schedules looks at `atMs`, milliseconds since the
 *   Unix epoch by the store's clock; 0: now. Providers neither send nor need these.
 *
 * @category models
 * @since 0.2.0
 */
export type Hint = Data.TaggedEnum<{
  Work: { readonly queue: Queue; readonly visibleAtMs: number; readonly only?: HintedItem }
  Taken: { readonly queue: Queue; readonly ids: ReadonlyArray<string> }
  Serves: { readonly queue: Queue }
  Locks: { readonly queue: Queue; readonly untilMs: number | null }
  Changed: { readonly fingerprints: ReadonlyArray<string> }
  Waiting: {}
  Sampled: {}
  Paused: {}
  Hello: {}
  Topic: { readonly topic: string; readonly atMs: number }
}>

/**
 * The one item that a hint is about: 16 hexadecimal digits that no other hint has, and the first 32 of the SHA-256 of
 * the item's text.
 *
 * @category models
 * @since 0.2.0
 */
export interface HintedItem {
  readonly id: string
  readonly fingerprint: string
}

/**
 * Constructors and matchers of hints.
 *
 * @category constructors
 * @since 0.2.0
 */
export const Hint = Data.taggedEnum<Hint>()

/**
 * A hint that has arrived.
 *
 * @category models
 * @since 0.2.0
 */
export interface Received {
  readonly hint: Hint
  /** The process that sent it; null for one that does not use this package, such as Duroxide in Rust or plain SQL. */
  readonly sender: string | null
}

/**
 * Called by a notifier. None of the functions throws or waits.
 *
 * @category models
 * @since 0.2.0
 */
export interface Listener {
  /** From now on hints arrive. Those of the time before are lost. */
  readonly connected: () => void
  /** From now on hints are lost; `problem` says why, without secrets. The notifier connects again by itself. */
  readonly disconnected: (problem: string) => void
  /** Never with a hint that this process has sent. */
  readonly receive: (received: Received) => void
}

/**
 * Hints could not be sent. They are not sent again: the process that announced them polls for a while, and the others
 * find the work with their fallback looks.
 *
 * @category errors
 * @since 0.2.0
 */
export class NotifierError extends Data.TaggedError("NotifierError")<{
  readonly problem: string
}> {
  override get message() {
    return this.problem
  }
}

/**
 * How much of its work a process runs now.
 *
 * @category models
 * @since 0.3.0
 */
export interface SlotsInUse {
  /** Turns that it runs or stores. */
  readonly orchestrations: number
  /** Activities whose handlers run. */
  readonly activities: number
}

/**
 * Wakes processes that share a store.
 *
 * @category services
 * @since 0.2.0
 */
export class Notifier extends Context.Service<Notifier, {
  /** For logs and metrics: `listen-notify`, `in-process`, … */
  readonly name: string
  /**
   * Passes on what other processes announce, until the scope is closed. Returns at once; connects, and connects again,
   * in the background. One listener at a time.
   */
  readonly listen: (listener: Listener) => Effect.Effect<void, never, Scope.Scope>
  /** Sends hints to all other processes, at once and together. */
  readonly announce: (hints: ReadonlyArray<Hint>) => Effect.Effect<void, NotifierError>
  /**
   * Time between two announcements of a process, on average; up to five in a row need not wait. Hints gather meanwhile
   * and leave together. Defaults to 20 milliseconds.
   */
  readonly announceEvery?: Duration.Input | undefined
  /**
   * How many of those that listen now have announced `Serves`, by queue, this process included, if they can be counted.
   * Processes that only start and wait do not count: the others need not make way for them. May cost a statement: ask
   * rarely.
   */
  readonly processes?: Effect.Effect<Readonly<Record<Queue, number>>, NotifierError> | undefined
  /**
   * Shows in the store that the process of this id, a UUID, lives: while this notifier is connected, and until the
   * scope is closed. Succeeds when it is shown for the first time. Without it, processes write to the store once a
   * minute that they live.
   *
   * With what it sends to remain connected, the notifier may also show the slots in use.
   */
  readonly showAlive?:
    | ((processId: string, slotsInUse: () => SlotsInUse) => Effect.Effect<void, never, Scope.Scope>)
    | undefined
}>()("duroxide-prisma/Notifier") {}

/**
 * Wakes providers of one process that share a store: for tests, and for processes with several runtimes.
 *
 * @category constructors
 * @since 0.2.0
 */
export const makeInProcess = (): { readonly connect: (sender: string) => Notifier["Service"] } => {
  const listeners = new Map<string, Listener>()
  const serving = { orchestrator: new Set<string>(), worker: new Set<string>() }
  return {
    connect: (sender) =>
      Notifier.of({
        name: "in-process",
        listen: (listener) =>
          Effect.acquireRelease(
            Effect.sync(() => {
              listeners.set(sender, listener)
              listener.connected()
            }),
            () =>
              Effect.sync(() => {
                listeners.delete(sender)
                for (const servers of Object.values(serving)) servers.delete(sender)
              })
          ).pipe(Effect.asVoid),
        announce: (hints) =>
          Effect.sync(() => {
            for (const hint of hints) {
              if (hint._tag === "Serves" && listeners.has(sender)) serving[hint.queue].add(sender)
            }
            for (const [other, listener] of listeners) {
              if (other === sender) continue
              for (const hint of hints) listener.receive({ hint, sender })
            }
          }),
        processes: Effect.sync(() => ({ orchestrator: serving.orchestrator.size, worker: serving.worker.size }))
      })
  }
}

/**
 * The notifier of the given service.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (notifier: Notifier["Service"]): Layer.Layer<Notifier> => Layer.succeed(Notifier, notifier)
