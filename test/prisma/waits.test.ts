import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Database from "../../src/prisma/Database.ts"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"

const Double = Activity.make("Double", { payload: Schema.Number, success: Schema.Number })
const Doubled = Orchestration.make("Doubled", { payload: Schema.Number, success: Schema.Number })

const runtime = Runtime.layer({ orchestrations: [Doubled], activities: [Double] }).pipe(Layer.provide([
  Double.toLayer((n) => Effect.succeed(n * 2)),
  Doubled.toLayer((n) => Double.execute(n))
]))

describe("Client.wait", () => {
  it.live("3,000 callers in a process without a runtime share few statements, and learn of ends in another one", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.PgServer
      const serving = yield* Client.Client
      const services = yield* Layer.build(Layer.fresh(App.store(url)))
      const waiting = Context.get(services, Client.Client)
      const { statementCounts } = Context.get(services, Database.Database)
      const wait = (instanceId: string) => Effect.forkChild(waiting.wait(Doubled, instanceId))

      yield* Effect.forEach(Array.from({ length: 3_000 }, (_, i) => `never-${i}`), wait)
      const ids = Array.from({ length: 20 }, (_, i) => `end-${i}`)
      const ends = yield* Effect.forEach(ids, wait)
      // Its look is sent after theirs.
      yield* Effect.flip(waiting.wait(Doubled, "last", { timeout: 0 }))
      const before = yield* statementCounts
      const begunMs = performance.now()
      yield* Effect.forEach(ids, (instanceId, i) => serving.start(Doubled, { instanceId, payload: i }), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(yield* Effect.forEach(ends, Fiber.join), ids.map((_, i) => i * 2))
      const seconds = (performance.now() - begunMs) / 1000
      const { readEnds = 0, ...others } = yield* statementCounts
      const looks = readEnds - before["readEnds"]!
      assert.isAtLeast(looks, 1)
      // Four per second, and what was under way.
      assert.isAtMost(looks, seconds * 4 + 4)
      assert.deepStrictEqual(others, {})
    }).pipe(Effect.scoped, Effect.provide(App.layer(runtime))))
})
