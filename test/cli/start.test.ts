/**
 * What a client does, from the command line: `start`, `signal`, `wait`.
 */
import { assert, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { mkdtemp, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Item = Schema.Struct({ item: Schema.String, on: Schema.Date, amount: Schema.Int })
const Order = Orchestration.make("Order", { payload: Item, success: Item, error: Schema.String })
const Ask = Orchestration.make("Ask", { success: Schema.Unknown })
const Approved = Signal.make("Approved", { payload: Schema.Struct({ by: Schema.String }) })
const Hurry = Signal.make("Hurry", { payload: Schema.Int, unawaited: "lost" })
const Called = Signal.make("Called")

const client = (url: string) =>
  Client.layer.pipe(Layer.provideMerge(PrismaProvider.layer({ url })), Layer.provide(Logger.layer([])))

const process = (url: string) =>
  Runtime.layer({ orchestrations: [Order, Ask] }).pipe(
    Layer.provide([
      Order.toLayer((order) => order.amount > 1000 ? Effect.fail("declined") : Effect.succeed(order)),
      Ask.toLayer(() =>
        Effect.all([Approved.wait, Hurry.wait, Effect.as(Called.wait, null)], { concurrency: "unbounded" })
      )
    ]),
    Layer.provideMerge(client(url)),
    Layer.provide(Logger.layer([]))
  )

const on = ({ url }: { readonly url: string }) => (args: ReadonlyArray<string>, options: Cli.Options = {}) =>
  Cli.run(args, { ...options, env: { DATABASE_URL: url } })

const payload = `{ "item": "lamp",  "on": "2026-11-27T00:00:00.000Z", "amount": 25 }`

const messages = ({ sql }: PgServer.TestDatabase) =>
  Effect.map(
    sql<{ text: string }>("SELECT work_item AS text FROM orchestrator_queue ORDER BY id"),
    (rows) => rows.map(({ text }) => text)
  )

it.live("start and signal store what a client stores", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const run = on(test)
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const order = { item: "lamp", on: new Date("2026-11-27"), amount: 25 }
      yield* client.start(Order, { instanceId: "x-client", payload: order })
      yield* client.start(Order, { instanceId: "y-client", payload: order, version: "newest" })
      yield* client.send(Approved, "x-client", { by: "Ada" })
      yield* client.send(Hurry, "x-client", -5)
      yield* client.send(Called, "x-client")
    }).pipe(Effect.provide(client(test.url)))
    for (
      const args of [
        ["start", "Order@1.0.0", payload, "--id", "x-shell."],
        ["start", "Order", payload, "--id", "y-shell."],
        ["signal", "x-shell.", "Approved", `{"by": "Ada"}`],
        ["signal", "x-shell.", "Hurry", "-5", "--lossy"],
        ["signal", "x-shell.", "Called"]
      ]
    ) assert.strictEqual((yield* run(args)).exitCode, 0, args.join(" "))
    const stored = yield* messages(test)
    assert.lengthOf(stored, 10)
    assert.deepStrictEqual(
      stored.slice(5).map((text) => text.replaceAll("shell.", "client")),
      stored.slice(0, 5)
    )
    const rows = yield* test.sql<{ version: string | null }>(
      "SELECT orchestration_version AS version FROM instances WHERE instance_id LIKE '%-shell.' ORDER BY instance_id"
    )
    assert.lengthOf(rows, 2)
  }))

