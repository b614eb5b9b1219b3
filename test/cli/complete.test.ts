/**
 * Activities that are completed from outside, from the command line: `complete`, `fail`.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { Completion, External } from "duroxide-prisma/recipes/completions"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Approve = External.make("Approve", {
  success: Schema.Struct({ by: Schema.String }),
  error: Schema.String,
  expiry: "1 hour"
})

const Spend = Orchestration.make("Spend", {
  success: Schema.String,
  error: Schema.Union([Schema.String, Completion.CompletionExpired])
})

const key = "k".repeat(32)

it.live("complete and fail end a call by its token, once", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.database
    const tokens = new Map<string, Deferred.Deferred<string>>()
    for (const id of ["one", "two"]) tokens.set(id, yield* Deferred.make<string>())
    const services = yield* Layer.build(
      Runtime.layer({ orchestrations: [Spend], activities: [Approve] }).pipe(
        Layer.provide([
          Spend.toLayer(() => Effect.map(Approve.execute(), ({ by }) => by)),
          Approve.toLayer((_, token) =>
            Effect.flatMap(Activity.Call, ({ instanceId }) => Deferred.succeed(tokens.get(instanceId)!, token))
          )
        ]),
        Layer.merge(Completion.layer()),
        Layer.provideMerge(Client.layer),
        Layer.provide([
          Completion.layerKeys([Redacted.make(key)]),
          PrismaProvider.layer({ url, migrate: "verify" })
        ])
      )
    )
    const client = Context.get(services, Client.Client)
    const run = (args: ReadonlyArray<string>, keys = key) =>
      Cli.run([...args, "--json"], { env: { DATABASE_URL: url, DUROXIDE_COMPLETION_KEYS: keys } })
    const code = ({ stderr }: { readonly stderr: string }) => JSON.parse(stderr).error.code

    for (const id of tokens.keys()) yield* client.start(Spend, { instanceId: id })
    const [one, two] = [yield* Deferred.await(tokens.get("one")!), yield* Deferred.await(tokens.get("two")!)]

    yield* Context.get(services, Completion.Completion).heartbeat(one, { canary: 7 })
    const explained = (...flags: ReadonlyArray<string>) =>
      Effect.map(run(["explain", "one", ...flags]), (o) => o.stdout)
    yield* waitUntil(Effect.map(explained(), (stdout) => stdout.includes("canary")))
    const hidden = yield* explained("--hide-payloads")
    assert.notInclude(hidden, "canary")
    assert.include(hidden, "the last heartbeat came")

    const completed = yield* run(["complete", one, "{\"by\":\"Ada\"}"])
    assert.deepStrictEqual(
      [completed.exitCode, JSON.parse(completed.stdout)],
      [0, { action: "completed", instanceId: "one", activity: "Approve", state: "taken" }]
    )
    assert.strictEqual(yield* client.wait(Spend, "one"), "Ada")
    const again = yield* run(["complete", one, "{\"by\":\"Ben\"}"])
    assert.deepStrictEqual([again.exitCode, code(again)], [1, "AlreadyCompleted"])

    const unknown = yield* run(["fail", two, "\"no\""], "x".repeat(32))
    assert.deepStrictEqual([unknown.exitCode, code(unknown)], [2, "TokenInvalid"])
    const short = yield* run(["fail", two, "\"no\""], "short")
    assert.deepStrictEqual([short.exitCode, code(short)], [2, "ConfigError"])
    assert.strictEqual((yield* run(["fail", two, "\"no\""])).exitCode, 0)
    assert.strictEqual(yield* Effect.flip(client.wait(Spend, "two")), "no")
  }).pipe(Effect.scoped, Effect.provide([PgServer.layer, Logger.layer([])])))
