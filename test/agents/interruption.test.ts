import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { DurableModel } from "duroxide-prisma/agents"
import { FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import { LanguageModel } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as ModelServer from "../programs/modelServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const Assistant = DurableModel.make("Assistant", { retry: { times: 1 } })

const Asked = Signal.make("Asked")

const Program = Orchestration.make("Program", { success: Schema.Unknown, error: Schema.Unknown })

/** In real time, because virtual time waits for a request that hangs. */
const withProgram = <A, E>(
  program: Effect.Effect<unknown, unknown, Orchestration.Instance>,
  test: (server: ModelServer.ModelServer) => Effect.Effect<A, E, Client.Client>
) =>
  Effect.scoped(Effect.gen(function*() {
    const server = yield* ModelServer.start(({ messages }) =>
      messages[0]!.content === "slow" ? { hangs: true } : { text: "ok" }
    )
    const runtime = Runtime.layer({ orchestrations: [Program], activities: [Assistant.activity] }).pipe(
      Layer.provide([Program.toLayer(() => program), Assistant.layerHandler]),
      Layer.provide(ModelServer.layerModel(server.url)),
      Layer.provideMerge(Client.layer),
      Layer.provide(FromDriver.layer()),
      Layer.provide(MemoryDriver.layer),
      Layer.provide(Logger.layer([]))
    )
    return yield* Effect.provide(test(server), runtime)
  }))

describe("DurableModel", () => {
  it.live("a call that loses a race: its request ends, and the program continues", () =>
    withProgram(
      Effect.gen(function*() {
        const late = yield* Effect.raceFirst(
          Effect.asSome(LanguageModel.generateText({ prompt: "slow" })),
          Effect.as(Asked.wait, Option.none())
        )
        const { text } = yield* LanguageModel.generateText({ prompt: "fast" })
        return [late._tag, text]
      }).pipe(Effect.provide(Assistant.layer)),
      (server) =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* client.start(Program, { instanceId: "p" })
          yield* waitUntil(Effect.sync(() => server.requests.length === 1))
          yield* client.send(Asked, "p")
          assert.deepStrictEqual(yield* client.wait(Program, "p"), ["None", "ok"])
          yield* waitUntil(Effect.sync(() => server.aborted() === 1))
          assert.lengthOf(server.requests, 2)
        })
    ))

  it.live("a call beyond its timeout is an InternalProviderError, after its retries", () =>
    withProgram(
      Effect.flip(LanguageModel.generateText({ prompt: "slow" })).pipe(
        Effect.map((error) => error.reason._tag),
        Effect.provide(Assistant.with({ timeout: "2 seconds" }).layer)
      ),
      (server) =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          assert.strictEqual(yield* client.execute(Program, { instanceId: "p" }), "InternalProviderError")
          yield* waitUntil(Effect.sync(() => server.aborted() === 2))
          assert.lengthOf(server.requests, 2)
        })
    ))

  it.live("a call of an instance that is interrupted ends its request", () =>
    withProgram(
      Effect.asVoid(LanguageModel.generateText({ prompt: "slow" })).pipe(Effect.provide(Assistant.layer)),
      (server) =>
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* client.start(Program, { instanceId: "p" })
          yield* waitUntil(Effect.sync(() => server.requests.length === 1))
          yield* client.interrupt("p", "enough")
          yield* waitUntil(Effect.sync(() => server.aborted() === 1))
          assert.lengthOf(server.requests, 1)
        })
    ))
})
