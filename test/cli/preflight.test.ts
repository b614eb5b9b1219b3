/**
 * What `preflight` says of releases that may be deployed, about the instances of a store.
 */
import { assert, it } from "@effect/vitest"
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import type * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"
import * as Shops from "./releases/store.ts"

class Store extends Context.Service<Store, PgServer.MigratedDatabase>()("test/Preflight") {}

const run = (name: string, args = "") =>
  Effect.flatMap(
    Store,
    ({ url }) => Cli.run(`preflight ${Shops.module(name)} ${args}`.trim(), { env: { DATABASE_URL: url } })
  )

const json = (name: string, args = "") => Effect.flatMap(Store, (store) => Shops.preflightJson(store, name, args))

it.layer(Layer.effect(Store, Shops.make), { excludeTestServices: true })("preflight", (it) => {
  it.effect("code that fits: exit code 0, and how much was replayed", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* run("matching"), {
        exitCode: 0,
        stdout: "6 running instances: 6 replayed, 6 fit, 0 would block\n",
        stderr: ""
      })
      assert.deepStrictEqual(yield* json("matching"), {
        exitCode: 0,
        error: undefined,
        report: {
          module: Shops.module("matching"),
          programs: ["Fulfil 1.0.0", "Meter 1.0.0", "Decline 1.0.0"],
          running: 6,
          replayed: 6,
          notBegun: 0,
          fitBlocked: 0,
          wouldBlock: 0,
          wouldFail: 0,
          findings: [],
          otherFindings: 0,
          unserved: []
        }
      })
    }))

  it.effect("code that asks for something else: one finding for all, with both sides, exit code 5", () =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* run("changed")
      assert.deepStrictEqual([exitCode, stderr], [5, "error: 5 instances would block\n"])
      assert.strictEqual(
        stdout,
        `Fulfil 1.0.0: 5 instances would block
  HistoryDiffers: event 2: history has activity "Charge", the code asks for activity "CheckFraud"
      1  start of "Fulfil" 1.0.0
    - 2  activity "Charge"
    +    activity "CheckFraud"
      3  answer to 2
      4  activity "Charge"
  such as order-1, order-2, order-3
  its code has changed, or reads time or chance outside of Effect. Bring the old code back, or ask with \
Orchestration.changed, or make the change a new version

6 running instances: 6 replayed, 1 fits, 5 would block
`
      )
      const { report } = yield* json("changed")
      assert.lengthOf(report.findings, 1)
      assert.deepInclude(report.findings[0], { instances: 5, alreadyBlocked: 0, outcome: "block", defect: null })
      assert.deepStrictEqual(
        report.findings[0].examples,
        ["order-1", "order-2", "order-3"].map((instanceId) => ({ instanceId, executionId: 1, eventId: 2 }))
      )
    }))

  it.effect("another payload: says which field, and shows payloads only if asked to", () =>
    Effect.gen(function*() {
      for (const args of ["", "--json"]) {
        const { stderr, stdout } = yield* run("dearer", args)
        assert.include(stdout, "event 4: history has activity")
        assert.include(stdout, "the code asks for the same with another input at cents")
        assert.notInclude(stdout + stderr, Shops.card)
        assert.notInclude(stdout + stderr, "200")
      }
      const { stdout } = yield* run("dearer", "--payloads")
      assert.include(stdout, `    - 4  activity "Charge" with {"card":"${Shops.card}","cents":2}\n`)
      assert.include(stdout, `    +    activity "Charge" with {"card":"${Shops.card}","cents":200}\n`)
    }))

  it.effect("data that the code cannot read blocks, and so does a program that dies; of what, only if asked", () =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* run("unable")
      assert.deepStrictEqual([exitCode, stderr], [5, "error: 6 instances would block\n"])
      assert.include(
        stdout,
        "  DataUnreadable at event 1: payload of orchestration \"Fulfil\" does not match its schema"
      )
      assert.include(stdout, "  HistoryDiffers: event 5: history has wait for signal \"Approved\", the code has died\n")
      assert.include(stdout, "6 running instances: 6 replayed, 0 fit, 6 would block\n")
      assert.notInclude(stdout + stderr, "no such receipt")
      assert.include((yield* run("unable", "--payloads")).stdout, "no such receipt: paid by meter")
    }))

  it.effect("programs that await a promise, or never rest", () =>
    Effect.gen(function*() {
      const { report } = yield* json("waiting")
      assert.deepStrictEqual(
        report.findings.map((one: { readonly reason: string; readonly orchestration: string }) =>
          `${one.orchestration} ${one.reason}`
        ),
        ["Fulfil HistoryDiffers", "Meter Endless"]
      )
    }))

  it.effect("instances that the module does not serve: by version, exit code 5 unless they are ignored", () =>
    Effect.gen(function*() {
      const { exitCode, stderr, stdout } = yield* run("partial")
      assert.deepStrictEqual([exitCode, stdout.split("\n").slice(0, 3)], [5, [
        "NOT SERVED  VERSION  INSTANCES  NOTE",
        "Fulfil      1.0.0            5",
        "Meter       1.0.0            1  exported without its program"
      ]])
      assert.match(stderr, /^error: 6 instances have no program in \S+partial\.ts\. .*see --ignore-unserved\n$/)
      // A version of an orchestration that the module has is missing, not elsewhere.
      const names = yield* json("partial", "--ignore-unserved names")
      assert.strictEqual(names.exitCode, 5)
      assert.match(names.error, /^5 instances have no program/)
      const all = yield* json("partial", "--ignore-unserved all")
      assert.deepStrictEqual([all.exitCode, all.error], [0, undefined])
      assert.deepStrictEqual(all.report.unserved, [
        { orchestration: "Fulfil", version: "1.0.0", instances: 5, ignored: true },
        { orchestration: "Meter", version: "1.0.0", instances: 1, ignored: true }
      ])
    }))

  it.effect("--name and --id select instances", () =>
    Effect.gen(function*() {
      assert.deepInclude((yield* json("changed", "--name Meter")).report, { running: 1, replayed: 1, wouldBlock: 0 })
      const one = yield* json("changed", "--id order-4")
      assert.deepStrictEqual(one.report.findings[0].examples, [{ instanceId: "order-4", executionId: 1, eventId: 2 }])
      assert.deepStrictEqual(one.report.findings[0].instances, 1)
      assert.strictEqual((yield* run("changed", "--name None")).stdout, "no running instances\n")
      assert.deepInclude(yield* run("changed", "--id nothing"), {
        exitCode: 1,
        stdout: "",
        stderr: "error: instance nothing not found\n"
      })
      assert.deepInclude(yield* run("changed", "--id order-1 --name Fulfil"), {
        exitCode: 2,
        stderr: "error: give --name or --id, not both\n"
      })
    }))

  it.effect("--sample: so many of each definition, the same ones each time, also with instances between them", () =>
    Effect.gen(function*() {
      const { exitCode, report } = yield* json("changed", "--sample 2")
      assert.strictEqual(exitCode, 5)
      assert.deepInclude(report, { running: 6, replayed: 3, wouldBlock: 2 })
      assert.deepStrictEqual((yield* json("changed", "--sample 2")).report, report)
      assert.include((yield* run("matching", "--sample 2")).stdout, "3 replayed (a sample)")
      const ids = report.findings[0].examples.map(({ instanceId }: { readonly instanceId: string }) => instanceId)
      const other = yield* Shops.make
      yield* other.sql("DELETE FROM instances WHERE instance_id LIKE 'order-%' AND instance_id <> ALL ($1)", [ids])
      const again = yield* Shops.preflightJson(other, "changed", "--sample 2")
      assert.deepStrictEqual(again.report.findings[0].examples, report.findings[0].examples)
      assert.strictEqual((yield* run("changed", "--sample 0")).exitCode, 2)
    }))

  it.effect("modules that cannot be used: one line that says what to do, exit code 2, before the database is asked", () =>
    Effect.gen(function*() {
      for (
        const [name, code, text] of [
          ["missing", "ModuleMissing", "there is no file"],
          ["throwing", "ModuleNotLoaded", "cannot be loaded: STRIPE_KEY is not set"],
          ["nothing", "NoPrograms", "exports no program of an orchestration. Export the layers that toLayer returns"],
          ["definitions", "NoPrograms", "exports 3 orchestrations (Fulfil 1.0.0, …) without a program"],
          ["twice", "ProgramsConflict", "exports two programs of Fulfil 1.0.0"]
        ] as const
      ) {
        const { exitCode, stderr, stdout } = yield* Cli.run(`preflight ${Shops.module(name)} --json`)
        assert.deepStrictEqual([exitCode, stdout], [2, ""], name)
        const { error } = JSON.parse(stderr)
        assert.strictEqual(error.code, code)
        assert.include(error.message, text)
      }
    }))

  it.effect("a module that starts a runtime when it is imported: the runtime does not start", () =>
    Effect.gen(function*() {
      assert.strictEqual((yield* run("starting")).exitCode, 0)
      const { started } = yield* Effect.promise(() => import("./releases/starting.ts"))
      const exit = yield* Fiber.await(started)
      assert.isTrue(Exit.isFailure(exit))
      assert.include(String(Exit.isFailure(exit) && Cause.squash(exit.cause)), "no runtime starts while preflight")
    }))

  it.effect("a database that does not answer: exit code 3, without user and password", () =>
    Effect.gen(function*() {
      const url = "postgresql://someone:sesame@127.0.0.1:1/nothing"
      const { exitCode, stderr } = yield* Cli.run(`preflight ${Shops.module("matching")}`, {
        env: { DATABASE_URL: url }
      })
      assert.strictEqual(exitCode, 3)
      assert.match(stderr, /^error: .*127\.0\.0\.1:1\/nothing.*Check that the server runs/)
      assert.notMatch(stderr, /someone|sesame/)
    }))

  it.effect("writes nothing: the tables are as before", () =>
    Effect.gen(function*() {
      const { sql } = yield* Store
      const tables = (yield* sql<{ readonly name: string }>(
        "SELECT tablename AS name FROM pg_tables WHERE schemaname = current_schema() ORDER BY 1"
      )).map(({ name }) => name)
      assert.isAtLeast(tables.length, 20)
      // Row versions show updates that leave the values, and locks.
      const snapshot = Effect.forEach(tables, (name) => sql(`SELECT xmin, xmax, one FROM "${name}" AS one ORDER BY 3`))
      const before = yield* snapshot
      for (const args of ["", "--sample 1", "--id order-1"]) yield* run("changed", args)
      assert.deepStrictEqual(yield* snapshot, before)
    }))
})
