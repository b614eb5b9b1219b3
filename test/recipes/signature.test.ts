import { assert, describe, it } from "@effect/vitest"
import * as Redacted from "effect/Redacted"
import { isSame, keyOf, sign, verify } from "../../src/recipes/internal/signature.ts"

// The example of the specification.
const secret = Redacted.make("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
const signed = { id: "msg_p5jXN8AQM9LWM0D4loKWxJek", timestamp: 1_614_265_330, body: "{\"test\": 2432232314}" }
const signature = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="

const key = keyOf(secret)!
const atTime = { nowMs: signed.timestamp * 1000, toleranceMs: 300_000 }

const headers = (changes: Readonly<Record<string, string | null>> = {}) => ({
  get: (name: string) => {
    const all: Readonly<Record<string, string | null>> = {
      "webhook-id": signed.id,
      "webhook-timestamp": String(signed.timestamp),
      "webhook-signature": signature,
      ...changes
    }
    return all[name] ?? null
  }
})

describe("signatures of webhooks:", () => {
  it("are those of the Standard Webhooks specification", () => {
    assert.strictEqual(sign(key, signed), signature)
    assert.strictEqual(sign(key, { ...signed, body: new TextEncoder().encode(signed.body) }), signature)
    assert.deepStrictEqual(verify([key], headers(), signed.body, atTime), {
      id: signed.id,
      timestamp: signed.timestamp
    })
  })

  it("one of several signatures and one of several keys is enough", () => {
    const other = keyOf(Redacted.make(`whsec_${Buffer.alloc(32, 7).toString("base64")}`))!
    const many = headers({ "webhook-signature": `v1a,abc v1,${"A".repeat(43)}= ${signature}` })
    assert.isObject(verify([other, key], many, signed.body, atTime))
    assert.strictEqual(verify([other], many, signed.body, atTime), "SignatureWrong")
    assert.strictEqual(verify([], many, signed.body, atTime), "SignatureWrong")
  })

  it("every change of the request is refused, with its reason", () => {
    const of = (changes: Parameters<typeof headers>[0], body = signed.body, nowMs = atTime.nowMs) =>
      verify([key], headers(changes), body, { ...atTime, nowMs })
    assert.strictEqual(of({}, "{\"test\": 2432232315}"), "SignatureWrong")
    assert.strictEqual(of({ "webhook-id": "msg_other" }), "SignatureWrong")
    assert.strictEqual(of({ "webhook-timestamp": String(signed.timestamp + 1) }), "SignatureWrong")
    assert.strictEqual(of({ "webhook-signature": "" }), "SignatureWrong")
    assert.strictEqual(of({ "webhook-signature": "v1," }), "SignatureWrong")
    assert.strictEqual(of({ "webhook-signature": signature.slice(3) }), "SignatureWrong")
    assert.strictEqual(of({ "webhook-id": null }), "HeadersMissing")
    assert.strictEqual(of({ "webhook-timestamp": null }), "HeadersMissing")
    assert.strictEqual(of({ "webhook-signature": null }), "HeadersMissing")
    assert.strictEqual(of({ "webhook-timestamp": "1e9" }), "TimestampInvalid")
    assert.strictEqual(of({ "webhook-timestamp": "" }), "TimestampInvalid")
    assert.strictEqual(of({}, signed.body, atTime.nowMs + 300_001), "TimestampTooOld")
    assert.strictEqual(of({}, signed.body, atTime.nowMs - 300_001), "TimestampTooNew")
    assert.isObject(of({}, signed.body, atTime.nowMs + 300_000))
  })

  it("a text that is not a secret has no key", () => {
    const of = (text: string) => keyOf(Redacted.make(text))
    for (
      const text of [
        "",
        "whsec_",
        "whsec_c2hvcnQ=",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_not base64 at all, but long"
      ]
    ) {
      assert.isUndefined(of(text), text)
    }
    assert.isUndefined(of(`whsec_${Buffer.alloc(65).toString("base64")}`))
    assert.strictEqual(of(`whsec_${Buffer.alloc(64).toString("base64")}`)!.length, 64)
  })

  it("texts are compared whole", () => {
    assert.isTrue(isSame("token", "token"))
    assert.isFalse(isSame("token", "token "))
    assert.isFalse(isSame("token", ""))
  })
})
