/** One POST to an endpoint: its status, or why no response came. The body of the response is never read. */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"

export interface Request {
  readonly url: URL
  readonly headers: Readonly<Record<string, string>>
  /** JSON text. */
  readonly body: string
  readonly timeout: Duration.Duration
  readonly fetch: typeof globalThis.fetch
}

/** What the endpoint answered. */
export interface Answer {
  readonly status: number
  /** The header `retry-after`, as it is. */
  readonly retryAfter: string | null
}

/** Why there is no answer. Contains no part of the request: an error of `fetch` may name the URL. */
export type NoAnswer = "timeout" | "no connection"

/** Follows no redirect. */
export const post = ({ body, fetch, headers, timeout, url }: Request): Effect.Effect<Answer, NoAnswer> =>
  Effect.tryPromise({
    try: async (signal): Promise<Answer> => {
      const response = await fetch(url, { method: "POST", headers, body, redirect: "manual", signal })
      // Not waited for: an endpoint may send its body slowly.
      response.body?.cancel().catch(() => {})
      return { status: response.status, retryAfter: response.headers.get("retry-after") }
    },
    catch: (): NoAnswer => "no connection"
  }).pipe(
    Effect.timeoutOrElse({ duration: timeout, orElse: () => Effect.fail<NoAnswer>("timeout") })
  )

/** A URL that can be posted to, or why not. */
export const checkUrl = (text: string | URL): URL | "not a URL" | "not http or https" | "credentials in the URL" => {
  let url: URL
  try {
    url = new URL(text)
  } catch {
    return "not a URL"
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return "not http or https"
  return url.username === "" && url.password === "" ? url : "credentials in the URL"
}

/**
 * Milliseconds that `retry-after` asks for, between 0 and `mostMs`: a number of seconds, or a date. Undefined without a
 * readable header.
 */
export const retryAfterMs = (header: string | null, nowMs: number, mostMs: number): number | undefined => {
  if (header === null) return undefined
  const text = header.trim()
  // Without a time zone and a name of the day it is not a date of HTTP.
  const ms = /^\d+$/.test(text) ? Number(text) * 1000 : text.endsWith("GMT") ? Date.parse(text) - nowMs : NaN
  return Number.isNaN(ms) ? undefined : Math.min(Math.max(ms, 0), mostMs)
}

/** Whether another try can go better. 408, 425 and 429 ask for one; other 4xx say that the request itself is wrong. */
export const isPermanent = (status: number): boolean =>
  status >= 400 && status < 500 && status !== 408 && status !== 425 && status !== 429
