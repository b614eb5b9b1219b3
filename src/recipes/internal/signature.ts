/**
 * Signatures of webhooks by the Standard Webhooks specification, version 1: `v1,` and the HMAC-SHA256 in base64 of
 * `<id>.<timestamp>.<body>`, where the timestamp is in seconds since the Unix epoch.
 *
 * A secret is `whsec_` and 24 to 64 bytes in base64.
 */
import * as Redacted from "effect/Redacted"
import { createHash, createHmac, timingSafeEqual } from "node:crypto"

/** What is signed. */
export interface Signed {
  readonly id: string
  /** Seconds since the Unix epoch. */
  readonly timestamp: number
  /** The bytes that are sent. */
  readonly body: string | Uint8Array
}

/** Why a request is refused. None contains a secret or a part of the body. */
export type Refusal =
  | "HeadersMissing"
  | "TimestampInvalid"
  | "TimestampTooOld"
  | "TimestampTooNew"
  | "SignatureWrong"

/** The key of a secret; undefined if it is not one. */
export const keyOf = (secret: Redacted.Redacted<string>): Uint8Array | undefined => {
  const [, base64] = /^whsec_([A-Za-z0-9+/]+={0,2})$/.exec(Redacted.value(secret)) ?? []
  const key = base64 === undefined ? undefined : Buffer.from(base64, "base64")
  return key !== undefined && key.length >= 24 && key.length <= 64 ? key : undefined
}

/** The value of `webhook-signature`. */
export const sign = (key: Uint8Array, { body, id, timestamp }: Signed): string =>
  `v1,${createHmac("sha256", key).update(`${id}.${timestamp}.`).update(body).digest("base64")}`

/**
 * Checks the headers of a request against its body: answers with the id of the webhook, or why it is refused. Several
 * keys let senders change their secret: one that fits is enough. Takes as long for a signature that is nearly right.
 */
export const verify = (
  keys: ReadonlyArray<Uint8Array>,
  headers: { readonly get: (name: string) => string | null },
  body: string | Uint8Array,
  { nowMs, toleranceMs }: { readonly nowMs: number; readonly toleranceMs: number }
): { readonly id: string; readonly timestamp: number } | Refusal => {
  const id = headers.get("webhook-id")
  const given = headers.get("webhook-timestamp")
  const signatures = headers.get("webhook-signature")
  if (id === null || id === "" || given === null || signatures === null) return "HeadersMissing"
  if (!/^\d{1,12}$/.test(given)) return "TimestampInvalid"
  const timestamp = Number(given)
  if (timestamp * 1000 < nowMs - toleranceMs) return "TimestampTooOld"
  if (timestamp * 1000 > nowMs + toleranceMs) return "TimestampTooNew"
  const offered = signatures.split(" ")
  const isRight = keys
    .map((key) => sign(key, { id, timestamp, body }))
    .flatMap((expected) => offered.map((one) => isSame(expected, one)))
    .includes(true)
  return isRight ? { id, timestamp } : "SignatureWrong"
}

/** Compares texts in a time that does not depend on how alike they are. */
export const isSame = (expected: string, given: string): boolean => timingSafeEqual(digest(expected), digest(given))

// internal

/** Gives both texts one length, as the comparison needs. */
const digest = (text: string) => createHash("sha256").update(text, "utf8").digest()
