/**
 * Encodes payloads between the Schemas and the store: encryption with keys that rotate, compression, and references to
 * an object store.
 *
 * The codec is a service in the context of the stores of this process. Programs, replays and clients see plain texts,
 * as without a codec. Rows, SQL, the command line and the dashboard see sealed texts. A sealed text names the steps and
 * the key that made it. So keys can change while instances run, and texts that were stored without a codec stay
 * readable.
 *
 * Payloads are inputs, results, typed errors and messages of defects, data of signals, values and custom statuses, also
 * those of tasks and outbox messages. Names, ids, keys, tags, attributes, reasons and times are plain, because the
 * store searches by them.
 *
 * @since 0.3.0
 */
import * as Config from "effect/Config"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import { createCipheriv, createDecipheriv, createHash, randomBytes } from "node:crypto"
import * as zlib from "node:zlib"
import { refused } from "../model/shared/environment.ts"
import * as sealed from "../model/shared/sealed.ts"

/**
 * A payload could not be encoded or decoded. `problem` names steps, keys and objects, never what they hold.
 *
 * @category errors
 * @since 0.3.0
 */
export class PayloadCodecError
  extends Schema.TaggedError<PayloadCodecError>("duroxide-prisma/PayloadCodecError")("PayloadCodecError", {
    problem: Schema.String,
    /** True when the same call may succeed later, as when the object store does not answer. */
    isRetryable: Schema.Boolean
  })
{
  override get message() {
    return this.problem
  }
}

/**
 * Encodes and decodes payload texts.
 *
 * @category services
 * @since 0.3.0
 */
export class PayloadCodec extends Context.Service<PayloadCodec, {
  /** The text to store. A payload that no step changes, and a text that is sealed already, stay as they are. */
  readonly encode: (text: string) => Effect.Effect<string, PayloadCodecError>
  /** The payload of a stored text. A text that is not sealed is returned as it is. */
  readonly decode: (text: string) => Effect.Effect<string, PayloadCodecError>
  /** Whether a sealed text is as `encode` would make it now: with the current key. */
  readonly isCurrent: (text: string) => boolean
  /** The option of this name. */
  readonly sharedWithRust: boolean
}>()("duroxide-prisma/PayloadCodec") {}

/**
 * A step of a codec. `encryption`, `compression` and `objectStore` make the steps of this package.
 *
 * **Details**
 *
 * `name` and parameters have 1 to 64 of the characters `A-Za-z0-9_.-`. They are stored in the clear with each payload.
 *
 * @category models
 * @since 0.3.0
 */
export interface Step {
  readonly name: string
  /** Undefined leaves the payload as it is. `header` names the steps before this one. */
  readonly encode: (bytes: Uint8Array, context: StepContext) => Effect.Effect<
    { readonly bytes: Uint8Array; readonly parameter?: string } | undefined,
    PayloadCodecError
  >
  readonly decode: (bytes: Uint8Array, parameter: string, context: StepContext) => Effect.Effect<
    Uint8Array,
    PayloadCodecError
  >
  /** Whether `encode` would use this parameter now. Defaults to yes. */
  readonly isCurrent?: (parameter: string) => boolean
}

/**
 * The context of a payload that a step gets besides its bytes.
 *
 * @category models
 * @since 0.3.0
 */
export interface StepContext {
  /** The steps that were applied before, as they are stored. */
  readonly header: string
  /** Bytes of the payload in UTF-8, before all steps. */
  readonly bytes: number
}

/**
 * Options of a codec.
 *
 * @category options
 * @since 0.3.0
 */
export interface Options {
  /**
   * Whether processes of Duroxide in Rust use the same store. Then a signal, and the result of a child for its parent,
   * cost one more statement, which asks whether the instance is one of Rust; payloads for Rust stay plain. Defaults to
   * false.
   */
  readonly sharedWithRust?: boolean | undefined
}

