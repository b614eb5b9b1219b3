import { assert, it } from "@effect/vitest"
import { Client, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Cli from "./cli.ts"

const Approved = Signal.make("Approved")

it.layer(PgServer.layer, { excludeTestServices: true })("Messages without an instance", (it) => {
  it.effect("are listed, and named where their instance is asked for", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const on = (args: string) => Cli.run(`${args} --url ${url}`)
      assert.strictEqual((yield* on("queues orphans")).stdout, "no messages wait for a start\n")
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.send(Approved, "bookng-1")
        yield* client.send(Approved, "bookng-2")
      }).pipe(Effect.provide([Client.layer.pipe(Layer.provide(PrismaProvider.layer({ url }))), Logger.layer([])]))
      const listed = yield* on("queues orphans")
      assert.match(listed.stdout, /^bookng-1 +signal Approved +\d+ s ago$/m)
      const one = JSON.parse((yield* on("queues orphans --limit 1 --json")).stdout)
      assert.deepInclude(one, { orphans: 2 })
      assert.deepInclude(one.messages[0], { instanceId: "bookng-1", kind: "signal", name: "Approved" })
      for (const command of ["explain", "show"]) {
        const asked = yield* on(`${command} bookng-2`)
        assert.deepStrictEqual([asked.exitCode, asked.stdout], [1, ""])
        assert.include(
          asked.stderr,
          "instance bookng-2 has not been started; 1 message waits for it: signal Approved"
        )
        assert.include((yield* on(`${command} booking-3`)).stderr, "instance booking-3 not found")
      }
    }))
})
