/**
 * The dashboard on a store, without a socket: requests as browsers send them, and the client that the page uses.
 */
import { Client } from "duroxide-prisma"
import { Dashboard } from "duroxide-prisma/dashboard"
import { Admin } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as HttpApiClient from "effect/http-api/HttpApiClient"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as HttpEffect from "effect/http/HttpEffect"
import * as HttpRouter from "effect/http/HttpRouter"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import { Api } from "../../src/dashboard/Api.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"

export const tokens = { operate: "o".repeat(24), read: "r".repeat(24), blind: "b".repeat(24) }

const access = Dashboard.bearer([
  { name: "ada", role: "operate", token: Redacted.make(tokens.operate) },
  { name: "ben", role: "read", token: Redacted.make(tokens.read) },
  { name: "cleo", role: "operate", seesPayloads: false, token: Redacted.make(tokens.blind) }
])

export interface Served {
  /** Sends a request for a path below the dashboard's. */
  readonly send: (path: string, init?: RequestInit) => Promise<Response>
  /** The page's client, of the bearer of a token. */
  readonly as: (token: keyof typeof tokens) => Effect.Effect<HttpApiClient.ForApi<typeof Api>>
  readonly admin: Admin.Admin["Service"]
  readonly client: Client.Client["Service"]
  readonly services: Context.Context<Client.Client | PrismaProvider.Services>
}

/** Until the scope is closed. */
export const open = Effect.fnUntraced(function*(url: string, options: Partial<Dashboard.Options> = {}) {
  const services = yield* Layer.build(
    Client.layer.pipe(
      Layer.provideMerge(PrismaProvider.layer({ url, migrate: "verify" })),
      Layer.provideMerge(Logger.layer([]))
    )
  )
  const app = yield* HttpRouter.toHttpEffect(Dashboard.layer({ access, ...options })).pipe(
    Effect.provideContext(services)
  )
  const handler = HttpEffect.toWebHandler(app)
  const path = options.path ?? "/duroxide"
  const send: Served["send"] = (to, init) => handler(new Request(`http://localhost${path}${to}`, init))
  const asFetch = (input: Request | URL | string, init?: RequestInit) => handler(new Request(input, init))
  const served: Served = {
    send,
    as: (token) =>
      HttpApiClient.make(Api, {
        transformClient: HttpClient.mapRequest((request) =>
          request.pipe(
            HttpClientRequest.prependUrl(`http://localhost${path}`),
            HttpClientRequest.bearerToken(tokens[token]),
            HttpClientRequest.setHeader("x-duroxide-dashboard", "1")
          )
        )
      }).pipe(
        Effect.provide(FetchHttpClient.layer),
        Effect.provideService(FetchHttpClient.Fetch, asFetch)
      ),
    admin: Context.get(services, Admin.Admin),
    client: Context.get(services, Client.Client),
    services
  }
  return served
})
