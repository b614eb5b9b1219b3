/**
 * `npm run example -- nightly`, in a clone: nights of two seconds, in one of which the report takes too long.
 */
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { Console, Effect, Layer, Schedule } from "effect"
import { layer, nightly, Reports } from "./nightly.ts"

let reports = 0

const ReportsLive = Layer.succeed(Reports, {
  make: Effect.fnUntraced(function*(night) {
    const number = ++reports
    yield* Console.log(`report ${number} for ${night} begins`)
    yield* Effect.sleep(number === 2 ? "3 seconds" : "100 millis")
    yield* Console.log(`report ${number} is done`)
  })
})

// A night would be "0 2 * * *".
const App = layer(nightly("*/2 * * * * *")).pipe(
  Layer.provide(ReportsLive),
  Layer.provideMerge(Client.layer),
  Layer.provideMerge(PrismaProvider.layerDefault({ schema: "example_nightly" }))
)

const main = Effect.gen(function*() {
  const schedules = yield* Schedules.Schedules
  yield* schedules.resume("nightly") // when an earlier run of this example has paused it
  const began = Date.now()
  const nights = yield* schedules.runs("nightly").pipe(
    Effect.map((runs) => runs.filter(({ settledAt }) => settledAt.getTime() >= began)),
    Effect.repeat({ until: ({ length }) => length >= 4, schedule: Schedule.spaced("100 millis") })
  )
  yield* schedules.pause("nightly", { reason: "the example is over" })
  yield* Effect.sleep("1 second") // a report that has started continues
  for (const { note, occurrence, outcome } of nights.toReversed()) {
    yield* Console.log(`${occurrence.toISOString()} ${outcome}${note === undefined ? "" : `: ${note}`}`)
  }
})

await Effect.runPromise(main.pipe(Effect.provide(App)))
