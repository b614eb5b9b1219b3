import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Finding } from "../../src/prisma/shared/doctor.ts"
import { Hint } from "../../src/waking/Notifier.ts"
import * as Cli from "../cli/cli.ts"
import * as ApplicationPool from "../utils/applicationPool.ts"
import * as Errand from "../utils/errand.ts"
import * as Listening from "../utils/listening.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as PgBouncer from "./PgBouncer.ts"

const names = Array.from({ length: 20 }, (_, i) => `name ${i}`)

const withParameter = (url: string, name: string, value: string) => {
  const changed = new URL(url)
  changed.searchParams.set(name, value)
  return changed.toString()
}

/** Twenty whole orchestrations at once, and a timer. */
const aDaysWork = Effect.fnUntraced(function*(test: PgServer.TestDatabase) {
  const results = yield* Effect.forEach(names, (name) => Errand.run(name, "heard"), { concurrency: "unbounded" })
  for (const [i, result] of results.entries()) {
    assert.deepStrictEqual(result, { greeting: `ME GREETS ${names[i]!.toUpperCase()}`, answer: "heard" })
  }
  assert.strictEqual((yield* Errand.timerError(test)).row, 0)
  const backends = yield* test.sql(
    `SELECT FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()
       AND application_name NOT LIKE 'duroxide-prisma listener%'`
  )
  assert.isAtLeast(backends.length, 1)
  assert.isAtMost(backends.length, PgBouncer.poolSize) // all came through the pooler
})

describe("PgBouncer in transaction mode", () => {
  it.live("pgbouncer=true: whole orchestrations run, migrated straight on the server", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const pooled = yield* PgBouncer.inFrontOf(test.url)
      const options = { url: withParameter(pooled, "pgbouncer", "true"), directUrl: test.url }
      yield* aDaysWork(test).pipe(Effect.provide(Errand.app("ME", options)))
    }))

  it.live("preparedStatements: false: the same, where the server's time zone is not UTC", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      if (PgServer.server().template !== null) {
        yield* test.sql(`ALTER DATABASE ${new URL(test.url).pathname.slice(1)} SET TimeZone = 'Asia/Kolkata'`)
      }
      const url = yield* PgBouncer.inFrontOf(test.url)
      yield* aDaysWork(test).pipe(
        Effect.provide(Errand.app("ME", { url, preparedStatements: false, migrate: "verify" }))
      )
    }))

  it.live("a pool of the application that leads to it: noticed, and whole orchestrations run", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const url = yield* PgBouncer.inFrontOf(test.url)
      const pool = yield* ApplicationPool.open({ connectionString: url })
      const error = yield* Errand.run("anna", "heard").pipe(Effect.provide(Errand.app("ME", { pool })), Effect.flip)
      assert.include(error.message, "set directUrl")
      yield* aDaysWork(test).pipe(Effect.provide(Errand.app("ME", { pool, directUrl: test.url })))
    }))

  it.live("pgbouncer=true without directUrl: migrating is refused before anything is sent", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.emptyDatabase
      const pooled = yield* PgBouncer.inFrontOf(test.url)
      const error = yield* Errand.run("anna", "heard").pipe(
        Effect.provide(Errand.app("ME", { url: withParameter(pooled, "pgbouncer", "true") })),
        Effect.flip
      )
      assert.strictEqual(error._tag, "MigrationError")
      assert.include(error.message, "not the pooler's")
    }))

  it.live("doctor knows it, declared or not", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = yield* PgBouncer.inFrontOf(test.url)
      const declared = withParameter(url, "pgbouncer", "true")
      const examined = (env: Readonly<Record<string, string>>) =>
        Effect.map(Cli.run("doctor --json", { env }), ({ stdout }) => {
          const { findings }: { readonly findings: ReadonlyArray<Finding> } = JSON.parse(stdout)
          const resultOf = (name: string) => findings.find((finding) => finding.name === name)?.result
          return {
            pooler: resultOf("pooler"),
            notifications: resultOf("notifications"),
            problems: findings.filter(({ result }) => result === "problem").map(({ name }) => name)
          }
        })
      assert.deepStrictEqual(yield* examined({ DATABASE_URL: declared, DIRECT_URL: test.url }), {
        pooler: "ok",
        notifications: "ok",
        problems: []
      })
      assert.deepStrictEqual(yield* examined({ DATABASE_URL: declared }), {
        pooler: "advice",
        notifications: "advice",
        problems: []
      })
      assert.deepStrictEqual(yield* examined({ DATABASE_URL: url }), {
        pooler: "problem",
        notifications: "advice",
        problems: ["pooler"]
      })
    }))

  it.live("hints are sent through it, and arrive on a connection of their own", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const pooled = { ...test, url: withParameter(yield* PgBouncer.inFrontOf(test.url), "pgbouncer", "true") }
      const one = yield* Listening.connected(pooled, { url: test.url })
      const two = yield* Listening.connected(pooled, { url: test.url })
      yield* one.announce(Hint.Hello())
      assert.deepStrictEqual((yield* two.next(1))[0]!.hint, Hint.Hello())
    }))

  it.live(
    "a pooler that the URL does not declare: LISTEN is accepted, and the listener notices that nothing arrives",
    () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const url = yield* PgBouncer.inFrontOf(test.url)
        const log = Listening.logging()
        const one = yield* log.into(Listening.open(test, { url }))
        yield* waitUntil(Effect.sync(() => log.of("Warn").length === 1))
        const [line] = log.lines.filter(({ level }) => level === "Warn")
        assert.include(line!.annotations["error"], "Set directUrl")
        assert.deepStrictEqual(one.changes, [])
      })
  )
})
