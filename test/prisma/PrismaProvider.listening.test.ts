import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import * as Notifier from "../../src/waking/Notifier.ts"
import * as Test from "../utils/driver.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const silently = Effect.provide(Logger.layer([]))

const pooled = (url: string) => {
  const changed = new URL(url)
  changed.searchParams.set("pgbouncer", "true")
  return changed.toString()
}

/** Waits until this many connections listen. */
const listening = (test: PgServer.TestDatabase, count: number) =>
  waitUntil(Effect.map(Listening.backends(test), (rows) => rows.length === count))

/** An instance is started and claimed. */
const work = Effect.gen(function*() {
  const driver = yield* ProviderDriver
  yield* driver.startOrchestrations([Test.start("a")])
  assert.strictEqual((yield* Test.claimOne(driver)).instanceId, "a")
})

describe("PrismaProvider.layer, the connection that listens:", () => {
  it.live("there is one in each process, and closing the layer ends it", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      yield* Effect.scoped(Effect.gen(function*() {
        yield* Layer.build(PrismaProvider.layer({ url: test.url }))
        yield* listening(test, 1)
        yield* Layer.build(PrismaProvider.layer({ url: test.url }))
        yield* listening(test, 2)
        const [one, two] = yield* Listening.backends(test)
        assert.notStrictEqual(one!.pid, two!.pid)
      }))
      yield* listening(test, 0)
    }).pipe(silently))

  it.live("longPolling off: no connection listens", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const log = Listening.logging()
      yield* log.into(Layer.build(PrismaProvider.layer({ url: test.url, longPolling: { enabled: false } })))
      // What would be opened before it.
      yield* Layer.build(PrismaProvider.layer({ url: test.url }))
      yield* listening(test, 1)
      assert.lengthOf(yield* Listening.backends(test), 1)
      assert.deepStrictEqual(log.lines.filter(({ text }) => text.startsWith("Listener")), [])
      const said = log.lines.filter(({ text }) => text.startsWith("Provider: long polling is off"))
      assert.deepStrictEqual(said.map(({ level }) => level), ["Info"])
    }).pipe(silently))

  it.live("pgbouncer=true: it leads to directUrl", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const log = Listening.logging()
      yield* log.into(Layer.build(PrismaProvider.layer({ url: pooled(test.url), directUrl: test.url })))
      yield* listening(test, 1)
      assert.deepStrictEqual(log.of("Warn"), [])
    }).pipe(silently))

  it.live("pgbouncer=true without directUrl: one warning that names it, and work is found", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const log = Listening.logging()
      yield* log.into(Effect.provide(work, PrismaProvider.layer({ url: pooled(test.url), migrate: "none" })))
      assert.lengthOf(log.of("Warn"), 1)
      assert.include(log.of("Warn")[0], "set directUrl")
      assert.deepStrictEqual(log.of("Error"), [])
    }))

  it.live("a directUrl with the wrong password: one warning, and work is found", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const direct = new URL(test.url)
      if (PgServer.server().source === "DATABASE_URL") direct.username = "unknown_to_the_server"
      direct.password = "hunter2"
      const log = Listening.logging()
      const provider = PrismaProvider.layer({ url: test.url, directUrl: direct.toString(), migrate: "none" })
      yield* log.into(Effect.provide(
        Effect.andThen(work, waitUntil(Effect.sync(() => log.of("Warn").length > 0))),
        provider
      ))
      assert.lengthOf(log.of("Warn"), 1)
      const [warning] = log.lines.filter(({ level }) => level === "Warn")
      assert.strictEqual(warning!.annotations["option"], "directUrl")
      assert.notInclude(JSON.stringify(log.lines), "hunter2")
    }))

  it.live("a Notifier in the context is used instead", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const listens: Array<string> = []
      const own = Notifier.Notifier.of({
        name: "own",
        listen: () => Effect.sync(() => void listens.push("own")),
        announce: () => Effect.void
      })
      yield* Layer.build(PrismaProvider.layer({ url: test.url }).pipe(Layer.provide(Notifier.layer(own))))
      assert.deepStrictEqual(listens, ["own"])
      assert.lengthOf(yield* Listening.backends(test), 0)
    }).pipe(silently))
})
