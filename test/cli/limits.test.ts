/**
 * What `limits` shows, sets and removes.
 */
import { assert, it } from "@effect/vitest"
import { Client, Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

const Import = Orchestration.make("Import")

it.live("limits: set, shown with keys, and removed; mistakes fail with one line", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const run = (args: string | ReadonlyArray<string>) => Cli.run(args, { env: { DATABASE_URL: url } })
    const says = Effect.fnUntraced(function*(args: string | ReadonlyArray<string>, line: string, exitCode = 0) {
      const ended = yield* run(args)
      assert.strictEqual(ended.stdout + ended.stderr, `${line}\n`, String(args))
      assert.strictEqual(ended.exitCode, exitCode, String(args))
    })
    const json = (args: string) => Effect.map(run(`${args} --json`), ({ stdout }) => JSON.parse(stdout))
    const unknown = "\nwarning: activity Charge is unknown: no living process serves it, and none is queued"

    yield* says("limits", "no limits")
    yield* says("limits --name Charge", "Charge has no limits")
    yield* says("limits --name Charge --kind task", "task Charge has no limits")
    yield* says("limits --kind task", "no limits of tasks")
    yield* says("limits remove Charge", "error: there is no limit of activity Charge", 1)
    yield* says(
      ["limits", "set", "Charge", "--rate", "100/1 minute", "--burst", "10"],
      `set the bound of activity Charge: 100 per 1m, 10 in a burst${unknown}`
    )
    yield* sql(`INSERT INTO worker_queue
        (work_item, visible_at, created_at, instance_id, execution_id, activity_id, route, limit_name, limit_key)
      VALUES
        ('{}', now(), now(), 'i', 1, 1, 'Charge', 'Charge', 'tenant-7'),
        ('{}', 'infinity', now() - interval '5 minutes', 'i', 1, 2, 'Charge', 'Charge', 'tenant-7'),
        ('{}', 'infinity', now(), 'i', 1, 3, 'Charge', 'Charge', '')`)
    yield* says(
      "limits set Charge --each-key --concurrency 3",
      "set the bound of each key of activity Charge: 3 at once"
    )
    yield* says(
      "limits set Charge --key tenant-7 --concurrency 10",
      "set the bound of key tenant-7 of activity Charge: 10 at once"
    )
    const { stdout } = yield* run("limits --name Charge")
    assert.deepStrictEqual(
      stdout.split("\n").map((line) => line.replace(/ +/g, " ").replace(/\d+ s$/, "AGE").trimEnd()),
      [
        "KIND NAME IN ALL EACH KEY IN USE WAITING OLDEST KEYS",
        "activity Charge 100 per 1m, 10 in a burst 3 at once 0 3 5 min 2",
        "",
        "KEY OF ITS OWN IN USE WAITING OLDEST",
        "tenant-7 10 at once 0 2 5 min",
        "(none) - 0 1 AGE",
        ""
      ]
    )
    const { limits } = yield* json("limits")
    assert.deepInclude(limits[0], {
      kind: "activity",
      name: "Charge",
      total: { concurrency: null, rate: { count: 100, perMs: 60_000, burst: 10 } },
      eachKey: { concurrency: 3, rate: null },
      inUse: 0,
      waiting: 3,
      keyCount: 2
    })
    assert.isAbove(Date.parse(limits[0].since), 0)
    assert.deepInclude(limits[0].keys[0], { key: "tenant-7", own: { concurrency: 10, rate: null }, waiting: 2 })
    const { activities } = yield* json("queues")
    assert.deepInclude(activities[0], { activity: "Charge", waiting: 0, later: 3, limited: 3 })

    yield* says("limits remove Charge --key tenant-7", "removed the bound of key tenant-7 of activity Charge")
    yield* says("limits remove Charge --key tenant-7", "error: there is no bound of key tenant-7 of activity Charge", 1)
    yield* says(
      "limits set Charge --each-key --key a --concurrency 1",
      "error: name one of --each-key and --key",
      2
    )
    for (const scope of ["", " --each-key", " --key tenant-7"]) {
      yield* says(
        `limits set Charge${scope}`,
        "error: give --concurrency or --rate, or --none for no bound; \"limits remove\" removes what is set",
        2
      )
    }
    yield* says(
      "limits set Charge --none --concurrency 2",
      "error: --none goes with neither --concurrency nor --rate",
      2
    )
    yield* says("limits set Charge --burst 2", "error: --burst needs --rate", 2)
    for (
      const [rate, shown] of [["100/1s", "100 per 1s"], ["20/1min", "20 per 1m"], ["5 / 2 h", "5 per 2h"]] as const
    ) {
      yield* says(["limits", "set", "Charge", "--rate", rate], `set the bound of activity Charge: ${shown}`)
    }
    yield* says(
      ["limits", "set", "Charge", "--rate", "100/1 minute", "--burst", "10"],
      "set the bound of activity Charge: 100 per 1m, 10 in a burst"
    )
    yield* says(
      ["limits", "set", "Charge", "--rate", "often"],
      "error: --rate: write a number and a duration, such as 100/1m or \"100/1 minute\"",
      2
    )
    yield* says("limits set Charge --none --each-key", "set the bound of each key of activity Charge: no bound")
    assert.deepInclude((yield* json("limits")).limits[0], {
      total: { concurrency: null, rate: { count: 100, perMs: 60_000, burst: 10 } },
      eachKey: null
    })
    yield* says("limits set Charge --key tenant-8 --none", "set the bound of key tenant-8 of activity Charge: no bound")
    const refused = yield* run("limits set Charge --concurrency 0")
    assert.include(refused.stderr, "concurrency is 0, but must be a whole number from 1 to 1000000")
    assert.deepStrictEqual(yield* json("limits remove Charge"), {
      action: "removed",
      kind: "activity",
      name: "Charge",
      eachKey: false,
      key: null
    })
    assert.deepStrictEqual(yield* sql("SELECT FROM worker_queue WHERE visible_at = 'infinity'"), [])
  }).pipe(Effect.scoped))

