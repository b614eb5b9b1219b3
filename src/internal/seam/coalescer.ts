/**
 * Lets calls that are in flight at the same time travel in one statement.
 *
 * There is no timer: a flush starts in the same tick in which a lane is free, and takes whatever is waiting then, so a
 * single call leaves at once and twenty activities that end together leave together. While all lanes are busy, calls
 * gather.
 */
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberSet from "effect/FiberSet"
import type * as Scope from "effect/Scope"

export interface Options<Item, A, E> {
  /** Statements that may be under way at once. */
  readonly lanes: number
  /** Most items in one statement. */
  readonly maxBatch: number
  /** Sends one set. Answers stand in the order of the items; a failure means that nothing of the set was done. */
  readonly send: (items: ReadonlyArray<Item>) => Effect.Effect<ReadonlyArray<A>, E>
  /** True when a failed set should be tried item by item, because one bad item may have failed all of them. */
  readonly splitOn: (error: E) => boolean
}

interface Waiting<Item, A, E> {
  readonly item: Item
  readonly resume: (exit: Exit.Exit<A, E>) => void
}

/**
 * A function that sends one item and answers for that item alone.
 *
 * A call interrupted before its flush is not sent. One interrupted later is sent all the same, its answer is dropped.
 */
export const make = Effect.fnUntraced(function*<Item, A, E>(
  options: Options<Item, A, E>
): Effect.fn.Return<(item: Item) => Effect.Effect<A, E>, never, Scope.Scope> {
  const run = yield* FiberSet.makeRuntime<never, void, never>()
  const waiting: Array<Waiting<Item, A, E>> = []
  let busyLanes = 0

  const sendAlone = (entry: Waiting<Item, A, E>) =>
    Effect.map(
      Effect.exit(options.send([entry.item])),
      (exit) => entry.resume(Exit.map(exit, (answers) => answers[0]!))
    )

  const sendBatch = (batch: ReadonlyArray<Waiting<Item, A, E>>): Effect.Effect<void> =>
    Effect.matchCauseEffect(options.send(batch.map((entry) => entry.item)), {
      onSuccess: (answers) => Effect.sync(() => batch.forEach((entry, i) => entry.resume(Exit.succeed(answers[i]!)))),
      onFailure: (cause) => {
        const reason = cause.reasons[0]
        return batch.length > 1 && reason?._tag === "Fail" && options.splitOn(reason.error)
          ? Effect.forEach(batch, sendAlone, { discard: true })
          : Effect.sync(() => batch.forEach((entry) => entry.resume(Exit.failCause(cause))))
      }
    })

  const lane = Effect.gen(function*() {
    // Calls made by the same tick are still to come.
    yield* Effect.yieldNow
    while (waiting.length > 0) yield* sendBatch(waiting.splice(0, options.maxBatch))
  }).pipe(Effect.ensuring(Effect.sync(() => busyLanes--)))

  return (item) =>
    Effect.callback<A, E>((resume) => {
      const entry: Waiting<Item, A, E> = { item, resume }
      waiting.push(entry)
      // One lane is started per call at most; a lane that finds nothing left simply ends.
      if (busyLanes < options.lanes) {
        busyLanes++
        run(lane)
      }
      return Effect.sync(() => {
        const index = waiting.indexOf(entry)
        if (index >= 0) waiting.splice(index, 1)
      })
    })
})