/**
 * Makes a codec of these steps, which are applied in order: compress before you encrypt, and use an object store last.
 * Throws a `RangeError` if two steps have one name, or if a name cannot be stored.
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = (steps: ReadonlyArray<Step>, options: Options = {}): PayloadCodec["Service"] => {
  const byName = new Map<string, Step>()
  for (const step of steps) {
    if (!sealed.validWord.test(step.name)) throw new RangeError(`the name of a codec step is ${say(step.name)}`)
    if (byName.has(step.name)) throw new RangeError(`two codec steps have the name ${say(step.name)}`)
    byName.set(step.name, step)
  }
  if (byName.size === 0) throw new RangeError("a PayloadCodec needs a step")
  return PayloadCodec.of({
    sharedWithRust: options.sharedWithRust ?? false,
    isCurrent: (text) =>
      sealed.read(text)?.steps.every(({ name, parameter }) => {
        const step = byName.get(name)
        return step !== undefined && (step.isCurrent?.(parameter) ?? true)
      }) ?? false,
    encode: Effect.fnUntraced(function*(text) {
      if (sealed.isSealed(text)) return text
      let bytes: Uint8Array = utf8.encode(text)
      const length = bytes.length
      const applied: Array<sealed.Step> = []
      for (const step of steps) {
        const done = yield* step.encode(bytes, { header: sealed.headerOf(applied), bytes: length })
        if (done === undefined) continue
        bytes = done.bytes
        applied.push({ name: step.name, parameter: done.parameter ?? "" })
      }
      return applied.length === 0 ? text : sealed.write({ steps: applied, bytes: length, data: base64(bytes) })
    }),
    decode: Effect.fnUntraced(function*(text) {
      if (!sealed.isSealed(text)) return text
      const read = sealed.read(text)
      if (read === undefined) return yield* unreadable("another version of this package has sealed it")
      let bytes: Uint8Array = Buffer.from(read.data, "base64")
      for (let i = read.steps.length - 1; i >= 0; i--) {
        const { name, parameter } = read.steps[i]!
        const step = byName.get(name)
        if (step === undefined) return yield* unreadable(`this process has no codec step ${say(name)}`)
        const header = sealed.headerOf(read.steps.slice(0, i))
        bytes = yield* step.decode(bytes, parameter, { header, bytes: read.bytes })
      }
      return bytes.length === read.bytes
        ? Buffer.from(bytes).toString("utf8")
        : yield* unreadable(`it has ${bytes.length} bytes in place of ${read.bytes}`)
    })
  })
}

/**
 * Provides a codec to the stores that this layer is provided to: of instances, tasks and outbox.
 *
 * **Gotchas**
 *
 * Provide it once, below everything. A store without it stores plain text, and Schemas refuse the sealed texts that it
 * reads.
 *
 * **Example** (Encrypted payloads, compressed from 1 KiB on)
 *
 * ```ts
 * const Payloads = PayloadCodec.layer([
 *   PayloadCodec.compression({ above: 1_024 }),
 *   PayloadCodec.encryption({ keys: { k1: oldKey, k2: newKey }, current: "k2" })
 * ])
 *
 * Runtime.layer({ orchestrations: [Stay], activities: [Charge] }).pipe(
 *   Layer.provide(Handlers),
 *   Layer.provide(PrismaProvider.layer({ url })),
 *   Layer.provide(Payloads)
 * )
 * ```
 *
 * @category layers
 * @since 0.3.0
 */
export const layer = (steps: ReadonlyArray<Step>, options?: Options): Layer.Layer<PayloadCodec> =>
  Layer.sync(PayloadCodec, () => make(steps, options))

// -- encryption ------------------------------------------------------------------------------------

/**
 * A key of 32 bytes, or its base64 text.
 *
 * @category models
 * @since 0.3.0
 */
export type Key = Uint8Array | string | Redacted.Redacted<string>

/**
 * Keys by their ids, and the id of the one that encrypts.
 *
 * @category options
 * @since 0.3.0
 */
export interface Keys {
  readonly keys: { readonly [id: string]: Key }
  readonly current: string
}

/**
 * Options of `encryption`.
 *
 * @category options
 * @since 0.3.0
 */
export interface EncryptionOptions extends Keys {
  /**
   * A text such as the name of an environment. It is not stored; a payload that was encrypted with another context is
   * refused. Defaults to none.
   */
  readonly context?: string | undefined
}

/**
 * Encrypts payloads: AES-256-GCM, with a random vector of 12 bytes for each.
 *
 * **Details**
 *
 * To rotate, add the new key in all processes, then make it `current` in all, then remove the old one when nothing is
 * stored with it. A payload whose key is missing or wrong blocks its instance; the instance continues when a process
 * has the key.
 *
 * The id of the key, the steps before and the length of the payload are authenticated. The place is not, because
 * payloads move between rows: a login that may write into the database can put one payload in the place of another, but
 * can neither make nor change a payload.
 *
 * Throws a `RangeError` if a key is not 32 bytes long, or if `current` is not among the keys.
 *
 * **Gotchas**
 *
 * A key is safe for about 2^32 payloads, because the vectors are random. Rotate keys before that.
 *
 * @category steps
 * @since 0.3.0
 */
