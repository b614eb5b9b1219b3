/**
 * `npm run example -- approval`, in a clone: three expenses, of which one is small, one is approved late and one is
 * forgotten.
 *
 * A day lasts 500 milliseconds; `DAY="1 minute"` gives you more time to look.
 */
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Config, Console, Duration, Effect, Layer, Option, Schedule } from "effect"
import { Decide, policy, Reimburse, RuntimeLive } from "./approval.ts"

const App = Layer.mergeAll(RuntimeLive, Client.layer).pipe(
  Layer.provide(PrismaProvider.layerDefault({ schema: "example_approval" }))
)

const main = Effect.gen(function*() {
  const client = yield* Client.Client
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
  const own = yield* Effect.flip(client.request(Decide, laptop, { by: "Ada", approved: true }))
  yield* Console.log(`Ada approves: ${own._tag}`)
  const answer = yield* client.request(Decide, laptop, { by: "the director", approved: true })
  yield* Console.log(`the director approves: it ${answer}`)
  yield* Console.log(`a laptop: approved by ${(yield* client.wait(Reimburse, laptop)).approvedBy}`)

  const sofa = yield* submit("a sofa", 80_000)
  const failure = yield* Effect.flip(client.wait(Reimburse, sofa))
  yield* Console.log(`a sofa: ${failure._tag}`)
})

await Effect.runPromise(main.pipe(Effect.provide(App)))
