/**
 * What a client asks and starts, from the command line: `request`, `watch`, and the further ways of `start` and
 * `signal`.
 */
import { assert, it } from "@effect/vitest"
import { Client, KeyValue, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Add = Request.make("Add", {
  payload: Schema.Int,
  success: Schema.Int,
  error: Schema.Struct({ over: Schema.Int })
})
const Close = Signal.make("Close", { payload: Schema.String })
const Total = KeyValue.make("total", Schema.Int)

const Account = Orchestration.make("Account", {
  payload: Schema.NullOr(Schema.Int),
  success: Schema.Tuple([Schema.Int, Schema.String])
})

const process = (url: string) =>
  Runtime.layer({ orchestrations: [Account] }).pipe(
    Layer.provide(Account.toLayer(Effect.fn(function*(before) {
      let total = before ?? 0
      yield* Add.serve(Effect.fn(function*(amount) {
        if (total + amount > 100) return yield* Effect.fail({ over: total + amount - 100 })
        total += amount
        yield* Total.set(total)
        yield* Orchestration.setCustomStatus(`has ${total}`)
        return total
      }))
      const word = yield* Close.wait
      return [total, word] as const
    }))),
    Layer.provideMerge(Client.layer.pipe(Layer.provideMerge(PrismaProvider.layer({ url })))),
    Layer.provide(Logger.layer([]))
  )

const on = ({ url }: { readonly url: string }) => (args: ReadonlyArray<string>, options: Cli.Options = {}) =>
  Cli.run(args, { ...options, env: { DATABASE_URL: url } })

const scenario = <A, E>(test: (run: ReturnType<typeof on>) => Effect.Effect<A, E>) =>
  Effect.gen(function*() {
    const database = yield* PgServer.database
    const run = on(database)
    return yield* Effect.gen(function*() {
      yield* Client.Client
      yield* waitUntil(Effect.map(run(["processes"]), ({ stdout }) => stdout.includes("  alive")))
      return yield* test(run)
    }).pipe(Effect.provide(process(database.url)), Effect.scoped)
  })

it.live("request prints the answer, the refusal, or how far the question has come", () =>
  scenario(Effect.fn(function*(run) {
    yield* run(["start", "Account", "1", "--id", "a"])
    const answered = yield* run(["request", "a", "Add", "41", "--request-id", "r"])
    assert.deepStrictEqual(answered, { exitCode: 0, stdout: "42\n", stderr: "" })
    const again = yield* run(["request", "a", "Add", "41", "--request-id", "r", "--json"])
    assert.deepStrictEqual(JSON.parse(again.stdout), { instanceId: "a", request: "Add", requestId: "r", answer: 42 })
    const refused = yield* run(["request", "a", "Add", "100"])
    assert.deepStrictEqual(refused, {
      exitCode: 1,
      stdout: `{"over":42}\n`,
      stderr: "error: instance a refused the request Add\n"
    })
    const failed = yield* run(["request", "a", "Add", `"text"`])
    assert.strictEqual(failed.exitCode, 1)
    assert.include(failed.stderr, "payload cannot be read")
    const late = yield* run(["request", "a", "Other", "--timeout", "300 millis"])
    assert.deepStrictEqual([late.exitCode, late.stdout], [4, ""])
    assert.include(late.stderr, "has not waited for requests of this name")
    const shown = (yield* run(["show", "a"])).stdout
    for (const text of ["request awaited", "Add r 41", `request answered  r {"success":42}`, "request  Add"]) {
      assert.include(shown, text)
    }
    assert.notInclude(shown, "duroxide-prisma/answer")
    const hidden = (yield* run(["show", "a", "--hide-payloads"])).stdout
    assert.include(hidden, "Add r")
    for (const text of ["Add r 41", "success"]) assert.notInclude(hidden, text)
    const unknown = yield* run(["request", "none", "Add", "1"])
    assert.strictEqual(unknown.exitCode, 1)
  })))

it.live("watch prints statuses, values and the end", () =>
  scenario(Effect.fn(function*(run) {
    yield* run(["start", "Account", "1", "--id", "a"])
    yield* run(["request", "a", "Add", "1"])
    yield* run(["signal", "a", "Close", `"bye"`])
    yield* run(["wait", "a"])
    const watched = yield* run(["watch", "a", "--key", "total"])
    assert.strictEqual(watched.exitCode, 0)
    const lines = watched.stdout.trim().split("\n")
    assert.sameMembers(lines.slice(0, 2), ["has 2", "total: 2"])
    assert.deepStrictEqual(lines.slice(2), [`Completed [2,"bye"]`])
    const json = (yield* run(["watch", "a", "--json"])).stdout.trim().split("\n").map((line) => JSON.parse(line))
    assert.deepInclude(json[0], { instanceId: "a", customStatus: "has 2", version: 1 })
    assert.deepInclude(json[1], { status: "Completed", output: `[2,"bye"]`, error: null })
    const rest = yield* run(["watch", "a", "--after", json[0].cursor])
    assert.strictEqual(rest.stdout, `Completed [2,"bye"]\n`)
    assert.strictEqual((yield* run(["watch", "a", "--after", "x"])).exitCode, 2)
  })))

it.live("start begins later, starts the lines of a file, and replaces what has ended", () =>
  scenario(Effect.fn(function*(run) {
    yield* run(["start", "Account", "--id", "later", "--at", "2100-01-01T00:00Z"])
    assert.include((yield* run(["explain", "later"])).stdout, "2100-01-01")
    yield* run(["start", "Account", "--id", "delayed", "--delay", "1 hour"])
    assert.include((yield* run(["list"])).stdout, "delayed")
    const both = yield* run(["start", "Account", "--at", "2100-01-01", "--delay", "1 hour"])
    assert.strictEqual(both.exitCode, 2)

    const lines = [`{"id":"m1","payload":5}`, "", `{"id":"m2","attributes":{"n":2},"delay":"1 hour"}`, `{"id":"later"}`]
    const refused = yield* run(["start", "Account", "--many", "-"], { input: lines.join("\n") })
    assert.deepStrictEqual([refused.exitCode, refused.stdout], [1, "started 2 of 3, 1 exist already\n"])
    const ignored = yield* run(["start", "Account", "--many", "-", "--if-exists", "ignore", "--json"], {
      input: lines.join("\n")
    })
    assert.deepInclude(JSON.parse(ignored.stdout), {
      started: 0,
      outcomes: ["m1", "m2", "later"].map((instanceId) => ({ instanceId, outcome: "AlreadyExists" }))
    })
    const bad = yield* run(["start", "Account", "--many", "-"], { input: `{"id":"ok"}\n{"payload":"secret"}` })
    assert.strictEqual(bad.exitCode, 2)
    assert.include(bad.stderr, "line 2")
    assert.notInclude(bad.stderr, "secret")

    yield* run(["terminate", "m1", "--reason", "rain"])
    yield* run(["wait", "m1"])
    const replace = ["start", "Account", "7", "--id", "m1", "--if-exists", "replace-failed"]
    assert.strictEqual((yield* run(replace)).exitCode, 0)
    assert.strictEqual((yield* run(replace)).exitCode, 1)
    yield* run(["signal", "m1", "Close", `"bye"`])
    assert.strictEqual((yield* run(["wait", "m1"])).stdout, `[7,"bye"]\n`)
  })))

it.live("signal starts its instance", () =>
  scenario(Effect.fn(function*(run) {
    const args = ["signal", "s", "Close", `"bye"`, "--or-start", "Account", "--start-payload", "9"]
    assert.strictEqual((yield* run(args)).exitCode, 0)
    assert.strictEqual((yield* run(["wait", "s"])).stdout, `[9,"bye"]\n`)
    const ended = yield* run(args)
    assert.deepStrictEqual([ended.exitCode, ended.stderr], [1, "error: instance s has ended: nothing was sent\n"])
    assert.strictEqual((yield* run(["signal", "s", "Close", "--start-payload", "9"])).exitCode, 2)
  })))