export const encryption = ({ context = "", current, keys }: EncryptionOptions): Step => {
  const byId = new Map(
    Object.entries(keys).map(([id, key]) => {
      if (!sealed.validWord.test(id)) throw new RangeError(`the id of an encryption key is ${say(id)}`)
      return [id, bytesOfKey(id, key)]
    })
  )
  const currentKey = byId.get(current)
  if (currentKey === undefined) throw new RangeError(`the current key ${say(current)} is not among the keys`)
  const boundTo = (id: string, { bytes, header }: StepContext) =>
    utf8.encode(JSON.stringify(["duroxide-prisma", header, `${cipherName}:${id}`, bytes, context]))
  return {
    name: cipherName,
    isCurrent: (id) => id === current,
    encode: (bytes, of) =>
      Effect.sync(() => {
        const vector = randomBytes(vectorBytes)
        const cipher = createCipheriv(cipherName, currentKey, vector).setAAD(boundTo(current, of))
        const encrypted = [vector, cipher.update(bytes), cipher.final(), cipher.getAuthTag()]
        return { bytes: Buffer.concat(encrypted), parameter: current }
      }),
    decode: (bytes, id, of) =>
      Effect.suspend(() => {
        const key = byId.get(id)
        if (key === undefined) return unreadable(`this process does not have the key ${say(id)}`)
        try {
          const tagAt = bytes.length - tagBytes
          const decipher = createDecipheriv(cipherName, key, bytes.subarray(0, vectorBytes), {
            authTagLength: tagBytes
          })
            .setAAD(boundTo(id, of)).setAuthTag(bytes.subarray(tagAt))
          return Effect.succeed(
            Buffer.concat([decipher.update(bytes.subarray(vectorBytes, tagAt)), decipher.final()])
          )
        } catch {
          return unreadable(`the key ${say(id)} of this process is another one, or what is stored was changed`)
        }
      })
  }
}

/**
 * Reads keys from a text, as an environment variable or a file holds them: `id:base64`, one on each line or separated
 * by commas. The first one is current. `openssl rand -base64 32` makes a key.
 *
 * Throws a `RangeError` that says what is wrong with the text, without any key.
 *
 * @category encryption
 * @since 0.3.0
 */
export const parseKeys = (text: string): Keys => {
  const entries = text.split(/[\s,]+/).filter((entry) => entry !== "").map((entry, index) => {
    const [id = "", key = "", ...others] = entry.split(":")
    if (key === "" || others.length > 0) throw new RangeError(`encryption key ${index + 1} is not id:base64`)
    bytesOfKey(id, key)
    return [id, Redacted.make(key)] as const
  })
  const [first] = entries
  if (first === undefined) throw new RangeError("there is no encryption key: give id:base64")
  return { keys: Object.fromEntries(entries), current: first[0] }
}

/**
 * The keys in the environment variable `DUROXIDE_PAYLOAD_KEYS`, as `parseKeys` reads them.
 *
 * @category configuration
 * @since 0.3.0
 */
export const environment: Config.Config<Keys> = Config.mapEffect(
  Config.Redacted("DUROXIDE_PAYLOAD_KEYS"),
  (text) => {
    try {
      return Effect.succeed(parseKeys(Redacted.value(text)))
    } catch (thrown) {
      return refused([`DUROXIDE_PAYLOAD_KEYS: ${thrown instanceof Error ? thrown.message : "it cannot be read"}`])
    }
  }
)

// -- compression -----------------------------------------------------------------------------------

/**
 * Compresses payloads that become smaller by a tenth or more.
 *
 * @category steps
 * @since 0.3.0
 */
