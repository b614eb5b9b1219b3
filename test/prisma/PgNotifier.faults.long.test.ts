import { assert, describe, it } from "@effect/vitest"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Latch from "effect/Latch"
import * as Logger from "effect/Logger"
import * as Schedule from "effect/Schedule"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as Login from "../../src/prisma/internal/login.ts"
import { Hint } from "../../src/waking/Notifier.ts"
import { proxyFor } from "../programs/latencyProxy.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const marker = (visibleAtMs: number) => Hint.Work({ queue: "worker", visibleAtMs })

const lost = "Listener: the connection is lost; the queues are polled until it is back"
const refused = "Listener: cannot listen, so the queues are polled; it is tried again"

/** After this, the pool opens all connections anew. */
const endOwnBackend = ({ query }: Database.Database["Service"]) =>
  Effect.flip(query("end", Prisma.sql`SELECT pg_terminate_backend(pg_backend_pid())`))

/** Virtual time passes in steps, between which real answers arrive, until the condition holds. */
const passing = (step: Duration.Input, holds: Effect.Effect<boolean>) =>
  Effect.andThen(TestClock.adjust(step), TestClock.withLive(Effect.andThen(Effect.sleep("5 millis"), holds))).pipe(
    Effect.repeat({ until: (holds) => holds })
  )

describe("PgNotifier, when the connection dies:", () => {
  it.live("its backend is terminated: one loss is reported, and hints arrive again", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const log = Listening.logging()
      const one = yield* log.into(Listening.connected(test))
      const [before] = yield* Listening.backends(test)
      assert.strictEqual(yield* Listening.terminate(test), 1)
      yield* one.until(() => one.connections() === 2)
      assert.lengthOf(one.changes, 3)
      assert.include(one.changes[1], "terminating connection")
      assert.isTrue((yield* Listening.backends(test)).some(({ pid }) => pid !== before!.pid))

      const other = yield* silently(Listening.open(test, { listens: false }))
      yield* other.announce(marker(1))
      assert.deepStrictEqual((yield* one.next(1))[0]!.hint, marker(1))

      assert.deepStrictEqual(log.of("Error"), [lost])
      assert.deepStrictEqual(log.of("Warn"), [])
      assert.deepStrictEqual(log.of("Info"), [
        "Listener: listening; hints of other processes arrive",
        "Listener: listening again"
      ])
      const [line] = log.lines.filter(({ level }) => level === "Error")
      assert.deepInclude(line!.annotations, { operation: "listen", error_type: "Unavailable", error: one.changes[1] })
    }))

  it.live(
    "its backend is terminated every 200 ms while hints are sent: it connects each time",
    () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const one = yield* Listening.connected(test)
        const two = yield* Listening.connected(test)
        yield* Effect.raceFirst(
          Effect.repeat(Listening.terminate(test), { schedule: Schedule.spaced("200 millis"), times: 12 }),
          Effect.repeat(one.announce(marker(1)), Schedule.spaced("10 millis"))
        )
        for (const { changes, connections, until } of [one, two]) {
          yield* until(() => connections() >= 3 && changes.at(-1) === "connected")
          for (const [i, change] of changes.entries()) assert.strictEqual(change === "connected", i % 2 === 0, change)
        }
        assert.isNotEmpty(two.received)
        // The last connection may have been ended without notice yet.
        yield* Effect.raceFirst(
          two.until(() => two.received.some(({ hint }) => Hint.$is("Work")(hint) && hint.visibleAtMs === 2)),
          Effect.andThen(Effect.repeat(one.announce(marker(2)), Schedule.spaced("50 millis")), Effect.never)
        )
      }).pipe(silently)
  )

  for (const how of ["reset", "finish"] as const) {
    it.live(`the network breaks it (${how}): it connects again`, () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const proxy = yield* proxyFor(test.url)
        const one = yield* Listening.connected(test, { url: proxy.through(test.url) })
        proxy[how]()
        yield* one.until(() => one.connections() === 2)
        assert.lengthOf(one.changes, 3)
      }).pipe(silently))
  }

  it.effect("nothing comes through any longer: a heartbeat without an answer is a loss", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const proxy = yield* proxyFor(test.url)
      const one = yield* Listening.connected(test, { url: proxy.through(test.url) })
      proxy.state.blackhole = true
      yield* passing("5 seconds", Effect.sync(() => one.changes.length > 1))
      assert.include(one.changes[1], "no answer to a heartbeat for 10 seconds")
      assert.include(one.changes[1], `127.0.0.1:${proxy.port}`)
      proxy.state.blackhole = false
      yield* passing("100 millis", Effect.sync(() => one.connections() === 2))
    }).pipe(silently))

  it.effect("the pool gives up its connections: one through which no notification arrives is a loss at once", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const proxy = yield* proxyFor(test.url)
      const one = yield* Listening.connected(test, { url: proxy.through(test.url) })
      proxy.freeze()
      yield* endOwnBackend(one.database)
      yield* passing("1 second", Effect.sync(() => one.changes.length > 1))
      assert.include(one.changes[1], "notifications no longer arrive")
      yield* passing("100 millis", Effect.sync(() => one.connections() === 2))
    }).pipe(silently))

  it.effect("the pool gives up its connections: one through which a notification arrives is kept", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const one = yield* Listening.connected(test)
      const [before] = yield* Listening.backends(test)
      const checks = Effect.map(one.database.statementCounts, ({ checkNotifications }) => checkNotifications)
      for (const count of [2, 3]) {
        yield* endOwnBackend(one.database)
        yield* TestClock.withLive(waitUntil(Effect.map(checks, (checks) => checks === count)))
      }
      yield* TestClock.adjust("20 seconds")
      assert.deepStrictEqual(one.changes, ["connected"])
      assert.strictEqual((yield* Listening.backends(test))[0]!.pid, before!.pid)
    }).pipe(silently))

  it.effect("a heartbeat runs no statement, and says what the connection is for", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const [role] = yield* test.sql<{ super: boolean }>(
        "SELECT rolsuper AS super FROM pg_roles WHERE rolname = current_user"
      )
      if (role!.super) yield* test.sql("CREATE EXTENSION pg_stat_statements")
      yield* Listening.connected(test)
      const beating = Effect.map(Listening.backends(test), ([backend]) => backend!.query.startsWith("-- "))
      assert.isFalse(yield* beating)
      yield* passing("1 second", beating)
      const [{ query }] = (yield* Listening.backends(test)) as [Listening.Backend]
      assert.include(query, `-- duroxide-prisma listens on "${test.schema}_orch_work"`)
      const client = yield* PgServer.connect(test.url)
      assert.isNull((yield* Effect.promise(() => client.query(query))).command, "an empty query")
      if (role!.super) {
        const counted = (text: string) =>
          test.sql(
            `SELECT FROM pg_stat_statements
             WHERE dbid = (SELECT oid FROM pg_database WHERE datname = current_database()) AND strpos(query, $1) = 1`,
            [text]
          )
        assert.lengthOf(yield* counted("LISTEN"), 3)
        assert.lengthOf(yield* counted("--"), 0)
      }
    }).pipe(silently))

  it.live("closing does not wait for a connection that nothing comes through", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const proxy = yield* proxyFor(test.url)
      const scope = yield* Scope.make()
      const one = yield* Scope.provide(Listening.connected(test, { url: proxy.through(test.url) }), scope)
      proxy.freeze()
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(one.changes, ["connected"])
    }).pipe(silently))
})

