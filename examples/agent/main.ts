/**
 * `npm run example -- agent`, in a clone: a conversation whose process goes away in the middle of a tool call.
 */
import { Client, ProgressStream, RuntimeConfig } from "duroxide-prisma"
import { Approval } from "duroxide-prisma/agents"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Console, Duration, Effect, Layer, Option, Schedule, Stream } from "effect"
import { Chat, Messages, RuntimeLive, Said, Tokens } from "./agent.ts"
import * as Model from "./model.ts"

/** All that one process runs. It is to end at once, and not when its tools have answered. */
const Process = Layer.mergeAll(RuntimeLive, Client.layer).pipe(
  Layer.provide([Model.layerFake, RuntimeConfig.layer({ shutdownTimeout: 0 })])
)

const instanceId = `chat ${new Date().toISOString()}`

const untilStatus = Effect.fnUntraced(function*(text: string) {
  const client = yield* Client.Client
  yield* client.status(instanceId).pipe(Effect.repeat({
    until: (status) => "customStatus" in status && Option.contains(status.customStatus, text),
    schedule: Schedule.spaced("50 millis")
  }))
})

const ask = Effect.fnUntraced(function*(text: string) {
  const client = yield* Client.Client
  yield* Console.log(`you: ${text}`)
  yield* client.send(Messages, instanceId, text)
})

/** The next word to read, over both processes. */
let offset = 0

/** Prints words as they come, or those that are there. */
const speak = (follow: boolean) =>
  Effect.flatMap(
    Client.Client,
    (client) =>
      Stream.runForEach(client.readStream(Tokens, instanceId, { from: offset, follow }), (entry) =>
        Effect.sync(() => {
          offset = entry.offset + 1
          process.stdout.write(`${ProgressStream.startsOver(entry) ? "\nagent: " : ""}${entry.chunk}`)
        }))
  )

/** Prints the next answer while the model speaks, until there are so many. */
const answer = Effect.fnUntraced(function*(count: number) {
  const client = yield* Client.Client
  const answers = ({ content }: typeof Said.value.Type) =>
    content.filter((message) => message.role === "assistant" && message.content.some(({ type }) => type === "text"))
  const answered = client.waitForValue(Said, instanceId, { until: (said) => answers(said).length >= count })
  yield* Effect.raceFirst(answered, Effect.andThen(speak(true), Effect.never))
  // All words were stored before the answer.
  yield* speak(false)
  yield* Console.log("")
})

/** Decides as a person would, who sees what is asked. */
const approve = Effect.gen(function*() {
  const client = yield* Client.Client
  for (const { approvalId, params, tool } of yield* client.waitForValue(Approval.open, instanceId)) {
    yield* Console.log(`a person approves: ${tool} ${params}`)
    yield* client.request(Approval.decide, instanceId, { approvalId, approved: true }, { requestId: approvalId })
  }
})

const first = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* client.start(Chat, { instanceId, payload: { idleFor: Duration.seconds(1), answers: 0 } })
  yield* ask("hello")
  yield* answer(1)
  yield* ask("where is my order 42?")
  yield* untilStatus("searching")
})

const second = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* answer(2)
  yield* ask("please refund order 42")
  yield* approve
  yield* answer(3)
  yield* ask("thank you")
  yield* answer(4)
  yield* Console.log(`no more messages: ${yield* client.wait(Chat, instanceId)} answers were given`)
})

const main = Effect.gen(function*() {
  yield* Effect.provide(first, Process)
  yield* Console.log("--- the process ends, another one starts ---")
  yield* Effect.provide(second, Process)
})

await Effect.runPromise(main.pipe(Effect.provide(PrismaProvider.layerDefault({ schema: "example_agent" }))))
