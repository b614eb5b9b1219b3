// A process that asks: `node questioner.js <database URL> <first> <last>`, eight questions at a time. Prints each
// answer as `<question>=<answer>`, and `done`.
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { Draw } from "./questions.js"

const [url, first, last] = process.argv.slice(2)
const names = Array.from({ length: Number(last) - Number(first) + 1 }, (_, i) => `q${Number(first) + i}`)

const App = Client.layer.pipe(Layer.provide(PrismaProvider.layer({ url: url!, migrate: "verify" })))

Effect.runFork(Effect.scoped(Effect.gen(function*() {
  const client = Context.get(yield* Layer.build(App), Client.Client)
  yield* Effect.forEach(
    names,
    (name) =>
      Effect.map(
        client.request(Draw, "office", name, { requestId: name }),
        (answer) => void process.stdout.write(`${name}=${answer}\n`)
      ),
    { concurrency: 8, discard: true }
  )
  yield* Effect.sync(() => process.stdout.write("done\n"))
  return yield* Effect.never
})))
