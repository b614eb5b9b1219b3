/**
 * Tokens as passwords: obtained by the packages of the platforms from endpoints of the test, and checked by a server
 * with TLS.
 */
import { ChainedTokenCredential } from "@azure/identity"
import { assert, describe, it, vi } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as TestClock from "effect/testing/TestClock"
import * as http from "node:http"
import type * as net from "node:net"
import * as pg from "pg"
import * as CredentialsModule from "../../src/prisma/Credentials.ts"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import { authority } from "../utils/certificates.ts"
import { loginRole } from "../utils/loginRole.ts"
import * as PgServer from "../utils/PgServer.ts"
import { tlsServer } from "../utils/tlsServer.ts"

const { Credentials, layerConfig, layerEntra, layerRds } = CredentialsModule

const silently = Effect.provide(Logger.layer([]))

const ours = authority()

/** Sets variables of the environment for the scope. */
const environment = (variables: Readonly<Record<string, string>>) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const before = { ...process.env }
      Object.assign(process.env, variables)
      return before
    }),
    (before) =>
      Effect.sync(() => {
        for (const name of Object.keys(variables)) {
          if (before[name] === undefined) delete process.env[name]
          else process.env[name] = before[name]
        }
      })
  )

const ask = (request: Partial<CredentialsModule.Request> = {}) =>
  Effect.flatMap(Credentials, ({ password }) =>
    Effect.map(
      password({ host: "h", port: 1, user: "u", database: "d", ...request }),
      (password) => Redacted.value(password)
    ))

/**
 * Requests to `@azure/identity` for a token: when one began, when the token came, and until when the package says that
 * it is valid. The last may be a second too early, if the middle of a second of the clock falls within the request: the
 * package rounds to whole seconds once before and once after it.
 */
const requestsOfTokens = Effect.acquireRelease(
  Effect.sync(() => {
    const requests: Array<{ readonly askedMs: number; receivedMs: number; expiresMs: number }> = []
    const { prototype } = ChainedTokenCredential
    const getToken: ChainedTokenCredential["getToken"] = Reflect.get(prototype, "getToken")
    const spy = vi.spyOn(prototype, "getToken").mockImplementation(
      async function(this: ChainedTokenCredential, ...args) {
        const request = { askedMs: Date.now(), receivedMs: Infinity, expiresMs: Infinity }
        requests.push(request)
        const token = await getToken.apply(this, args)
        Object.assign(request, { receivedMs: Date.now(), expiresMs: token.expiresOnTimestamp })
        return token
      }
    )
    return { requests, spy }
  }),
  ({ spy }) => Effect.sync(() => spy.mockRestore())
)

/**
 * The endpoint of managed identities in App Service. Each answer is a new token: the only password, until after its
 * time.
 */
const identityEndpoint = (setPassword: (sql: string) => Promise<unknown>, lifetimeMs: number) =>
  Effect.gen(function*() {
    const state = { issued: 0, atOnce: 0, mostAtOnce: 0, paths: new Set<string>(), refusedHeaders: 0 }
    const server = yield* Effect.acquireRelease(
      Effect.callback<http.Server>((resume) => {
        const server = http.createServer((request, response) => {
          state.mostAtOnce = Math.max(state.mostAtOnce, ++state.atOnce)
          const { pathname, searchParams } = new URL(request.url!, "http://localhost")
          state.paths.add(`${pathname} ${searchParams.get("resource")}`)
          if (request.headers["x-identity-header"] !== "header of the test") state.refusedHeaders++
          const expiresMs = Date.now() + lifetimeMs
          const token = `token-${++state.issued}-${"x".repeat(2000)}`
          void setPassword(
            `PASSWORD ${pg.escapeLiteral(token)} VALID UNTIL ${
              pg.escapeLiteral(new Date(expiresMs + 1000).toISOString())
            }`
          ).then(() => {
            state.atOnce--
            response.setHeader("content-type", "application/json")
            response.end(JSON.stringify({
              access_token: token,
              expires_on: expiresMs / 1000,
              resource: searchParams.get("resource"),
              token_type: "Bearer"
            }))
          })
        })
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
      }),
      (server) =>
        Effect.sync(() => {
          server.closeAllConnections()
          server.close()
        })
    )
    const { port } = server.address() as net.AddressInfo
    yield* environment({
      IDENTITY_ENDPOINT: `http://127.0.0.1:${port}/msi/token`,
      IDENTITY_HEADER: "header of the test"
    })
    return state
  })