it.live("wait prints the output, or why there is none", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const run = on(test)
    yield* Effect.gen(function*() {
      yield* waitUntil(Effect.map(run(["processes"]), ({ stdout }) => stdout.includes("  alive")))
      const started = yield* run(["start", "Order", payload])
      assert.deepStrictEqual([started.exitCode, started.stderr], [0, ""])
      const id = started.stdout.trim()
      assert.match(id, /^[\da-f]{8}-/)
      const completed = yield* run(["wait", id])
      assert.deepStrictEqual([completed.exitCode, completed.stdout, completed.stderr], [
        0,
        `{"item":"lamp","on":"2026-11-27T00:00:00.000Z","amount":25}\n`,
        ""
      ])
      yield* run(["start", "Order@1.0.0", payload.replace("25", "2500"), "--id", "failed"])
      const failed = yield* run(["wait", "failed"])
      assert.deepStrictEqual([failed.exitCode, failed.stdout, failed.stderr], [
        1,
        "",
        `error: instance failed has failed: "declined"\n`
      ])
      yield* run(["start", "Ask", "--id", "ask"])
      const late = yield* run(["wait", "ask", "--timeout", "1 millis", "--json"])
      assert.deepStrictEqual([late.exitCode, late.stdout], [4, ""])
      assert.deepStrictEqual(JSON.parse(late.stderr).error, {
        code: "WaitTimeout",
        message: "instance ask had not ended after 1 millis"
      })
      yield* run(["signal", "ask", "Approved", `{"by":"Ada"}`])
      yield* waitUntil(
        Effect.map(
          test.sql("SELECT FROM history WHERE instance_id = 'ask' AND event_type = 'ExternalSubscribed'"),
          ({ length }) => length === 1
        )
      )
      yield* run(["signal", "ask", "Hurry", "3", "--lossy"])
      yield* run(["signal", "ask", "Called"])
      assert.strictEqual((yield* run(["wait", "ask"])).stdout, `[{"by":"Ada"},3,null]\n`)
      yield* run(["start", "Ask", "--id", "gone"])
      yield* run(["terminate", "gone", "--reason", "rain"])
      const cancelled = yield* run(["wait", "gone", "--json"])
      assert.strictEqual(cancelled.exitCode, 1)
      assert.deepStrictEqual(JSON.parse(cancelled.stdout), {
        instanceId: "gone",
        status: "Cancelled",
        output: null,
        error: "rain"
      })
      assert.deepStrictEqual(JSON.parse(cancelled.stderr).error, {
        code: "InstanceCancelled",
        message: "instance gone was cancelled: rain"
      })
    }).pipe(Effect.provide(process(test.url)))
    // No process is left.
    const unserved = yield* run(["start", "Ordr"])
    assert.strictEqual(unserved.exitCode, 0)
    assert.include(unserved.stderr, "no living process serves Ordr: it waits until one does")
    const unknown = yield* run(["wait", "nope", "--timeout", "0 seconds"])
    assert.strictEqual(unknown.exitCode, 4)
    assert.include(unknown.stderr, "no instance nope is known: waiting for its start")
    const late = yield* run(["signal", "ask", "Called"])
    assert.deepStrictEqual([late.exitCode, late.stderr], [1, "error: instance ask has ended: Completed\n"])
    const early = yield* run(["signal", "nope", "Called"])
    assert.deepStrictEqual([early.exitCode, early.stderr], [1, "error: instance nope not found\n"])
    assert.strictEqual((yield* run(["signal", "nope", "Called", "--before-start"])).exitCode, 0)
    assert.lengthOf(yield* test.sql("SELECT FROM orchestrator_queue WHERE instance_id = 'nope'"), 1)
  }))

it.live("start: a taken id is refused, or left as it is", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const run = on(test)
    yield* run(["start", "Order", payload, "--id", "a"])
    const taken = yield* run(["start", "Ask", "--id", "a"])
    assert.deepStrictEqual([taken.exitCode, taken.stdout], [1, ""])
    assert.match(taken.stderr, /^error: instance a exists already: .* --if-exists ignore\n$/)
    const again = yield* run(["start", "Ask", "--id", "a", "--if-exists", "ignore", "--json"])
    assert.deepInclude(JSON.parse(again.stdout), { action: "started", instanceId: "a", version: null })
    assert.lengthOf(yield* messages(test), 1)
  }))

it.live("a payload comes from an argument, a file or standard input; what is not JSON is not quoted", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const run = on(test)
    const folder = yield* Effect.acquireRelease(
      Effect.promise(() => mkdtemp(join(tmpdir(), "duroxide-prisma-cli-"))),
      (folder) => Effect.promise(() => rm(folder, { recursive: true }))
    )
    const file = join(folder, "order.json")
    yield* Effect.promise(() => writeFile(file, payload))
    yield* run(["start", "Order", `@${file}`, "--id", "a"])
    yield* run(["start", "Order", "-", "--id", "b"], { input: payload })
    yield* run(["start", "Order", payload, "--id", "c"])
    const inputs = (yield* messages(test)).map((text) => JSON.parse(text).StartOrchestration.input)
    assert.deepStrictEqual(inputs, Array.from({ length: 3 }, () => JSON.stringify(JSON.parse(payload))))
    const cases: ReadonlyArray<readonly [ReadonlyArray<string>, RegExp]> = [
      [["Order", "secret"], /^error: the payload is not JSON; /],
      [["Order", "-"], /^error: the payload is not JSON; /],
      [["Order", "@/no/such/file"], /^error: the file \/no\/such\/file cannot be read \(ENOENT\)/],
      [
        ["Order", "[\"12345678901234567890\", 12345678901234567890]"],
        /^error: the payload has a number with more digits/
      ],
      [["Order@one"], /^error: version "one" of orchestration "Order" is refused: it is not a semantic version/],
      [["Order", "--id", "a::sub::1"], /^error: .*'sub::' is reserved/]
    ]
    for (const [args, line] of cases) {
      const { exitCode, stderr, stdout } = yield* run(["start", ...args])
      assert.deepStrictEqual([exitCode, stdout], [2, ""], args.join(" "))
      assert.match(stderr, line)
      assert.notInclude(stderr, "secret")
    }
    const kept = yield* run(["start", "Order", "[9007199254740991, 1234567890123456, \"12345678901234567890\", 1e30]"])
    assert.strictEqual(kept.exitCode, 0)
  }))
