import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as net from "node:net"
import { vi } from "vitest"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/internal/client.ts"
import { Pool } from "../../src/prisma/internal/pool.ts"
import { proxyFor } from "../programs/latencyProxy.ts"
import * as PgServer from "../utils/PgServer.ts"

const pid = Prisma.sql`SELECT pg_backend_pid() AS pid`

const silently = Effect.provide(Logger.layer([]))

describe("The pool", () => {
  it.live("serves a burst of statements with fewer connections than it may open", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const db = yield* Database.make({ url, maxConnections: 20 })
      const backends = yield* Effect.forEach(
        Array.from({ length: 100 }),
        () => Effect.map(db.query<{ pid: number }>("burst", pid), ([row]) => row!.pid),
        { concurrency: "unbounded" }
      )
      assert.isBelow(new Set(backends).size, 20)
    }))

  it.live("keeps a connection whose statement the server refuses", () =>
    Effect.gen(function*() {
      const { schema, sql, url } = yield* PgServer.database
      yield* sql(`CREATE TABLE "${schema}".refusing (id integer PRIMARY KEY)`)
      yield* sql("SELECT pg_advisory_lock(1)")
      const db = yield* Database.make({ url, maxConnections: 1 })
      const [first] = yield* db.query<{ pid: number }>("before", pid)
      for (
        const [sqlState, statement] of [
          ["55P03", "SELECT set_config('lock_timeout', '1', true), pg_advisory_xact_lock(1)::text"],
          ["57014", "SELECT pg_cancel_backend(pg_backend_pid()), pg_sleep(10)::text"],
          ["22012", "SELECT 1 / 0"],
          ["23502", `INSERT INTO "${schema}".refusing VALUES (NULL) RETURNING id`]
        ] as const
      ) {
        const error = yield* Effect.flip(db.query("refused", Prisma.raw(statement)))
        assert.include(error.reason, { sqlState })
        assert.deepStrictEqual(yield* db.query("after", pid), [first], sqlState)
      }
    }).pipe(silently))

  it.live("tries further connections while some logins get no answer", () =>
    Effect.gen(function*() {
      const { hostname, port } = new URL(PgServer.server().url)
      const sockets = new Set<net.Socket>()
      const deafToTwo = net.createServer((socket) => {
        sockets.add(socket)
        if (sockets.size <= 2) return
        const server = net.connect(Number(port), hostname)
        socket.pipe(server).pipe(socket)
      })
      yield* Effect.acquireRelease(
        Effect.promise(() => new Promise<void>((resolve) => deafToTwo.listen(0, "127.0.0.1", resolve))),
        () => Effect.sync(() => deafToTwo.close())
      )
      const connectionString = PgServer.urlWith((url) => {
        url.hostname = "127.0.0.1"
        url.port = String((deafToTwo.address() as net.AddressInfo).port)
      })
      const pool = new Pool({ connectionString, max: 4 })
      const ended: Array<string> = []
      const connect = (name: string) =>
        pool.connect().then((client) => client.release(), () => {}).finally(() => ended.push(name))
      const [first, second, third] = ["first", "second", "third"].map(connect)
      yield* Effect.promise(() => third!)
      assert.deepStrictEqual(ended, ["third"])
      for (const socket of sockets) socket.destroy()
      yield* Effect.promise(() => Promise.all([first, second, pool.end()]))
    }).pipe(silently))

  it.live("gives up a connection after ten seconds, however long a statement may wait for one", () =>
    Effect.gen(function*() {
      const proxy = yield* proxyFor(PgServer.server().url)
      proxy.state.blackhole = true
      yield* Effect.acquireRelease(
        Effect.sync(() => vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout"] })),
        () => Effect.sync(() => vi.useRealTimers())
      )
      const pool = new Pool({
        connectionString: proxy.through(PgServer.server().url),
        connectionTimeoutMillis: 30_000
      })
      const connecting = pool.connect().then(() => "connected", (error: Error) => error.message)
      vi.advanceTimersByTime(10_000)
      assert.strictEqual(yield* Effect.promise(() => connecting), "timeout expired")
    }).pipe(silently))
})
