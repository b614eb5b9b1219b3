/**
 * Who may use the dashboard, and from where.
 */
import * as Effect from "effect/Effect"
import * as HttpEffect from "effect/http/HttpEffect"
import { HttpServerRequest } from "effect/http/HttpServerRequest"
import * as HttpServerResponse from "effect/http/HttpServerResponse"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { createHash, timingSafeEqual } from "node:crypto"
import { Access, CurrentActor, Forbidden, Unauthorized } from "../Api.ts"
import type { Actor } from "../Api.ts"
import * as Headers from "./headers.ts"

/** Names who sends a request, or refuses it. */
export type Authorize = (request: HttpServerRequest) => Effect.Effect<Actor, Unauthorized | Forbidden>

export interface Token extends Actor {
  readonly token: Redacted.Redacted<string>
}

/** Everyone that has one of the tokens, in the header `Authorization: Bearer …`. */
export const bearer = (tokens: ReadonlyArray<Token>): Authorize => {
  if (tokens.length === 0) throw new RangeError("Dashboard.bearer needs a token: without one no one gets in")
  for (const { name, token } of tokens) {
    if (!/^[\x20-\x7e]{16,}$/.test(Redacted.value(token))) {
      throw new RangeError(`the token of ${name} needs at least 16 characters, all of them ASCII`)
    }
  }
  const known = tokens.map(({ token, ...actor }) => ({ actor, digest: digestOf(Redacted.value(token)) }))
  return ({ headers }) => {
    const given = /^Bearer (.+)$/i.exec(headers["authorization"] ?? "")?.[1]
    if (given === undefined) {
      return Effect.fail(new Unauthorized({ message: "the dashboard asks for a token", asksForToken: true }))
    }
    const digest = digestOf(given)
    // All are compared, so that the time does not tell which one it might be.
    const found = known.filter((one) => timingSafeEqual(one.digest, digest))
    return found.length > 0
      ? Effect.succeed(found[0]!.actor)
      : Effect.fail(new Unauthorized({ message: "the token is not one of this dashboard", asksForToken: true }))
  }
}

/**
 * In front of every endpoint. Other sites cannot send the header of the dashboard without asking first, which no answer
 * allows; and browsers say which requests they send for them.
 */
export const layer = (authorize: Authorize): Layer.Layer<Access> =>
  Layer.succeed(Access, (endpoint) =>
    Effect.gen(function*() {
      // Also of what is refused here.
      yield* HttpEffect.appendPreResponseHandler((_, response) =>
        Effect.succeed(HttpServerResponse.setHeaders(response, Headers.ofData))
      )
      const request = yield* HttpServerRequest
      const site = request.headers["sec-fetch-site"]
      if (site !== undefined && site !== "same-origin" && site !== "none") {
        return yield* new Forbidden({ message: "the dashboard does not answer other sites" })
      }
      if (request.method !== "GET" && request.headers["x-duroxide-dashboard"] !== "1") {
        return yield* new Forbidden({ message: "send the header x-duroxide-dashboard: 1 with every change" })
      }
      const actor = yield* authorize(request)
      if (request.method !== "GET" && actor.role !== "operate") {
        return yield* new Forbidden({ message: `${actor.name} may look, and not change anything` })
      }
      return yield* Effect.provideService(endpoint, CurrentActor, actor)
    }))

// internal

const digestOf = (token: string) => createHash("sha256").update(token).digest()