describe("layerEntra:", () => {
  it.live("nothing is lost over ten rotations under load, and each takes one request", () =>
    Effect.gen(function*() {
      const role = yield* loginRole("nothing")
      const admin = yield* PgServer.connect(PgServer.server().url)
      const lifetimeMs = 1000
      const endpoint = yield* identityEndpoint((sql) => admin.query(`ALTER ROLE ${role.name} ${sql}`), lifetimeMs)
      const { url } = yield* PgServer.database
      const server = yield* tlsServer(url, ours.issue("127.0.0.1"))
      const backends = new Set<number>()
      const { requests } = yield* requestsOfTokens
      let statements = 0
      let refused = 0
      yield* Effect.gen(function*() {
        const { query } = yield* Database.Database
        const work = query<{ pid: number }>("pid", Prisma.sql`SELECT pg_backend_pid() AS pid, pg_sleep(0.002)::text`)
          .pipe(
            Effect.tap(([row]) =>
              Effect.sync(() => {
                statements++
                backends.add(row!.pid)
              })
            ),
            // A slow login may be under way with the token before, which the endpoint has ended; the provider repeats
            // that, too.
            Effect.tapError(() => Effect.sync(() => refused++)),
            Effect.retry({ times: 3, while: ({ reason }) => reason._tag === "Unavailable" }),
            Effect.repeat({ until: () => endpoint.issued > 10 && statements > 100 && backends.size > 20 })
          )
        yield* Effect.all(Array.from({ length: 4 }, () => work), { concurrency: "unbounded" })
      }).pipe(Effect.provide(
        Database.layer({
          url: server.through(role.at(url)),
          tls: { ca: ours.cert },
          maxConnections: 4,
          maxLifetime: "50 millis"
        }).pipe(Layer.provide(layerEntra()))
      ))
      assert.isAbove(statements, 100)
      assert.isAbove(backends.size, 20, "logins")
      assert.isAtMost(refused, endpoint.issued / 2)
      assert.strictEqual(endpoint.mostAtOnce, 1)
      // The last one may have ended with the scope, before it was sent.
      assert.isAtMost(endpoint.issued, requests.length)
      for (const [before, next] of requests.slice(1).map((next, index) => [requests[index]!, next] as const)) {
        assert.isAtLeast(next.askedMs, (before.receivedMs + before.expiresMs) / 2, "replaced after half of its time")
      }
      assert.deepStrictEqual([...endpoint.paths], ["/msi/token https://ossrdbms-aad.database.windows.net"])
      assert.strictEqual(endpoint.refusedHeaders, 0)
    }).pipe(silently))

  it.effect("a token is replaced ten minutes before it runs out; the credential may be one of the application's", () => {
    const scopes: Array<string> = []
    const credential = {
      getToken: (scope: string) => {
        scopes.push(scope)
        return Promise.resolve({ token: `token ${scopes.length}`, expiresOnTimestamp: scopes.length * 3_600_000 })
      }
    }
    return Effect.gen(function*() {
      assert.strictEqual(yield* ask(), "token 1")
      yield* TestClock.adjust("50 minutes")
      assert.strictEqual(yield* ask(), "token 1")
      yield* Effect.promise(() => new Promise<void>((resolve) => setImmediate(resolve)))
      assert.strictEqual(yield* ask({ host: "another" }), "token 2")
      assert.deepStrictEqual(scopes, ["scope", "scope"])
    }).pipe(Effect.provide(layerEntra({ credential, scope: "scope" })))
  })

  it.effect("an identity that is missing or refused is a wrong setting at first, and an outage once it was known", () => {
    let fails: object | undefined
    const credential = {
      getToken: () =>
        fails === undefined
          ? Promise.resolve({ token: "token", expiresOnTimestamp: 1000 })
          : Promise.reject(Object.assign(new Error("no identity\nat https://host/secret"), fails))
    }
    const failure = Effect.map(Effect.flip(ask()), ({ reason }) => reason)
    return Effect.gen(function*() {
      for (
        const one of [
          { name: "CredentialUnavailableError" },
          { name: "AuthenticationError", statusCode: 401 },
          { name: "AggregateAuthenticationError", errors: [Object.assign(new Error(), { statusCode: 400 })] }
        ]
      ) {
        fails = one
        const reason = yield* failure
        assert.strictEqual(reason._tag, "ConfigurationInvalid", one.name)
        assert.include(reason.message, "no token of Microsoft Entra: no identity at <url>. Check that")
      }
      for (const one of [{ name: "AuthenticationError", statusCode: 503 }, { statusCode: 429 }, {}]) {
        fails = one
        assert.strictEqual((yield* failure)._tag, "Unavailable")
      }
      fails = undefined
      yield* ask()
      yield* TestClock.adjust("1 second")
      fails = { name: "CredentialUnavailableError" }
      assert.strictEqual((yield* failure)._tag, "Unavailable")
    }).pipe(Effect.provide(layerEntra({ credential })), silently)
  })
})