export const compression = (options?: {
  /** Payloads of at most this many bytes stay as they are. Defaults to 1,024. */
  readonly above?: number | undefined
}): Step => {
  const above = options?.above ?? 1_024
  return {
    name: "deflate",
    encode: (bytes) =>
      bytes.length <= above ? Effect.undefined : Effect.map(
        bytes.length <= mostAtOnce
          ? Effect.sync(() => zlib.deflateSync(bytes))
          : zlibCall((done) => zlib.deflate(bytes, done)),
        (compressed) => compressed.length < bytes.length * 0.9 ? { bytes: compressed } : undefined
      ),
    decode: (bytes, _, { bytes: length }) => {
      if (length > mostInflated) return unreadable(`it would have ${length} bytes`)
      const limits = { maxOutputLength: Math.max(1, length) }
      return length > mostAtOnce
        ? zlibCall((done) => zlib.inflate(bytes, limits, done))
        : Effect.catch(
          Effect.try({ try: () => zlib.inflateSync(bytes, limits), catch: () => "refused" }),
          () => unreadable(notCompressed)
        )
    }
  }
}

// -- object store ----------------------------------------------------------------------------------

/**
 * Stores large payloads in an object store, under the SHA-256 of their bytes in hexadecimal digits. The database has
 * this name.
 *
 * **Details**
 *
 * An object is put before the row that names it is stored, and its bytes are compared with its name when it is read.
 * While the object store does not answer, turns and starts fail with `PayloadUnavailable` and are tried again.
 *
 * **Gotchas**
 *
 * Nothing deletes objects: several rows may name one, and a row that was never stored leaves one behind. Let objects
 * expire after the longest life of an instance plus its retention, or delete objects that no row names, as
 * `docs/payloads.md` shows.
 *
 * @category steps
 * @since 0.3.0
 */
export const objectStore = (options: {
  /** Stores an object. It may exist already, with the same bytes. */
  readonly put: (name: string, bytes: Uint8Array) => Effect.Effect<unknown, unknown>
  /** The bytes of an object; undefined if it does not exist. */
  readonly get: (name: string) => Effect.Effect<Uint8Array | undefined, unknown>
  /** Payloads of at most this many bytes stay in the database. Defaults to 65,536. */
  readonly above?: number | undefined
}): Step => {
  const { above = 65_536, get, put } = options
  const unanswered = (what: string) => () =>
    Effect.fail(new PayloadCodecError({ problem: `the object store did not ${what} a payload`, isRetryable: true }))
  return {
    name: "object",
    encode: (bytes) => {
      if (bytes.length <= above) return Effect.undefined
      const name = nameOf(bytes)
      return Effect.as(Effect.catchCause(put(name, bytes), unanswered("take")), { bytes: none, parameter: name })
    },
    decode: (_, name) =>
      Effect.flatMap(Effect.catchCause(get(name), unanswered("give back")), (bytes) =>
        bytes === undefined
          ? unreadable(`the object store has no object ${name.slice(0, 12)}…`)
          : nameOf(bytes) === name
          ? Effect.succeed(bytes)
          : unreadable(`object ${name.slice(0, 12)}… of the object store was changed`))
  }
}

// internal

const utf8 = new TextEncoder()
const none = new Uint8Array()
const cipherName = "aes-256-gcm"
const keyBytes = 32
const vectorBytes = 12
const tagBytes = 16

/** Bytes that are compressed at once, in about 100 microseconds; more would hold up the event loop. */
const mostAtOnce = 16_384
/** Four times the largest payload. */
const mostInflated = 16 * 1024 * 1024

const notCompressed = "what is stored is not what was compressed"

const say = (text: string) => JSON.stringify(text.slice(0, 100))

const base64 = (bytes: Uint8Array) => Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString("base64")

const nameOf = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex")

const unreadable = (problem: string) => Effect.fail(new PayloadCodecError({ problem, isRetryable: false }))

const bytesOfKey = (id: string, key: Key): Uint8Array => {
  if (!sealed.validWord.test(id)) throw new RangeError(`the id of an encryption key is ${say(id)}`)
  const text = Redacted.isRedacted(key) ? Redacted.value(key) : key
  const bytes = typeof text === "string" ? Buffer.from(text, "base64") : text
  if (bytes.length !== keyBytes) {
    throw new RangeError(`the encryption key ${say(id)} has ${bytes.length} bytes, not ${keyBytes}`)
  }
  return bytes
}

const zlibCall = (call: (done: (error: Error | null, bytes: Buffer) => void) => void) =>
  Effect.callback<Uint8Array, PayloadCodecError>((resume) =>
    call((error, bytes) => resume(error === null ? Effect.succeed(bytes) : unreadable(notCompressed)))
  )
