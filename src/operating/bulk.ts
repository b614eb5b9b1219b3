/**
 * Actions on many items: instances, tasks.
 *
 * Items are taken in groups, so that memory does not grow with their number; one that is refused does not stop the
 * others. Stopped half way, the same call takes up the rest.
 */
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import * as Stream from "effect/Stream"

export interface Item {
  readonly id: string
  /** The instance that waits for this one, which is taken before it. */
  readonly parentId: string | null
}

/** Items that were named, each once. */
export const named = (ids: ReadonlyArray<string>): Stream.Stream<Item> =>
  Stream.fromIterable([...new Set(ids)].map((id) => ({ id, parentId: null })))

/** How far it has come. It changes while items are taken. */
export interface Tally {
  readonly done: number
  /** Begun, without an answer yet: done or not. */
  readonly open: number
  readonly refusals: number
  /** The first ids of all that are done, at most `mostIds`. */
  readonly ids: ReadonlyArray<string>
  /** The first refusals of all, at most `mostRefused`. */
  readonly refused: ReadonlyArray<Refused>
}

export interface Refused {
  readonly id: string
  readonly code: string
  readonly message: string
}

export const mostIds = 5

export const mostRefused = 1000

export interface Options<E, R, E2, R2, R3> {
  readonly items: Stream.Stream<Item, E, R>
  readonly act: (id: string) => Effect.Effect<unknown, E2, R2>
  /** Called after every item. */
  readonly onProgress?: ((tally: Tally) => Effect.Effect<void, never, R3>) | undefined
  /** Called once, before the first item: the tally says how far it came even if it is stopped. */
  readonly onStart?: ((tally: Tally) => void) | undefined
}

/**
 * Calls `act` for every item. A failure that is about one item is counted; any other stops all, and so does an
 * interruption: what has begun then is `open`.
 */
export const each = Effect.fnUntraced(function*<E, R, E2, R2, R3 = never>(
  { act, items, onProgress, onStart }: Options<E, R, E2, R2, R3>
): Effect.fn.Return<Tally, E | E2, R | R2 | R3> {
  const tally = { done: 0, open: 0, refusals: 0, ids: [] as Array<string>, refused: [] as Array<Refused> }
  onStart?.(tally)
  /** Why it was refused; undefined if it was not. */
  const one = ({ id }: Item): Effect.Effect<Refused | undefined, E2, R2 | R3> =>
    Effect.andThen(Effect.sync(() => void tally.open++), act(id)).pipe(
      Effect.matchEffect({
        onSuccess: () =>
          Effect.sync(() => {
            tally.open--
            tally.done++
            return undefined
          }),
        onFailure: (error): Effect.Effect<Refused, E2> => {
          const { code, message } = reasonOf(error)
          if (!ofOneItem.has(code)) return Effect.fail(error)
          return Effect.sync(() => {
            tally.open--
            tally.refusals++
            return { id, code, message }
          })
        }
      }),
      Effect.tap(() => onProgress?.(tally) ?? Effect.void)
    )
  const wave = (items: ReadonlyArray<Item>) =>
    Effect.map(Effect.forEach(items, one, { concurrency }), (refusals) =>
      refusals.forEach((refusal, i) => {
        if (refusal !== undefined && tally.refused.length < mostRefused) tally.refused.push(refusal)
        if (refusal === undefined && tally.ids.length < mostIds) tally.ids.push(items[i]!.id)
      }))
  yield* Stream.runForEachArray(
    Stream.rechunk(items, groupSize),
    (group) => Effect.forEach(parentsFirst(group), wave, { discard: true })
  )
  return tally
})

/** The tagged reason of a `ProviderError`, or the error itself; its `code` if it has one, as `Refusal`. */
export const reasonOf = (
  error: unknown
): { readonly code: string; readonly message: string; readonly isRetryable: boolean } => {
  const inner = Predicate.hasProperty(error, "reason") ? error.reason : error
  const text = (field: string) => Predicate.hasProperty(inner, field) ? String(inner[field]) : ""
  return {
    code: inner === error && Predicate.hasProperty(inner, "code") ? text("code") : text("_tag"),
    message: text("message"),
    isRetryable: text("isRetryable") === "true"
  }
}

// internal

/** Items that are taken at the same time. Sends of them share statements, and other calls wait for a connection. */
const concurrency = 16

/** Read before the first of them is taken. */
const groupSize = 500

/** Children of an instance that is taken come after it: it learns of the request before it learns of their end. */
const parentsFirst = (group: ReadonlyArray<Item>): ReadonlyArray<ReadonlyArray<Item>> => {
  const waves: Array<ReadonlyArray<Item>> = []
  for (let rest = group; rest.length > 0;) {
    const ids = new Set(rest.map(({ id }) => id))
    const isLater = ({ parentId }: Item) => parentId !== null && ids.has(parentId)
    waves.push(rest.filter((one) => !isLater(one)))
    rest = rest.filter(isLater)
  }
  return waves
}

/** Failures that say nothing about the next item. */
const ofOneItem: ReadonlySet<string> = new Set([
  "InstanceNotFound",
  "InstanceEnded",
  "InstanceRunning",
  "InstanceHasParent",
  "ChildLeftBehind",
  "InstanceFull",
  "RetryRefused",
  "TaskNotFound",
  "TaskNotDead",
  "TaskEnded",
  "InvalidInput",
  "DataCorrupted",
  "DataRefused",
  "Contention"
])
