/**
 * The commands that look into a store, on PostgreSQL.
 */
import { assert, it } from "@effect/vitest"
import { Roles } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import { randomUUID } from "node:crypto"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"
import * as Shop from "./shop.ts"

const run = (args: string | ReadonlyArray<string>, options: Cli.Options = {}) =>
  Effect.flatMap(Shop.Shop, ({ url }) => Cli.run(args, { ...options, env: { ...options.env, DATABASE_URL: url } }))

/** The answer as JSON; the command must succeed and print nothing else. */
const json = (args: string) =>
  Effect.map(run(`${args} --json`), ({ exitCode, stderr, stdout }) => {
    assert.deepStrictEqual([exitCode, stderr], [0, ""], args)
    return JSON.parse(stdout)
  })

it.layer(Shop.layer, { excludeTestServices: true })("on a store", (it) => {
  it.effect("list: newest first, by status, name, version, parent, beginning of the id, times and texts", () =>
    Effect.gen(function*() {
      const ids = (args: string) =>
        Effect.map(
          json(args),
          ({ instances }) => (instances as ReadonlyArray<{ instanceId: string }>).map((one) => one.instanceId)
        )
      assert.deepStrictEqual(yield* ids("list --name Order"), ["order-4", "order-3", "order-2", "order-1"])
      assert.deepStrictEqual(yield* ids("list --name Order --limit 2"), ["order-4", "order-3"])
      assert.deepStrictEqual(yield* ids("list --name Order@1.0.0 --order oldest --limit 1"), ["order-1"])
      assert.deepStrictEqual(yield* ids("list --name Order@2.0.0"), [])
      assert.deepStrictEqual(yield* ids("list --name Order --status running"), ["order-4"])
      assert.deepStrictEqual(yield* ids("list --name Order --status failed"), ["order-2"])
      assert.deepStrictEqual(yield* ids("list --name Order --status cancelled"), ["order-3"])
      assert.deepStrictEqual(yield* ids("list --parent order-4"), ["table-return"])
      assert.deepStrictEqual(yield* ids("list --roots --name Order"), ["order-4", "order-3", "order-2", "order-1"])
      assert.deepStrictEqual(yield* ids("list --id-prefix chair --status running"), ["chair-delivery"])
      assert.deepStrictEqual(yield* ids("list --id-prefix order"), ["order-1", "order-2", "order-3", "order-4"])
      assert.deepStrictEqual(yield* ids("list --custom-status WAY"), ["order-4", "order-3"])
      assert.deepStrictEqual(yield* ids("list --error declined"), ["order-2"])
      assert.lengthOf(yield* ids("list --created-after 1h"), 8)
      assert.lengthOf(yield* ids("list --created-before 1h"), 0)
      assert.lengthOf(yield* ids("list --updated-after 2020-01-01 --updated-before 2100-01-01T00:00Z"), 8)
      assert.lengthOf(yield* ids("list"), 8)
      assert.strictEqual((yield* run("list --name None")).stdout, "no instances\n")
    }))

  it.effect("list: a cursor leads to the next instances", () =>
    Effect.gen(function*() {
      const first = yield* json("list --name Order --limit 3")
      assert.lengthOf(first.instances, 3)
      const rest = yield* json(`list --name Order --limit 3 --cursor ${first.next}`)
      assert.strictEqual(rest.instances[0].instanceId, "order-1")
      assert.isNull(rest.next)
      const { stdout } = yield* run("list --name Order --limit 3")
      assert.include(stdout, `More follow: repeat the command with --cursor ${first.next}\n`)
      const bad = yield* run("list --cursor x")
      assert.strictEqual(bad.exitCode, 2)
      assert.include(bad.stderr, "cursor")
    }))

  it.effect("list: a time is a date or an age", () =>
    Effect.gen(function*() {
      for (const time of ["yesterday", "5", "2026", "2026-13-01"]) {
        const { exitCode, stderr } = yield* run(["list", "--created-after", time])
        assert.strictEqual(exitCode, 2, time)
        assert.include(stderr, "--created-after is a time such as")
      }
    }))

  it.effect("count: by orchestration, status and version", () =>
    Effect.gen(function*() {
      const counts = yield* json("count --versions")
      const orders = [...counts].filter((one: { orchestration: string }) => one.orchestration === "Order")
      assert.sameDeepMembers(
        orders,
        ["Completed", "Failed", "Cancelled", "Running"].map((status) => ({
          orchestration: "Order",
          version: "1.0.0",
          status,
          instances: 1,
          isEstimate: false
        }))
      )
      assert.deepStrictEqual(yield* json("count --name Order --status running"), [
        { orchestration: "Order", status: "Running", instances: 1, isEstimate: false }
      ])
      const { stdout } = yield* run("count --name Order --status failed")
      assert.match(stdout, /^ORCHESTRATION +STATUS +INSTANCES\nOrder +Failed +1\n$/)
      assert.strictEqual((yield* run("count --name None")).stdout, "no instances\n")
    }))

  it.effect("list: cancelled instances differ from failed ones, and each says why", () =>
    Effect.gen(function*() {
      const { instances: [cancelled] } = yield* json("list --name Order --status cancelled")
      const { instances: [failed] } = yield* json("list --name Order --status failed")
      assert.deepInclude(cancelled, { status: "Cancelled", error: "out of stock", output: null })
      assert.deepInclude(failed, { status: "Failed", error: "\"card declined\"", output: null })
      const { instances: [completed] } = yield* json("list --id-prefix order-1")
      assert.deepInclude(completed, { status: "Completed", output: "\"paid 25\"" })
    }))

  it.effect("list: a limit outside of 1 to 1000 is bad usage", () =>
    Effect.gen(function*() {
      for (const limit of ["0", "1001", "many"]) assert.strictEqual((yield* run(`list --limit ${limit}`)).exitCode, 2)
    }))

  it.effect("list: columns are aligned, within 80 columns for ids of 20", () =>
    Effect.gen(function*() {
      const [titles, ...rows] = (yield* run("list")).stdout.trimEnd().split("\n")
      assert.lengthOf(rows, 8)
      const starts = [...titles!.matchAll(/\S+(?: \S+)*/g)].map(({ index }) => index)
      for (const row of rows) {
        assert.isAtMost(row.indexOf(" ago"), 80)
        for (const start of starts.slice(1)) assert.match(row.slice(start - 2), /^ {2}(\S|$)|^$/, row)
      }
    }))

  it.effect("show: state, children, key-values and the history that led there", () =>
    Effect.gen(function*() {
      const shown = yield* json("show order-4")
      assert.deepInclude(shown, { status: "Running", customStatus: "on its way", executionId: 1, messages: [] })
      assert.deepStrictEqual(shown.keyValues, { label: "\"table, 300 euros\"" })
      assert.deepStrictEqual(shown.children, [
        { instanceId: "table-return", orchestration: "Delivery", status: "Running" }
      ])
      assert.deepInclude(shown.executions[0], { executionId: 1, status: "Running", endedAt: null })
      assert.deepInclude(shown.history.shown[2], { event: "ActivityCompleted", answers: 2, text: "#2 \"paid 300\"" })
      assert.strictEqual(shown.history.shown.length, shown.history.events)
      const [timer] = (yield* json("show table-return")).waitsFor
      assert.deepInclude(timer, { kind: "timer", heldUntil: null, deliveries: 0 })
      const { stdout } = yield* run("show order-4")
      for (const text of ["signal  Collected", "table-return", "label", "activity completed  #2 \"paid 300\""]) {
        assert.include(stdout, text)
      }
    }))

  it.effect("show: the last events only, and payloads shortened, unless --full", () =>
    Effect.gen(function*() {
      const { sql } = yield* Shop.Shop
      const long = "x".repeat(5000)
      yield* sql("UPDATE instances SET custom_status = $1 WHERE instance_id = 'order-1'", [long])
      const few = yield* run("show order-1 --events 2")
      assert.include(few.stdout, "the last 2 of 4 events")
      assert.notInclude(few.stdout, "  started  ")
      assert.notInclude(few.stdout, "x".repeat(200))
      assert.include(few.stdout, "…")
      const full = yield* run("show order-1 --events 2 --full")
      assert.include(full.stdout, long)
      assert.include(full.stdout, "  started  ")
      const terminal = yield* run("show order-1", { terminal: 60, env: { NO_COLOR: "1" } })
      assert.deepStrictEqual(terminal.stdout.split("\n").filter((line) => line.length > 60 && line.includes("…")), [])
    }))

  it.effect("show: control characters of what is stored do not reach the terminal", () =>
    Effect.gen(function*() {
      const { sql } = yield* Shop.Shop
      yield* sql("UPDATE instances SET custom_status = $1 WHERE instance_id = 'order-2'", ["a\u001b[2Jb\r\nc\u009b1m"])
      const { stdout } = yield* run("show order-2")
      assert.include(stdout, "a [2Jb c 1m")
    }))

  it.effect("show: an unknown instance or execution: exit code 1", () =>
    Effect.gen(function*() {
      for (
        const [args, code] of [["show nothing", "InstanceNotFound"], [
          "show order-1 --execution 9",
          "ExecutionNotFound"
        ]]
      ) {
        const { exitCode, stderr, stdout } = yield* run(`${args} --json`)
        assert.deepStrictEqual([exitCode, stdout, JSON.parse(stderr).error.code], [1, "", code])
      }
      assert.strictEqual((yield* run("show nothing")).stderr, "error: instance nothing not found\n")
    }))

  it.effect("show: an empty id is bad usage", () =>
    Effect.gen(function*() {
      const { exitCode, stderr } = yield* run(["show", ""])
      assert.deepStrictEqual([exitCode, stderr], [2, "error: the id of the instance is empty\n"])
    }))

  it.effect("queues: depth and age of everything that waits", () =>
    Effect.gen(function*() {
      const found = yield* json("queues")
      assert.deepInclude(found.orchestrations[0], { orchestration: "Delivery", waiting: 0, later: 3 })
      assert.deepInclude(found.activities[0], { activity: "Render", tag: null, waiting: 0, later: 1 })
      assert.deepInclude(found.activities[1], { activity: "Render", tag: "gpu", waiting: 1, later: 0 })
      assert.isAtLeast(found.activities[1].oldestAgeMs, 10_000)
      assert.deepInclude(found.queues[0], { queue: "mails", waiting: 1, running: 1, later: 1, dead: 1 })
      assert.isAtLeast(found.queues[0].oldestAgeMs, 180_000)
      assert.deepInclude(found.outbox, { waiting: 1, later: 1, failing: 0 })
      assert.deepStrictEqual(found.tasks, [
        { task: "resize", pending: 2, running: 1, completed: 1, dead: 1, cancelled: 1 }
      ])
    }))

  it.effect("status: instances by status, what waits, who listens", () =>
    Effect.gen(function*() {
      yield* Shop.refresh
      const found = yield* json("status")
      assert.deepInclude(found, {
        migrations: "up to date",
        instances: { Cancelled: 2, Completed: 1, Failed: 1, Running: 4 },
        listening: { processes: 0, orchestrations: 0, activities: 0 },
        health: { status: "healthy", problems: [] }
      })
      assert.deepInclude(found, { messages: { waiting: 0, oldestAgeMs: null, beforeStart: 0 } })
      assert.lengthOf(found.activities, 1)
      assert.deepInclude(found.activities[0], { tag: "gpu", waiting: 1 })
      assert.isAtLeast(found.activities[0].oldestAgeMs, 10_000)
      assert.deepInclude(found.tasks, { pending: 2, running: 1, dead: 1 })
      assert.deepInclude(found.outbox, { waiting: 1, later: 1, failing: 0 })
      assert.isAtLeast(found.outbox.oldestAgeMs, 20_000)
      assert.notMatch(JSON.stringify(found), /delayed|depth/)
      assert.include((yield* run("status")).stdout, "8: 2 Cancelled, 1 Completed, 1 Failed, 4 Running")
      yield* Shop.refresh
      const listening = yield* Effect.scoped(Effect.andThen(Shop.running, json("status")))
      assert.deepStrictEqual(listening.listening, { processes: 1, orchestrations: 1, activities: 1 })
    }))

  it.effect("status: exits with 1 when work has waited for too long", () =>
    Effect.gen(function*() {
      const { sql } = yield* Shop.Shop
      yield* sql(
        "UPDATE worker_queue SET visible_at = now() - interval '1 hour', created_at = now() - interval '1 hour' WHERE tag = 'gpu'"
      )
      const { exitCode, stderr, stdout } = yield* run("status --json")
      assert.strictEqual(exitCode, 1)
      const { problems, status } = JSON.parse(stdout).health
      assert.strictEqual(status, "unhealthy")
      assert.deepInclude(JSON.parse(stderr).error, { code: "Unhealthy", message: problems.join("; ") })
      assert.match(problems.join("; "), /the oldest activity with the tag gpu has waited for 60 min, more/)
      const lines = yield* run("status")
      assert.match(lines.stdout, /^health +unhealthy$/m)
      assert.match(lines.stdout, /^activities +1 waits, the oldest for 60 min$/m)
      assert.match(
        lines.stderr,
        /^error: .*has waited for 60 min, more than \d+ s: activity Render with tag gpu \(no living process serves it: see processes\)\n$/
      )
    }))
})

