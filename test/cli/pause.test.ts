/**
 * What `pause` and `resume` say, and what the other commands say of it.
 */
import { assert, it } from "@effect/vitest"
import { Client, Orchestration } from "duroxide-prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

const Order = Orchestration.make("Order")

it.live("pause and resume name what they did, and fail with one line", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.PgServer
    const client = Context.get(
      yield* Layer.build(
        Client.layer.pipe(Layer.provide(PrismaProvider.layer({ url })), Layer.provide(Logger.layer([])))
      ),
      Client.Client
    )
    for (const instanceId of ["a", "b"]) yield* client.start(Order, { instanceId })
    const run = (args: string | ReadonlyArray<string>) => Cli.run(args, { env: { DATABASE_URL: url } })
    const says = Effect.fnUntraced(function*(args: string | ReadonlyArray<string>, line: string, exitCode = 0) {
      const ended = yield* run(args)
      assert.strictEqual(ended.stdout + ended.stderr, `${line}\n`, String(args))
      assert.strictEqual(ended.exitCode, exitCode, String(args))
    })
    const json = (args: string) => Effect.map(run(`${args} --json`), ({ stdout }) => JSON.parse(stdout))
    const without = ({ since, ...rest }: { readonly since: string }) => {
      assert.isAbove(Date.parse(since), 0)
      return rest
    }

    yield* says(["pause", "a", "--reason", "asked the customer"], "paused instance a: asked the customer")
    yield* says("pause --name Order", "paused orchestration Order")
    yield* says("pause --name Order@1.0.0", "paused orchestration Order@1.0.0")
    const unknown = (target: string) =>
      `paused ${target}\nwarning: ${target} is unknown: no process serves it, and no instance or activity belongs to it`
    yield* says("pause --activity Charge", unknown("activity Charge"))
    yield* says("pause --tag gpu", unknown("tag gpu"))
    yield* says("pause --name Ordr", unknown("orchestration Ordr"))
    yield* says("pause --name Order@1.0.1", unknown("orchestration Order@1.0.1"))
    for (const target of ["Ordr", "Order@1.0.1"]) yield* run(`resume --name ${target}`)
    assert.deepStrictEqual(yield* json("pause --all --reason incident"), {
      action: "paused",
      target: "everything",
      name: null,
      version: null,
      reason: "incident"
    })

    const { paused } = yield* json("status")
    assert.strictEqual(paused.instances, 1)
    assert.deepStrictEqual(paused.targets.map(without), [
      { target: "orchestration", name: "Order", version: null, reason: null },
      { target: "orchestration", name: "Order", version: "1.0.0", reason: null },
      { target: "activity", name: "Charge", version: null, reason: null },
      { target: "tag", name: "gpu", version: null, reason: null },
      { target: "everything", name: null, version: null, reason: "incident" }
    ])
    const { instances: listed }: {
      readonly instances: ReadonlyArray<{ readonly instanceId: string; readonly paused: { readonly since: string } }>
    } = yield* json("list --status paused")
    assert.deepStrictEqual(
      new Map(listed.map(({ instanceId, paused }) => [instanceId, without(paused)])),
      new Map(
        [
          ["b", { target: "orchestration", name: "Order", version: "1.0.0", reason: null }],
          ["a", { target: "instance", name: "a", version: null, reason: "asked the customer" }]
        ] as const
      )
    )
    const shown = yield* run("show a")
    assert.match(shown.stdout, /^status +Running, paused\npaused +by itself, for \S+ \S+: asked the customer$/m)
    const status = yield* run("status")
    assert.match(
      status.stdout,
      /^paused +everything, for \S+ \S+: incident\npaused +1 instance; see list --status paused$/m
    )

    for (
      const target of ["a", "--name Order", "--name Order@1.0.0", "--activity Charge", "--tag gpu"]
    ) {
      assert.strictEqual((yield* run(`resume ${target}`)).exitCode, 0, target)
    }
    assert.deepStrictEqual(yield* json("resume --all"), {
      action: "resumed",
      target: "everything",
      name: null,
      version: null
    })
    assert.notInclude((yield* run("status")).stdout, "paused")
    yield* says("resume a", "error: there is no pause of instance a", 1)
    yield* says("resume --all", "error: there is no pause of everything", 1)
    yield* says("pause nothing", "error: instance nothing not found", 1)
    for (const args of ["pause", "resume", "pause a --all"]) {
      yield* says(args, "error: name one of: the id of an instance, --name, --activity, --tag, --all", 2)
    }
  }).pipe(Effect.provide(PgServer.layer)))