describe("PgNotifier, when it cannot listen:", () => {
  it.live("the server is unreachable at first: one warning, and hints arrive once it is reachable", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const proxy = yield* proxyFor(test.url)
      proxy.state.isDown = true
      const log = Listening.logging()
      const one = yield* log.into(Listening.open(test, { url: proxy.through(test.url) }))
      yield* waitUntil(Effect.sync(() => log.of("Debug").length >= 2)) // two more attempts
      assert.deepStrictEqual(log.of("Warn"), [refused])
      assert.deepStrictEqual(one.changes, [])
      proxy.state.isDown = false
      yield* one.until(() => one.connections() === 1)
      assert.deepStrictEqual(one.changes, ["connected"])
      assert.deepStrictEqual(log.of("Error"), [])
    }))

  it.effect("the login is refused: one warning without the password, tried again after long pauses", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = new URL(test.url)
      // A server without authentication must still know the name.
      if (PgServer.server().source === "DATABASE_URL") url.username = "unknown_to_the_server"
      url.password = "hunter2"
      const log = Listening.logging()
      const one = yield* log.into(Listening.open(test, { url: url.toString() }))
      const live = (holds: () => boolean) => TestClock.withLive(waitUntil(Effect.sync(holds)))
      yield* live(() => log.of("Warn").length === 1)
      const [line] = log.lines.filter(({ level }) => level === "Warn")
      assert.strictEqual(line!.annotations["error_type"], "AuthenticationFailed")
      assert.include(line!.annotations["error"], "Check user and password")
      for (let i = 1; i <= 3; i++) {
        yield* TestClock.adjust("29 seconds")
        assert.lengthOf(log.of("Debug"), i - 1, "too early")
        yield* TestClock.adjust(2 ** i * 60_000)
        yield* live(() => log.of("Debug").length === i)
      }
      assert.deepStrictEqual(log.of("Warn"), [refused])
      assert.deepStrictEqual(one.changes, [])
      assert.notInclude(JSON.stringify(log.lines), "hunter2")
    }))

  it.effect("LISTEN is accepted and nothing arrives, as behind a pooler: never connected, and the warning says what to do", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const elsewhere = new URL(test.url)
      elsewhere.pathname = "/postgres"
      const log = Listening.logging()
      const one = yield* log.into(Listening.open(test, { url: elsewhere.toString() }))
      yield* passing("5 seconds", Effect.sync(() => log.of("Warn").length === 1))
      const [line] = log.lines.filter(({ level }) => level === "Warn")
      assert.strictEqual(line!.text, refused)
      assert.include(line!.annotations["error"], "Set directUrl")
      assert.deepStrictEqual(one.changes, [])
      // It announces through the pool.
      const other = yield* silently(Listening.connected(test))
      yield* one.announce(marker(1))
      assert.deepStrictEqual((yield* other.next(1))[0]!.hint, marker(1))
    }))

  it.live("the URL names a pooler: one warning, no connection, and it announces", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const pooled = new URL(test.url)
      pooled.searchParams.set("pgbouncer", "true")
      const log = Listening.logging()
      const one = yield* log.into(Listening.open(test, { url: pooled.toString() }))
      assert.deepStrictEqual(log.of("Warn"), [
        "Listener: the URL leads to a pooler, so the queues are polled; set directUrl to the address of the server"
      ])
      assert.lengthOf(yield* Listening.backends(test), 0)
      assert.deepStrictEqual(one.changes, [])
      const other = yield* silently(Listening.connected(test))
      yield* one.announce(marker(1))
      assert.deepStrictEqual((yield* other.next(1))[0]!.hint, marker(1))
    }))
})

