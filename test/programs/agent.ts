/**
 * A worker of an agent: `node agent.js <database URL> <model URL>`. Its tool writes into the table `effects`, once for
 * each idempotency key, and into `runs` for each run. Prints `ready` when it serves.
 */
import { Activity, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Budget, Conversation, DurableModel, DurableToolkit } from "duroxide-prisma/agents"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Chat, LanguageModel, Tool, Toolkit } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import { layerModel } from "./modelServer.js"
import { shortLocks } from "./shortLocks.js"

export const Assistant = DurableModel.make("Assistant")

const Note = Tool.make("Note", { parameters: Schema.Struct({ text: Schema.String }), success: Schema.String })
export const Tools = DurableToolkit.make(Toolkit.make(Note))

/** Calls of the model that one conversation may make, and makes. */
export const allowed = 3
export const Allowance = Budget.make("allowance", { calls: allowed })

/** Answers one message, and then spends what is left of its budget: nothing. */
export const Talk = Orchestration.make("Talk", { payload: Schema.String, success: Schema.Array(Schema.String) })

const TalkLive = Talk.toLayer(Effect.fn(
  function*(prompt) {
    const chat = yield* Chat.empty
    const { text } = yield* Conversation.answer(chat, { prompt, toolkit: Tools.toolkit })
    const more = yield* LanguageModel.generateText({ prompt: "more" })
    return [text, more.text]
  },
  (program) =>
    Allowance.limit(program).pipe(
      Effect.catchTag("BudgetExceeded", ({ spent }) => Effect.succeed([`spent ${spent}`])),
      Effect.orDie
    ),
  Effect.provide(Layer.merge(Assistant.layer, Tools.layer))
))

const main = (url: string, model: string) => {
  const pool = new pg.Pool({ connectionString: url, max: 4 })
  const ToolsLive = Tools.toLayer({
    Note: ({ text }) =>
      Effect.gen(function*() {
        const { idempotencyKey, instanceId } = yield* Activity.Call
        yield* Effect.promise(() => pool.query("INSERT INTO runs VALUES ($1)", [idempotencyKey]))
        yield* Effect.sleep("100 millis")
        yield* Effect.promise(() =>
          pool.query("INSERT INTO effects VALUES ($1, $2, $3) ON CONFLICT DO NOTHING", [
            idempotencyKey,
            instanceId,
            text
          ])
        )
        return `noted ${text}`
      })
  })
  const App = Runtime.layer({ orchestrations: [Talk], activities: [Assistant.activity, ...Tools.activities] }).pipe(
    Layer.provide([TalkLive, Assistant.layerHandler, ToolsLive]),
    Layer.provide(layerModel(model)),
    Layer.provide(
      RuntimeConfig.layer({
        ...shortLocks("3 seconds"),
        workerConcurrency: 8
      })
    ),
    Layer.provide(PrismaProvider.layer({ url, migrate: "verify" })),
    Layer.provide(Logger.layer([]))
  )
  const running = Effect.runFork(Effect.scoped(Effect.gen(function*() {
    yield* Layer.build(App)
    process.stdout.write("ready\n")
    return yield* Effect.never
  })))
  process.on("SIGTERM", () => {
    void Effect.runPromise(Fiber.interrupt(running)).then(() => process.exit(0))
  })
  running.addObserver((exit) => {
    if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
  })
}

const [, script, url, model] = process.argv
if (script?.endsWith("/agent.js") === true) main(url!, model!)
