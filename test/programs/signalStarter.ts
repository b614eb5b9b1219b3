// A process that sends signals, each with the start of its instance: `node signalStarter.js <database URL> <name>`.
// Twenty instances, ten signals each, all at once. Prints `<instance>=<signal>` for each that is sent.
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Collect, Item } from "./collecting.js"

const [url, name] = process.argv.slice(2)

const App = Client.layer.pipe(Layer.provide(PrismaProvider.layer({ url: url!, migrate: "verify" })))

const sends = Array.from(
  { length: 10 },
  (_, i) => Array.from({ length: 20 }, (_, j) => [`collect-${j}`, `${name}-${i}`])
)
  .flat()

Effect.runFork(Effect.scoped(Effect.gen(function*() {
  const client = Context.get(yield* Layer.build(App), Client.Client)
  yield* Effect.forEach(
    sends,
    ([instanceId, item]) =>
      Effect.map(
        client.send(Item, instanceId!, item!, { orStart: { orchestration: Collect } }),
        () => void process.stdout.write(`${instanceId}=${item}\n`)
      ),
    { concurrency: 8, discard: true }
  )
  yield* Effect.sync(() => process.stdout.write("done\n"))
  return yield* Effect.never
})))
