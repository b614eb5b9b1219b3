import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Result from "effect/Result"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { Credentials } from "../../src/prisma/Credentials.ts"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as Tls from "../../src/prisma/internal/tls.ts"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as ApplicationPool from "../utils/applicationPool.ts"
import { authority } from "../utils/certificates.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { tlsServer } from "../utils/tlsServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const ours = authority()

const caFile = Effect.gen(function*() {
  const folder = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "duroxide-prisma-tls-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true }))
  )
  const file = path.join(folder, "ca.pem")
  yield* Effect.promise(() => writeFile(file, ours.cert))
  return { file, replace: (text: string) => writeFile(file, text) }
})

const withParameters = (url: string, parameters: Record<string, string>) => {
  const changed = new URL(url)
  for (const [name, value] of Object.entries(parameters)) changed.searchParams.set(name, value)
  return changed.toString()
}

/** How connections to this server are protected, or the error. */
const opened = (options: Database.Options) =>
  Effect.scoped(Database.make(options)).pipe(
    Effect.map(({ tls }): string => tls),
    Effect.catch((error) => Effect.succeed(`${error.reason._tag}: ${error.message}`))
  )

describe("a server with a certificate of an authority of our own", () => {
  it.live("is accepted with sslrootcert or the option, and refused without, by one error that says what to do", () =>
    Effect.gen(function*() {
      const { file } = yield* caFile
      const server = yield* tlsServer(PgServer.server().url, ours.issue("127.0.0.1"))
      const url = server.through(PgServer.server().url)
      assert.strictEqual(yield* opened({ url: withParameters(url, { sslrootcert: file }) }), "verified")
      assert.strictEqual(yield* opened({ url, tls: { ca: ours.cert } }), "verified")
      for (const sslmode of ["verify-full", "require"]) {
        const refused = yield* opened({ url: withParameters(url, { sslmode }) })
        assert.match(refused, /^ConfigurationInvalid: .*UNABLE_TO_VERIFY_LEAF_SIGNATURE.*sslrootcert/, sslmode)
      }
      assert.include(yield* opened({ url, tls: { ca: authority().cert } }), "ConfigurationInvalid")
      assert.strictEqual(yield* opened({ url: withParameters(url, { sslmode: "no-verify" }) }), "unverified")
      const migrated = yield* Effect.flip(Migrator.verify({ url: withParameters(url, { sslmode: "verify-full" }) }))
      assert.strictEqual(migrated.reason._tag, "ConfigurationInvalid")
    }).pipe(silently))

  it.live("is refused under another name, unless that name is given or none is asked for", () =>
    Effect.gen(function*() {
      const server = yield* tlsServer(PgServer.server().url, ours.issue("db.example.com"))
      const url = server.through(PgServer.server().url)
      const { file } = yield* caFile
      assert.match(
        yield* opened({ url: withParameters(url, { sslrootcert: file }) }),
        /^ConfigurationInvalid: .*ERR_TLS_CERT_ALTNAME_INVALID.*serverName/
      )
      assert.strictEqual(yield* opened({ url, tls: { ca: ours.cert, serverName: "db.example.com" } }), "verified")
      assert.include(yield* opened({ url, tls: { ca: ours.cert, serverName: "other.example.com" } }), "ALTNAME")
      assert.strictEqual(
        yield* opened({ url: withParameters(url, { sslmode: "verify-ca", sslrootcert: file }) }),
        "authority only"
      )
    }).pipe(silently))

  it.live("is reached by a pool of the application, and by the connection that listens beside it", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const server = yield* tlsServer(test.url, ours.issue("127.0.0.1"))
      for (
        const [tls, ssl] of [
          ["verified", { ca: ours.cert }],
          ["authority only", { ca: ours.cert, checkServerIdentity: () => undefined }],
          ["unverified", { rejectUnauthorized: false }]
        ] as const
      ) {
        const pool = yield* ApplicationPool.open({ connectionString: server.through(test.url), ssl })
        const log = Listening.logging()
        yield* log.into(
          Effect.gen(function*() {
            yield* Layer.build(PrismaProvider.layer({ pool, migrate: "verify" }))
            yield* waitUntil(Effect.sync(() => log.of("Info").length > 0))
          }).pipe(Effect.scoped)
        )
        assert.deepStrictEqual(log.of("Warn"), [])
        assert.strictEqual(log.lines.find(({ text }) => text === "Provider: open")?.annotations["tls"], tls)
      }
    }))

  it.live("a file of authorities that is replaced is used by the next connection", () =>
    Effect.gen(function*() {
      const { file, replace } = yield* caFile
      const server = yield* tlsServer(PgServer.server().url, ours.issue("127.0.0.1"))
      const url = withParameters(server.through(PgServer.server().url), { sslrootcert: file })
      const db = yield* Database.make({ url, maxConnections: 1 })
      const end = Effect.flip(db.query("end", Prisma.sql`SELECT pg_terminate_backend(pg_backend_pid())::text`))
      yield* Effect.promise(() => replace(authority().cert))
      yield* end
      const refused = yield* Effect.flip(db.query("next", Prisma.sql`SELECT 1 AS one`))
      assert.strictEqual(refused.reason._tag, "ConfigurationInvalid")
      assert.include(refused.message, "sslrootcert")
      yield* Effect.promise(() => replace(ours.cert))
      yield* db.query("next", Prisma.sql`SELECT 1 AS one`)
    }).pipe(silently))

  it.live("a client without TLS is refused by an error that says what to do", () =>
    Effect.gen(function*() {
      const server = yield* tlsServer(PgServer.server().url, ours.issue("127.0.0.1"))
      assert.match(yield* opened({ url: server.through(PgServer.server().url) }), /no encryption.*sslmode=verify-full/)
    }).pipe(silently))
})