it.live("the role of readers suffices for every command that only reads, and not for migrate", () =>
  Effect.gen(function*() {
    const { schema, sql, url } = yield* PgServer.database
    const reader = `reader-${randomUUID()}`
    yield* Effect.acquireRelease(
      sql(`CREATE ROLE "${reader}" LOGIN PASSWORD 'sesame'`),
      () => sql(`DROP OWNED BY "${reader}" CASCADE; DROP ROLE "${reader}"`)
    )
    yield* Roles.apply({ url, schema, roles: { reader } })
    const login = new URL(url)
    login.username = reader
    login.password = "sesame"
    const cli = (args: string) => Cli.run(args, { env: { DATABASE_URL: login.toString() } })
    for (
      const args of ["status", "list", "count", "queues", "preflight test/cli/releases/matching.ts", "migrate --verify"]
    ) {
      const { exitCode, stderr } = yield* cli(args)
      assert.deepStrictEqual([exitCode, stderr], [0, ""], args)
    }
    assert.deepInclude(yield* cli("show nothing"), { exitCode: 1, stderr: "error: instance nothing not found\n" })
    yield* sql(
      "DELETE FROM _prisma_migrations WHERE migration_name = (SELECT max(migration_name) FROM _prisma_migrations)"
    )
    const { stderr } = yield* cli("migrate --json")
    assert.lengthOf(stderr.trim().split("\n"), 1, stderr)
    const refused = JSON.parse(stderr).error
    assert.strictEqual(refused.code, "PermissionDenied")
  }))

