/**
 * `npm run example -- agent`, in a clone: a conversation whose process goes away in the middle of a tool call.
 */
import { Client, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Console, Duration, Effect, Layer, Option, Schedule } from "effect"
import { Chat, Conversation, Messages, RuntimeLive } from "./agent.ts"
import { Model } from "./model.ts"

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

/** Prints the last answer when there are so many. */
const answer = Effect.fnUntraced(function*(count: number) {
  const client = yield* Client.Client
  const isAnswer = ({ role }: { readonly role: string }) => role === "assistant"
  const said = yield* client.waitForValue(Conversation, instanceId, {
    until: (said) => said.filter(isAnswer).length >= count
  })
  yield* Console.log(`agent: ${said.findLast(isAnswer)!.text}`)
})

const first = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* client.start(Chat, { instanceId, payload: { idleFor: Duration.seconds(1), answers: 0 } })
  yield* ask("hello")
  yield* answer(1)
  yield* ask("where is my order 42?")
  yield* untilStatus("using LookUpOrder and Research")
})

const second = Effect.gen(function*() {
  const client = yield* Client.Client
  yield* answer(2)
  yield* ask("thank you")
  yield* answer(3)
  yield* Console.log(`no more messages: ${yield* client.wait(Chat, instanceId)} answers were given`)
})

const main = Effect.gen(function*() {
  yield* Effect.provide(first, Process)
  yield* Console.log("--- the process ends, another one starts ---")
  yield* Effect.provide(second, Process)
})

await Effect.runPromise(main.pipe(Effect.provide(PrismaProvider.layerDefault({ schema: "example_agent" }))))