it.live("a server without TLS is refused where TLS is asked for, by an error that says what to do", () =>
  Effect.gen(function*() {
    const server = yield* tlsServer(PgServer.server().url, ours.issue("127.0.0.1"), { offers: false })
    const url = server.through(PgServer.server().url)
    assert.match(
      yield* opened({ url: withParameters(url, { sslmode: "require" }) }),
      /^ConfigurationInvalid: .*does not support SSL connections.*sslmode=disable/
    )
    assert.strictEqual(yield* opened({ url: PgServer.server().url }), "off")
  }).pipe(silently))

describe("what the URL says:", () => {
  const resolve = (query: string, host = "db.example.com", more: Partial<Tls.Wishes> = {}) =>
    Result.match(
      Tls.resolve({ parameters: new URLSearchParams(query), host, options: undefined, secret: undefined, ...more }),
      { onSuccess: ({ name }): string => name, onFailure: ({ problem }) => problem }
    )

  it("sslmode", () => {
    const cases: ReadonlyArray<readonly [query: string, remote: string, local: string]> = [
      ["", "verified", "off"],
      ["sslmode=prefer", "verified", "off"],
      ["sslmode=allow", "verified", "off"],
      ["sslmode=disable", "off", "off"],
      ["sslmode=require", "verified", "verified"],
      ["sslmode=verify-full", "verified", "verified"],
      ["sslmode=no-verify", "unverified", "unverified"],
      ["sslmode=require&uselibpqcompat=true", "unverified", "unverified"],
      ["ssl=true", "verified", "verified"],
      ["ssl=0", "off", "off"],
      ["ssl=no-verify", "unverified", "unverified"],
      ["sslnegotiation=direct", "verified", "verified"],
      ["sslrootcert=system", "verified", "verified"]
    ]
    for (const [query, remote, local] of cases) {
      assert.strictEqual(resolve(query), remote, `${query}, remote`)
      for (const host of ["localhost", "127.0.0.1", "127.1.2.3", "::1", "/run/postgresql"]) {
        assert.strictEqual(resolve(query, host), local, `${query}, ${host}`)
      }
    }
    assert.include(resolve("sslmode=verify-ca"), "needs sslrootcert")
    assert.include(resolve("sslmode=on"), "not on")
    assert.include(resolve("sslkey=/missing.key"), "/missing.key cannot be read (ENOENT)")
    assert.strictEqual(resolve("", "localhost", { options: { ca: ours.cert } }), "verified")
  })

  it("a token is never sent to a server that proves nothing", () => {
    const secret = "a token of Microsoft Entra"
    assert.strictEqual(resolve("", "localhost", { secret }), "verified")
    for (const query of ["sslmode=disable", "sslmode=no-verify", "sslmode=require&uselibpqcompat=true"]) {
      for (const host of ["localhost", "db.example.com"]) {
        assert.match(resolve(query, host, { secret }), /^a token of Microsoft Entra .*sslmode=verify-full/)
      }
    }
  })

  it.live("a token is not even asked for, then", () =>
    Effect.gen(function*() {
      let asked = 0
      const tokens = Layer.succeed(Credentials, {
        kind: "a token of the test",
        requiresTls: true,
        password: () => Effect.sync(() => Redacted.make(`token ${++asked}`))
      })
      const url = withParameters(PgServer.server().url, { sslmode: "disable" })
      const refused = yield* Effect.provide(opened({ url }), tokens)
      assert.include(refused, "ConfigurationInvalid")
      assert.include(refused, "a token of the test would be sent")
      assert.strictEqual(asked, 0)
    }).pipe(silently))
})
