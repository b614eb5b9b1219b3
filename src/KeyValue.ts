/**
 * Typed values of an instance, by key, that clients can read while it runs.
 *
 * The next execution of an instance that continues as new inherits them. At most 150 keys, each of at
 * most 2,560 bytes together with the instance's id, with values of at most 65,536 bytes.
 *
 * @since 0.1.0
 */
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { recordKey as attributesKey } from "./model/shared/attributes.ts"
import { checkKey } from "./model/shared/identifiers.ts"
import * as payloads from "./model/shared/payload.ts"
import type { Payload, PayloadInput, PayloadSchema, SchemaOf } from "./model/shared/payload.ts"
import { isAnswerKey } from "./model/shared/requestSignal.ts"
import { decoded, engine, OrchestrationContext } from "./replay/context.ts"
import * as fit from "./replay/fit.ts"

/**
 * A typed value that every instance may have.
 *
 * @category models
 * @since 0.1.0
 */
export interface KeyValue<in out V extends PayloadSchema> {
  readonly key: string
  readonly value: V
  /** Reads the value that the program has set last; `none` if it was never set, or cleared. */
  readonly get: Effect.Effect<Option.Option<V["Type"]>, never, OrchestrationContext>
  /** Sets the value. A value the Schema refuses is a defect; one beyond the limits above fails the instance. */
  readonly set: (value: V["Type"]) => Effect.Effect<void, never, OrchestrationContext>
  /** Removes the value. */
  readonly clear: Effect.Effect<void, never, OrchestrationContext>
  /** @internal */
  readonly codec: Payload<V["Type"]>
}

/**
 * Reads all values of the instance by key, as the program has set them last. Also those that earlier executions and
 * other code have set. Keys are in the order of their UTF-16 code units, in which JavaScript compares strings.
 *
 * **Details**
 *
 * Values are JSON text; those that Rust wrote may be bare strings. `make(key, schema).get` decodes one.
 *
 * @category reading
 * @since 0.2.0
 */
export const getAll: Effect.Effect<ReadonlyMap<string, string>, never, OrchestrationContext> = Effect.gen(
  function*() {
    const { keyValues } = yield* engine
    return new Map([...yield* keyValues].filter(([key]) => !isAnswerKey(key)).sort(([a], [b]) => ascending(a, b)))
  }
)

/**
 * Removes all values of the instance, including those that earlier executions and other code have set.
 *
 * @category removal
 * @since 0.1.0
 */
export const clearAll: Effect.Effect<void, never, OrchestrationContext> = Effect.gen(function*() {
  const { keyValues, request } = yield* engine
  const keys = [...(yield* keyValues).keys()]
  const own = keys.filter((key) => !isAnswerKey(key))
  if (own.length === keys.length) return yield* request({ _tag: "ClearKeyValues" })
  // The answers to requests stay.
  for (const key of own.sort(ascending)) yield* request({ _tag: "ClearKeyValue", key })
})

/**
 * Removes all values of the instance that were last set before `time`, and returns their number. A value counts as set
 * at the time of its turn; values that Rust wrote without a time count as older than any other.
 *
 * @category removal
 * @since 0.1.0
 */
export const clearSetBefore = (time: DateTime.DateTime.Input): Effect.Effect<number, never, OrchestrationContext> =>
  Effect.gen(function*() {
    const { keyValueTimes, request } = yield* engine
    const limit = DateTime.toEpochMillis(DateTime.makeUnsafe(time))
    // In the order of the keys: the order in which they were set is not stored.
    const keys = [...yield* keyValueTimes].flatMap(([key, setAt]) => setAt < limit && !isAnswerKey(key) ? key : [])
      .sort(ascending)
    for (const key of keys) yield* request({ _tag: "ClearKeyValue", key })
    return keys.length
  })

/**
 * Defines a value that every instance may have. `value` is a Schema, or the fields of a `Schema.Struct`. `set` and
 * `clear` die on a key that is too long or cannot be stored.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <V extends PayloadInput>(key: string, value: V): KeyValue<SchemaOf<V>> => {
  const schema = payloads.schemaOf(value)
  const codec = payloads.make(`value of key "${key}"`, schema)
  const checked = key === attributesKey
    ? Effect.die(new Error("key is refused: it is reserved, use Orchestration.setAttributes"))
    : isAnswerKey(key)
    ? Effect.die(new Error("key is refused: it is reserved for answers to requests"))
    : Effect.flatMap(OrchestrationContext, ({ instanceId }) => fit.orDie(checkKey(key, instanceId)))
  return {
    key,
    value: schema,
    codec,
    get: Effect.gen(function*() {
      const text = (yield* (yield* engine).keyValues).get(key)
      return text === undefined ? Option.none() : Option.some(yield* decoded(codec.decode(text)))
    }),
    set: Effect.fnUntraced(function*(value: SchemaOf<V>["Type"]) {
      yield* checked
      const { request } = yield* engine
      const text = yield* Effect.orDie(codec.encode(value))
      yield* request({ _tag: "SetKeyValue", key, value: text, decode: codec.decode })
    }),
    clear: Effect.gen(function*() {
      yield* checked
      const { request } = yield* engine
      yield* request({ _tag: "ClearKeyValue", key })
    })
  }
}

// internal

/** By code units, independent of the locale. */
const ascending = (a: string, b: string) => a < b ? -1 : a > b ? 1 : 0
