// A process that publishes, and dies at a boundary: `node publisher.js '{"url":…,"log":…,"dies":…,"after":…}'`. It
// appends each message to a file when the queue accepts it.
//
// `dies`: `beforePublish` (when it is about to send message number `after`), `afterPublish` (when the queue has
// accepted it, before it learns of that), `never`.
import { Outbox } from "duroxide-prisma/outbox"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Queue } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { appendFileSync } from "node:fs"

const { after, dies, log, url } = JSON.parse(process.argv[2]!) as {
  readonly url: string
  readonly log: string
  readonly dies: "beforePublish" | "afterPublish" | "never"
  readonly after: number
}

let count = 0

const dieAt = (boundary: typeof dies) => {
  if (dies === boundary && count === after) process.kill(process.pid, "SIGKILL")
}

const unused = Effect.die(new Error("only publishes"))

const queue: Queue.Queue["Service"] = {
  name: "file",
  queues: ["jobs"],
  maxDelayMs: 0,
  maxPayloadBytes: 262_144,
  publish: (_, payload) =>
    Effect.sync(() => {
      count++
      dieAt("beforePublish")
      appendFileSync(log, `${JSON.stringify(payload.n)}\n`)
      dieAt("afterPublish")
    }),
  receive: () => unused,
  ack: () => unused,
  extendVisibility: () => unused,
  deadLetter: () => unused,
  redrive: () => unused,
  depth: () => unused
}

const App = Outbox.publisher({ lease: "1 second" }).pipe(
  Layer.provide([PrismaProvider.layerDatabase({ url, migrate: "none" }), Layer.succeed(Queue.Queue, queue)])
)

const main = Effect.runFork(Effect.scoped(Effect.andThen(Layer.build(App), Effect.never)))

main.addObserver((exit) => {
  if (exit._tag === "Failure") process.stderr.write(`${String(exit.cause)}\n`)
})