/** Parts of a process that listen on one connection, through a proxy, each on a channel of its own. */
const sharing = Effect.gen(function*() {
  const test = yield* PgServer.database
  const proxy = yield* proxyFor(test.url)
  const database = yield* Database.make({ url: test.url, schema: test.schema, maxConnections: 2 })
  const login = yield* Login.make({ url: proxy.through(test.url), schema: test.schema })
  const join = Effect.fnUntraced(function*(channel: string) {
    const heard = Listening.hearing()
    const scope = yield* Scope.fork(yield* Effect.scope)
    const mayEcho = Latch.makeUnsafe(true)
    const echoes = { asked: 0, sent: 0, areLost: false }
    const notify = Effect.suspend(() =>
      echoes.areLost
        ? Effect.void
        : database.query("echo", Prisma.sql`SELECT pg_notify(${channel}, ${`${channel} echo`})::text`)
    )
    const listens = database.listen({
      login,
      channels: [channel],
      applicationName: () => "duroxide-prisma listener",
      echo: { channel, payload: `${channel} echo` },
      sendEcho: Effect.suspend(() => {
        echoes.asked++
        return mayEcho.await
      }).pipe(Effect.andThen(notify), Effect.tap(() => Effect.sync(() => echoes.sent++))),
      connected: heard.listener.connected,
      disconnected: heard.listener.disconnected,
      receive: () => {}
    })
    yield* Scope.provide(listens, scope)
    return { ...heard, echoes, mayEcho, leave: Scope.close(scope, Exit.void) }
  })
  return { database, proxy, join }
})

const live = (holds: () => boolean) => TestClock.withLive(waitUntil(Effect.sync(holds)))

describe("several listen on one connection, and the one whose echo is awaited ends:", () => {
  it.effect("after a connect, another one is asked, once the server has accepted its channel", () =>
    Effect.gen(function*() {
      const { join, proxy } = yield* sharing
      const log = Listening.logging()
      const one = yield* log.into(join("one"))
      one.echoes.areLost = true
      yield* live(() => one.echoes.sent === 1)
      proxy.state.oneWayMs = 100 // the pool's statements overtake LISTEN
      const two = yield* join("two")
      two.mayEcho.closeUnsafe()
      yield* one.leave
      yield* live(() => two.echoes.asked === 1 || log.of("Warn").length > 0)
      yield* TestClock.adjust("5 seconds")
      assert.deepStrictEqual(log.of("Warn"), [])
      two.mayEcho.openUnsafe()
      yield* two.until(() => two.connections() === 1)
      assert.deepStrictEqual(log.of("Warn"), [])
      assert.deepStrictEqual(one.changes, [])
    }).pipe(silently))

  it.effect("after the pool gave up its connections, another one is asked, and the connection is kept", () =>
    Effect.gen(function*() {
      const { database, join } = yield* sharing
      const one = yield* join("one")
      const two = yield* join("two")
      for (const { connections, until } of [one, two]) yield* until(() => connections() === 1)
      one.echoes.areLost = true
      two.mayEcho.closeUnsafe()
      yield* endOwnBackend(database)
      yield* live(() => one.echoes.sent >= 2)
      yield* one.leave
      yield* live(() => two.echoes.asked >= 1 || two.changes.length > 1)
      yield* TestClock.adjust("5 seconds")
      assert.deepStrictEqual(two.changes, ["connected"])
      two.mayEcho.openUnsafe()
      yield* live(() => two.echoes.sent >= 1)
      // The next check begins when this one has ended.
      yield* endOwnBackend(database)
      yield* live(() => two.echoes.asked >= 2)
      assert.deepStrictEqual(two.changes, ["connected"])
    }).pipe(silently))
})
