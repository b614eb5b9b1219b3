/**
 * What a codec makes of a payload text, and what it refuses.
 */
import { assert, describe, it } from "@effect/vitest"
import { PayloadCodec } from "duroxide-prisma/provider"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import { randomBytes } from "node:crypto"
import * as sealed from "../../src/model/shared/sealed.ts"

const [k1, k2] = [randomBytes(32), randomBytes(32)]
const encryption = (current: "k1" | "k2", context?: string) =>
  PayloadCodec.encryption({ keys: { k1, k2 }, current, context })
const encrypting = PayloadCodec.make([encryption("k1")])
const text = JSON.stringify({ guest: "Ada", note: "☂".repeat(1_000) })

const problem = (effect: Effect.Effect<unknown, PayloadCodec.PayloadCodecError>) =>
  Effect.map(Effect.flip(effect), ({ isRetryable, problem }) => ({ isRetryable, problem }))

/** What an object store holds. */
const objects = () => {
  const stored = new Map<string, Uint8Array>()
  return {
    stored,
    put: (name: string, bytes: Uint8Array) => Effect.sync(() => stored.set(name, bytes)),
    get: (name: string) => Effect.sync(() => stored.get(name))
  }
}

describe("PayloadCodec", () => {
  it.effect("encrypts: what is stored is JSON that names the key, never the same twice, and has no plain text", () =>
    Effect.gen(function*() {
      const [a, b] = yield* Effect.all([encrypting.encode(text), encrypting.encode(text)])
      assert.notStrictEqual(a, b)
      assert.deepInclude(JSON.parse(a), { $sealed: "aes-256-gcm:k1", bytes: new TextEncoder().encode(text).length })
      assert.notInclude(Buffer.from(JSON.parse(a).data, "base64").toString("latin1"), "Ada")
      assert.strictEqual(sealed.describe(a), "encrypted (key k1, 3025 bytes)")
      assert.strictEqual(yield* encrypting.decode(a), text)
      assert.strictEqual(yield* encrypting.decode(b), text)
    }))

  it.effect("reads old keys, and texts that no codec has stored, and leaves sealed ones as they are", () =>
    Effect.gen(function*() {
      const rotated = PayloadCodec.make([encryption("k2")])
      const old = yield* encrypting.encode(text)
      assert.strictEqual(yield* rotated.decode(old), text)
      assert.include(yield* rotated.encode(text), ":k2\"")
      assert.strictEqual(rotated.isCurrent(old), false)
      assert.strictEqual(encrypting.isCurrent(old), true)
      assert.strictEqual(yield* rotated.decode(text), text)
      assert.strictEqual(yield* rotated.encode(old), old)
      for (const odd of ["", "42", "not JSON", "\"\\ud83d\\ude00 😀\""]) {
        assert.strictEqual(yield* rotated.decode(yield* rotated.encode(odd)), odd)
      }
    }))

  it.effect("refuses a missing key, another one, another context, and what was changed", () =>
    Effect.gen(function*() {
      const stored = yield* encrypting.encode(text)
      const with2 = PayloadCodec.make([PayloadCodec.encryption({ keys: { k2 }, current: "k2" })])
      const wrong = PayloadCodec.make([PayloadCodec.encryption({ keys: { k1: k2 }, current: "k1" })])
      const elsewhere = PayloadCodec.make([encryption("k1", "staging")])
      const other = "the key \"k1\" of this process is another one, or what is stored was changed"
      assert.deepStrictEqual(yield* problem(with2.decode(stored)), {
        isRetryable: false,
        problem: "this process does not have the key \"k1\""
      })
      assert.strictEqual((yield* problem(wrong.decode(stored))).problem, other)
      assert.strictEqual((yield* problem(elsewhere.decode(stored))).problem, other)
      const read = JSON.parse(stored)
      const bytes = Buffer.from(read.data, "base64")
      for (const change of [0, 20, bytes.length - 1]) {
        const changed = Buffer.from(bytes)
        changed[change]! ^= 1
        const data = changed.toString("base64")
        assert.strictEqual((yield* problem(encrypting.decode(JSON.stringify({ ...read, data })))).problem, other)
      }
      // What is said in the clear is authenticated as well.
      assert.strictEqual((yield* problem(encrypting.decode(JSON.stringify({ ...read, bytes: 5 })))).problem, other)
      for (const data of ["", "AAAA"]) {
        assert.strictEqual((yield* problem(encrypting.decode(JSON.stringify({ ...read, data })))).problem, other)
      }
      const renamed = JSON.stringify({ ...read, $sealed: "deflate+aes-256-gcm:k1" })
      assert.strictEqual((yield* problem(encrypting.decode(renamed))).problem, other)
      const unknown = JSON.stringify({ ...read, $sealed: "rot13" })
      assert.strictEqual(
        (yield* problem(encrypting.decode(unknown))).problem,
        "this process has no codec step \"rot13\""
      )
      for (const broken of ["{\"$sealed\":\"", "{\"$sealed\":\"a:b c\",\"bytes\":1,\"data\":\"\"}"]) {
        assert.include((yield* problem(encrypting.decode(broken))).problem, "another version")
      }
    }))

  it.effect("compresses what gets smaller, before it is encrypted", () =>
    Effect.gen(function*() {
      const codec = PayloadCodec.make([PayloadCodec.compression({ above: 100 }), encryption("k2")])
      const stored = yield* codec.encode(text)
      assert.strictEqual(sealed.describe(stored), "compressed, encrypted (key k2, 3025 bytes)")
      assert.isBelow(stored.length, text.length)
      assert.strictEqual(yield* codec.decode(stored), text)
      assert.include(yield* codec.encode("\"short\""), "{\"$sealed\":\"aes-256-gcm:k2\"")
      const random = JSON.stringify(randomBytes(50_000).toString("latin1"))
      const large = JSON.stringify("ab".repeat(500_000))
      for (const one of [random, large]) assert.strictEqual(yield* codec.decode(yield* codec.encode(one)), one)
      const alone = PayloadCodec.make([PayloadCodec.compression()])
      assert.strictEqual(yield* alone.encode("\"short\""), "\"short\"")
      const bomb = JSON.stringify({ ...JSON.parse(yield* alone.encode(large)), bytes: 10 })
      assert.include((yield* problem(alone.decode(bomb))).problem, "not what was compressed")
    }))

  it.effect("stores large payloads elsewhere, under the hash of their bytes", () =>
    Effect.gen(function*() {
      const store = objects()
      const codec = PayloadCodec.make([PayloadCodec.objectStore({ ...store, above: 1_000 })])
      assert.strictEqual(yield* codec.encode("\"small\""), "\"small\"")
      const stored = yield* codec.encode(text)
      assert.strictEqual(yield* codec.encode(text), stored)
      assert.strictEqual(store.stored.size, 1)
      assert.isBelow(stored.length, 200)
      assert.match(sealed.describe(stored), /^in the object store \(object [0-9a-f]{12}, 3025 bytes\)$/)
      assert.strictEqual(yield* codec.decode(stored), text)
      const [name] = store.stored.keys()
      store.stored.set(name!, new Uint8Array(3))
      assert.include((yield* problem(codec.decode(stored))).problem, "was changed")
      store.stored.clear()
      assert.deepInclude(yield* problem(codec.decode(stored)), { isRetryable: false })
      const down = PayloadCodec.make([
        PayloadCodec.objectStore({ put: () => Effect.die("down"), get: () => Effect.fail("down"), above: 0 })
      ])
      assert.deepInclude(yield* problem(down.decode(stored)), { isRetryable: true })
      assert.deepInclude(yield* problem(down.encode(text)), { isRetryable: true })
    }))

  it("refuses wrong options, without a key in the error", () => {
    const refused = (make: () => unknown) => assert.throws(make, RangeError)
    refused(() => PayloadCodec.make([]))
    refused(() => PayloadCodec.make([encryption("k1"), encryption("k2")]))
    refused(() => PayloadCodec.encryption({ keys: { k1 }, current: "k2" }))
    refused(() => PayloadCodec.encryption({ keys: { "k 1": k1 }, current: "k 1" }))
    refused(() => PayloadCodec.encryption({ keys: { k1: "c2hvcnQ=" }, current: "k1" }))
    for (const text of ["", "k1", "k1:c2hvcnQ=", "k1:a:b"]) refused(() => PayloadCodec.parseKeys(text))
    assert.throws(
      () => PayloadCodec.parseKeys("k1:c2hvcnQ="),
      "the encryption key \"k1\" has 5 bytes, not 32"
    )
  })

  it.effect("reads keys from the environment, the first is current", () =>
    Effect.gen(function*() {
      const text = `k2:${k2.toString("base64")}\nk1:${k1.toString("base64")}`
      const of = (value: string) =>
        PayloadCodec.environment.parse(ConfigProvider.fromUnknown({ DUROXIDE_PAYLOAD_KEYS: value }))
      const keys = yield* of(text)
      assert.strictEqual(keys.current, "k2")
      assert.notInclude(JSON.stringify(keys), k1.toString("base64"))
      const codec = PayloadCodec.make([PayloadCodec.encryption(keys)])
      assert.strictEqual(yield* codec.decode(yield* encrypting.encode("\"a\"")), "\"a\"")
      assert.isTrue(Redacted.isRedacted(keys.keys["k1"]))
      const error = yield* Effect.flip(of("k1:c2hvcnQ="))
      assert.include(error.message, "DUROXIDE_PAYLOAD_KEYS")
      assert.notInclude(error.message, "c2hvcnQ=")
    }))

  it("shows values with sealed texts in them, also nested in JSON", () => {
    const stored = sealed.write({ steps: [{ name: "aes-256-gcm", parameter: "k1" }], bytes: 3, data: "AAAA" })
    const end = JSON.stringify({ status: "Dead", error: JSON.stringify({ _tag: "Failed", error: stored }) })
    assert.deepStrictEqual([...sealed.textsIn({ a: [stored], end })], [stored])
    assert.deepStrictEqual(sealed.conceal({ a: [stored], n: 1, none: null }), {
      a: ["encrypted (key k1, 3 bytes)"],
      n: 1,
      none: null
    })
    assert.strictEqual(sealed.concealIn(`it failed: ${stored}.`), "it failed: encrypted (key k1, 3 bytes).")
    assert.strictEqual(sealed.replace(`it failed: ${stored}.`, () => "boom"), "it failed: boom.")
    assert.notInclude(sealed.concealIn(end), "AAAA")
    const opened = sealed.replace({ end }, () => "\"plain\"") as { readonly end: string }
    assert.strictEqual(JSON.parse(JSON.parse(opened.end).error).error, "\"plain\"")
  })
})