it.effect("a schema that lacks migrations: every command says which to run, exit code 1; migrate applies them", () =>
  Effect.gen(function*() {
    const { schema, sql, url } = yield* PgServer.emptyDatabase
    yield* sql(`CREATE SCHEMA IF NOT EXISTS "${schema}"`)
    const cli = (args: string) => Cli.run(args, { env: { DATABASE_URL: url } })
    for (const args of ["status", "list", "queues", "show x", "migrate --verify"]) {
      const { exitCode, stderr, stdout } = yield* cli(args)
      assert.deepStrictEqual([exitCode, stdout], [1, ""], args)
      assert.match(stderr, /^error: schema \w+ lacks \d+ migrations, .*Apply them: duroxide-prisma migrate, with .*\n$/)
    }
    const first = yield* cli("migrate")
    assert.strictEqual(first.exitCode, 0)
    assert.match(first.stdout, /^(applied \d{14}_\w+\n)+up to date: /)
    const again = JSON.parse((yield* cli("migrate --json")).stdout)
    assert.deepInclude(again, { schema, applied: [], upToDate: true })
    assert.match((yield* cli("migrate --verify")).stdout, /^up to date: /)
    assert.strictEqual((yield* cli("list")).stdout, "no instances\n")
    assert.strictEqual((yield* cli("queues")).stdout, "nothing waits\n")
    // What does not wait has no age, in both commands.
    const none = { waiting: 0, later: 0, failing: 0, oldestAgeMs: null }
    assert.deepInclude(JSON.parse((yield* cli("queues --json")).stdout), { outbox: none })
    assert.deepInclude(JSON.parse((yield* cli("status --json")).stdout), {
      messages: { waiting: 0, oldestAgeMs: null, beforeStart: 0 },
      activities: [],
      tasks: { pending: 0, running: 0, dead: 0, oldestAgeMs: null },
      outbox: none
    })
    assert.match((yield* cli("status")).stdout, /^instances +none$/m)
    assert.match((yield* cli("status")).stdout, /^messages +none waits$/m)
    // In both commands also what waits for a start.
    yield* sql(
      `INSERT INTO "${schema}".orchestrator_queue (instance_id, work_item, visible_at, created_at)
       SELECT 'early-' || n, '{"QueueMessage":{}}', now(), now() FROM generate_series(1, 5) AS n`
    )
    assert.match((yield* cli("queues")).stdout, /^\(no instance yet\) +- +5 /m)
    assert.match((yield* cli("status")).stdout, /^messages +none can be claimed; 5 wait for their instance to start$/m)
    assert.deepInclude(JSON.parse((yield* cli("status --json")).stdout), {
      messages: { waiting: 0, oldestAgeMs: null, beforeStart: 5 }
    })
  }))