describe("layerRds:", () => {
  const credentials = environment({
    AWS_ACCESS_KEY_ID: "AKIDEXAMPLE",
    AWS_SECRET_ACCESS_KEY: "hunter2",
    AWS_REGION: "eu-central-1"
  })

  it.live("a token has the form that AWS documents, for the endpoint and user of the login", () =>
    Effect.gen(function*() {
      yield* credentials
      const form = (options: CredentialsModule.RdsOptions) =>
        Effect.map(
          Effect.provide(ask({ host: "db.example.com", port: 5432, user: "orders app" }), layerRds(options)),
          (token) => new URL(`https://${token}`)
        )
      const token = yield* form({})
      assert.strictEqual(token.host, "db.example.com:5432")
      assert.strictEqual(token.pathname, "/")
      const parameters = Object.fromEntries(token.searchParams)
      assert.containsSubset(parameters, {
        Action: "connect",
        DBUser: "orders app",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host"
      })
      assert.match(parameters["X-Amz-Credential"]!, /^AKIDEXAMPLE\/\d{8}\/eu-central-1\/rds-db\/aws4_request$/)
      assert.match(parameters["X-Amz-Signature"]!, /^[0-9a-f]{64}$/)
      const other = yield* form({ hostname: "real.rds.amazonaws.com", port: 5433, region: "us-east-1" })
      assert.strictEqual(other.host, "real.rds.amazonaws.com:5433")
      assert.include(other.searchParams.get("X-Amz-Credential"), "/us-east-1/")
    }))

  it.live("logs in with it, with one token for each user and server", () =>
    Effect.gen(function*() {
      yield* credentials
      const role = yield* loginRole("nothing")
      const { url } = yield* PgServer.database
      const server = yield* tlsServer(url, ours.issue("127.0.0.1"))
      yield* Effect.gen(function*() {
        const own = { host: "127.0.0.1", port: server.port, user: role.name }
        const token = yield* ask(own)
        assert.notStrictEqual(yield* ask({ ...own, user: "another" }), token)
        yield* Effect.promise(() => role.setPassword(token))
        const database = yield* Effect.scoped(
          Database.make({ url: server.through(role.at(url)), tls: { ca: ours.cert } })
        )
        assert.strictEqual(database.tls, "verified")
        assert.strictEqual(yield* ask(own), token)
      }).pipe(Effect.provide(layerRds()))
    }).pipe(silently))
})

describe("layerConfig:", () => {
  const kind = (variables: Record<string, string>) =>
    Effect.serviceOption(Credentials).pipe(
      Effect.map((found) => (found._tag === "None" ? "none" : found.value.kind)),
      Effect.provide(layerConfig),
      Effect.catch((error) => Effect.succeed(error.message)),
      Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromEnv({ env: variables }))
    )

  it.live("chooses by the environment, and refuses what does not fit", () =>
    Effect.gen(function*() {
      assert.strictEqual(yield* kind({}), "none")
      assert.strictEqual(yield* kind({ DUROXIDE_PG_CREDENTIALS: "url" }), "none")
      assert.strictEqual(yield* kind({ DUROXIDE_PG_PASSWORD_FILE: "/f" }), "a password file")
      assert.strictEqual(yield* kind({ DUROXIDE_PG_CREDENTIALS: "entra" }), "a token of Microsoft Entra")
      assert.strictEqual(yield* kind({ DUROXIDE_PG_CREDENTIALS: "rds" }), "a token of AWS IAM")
      assert.include(yield* kind({ DUROXIDE_PG_CREDENTIALS: "file" }), "DUROXIDE_PG_PASSWORD_FILE is not set")
      assert.include(
        yield* kind({ DUROXIDE_PG_CREDENTIALS: "rds", DUROXIDE_PG_PASSWORD_FILE: "/f" }),
        "DUROXIDE_PG_CREDENTIALS=rds does not use it"
      )
      assert.include(yield* kind({ DUROXIDE_PG_CREDENTIALS: "vault" }), "must be one of url, file, entra, rds")
    }))
})
