// A process that receives one message of the queue `work` and never settles it: `node receiver.js <database URL>`.
// Prints `received` when it has it.
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Queue } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const App = PgQueue.layer({ queues: { work: {} } }).pipe(
  Layer.provide(PrismaProvider.layerDatabase({ url: process.argv[2]!, migrate: "verify" }))
)

const main = Effect.runFork(
  Effect.gen(function*() {
    const queue = yield* Queue.Queue
    yield* queue.receive("work", { maxMessages: 1, visibilityTimeout: "3 seconds", wait: "20 seconds" })
    yield* Effect.sync(() => process.stdout.write("received\n"))
    return yield* Effect.never
  }).pipe(Effect.provide(App))
)

main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
