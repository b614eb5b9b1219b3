import { assert, describe, it } from "@effect/vitest"
import * as ConfigProvider from "effect/ConfigProvider"
import * as Effect from "effect/Effect"
import * as Redacted from "effect/Redacted"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import * as path from "node:path"
import * as DatabaseServer from "../../src/server/DatabaseServer.ts"
import { folder, query, refusal } from "./embedded.ts"

describe("make", () => {
  const withUrl = (url: string) =>
    Effect.provideService(ConfigProvider.ConfigProvider, ConfigProvider.fromUnknown({ DATABASE_URL: url }))

  it.live("make: takes DATABASE_URL and starts nothing", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      const server = yield* DatabaseServer.make({ directory }).pipe(withUrl("postgresql://a:b@c/d"))
      assert.strictEqual(Redacted.value(server.url), "postgresql://a:b@c/d")
      assert.strictEqual(server.source, "DATABASE_URL")
      assert.notInclude(server.description, "b@c")
      assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(directory)), [])
    }))

  it.live("make: starts the embedded server when DATABASE_URL is empty", () =>
    Effect.gen(function*() {
      const directory = yield* folder
      const server = yield* DatabaseServer.make({ directory }).pipe(withUrl(""))
      assert.strictEqual(server.source, "embedded")
      assert.deepStrictEqual(yield* query(server, "SELECT 1 AS one"), [{ one: 1 }])
    }))
})

describe("makeEmbedded: fails with one clear reason when", () => {
  it.live("the port is taken", () =>
    Effect.gen(function*() {
      const taken = yield* Effect.acquireRelease(
        Effect.promise(() =>
          new Promise<net.Server>((resolve) => {
            const server = net.createServer().listen(0, "127.0.0.1", () => resolve(server))
          })
        ),
        (server) => Effect.sync(() => server.close())
      )
      const { port: number } = taken.address() as net.AddressInfo
      const reason = yield* refusal({ directory: yield* folder, port: number })
      assert.strictEqual(reason._tag, "PortTaken")
      assert.include(reason.message, `port ${number} is in use`)
    }))

  it.live("the folder cannot be made", () =>
    Effect.gen(function*() {
      const file = path.join(yield* folder, "file")
      yield* Effect.promise(() => fs.writeFile(file, ""))
      const reason = yield* refusal({ directory: path.join(file, "below") })
      assert.strictEqual(reason._tag, "DirectoryUnusable")
      assert.include(reason.message, file)
    }))
})
