/**
 * Programs that call a model, run in virtual time against a server of the test.
 */
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { DurableModel, DurableToolkit } from "duroxide-prisma/agents"
import { TestRuntime } from "duroxide-prisma/testing"
import { type LanguageModel, Tool, Toolkit } from "effect/ai"
import * as Effect from "effect/Effect"
import type * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as ModelServer from "../programs/modelServer.ts"

/** Its cost is a thousandth of the tokens of its prompts. */
export const Assistant = DurableModel.make("Assistant", {
  price: ({ inputTokens }) => (inputTokens.total ?? 0) / 1000
})

export const Weather = Tool.make("Weather", {
  description: "The weather of a city",
  parameters: Schema.Struct({ city: Schema.String, days: Schema.optional(Schema.Int) }),
  success: Schema.Struct({ celsius: Schema.Number }),
  failure: Schema.String,
  failureMode: "return"
})

export const Pay = Tool.make("Pay", {
  parameters: Schema.Struct({ cents: Schema.Int }),
  success: Schema.String,
  needsApproval: ({ cents }: { readonly cents: number }) => cents > 100
})

export const Tools = DurableToolkit.make(Toolkit.make(Weather, Pay))

/** What a program under test does; its payload counts its executions from 0. */
export const Program = Orchestration.make("Program", {
  payload: Schema.Int,
  success: Schema.Unknown,
  error: Schema.Unknown
})

export type Services =
  | Orchestration.Instance
  | LanguageModel.LanguageModel
  | Tool.HandlersFor<typeof Tools.toolkit.tools>

export interface Handlers {
  readonly weather?: (city: string) => Effect.Effect<{ readonly celsius: number }, string>
  readonly pay?: (cents: number) => Effect.Effect<string>
}

/** Runs `test` while a runtime serves `program`, and a model answers as `script` says. */
export const withModel = <A, E, R>(
  program: (execution: number) => Effect.Effect<unknown, unknown, Services>,
  script: (request: ModelServer.ModelRequest, index: number) => ModelServer.Answer,
  test: (server: ModelServer.ModelServer) => Effect.Effect<A, E, R>,
  { pay = () => Effect.succeed("paid"), weather = () => Effect.succeed({ celsius: 20 }) }: Handlers = {}
) =>
  Effect.gen(function*() {
    const server = yield* ModelServer.start(script)
    const runtime = Runtime.layer({
      orchestrations: [Program],
      activities: [Assistant.activity, ...Tools.activities]
    }).pipe(
      Layer.provide([
        Program.toLayer((execution) => Effect.provide(program(execution), Layer.merge(Assistant.layer, Tools.layer))),
        Assistant.layerHandler,
        Tools.toLayer({ Weather: ({ city }) => weather(city), Pay: ({ cents }) => pay(cents) })
      ]),
      Layer.provide(ModelServer.layerModel(
        server.url,
        Effect.map(Effect.serviceOption(Activity.Call), (call) => Option.getOrUndefined(call)?.idempotencyKey)
      ))
    )
    return yield* Effect.provide(test(server), TestRuntime.layer(runtime))
  }).pipe(Effect.scoped)

export const start = Effect.flatMap(Client.Client, (client) => client.start(Program, { instanceId: "p", payload: 0 }))

export const wait = Effect.flatMap(Client.Client, (client) => client.wait(Program, "p"))

/** Runs a program until it ends. */
export const run = (
  program: Effect.Effect<unknown, unknown, Services>,
  script: (request: ModelServer.ModelRequest, index: number) => ModelServer.Answer,
  handlers?: Handlers
) =>
  withModel(
    () => program,
    script,
    (server) =>
      Effect.gen(function*() {
        yield* start
        const exit: Exit.Exit<unknown, unknown> = yield* Effect.exit(wait)
        return {
          server,
          value: exit._tag === "Success" ? exit.value : exit.cause,
          history: yield* TestRuntime.history("p")
        }
      }),
    handlers
  )
