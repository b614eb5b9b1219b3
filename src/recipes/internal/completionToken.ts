/**
 * Tokens that name a call: `c1.<call>.<signature>`, both in base64 for URLs. The call is a JSON array of ids and the
 * expiry, without a payload; the signature is the HMAC-SHA256 of all before it.
 */
import * as Redacted from "effect/Redacted"
import { createHmac } from "node:crypto"
import { isSame } from "./signature.ts"

/** What a token names. */
export interface Named {
  readonly instanceId: string
  readonly executionId: number
  /** When its execution began: an instance of the same id that is started later has other calls. */
  readonly startedAtMs: number
  /** Event id of the first try. */
  readonly callId: number
  readonly activityName: string
  /** Milliseconds since the Unix epoch. */
  readonly expiresAtMs: number
  /** How long a heartbeat extends it. */
  readonly expiryMs: number
}

/** The first key signs, all of them verify. */
export type Keys = ReadonlyArray<Redacted.Redacted<string>>

export const sign = ([key]: Keys, named: Named): string => {
  const { activityName, callId, executionId, expiresAtMs, expiryMs, instanceId, startedAtMs } = named
  const call = [instanceId, executionId, startedAtMs, callId, activityName, expiresAtMs, expiryMs]
  const signed = `${version}.${Buffer.from(JSON.stringify(call)).toString("base64url")}`
  return `${signed}.${signatureOf(key!, signed)}`
}

/** Undefined for a text that none of the keys has signed. */
export const verify = (keys: Keys, token: string): Named | undefined => {
  if (token.length > maxLength) return undefined
  const [, signed, call, signature] = /^(c1\.([\w-]+))\.([\w-]{43})$/.exec(token) ?? []
  if (signed === undefined) return undefined
  const isRight = keys.map((key) => isSame(signatureOf(key, signed), signature!)).includes(true)
  if (!isRight) return undefined
  const [instanceId, executionId, startedAtMs, callId, activityName, expiresAtMs, expiryMs] = JSON.parse(
    Buffer.from(call!, "base64url").toString()
  )
  return { instanceId, executionId, startedAtMs, callId, activityName, expiresAtMs, expiryMs }
}

/** Why a list of keys cannot be used; undefined if it can. */
export const problemOfKeys = (keys: Keys): string | undefined =>
  keys.length === 0
    ? "there is none"
    : keys.some((key) => Redacted.value(key).length < leastKeyLength)
    ? `each must have at least ${leastKeyLength} characters`
    : undefined

// internal

const version = "c1"

const leastKeyLength = 32

/** More than a token with the longest id and the longest name has. */
const maxLength = 32_768

const signatureOf = (key: Redacted.Redacted<string>, signed: string) =>
  createHmac("sha256", Redacted.value(key)).update(signed).digest("base64url")