it.effect("a database that does not exist: how to create it, exit code 2", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.database
    const other = new URL(url)
    other.pathname = "/nodb"
    for (const args of ["list", "migrate", "status"]) {
      const { exitCode, stderr } = yield* Cli.run(args, { env: { DATABASE_URL: other.toString() } })
      assert.strictEqual(exitCode, 2, args)
      assert.match(stderr, /^error: .*"nodb" does not exist.*Correct the name in the URL, or create the database/)
    }
  }))

it.effect("a schema that does not exist: every command says so, and how to create it, without the URL", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const env = { DATABASE_URL: url }
    for (const args of ["status", "list", "queues", "show x", "migrate --verify"]) {
      const { exitCode, stderr, stdout } = yield* Cli.run(`${args} --schema orderz`, { env })
      assert.deepStrictEqual([exitCode, stdout], [1, ""], args)
      assert.match(
        stderr,
        /^error: schema orderz does not exist in .*: duroxide-prisma migrate --schema orderz, with .*\n$/
      )
    }
    const hint = (args: ReadonlyArray<string>, options?: Cli.Options) =>
      Effect.map(Cli.run(["list", "--json", ...args], options), ({ stderr }) => {
        const { code, message } = JSON.parse(stderr).error
        assert.strictEqual(code, "SchemaBehind")
        return message.slice(message.indexOf("duroxide-prisma"))
      })
    assert.strictEqual(
      yield* hint([], { env: { ...env, DUROXIDE_PG_SCHEMA: "orderz" } }),
      "duroxide-prisma migrate, with the same --env-file"
    )
    assert.strictEqual(
      yield* hint(["--schema", "it's", "--url", url]),
      "duroxide-prisma migrate --schema 'it'\\''s', with the same --url and --env-file"
    )
    const empty = `empty_${randomUUID().replaceAll("-", "")}`
    yield* Effect.acquireRelease(sql(`CREATE SCHEMA ${empty}`), () => sql(`DROP SCHEMA ${empty}`))
    const { stderr } = yield* Cli.run(`list --schema ${empty}`, { env })
    assert.match(stderr, / lacks \d+ migrations, .*Apply them: duroxide-prisma migrate --schema empty_\w+, /)
  }))

it.effect("logs of the library appear on standard error with --verbose only, as JSON lines with --json", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.database
    const cli = (args: string) => Cli.run(args, { env: { DATABASE_URL: url } })
    assert.strictEqual((yield* cli("list")).stderr, "")
    assert.match((yield* cli("list --verbose")).stderr, /^info: Provider: open address=/m)
    const lines = (yield* cli("list --verbose --json")).stderr.trimEnd().split("\n")
    assert.include(lines.map((line) => JSON.parse(line).log.message), "Provider: open")
  }))