it.live("limits set warns of names that no living process serves", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    yield* sql(
      `INSERT INTO processes (id, build, host, pid, orchestrations, activities, untagged, tags, since, seen_at, listens)
      VALUES
        (gen_random_uuid(), 'new', 'h', 1, '{Import@1.0.0}', '{Charge}', false, '{gpu}', now(), now(), false),
        (gen_random_uuid(), 'old', 'h', 2, '{Export@1.0.0}', '{Refund}', true, '{}', now(), now(), true)`
    )
    const warningOf = (name: string, kind: string) =>
      Effect.map(
        Cli.run(`limits set ${name} --kind ${kind} --concurrency 5`, { env: { DATABASE_URL: url } }),
        ({ exitCode, stderr }) => {
          assert.strictEqual(exitCode, 0)
          return stderr
        }
      )
    const unknown = (of: string) => `warning: ${of} is unknown: no living process serves it, and none is queued\n`
    assert.strictEqual(yield* warningOf("Import", "orchestration"), "")
    assert.strictEqual(yield* warningOf("Charge", "activity"), "")
    assert.strictEqual(yield* warningOf("Import", "activity"), unknown("activity Import"))
    assert.strictEqual(yield* warningOf("Impor", "orchestration"), unknown("orchestration Impor"))
    assert.strictEqual(yield* warningOf("Export", "orchestration"), unknown("orchestration Export"))
    assert.strictEqual(yield* warningOf("Refund", "activity"), unknown("activity Refund"))
    assert.strictEqual(yield* warningOf("Resize", "task"), "", "processes do not say which tasks they run")
  }).pipe(Effect.scoped))

it.live("limits --name shows what has the name, of every kind", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.database
    const run = (args: string) => Cli.run(args, { env: { DATABASE_URL: url } })
    const lines = (args: string) =>
      Effect.map(
        run(args),
        ({ stdout }) => stdout.trimEnd().split("\n").map((line) => line.replace(/ +/g, " ").trimEnd())
      )
    for (const kind of ["orchestration", "task"]) yield* run(`limits set Import --kind ${kind} --concurrency 5`)
    yield* run("limits set Import --kind task --key a --concurrency 2")
    yield* run("limits set Other --concurrency 1")
    const titles = "KIND NAME IN ALL EACH KEY IN USE WAITING OLDEST KEYS"
    const ofOrchestration = "orchestration Import 5 at once no bound 0 0 - 0"
    const ofTask = "task Import 5 at once no bound 0 0 - 0"
    const titlesOfKeys = "KIND KEY OF ITS OWN IN USE WAITING OLDEST"
    const ofKey = "task a 2 at once 0 0 -"
    assert.deepStrictEqual(yield* lines("limits --name Import"), [
      titles,
      ofOrchestration,
      ofTask,
      "",
      titlesOfKeys,
      ofKey
    ])
    assert.deepStrictEqual(yield* lines("limits --name Import --kind orchestration"), [titles, ofOrchestration])
    assert.deepStrictEqual(yield* lines("limits --kind task"), [titles, ofTask])
    assert.lengthOf(yield* lines("limits"), 4)
  }).pipe(Effect.scoped))

it.live("status says how many activities and starts wait for limits", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const status = Effect.gen(function*() {
      const { stdout } = yield* Cli.run("status", { env: { DATABASE_URL: url } })
      const json = yield* Cli.run("status --json", { env: { DATABASE_URL: url } })
      return [/^limited +(.*)$/m.exec(stdout)?.[1], JSON.parse(json.stdout).limited]
    })
    assert.deepStrictEqual(yield* status, [undefined, { activities: 0, instances: 0 }])
    const started = Effect.scoped(Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Import, { instanceId: "a" })
      yield* client.start(Import, { instanceId: "b" })
      yield* client.start(Import, { instanceId: "c" })
      yield* client.start(Import, { instanceId: "later", delay: "1 hour" })
    })).pipe(Effect.provide(Layer.provide(Client.layer, PrismaProvider.layer({ url }))))
    yield* Cli.run("limits set Import --kind orchestration --concurrency 1", { env: { DATABASE_URL: url } })
    yield* started
    assert.deepStrictEqual(yield* status, [
      "2 starts wait for limits; see limits",
      { activities: 0, instances: 2 }
    ])
    yield* sql(`INSERT INTO worker_queue
        (work_item, visible_at, created_at, instance_id, execution_id, activity_id, route, limit_name, limit_key)
      VALUES ('{}', 'infinity', now(), 'i', 1, 2, 'Charge', 'Charge', 'tenant-7')`)
    assert.deepStrictEqual(yield* status, [
      "1 activity and 2 starts wait for limits; see limits",
      { activities: 1, instances: 2 }
    ])
  }).pipe(Effect.scoped))
