/**
 * What was sent to the server does not stay in memory: Prisma keeps the last hundred queries of a process.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as v8 from "node:v8"
import * as vm from "node:vm"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

v8.setFlagsFromString("--expose-gc")
const collectGarbage = vm.runInNewContext("gc") as () => void

const Keep = Orchestration.make("Keep", { payload: Schema.String })

const heapMb = () => {
  collectGarbage()
  const { external, heapUsed } = process.memoryUsage()
  return (heapUsed + external) / 2 ** 20
}

describe("SentPayloads", () => {
  it.live("60 starts of a megabyte each leave less than a sixth of it in memory", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const start = (n: number) =>
          client.start(Keep, { instanceId: `keep-${n}`, payload: String.fromCharCode(65 + n % 26).repeat(2 ** 20) })
        yield* start(0)
        const beforeMb = heapMb()
        for (let n = 1; n <= 60; n++) yield* start(n)
        // The memory of buffers is freed some time after they are collected.
        yield* waitUntil(Effect.sync(() => heapMb() - beforeMb < 10)).pipe(Effect.timeoutOption("1 minute"))
        assert.isBelow(heapMb() - beforeMb, 10)
      }).pipe(Effect.provide(App.store(url)))
    }).pipe(Effect.provide(PgServer.layer)))
})
