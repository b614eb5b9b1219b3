// A runtime process: `node worker.js <database URL> [JSON of Options]`. Runs until SIGTERM; prints `ready` when it
// serves.
import { Client, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { PayloadCodec } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import { shortLocks } from "./shortLocks.js"
import { FiveSteps, RuntimeLive } from "./steps.js"

interface Options {
  readonly optimisticTurns?: boolean
  /** Instances that it starts itself, twenty at a time, so that it may store their first turns. */
  readonly starts?: ReadonlyArray<string>
  /** Encrypts payloads with the first of these keys, as `PayloadCodec.parseKeys` reads them. Defaults to plain text. */
  readonly keys?: string
}

const url = process.argv[2]!
const { keys, optimisticTurns = true, starts = [] } = JSON.parse(process.argv[3] ?? "{}") as Options

const App = RuntimeLive.pipe(
  Layer.provide(
    RuntimeConfig.layer({ ...shortLocks("1 second"), optimisticTurns })
  ),
  Layer.merge(Client.layer),
  Layer.provide(PrismaProvider.layer({ url, migrate: "verify" })),
  Layer.provide(
    keys === undefined
      ? Layer.empty
      : PayloadCodec.layer([PayloadCodec.encryption(PayloadCodec.parseKeys(keys))])
  )
)

const main = Effect.runFork(Effect.scoped(Effect.gen(function*() {
  const client = Context.get(yield* Layer.build(App), Client.Client)
  yield* Effect.sync(() => process.stdout.write("ready\n"))
  yield* Effect.forEach(
    starts,
    (instanceId, payload) => client.start(FiveSteps, { instanceId, payload, ifExists: "ignore" }),
    { concurrency: 20, discard: true }
  )
  return yield* Effect.never
})))

process.on("SIGTERM", () => {
  void Effect.runPromise(Fiber.interrupt(main)).then(() => process.exit(0))
})
main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
