/**
 * `npm run example -- approval`, in a clone: four expenses, of which one is small, one is approved late, one is taken
 * back and one is forgotten.
 *
 * A day lasts 500 milliseconds; `DAY="1 minute"` gives you more time to look.
 */
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Completion } from "duroxide-prisma/recipes/completions"
import { Config, Console, Duration, Effect, Layer, Option, Redacted, Schedule } from "effect"
import { randomBytes } from "node:crypto"
import { Decide, Inbox, policy, Reimburse, RuntimeLive, Withdraw } from "./approval.ts"

const App = Layer.mergeAll(RuntimeLive, Client.layer, Completion.layer({ activities: [Decide] })).pipe(
  Layer.provide(PrismaProvider.layerDefault({ schema: "example_approval" })),
  // Yours come from the configuration, so that tokens outlive the process: `Completion.layerKeysConfig`.
  Layer.provide(Completion.layerKeys([Redacted.make(randomBytes(32).toString("hex"))])),
  Layer.provideMerge(Layer.succeed(Inbox, new Map()))
)

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  const inbox = yield* Inbox
  const day = yield* Config.Duration("DAY").pipe(Config.withDefault(Duration.millis(500)))
  const days = (count: number) => Duration.times(day, count)
  const quick = { ...policy, remindEvery: day, escalateAfter: days(3), giveUpAfter: days(7) }
  const run = new Date().toISOString() // an id is taken until its instance is deleted, so each run has its own
  const submit = (purpose: string, cents: number) => {
    const instanceId = `${purpose} ${run}`
    const expense = { id: instanceId, employee: "Ada", purpose, cents }
    return client.start(Reimburse, { instanceId, payload: { expense, policy: quick } }).pipe(
      Effect.andThen(Console.log(`Ada submits ${purpose} for ${cents / 100}`)),
      Effect.as(instanceId)
    )
  }

  const pencils = yield* submit("pencils", 450)
  yield* Console.log(`pencils: approved by ${(yield* client.wait(Reimburse, pencils)).approvedBy}`)

  const laptop = yield* submit("a laptop", 190_000)
  yield* client.status(laptop).pipe(Effect.repeat({
    until: (status) => "customStatus" in status && Option.contains(status.customStatus, "waiting for the director"),
    schedule: Schedule.spaced("20 millis")
  }))
  yield* Console.log("the director approves")
  // What the form of the page does. Anything else that knows the token could, by HTTP: `CompletionApi`.
  yield* Decide.complete(inbox.get(laptop)!, { by: "the director", approved: true })
  yield* Console.log(`a laptop: approved by ${(yield* client.wait(Reimburse, laptop)).approvedBy}`)

  const chair = yield* submit("a chair", 60_000)
  const refusal = yield* Effect.flip(client.request(Withdraw, chair, { by: "Bob" }))
  yield* Console.log(`Bob takes it back: ${refusal._tag}`)
  yield* client.request(Withdraw, chair, { by: "Ada" })
  yield* Console.log(`Ada takes it back: ${(yield* Effect.flip(client.wait(Reimburse, chair)))._tag}`)

  const sofa = yield* submit("a sofa", 80_000)
  const failure = yield* Effect.flip(client.wait(Reimburse, sofa))
  yield* Console.log(`a sofa: ${failure._tag}`)
})

await Effect.runPromise(main.pipe(Effect.provide(App)))
