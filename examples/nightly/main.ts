/**
 * `npm run example -- nightly`, in a clone: four nights of two seconds, in one of which the report takes too long.
 */
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { Console, DateTime, Effect, Layer, Stream } from "effect"
import { Nightly, Nights, Reports, RuntimeLive } from "./nightly.ts"

let reports = 0

const ReportsLive = Layer.succeed(Reports, {
  make: Effect.fnUntraced(function*(night) {
    const number = ++reports
    yield* Console.log(`report ${number} for ${night} begins`)
    yield* Effect.sleep(number === 2 ? "3 seconds" : "100 millis")
    yield* Console.log(`report ${number} is done`)
  })
})

const App = RuntimeLive.pipe(
  Layer.provide(ReportsLive),
  Layer.provideMerge(Client.layer),
  Layer.provideMerge(PrismaProvider.layerDefault({ schema: "example_nightly" }))
)

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  // When an earlier run was stopped half way, its endless instance would still run beside the one of this run.
  yield* Admin.stream({ status: "Running" }).pipe(
    Stream.runForEach(({ instanceId }) => client.terminate(instanceId, "left behind"))
  )
  const instanceId = `nightly ${new Date().toISOString()}`
  yield* client.start(Nightly, {
    instanceId,
    // A night would be "0 2 * * *"; with six fields the first one is seconds.
    payload: { cron: "*/2 * * * * *", zone: DateTime.zoneMakeNamedUnsafe("Europe/Berlin") }
  })
  const nights = yield* client.waitForValue(Nights, instanceId, {
    until: ({ skipped, started }) => started + skipped >= 4
  })
  yield* client.terminate(instanceId, "the example is over")
  yield* Effect.sleep("1 second") // reports that have started continue without their schedule
  yield* Console.log(`${nights.started} reports were started, ${nights.skipped} left out`)
})

await Effect.runPromise(main.pipe(Effect.provide(App)))
