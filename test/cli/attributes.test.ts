/**
 * Attributes on the command line: `start`, `list`, `count`, `show`, and the commands for many instances.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Go = Signal.make("Go")
const Order = Orchestration.make("Order", { payload: Schema.NullOr(Schema.String) })

const process = (url: string) =>
  Runtime.layer({ orchestrations: [Order] }).pipe(
    Layer.provide(Order.toLayer(Effect.fnUntraced(function*() {
      yield* Orchestration.setAttributes({ amount: 30, coupon: null, due: new Date("2026-12-01T08:00:00Z") })
      yield* Go.wait
    }))),
    Layer.provideMerge(Client.layer.pipe(Layer.provideMerge(PrismaProvider.layer({ url })))),
    Layer.provide(Logger.layer([]))
  )

describe("--attribute", () => {
  it.live("gives, finds and shows attributes", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const run = (args: ReadonlyArray<string>) => Cli.run(args, { env: { DATABASE_URL: test.url } })
      const json = (...args: ReadonlyArray<string>) =>
        Effect.map(run([...args, "--json"]), ({ exitCode, stderr, stdout }) => {
          assert.deepStrictEqual([exitCode, stderr], [0, ""], args.join(" "))
          return JSON.parse(stdout)
        })
      const ids = (...args: ReadonlyArray<string>) =>
        Effect.map(json("list", ...args), ({ instances }) =>
          (instances as ReadonlyArray<{ instanceId: string }>).map(({ instanceId }) => instanceId))
      const start = (id: string, ...args: ReadonlyArray<string>) =>
        run(["start", "Order", "--id", id, ...args.flatMap((text) => ["--attribute", text])])

      for (
        const [id, ...given] of [
          ["a", "customer=c1", "amount:=12.5", "due:=2026-11-27T08:00Z"],
          ["b", "customer=c1", "amount:=-3"],
          ["c", "customer=a=b:=1", "amount=12.5"],
          ["d"]
        ] as const
      ) {
        assert.strictEqual((yield* start(id, ...given)).exitCode, 0, id)
      }
      assert.deepStrictEqual(yield* ids("--attribute", "customer=c1"), ["b", "a"])
      assert.deepStrictEqual(yield* ids("--attribute", "customer=a=b:=1"), ["c"])
      assert.deepStrictEqual(yield* ids("--attribute", "amount:=12.5"), ["a"])
      assert.deepStrictEqual(yield* ids("--attribute", "amount=12.5"), ["c"])
      assert.deepStrictEqual(yield* ids("--attribute", "amount:>=-3", "--attribute", "amount:<12.5"), ["b"])
      assert.deepStrictEqual(yield* ids("--attribute", "due:<2026-11-28", "--attribute", "customer=c1"), ["a"])
      assert.deepStrictEqual(yield* ids("--attribute", "due:>=2026-11-28"), [])
      assert.deepStrictEqual(yield* ids("--attribute", "due:<now", "--attribute", "customer=c1"), ["a"])
      assert.deepStrictEqual(yield* ids("--attribute", "due:<9999d"), [])
      assert.deepStrictEqual(yield* ids("--attribute", "customer=c1", "--status", "completed"), [])
      const [counted] = yield* json("count", "--attribute", "customer=c1")
      assert.deepInclude(counted, { orchestration: "Order", status: "Running", instances: 2, isEstimate: false })

      const { instances: [first] } = yield* json("list", "--attribute", "due:<2026-11-28")
      assert.deepStrictEqual(first.attributes, { amount: 12.5, customer: "c1", due: "2026-11-27T08:00:00.000Z" })
      const shown = yield* run(["show", "a"])
      assert.include(
        shown.stdout,
        "\nAttributes\namount    12.5\ncustomer  \"c1\"\ndue       2026-11-27T08:00:00.000Z\n"
      )
      assert.notInclude((yield* run(["show", "d"])).stdout, "Attributes")

      const dry = yield* run(["terminate", "--attribute", "customer=c1", "--dry-run"])
      assert.match(dry.stdout, /would terminate 2 instances: a, b/)
      const unselected = yield* run(["terminate", "--dry-run"])
      assert.strictEqual(unselected.exitCode, 2)
      assert.strictEqual((yield* run(["delete", "--attribute", "customer=c1", "--yes"])).exitCode, 0)
      assert.deepStrictEqual(yield* ids("--attribute", "customer=c1"), ["b", "a"]) // they have not ended

      for (
        const [args, problem] of [
          [["list", "--attribute", "customer"], "is not a name and a value"],
          [["list", "--attribute", "amount:=many"], "must be a number such as 12.5, or a time"],
          [["list", "--attribute", "amount:=2026-13-45"], "must be a number such as 12.5, or a time"],
          [["list", "--attribute", "amount:=2026-02-30"], "must be a number such as 12.5, or a time"],
          [
            ["list", "--attribute", "amount:>500"],
            "there is no :>. Use :>= for the lower end (included) and :< for the upper end"
          ],
          [["list", "--attribute", "amount:<=500"], "there is no :<=. Use"],
          [["list", "--attribute", "a=1", "--attribute", "a:<2"], "a is given twice"],
          [["list", "--attribute", "a:<1", "--attribute", "a:<2"], "a is given twice"],
          [["list", "--attribute", "a:<1", "--attribute", "a:>=2026-01-01"], "one of numbers or one of times"],
          [["list", "--attribute", "1a=1"], "begin with a letter"],
          [["start", "Order", "--attribute", "a:<1"], "is a range: an instance starts with one value"],
          [["start", "Order", "--attribute", "a=1", "--attribute", "a=2"], "a is given twice"]
        ] as const
      ) {
        const { exitCode, stderr } = yield* run(args)
        assert.strictEqual(exitCode, 2, args.join(" "))
        assert.include(stderr, problem)
      }
    }))

  it.live("shows what a program has changed", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const run = (args: ReadonlyArray<string>) => Cli.run(args, { env: { DATABASE_URL: url } })
      yield* run(["start", "Order", "--id", "a", "--attribute", "coupon=x", "--attribute", "amount:=1"])
      yield* Effect.provide(
        waitUntil(Effect.map(sql("SELECT FROM history WHERE event_type = 'KeyValueSet'"), (rows) => rows.length === 1)),
        process(url)
      )
      const { stdout } = yield* run(["show", "a"])
      assert.include(stdout, "\nAttributes\namount  30\ndue     2026-12-01T08:00:00.000Z\n")
      assert.include(stdout, "attributes changed  amount 30, coupon removed, due 2026-12-01T08:00:00.000Z\n")
      assert.notInclude(stdout, "Key-values")
    }))
})
