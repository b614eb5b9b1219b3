/**
 * A stream of the status of an instance, its values, and its end.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import type { Payload as Codec, PayloadMismatch } from "../model/shared/payload.ts"
import type { Provider } from "../provider/Provider.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"
import { checkInstanceId } from "./calls.ts"
import { statusOfEnd } from "./status.ts"
import type { Ended } from "./status.ts"

/**
 * A change that `watch` reports: a custom status, a value, or the end of the instance, which is the last event. A later
 * `watch` with its `cursor` as `after` continues behind it.
 *
 * @category models
 * @since 0.3.0
 */
export type WatchEvent<Value> =
  & { readonly cursor: string }
  & (
    /** `none`: it was removed. */
    | { readonly _tag: "Status"; readonly status: Option.Option<string>; readonly version: number }
    /** `none`: it was removed. */
    | { readonly _tag: "Value"; readonly key: string; readonly value: Option.Option<Value> }
    | { readonly _tag: "Ended"; readonly status: Ended }
  )

/**
 * Options of `watch`.
 *
 * @category models
 * @since 0.3.0
 */
export interface WatchOptions<Key> {
  /** The cursor of the last event seen. Without it, the current status and values come first. */
  readonly after?: string | undefined
  /** Values to watch besides the status. Defaults to none. */
  readonly keys?: ReadonlyArray<Key> | undefined
}

/** What a client needs of a `KeyValue`. */
export interface Key<V> {
  readonly key: string
  readonly codec: Codec<V>
}

export const watch = <V>(
  provider: Provider["Service"],
  instanceId: string,
  { after, keys = [] }: WatchOptions<Key<V>>
): Stream.Stream<WatchEvent<V>, PayloadMismatch | ProviderError> =>
  Stream.unwrap(Effect.gen(function*() {
    yield* checkInstanceId(operation, instanceId)
    const cursor = after === undefined ? beginning : cursorOf(after)
    if (cursor === undefined) {
      const reason = new InvalidInput({ field: "after", problem: "it is not a cursor of a watch" })
      return yield* new ProviderError({ operation, reason })
    }
    const seen = Stream.mergeAll(
      [statuses<V>(provider, instanceId, cursor), ...keys.map((key) => values(provider, instanceId, key, cursor))],
      { concurrency: "unbounded" }
    )
    return Stream.concat(seen, end<V>(provider, instanceId)).pipe(
      Stream.mapAccum(() => cursor, (cursor, seen: Seen<V>): readonly [Cursor, ReadonlyArray<WatchEvent<V>>] => {
        const next = moved(cursor, seen)
        return [next, [shown(seen, JSON.stringify(next))]]
      })
    )
  }))

// internal

const operation = "Client.watch"

/** The version of the status, and fingerprints of the values, that were seen last. */
interface Cursor {
  readonly status: number
  readonly values: { readonly [key: string]: string }
}

type Seen<V> =
  | { readonly _tag: "Status"; readonly status: Option.Option<string>; readonly version: number }
  | {
    readonly _tag: "Value"
    readonly key: string
    readonly value: Option.Option<V>
    readonly fingerprint: string
  }
  | { readonly _tag: "Ended"; readonly status: Ended }

const shown = <V>(seen: Seen<V>, cursor: string): WatchEvent<V> =>
  seen._tag === "Value" ? { _tag: "Value", key: seen.key, value: seen.value, cursor } : { ...seen, cursor }

const beginning: Cursor = { status: 0, values: {} }

const moved = <V>(cursor: Cursor, seen: Seen<V>): Cursor => {
  switch (seen._tag) {
    case "Status":
      return { ...cursor, status: seen.version }
    case "Value":
      return { ...cursor, values: { ...cursor.values, [seen.key]: seen.fingerprint } }
    case "Ended":
      return cursor
  }
}

const cursorOf = (text: string): Cursor | undefined => {
  try {
    const { status, values } = JSON.parse(text)
    return Number.isSafeInteger(status) && typeof values === "object" && values !== null
      ? { status, values }
      : undefined
  } catch {
    return undefined
  }
}

/** Ends with the instance. */
const statuses = <V>(
  provider: Provider["Service"],
  instanceId: string,
  cursor: Cursor
): Stream.Stream<Seen<V>, PayloadMismatch | ProviderError> =>
  Stream.unfold(cursor.status, (seen) =>
    Effect.map(
      provider.awaitProgress({
        instanceId,
        // Another instance of this id may have an earlier one.
        until: ({ status, statusVersion: version }) =>
          version === seen ? Option.none() : Option.some({ _tag: "Status" as const, status, version })
      }),
      (answer) => answer._tag === "Found" ? [answer.found, answer.found.version] as const : undefined
    ))

/** Ends with the instance. */
const values = <V>(
  provider: Provider["Service"],
  instanceId: string,
  { codec, key }: Key<V>,
  cursor: Cursor
): Stream.Stream<Seen<V>, PayloadMismatch | ProviderError> =>
  Stream.unfold(cursor.values[key] ?? "", (seen) =>
    Effect.gen(function*() {
      const answer = yield* provider.awaitProgress({
        instanceId,
        key,
        until: ({ value }) => {
          const fingerprint = Option.match(value, { onNone: () => "", onSome: fingerprintOf })
          return fingerprint === seen ? Option.none() : Option.some({ value, fingerprint })
        }
      })
      if (answer._tag !== "Found") return undefined
      const { fingerprint, value: text } = answer.found
      const value = Option.isNone(text) ? Option.none<V>() : Option.some(yield* codec.decode(text.value))
      return [{ _tag: "Value", key, value, fingerprint }, fingerprint] as const
    }))

const end = <V>(
  provider: Provider["Service"],
  instanceId: string
): Stream.Stream<Seen<V>, PayloadMismatch | ProviderError> =>
  Stream.fromEffect(Effect.map(
    provider.awaitEnd({ instanceId }),
    // Without a timeout it has ended.
    (end) => ({ _tag: "Ended", status: statusOfEnd(Option.getOrThrow(end)) })
  ))

/** Two hashes of 32 bits; never empty. */
const fingerprintOf = (text: string): string => {
  let [a, b] = [0xdeadbeef, 0x41c6ce57]
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i)
    a = Math.imul(a ^ code, 2_654_435_761)
    b = Math.imul(b ^ code, 1_597_334_677)
  }
  return `${(a >>> 0).toString(36)}.${(b >>> 0).toString(36)}`
}
