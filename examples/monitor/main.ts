/**
 * `npm run example -- monitor`, in a clone: watches a service that goes down and comes back, with a probe every 200 milliseconds.
 */
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Admin } from "duroxide-prisma/provider"
import { Console, Duration, Effect, Layer, Option, Schedule, Stream } from "effect"
import { Counters, Monitor, Orders, RuntimeLive, Service } from "./monitor.ts"

let isUp = true

const App = Layer.mergeAll(RuntimeLive, Client.layer).pipe(
  Layer.provide(Layer.succeed(Service, { isUp: Effect.sync(() => isUp) })),
  Layer.provideMerge(PrismaProvider.layerDefault({ schema: "example_monitor" }))
)

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  // When an earlier run was stopped half way, its endless instance would still run beside the one of this run.
  yield* Admin.stream({ status: "Running" }).pipe(
    Stream.runForEach(({ instanceId }) => client.terminate(instanceId, "left behind"))
  )
  const instanceId = `monitor ${new Date().toISOString()}`
  const untilStatus = (text: string) =>
    client.status(instanceId).pipe(Effect.repeat({
      until: (status) => "customStatus" in status && Option.contains(status.customStatus, text),
      schedule: Schedule.spaced("50 millis")
    }))

  yield* client.start(Monitor, {
    instanceId,
    payload: { every: Duration.millis(200), probesPerExecution: 2, state: "up" }
  })
  yield* untilStatus("up")
  yield* Console.log("the service is up; it breaks")
  isUp = false
  yield* untilStatus("down")
  yield* Console.log("someone repairs it")
  isUp = true
  yield* untilStatus("up")

  yield* client.send(Orders, instanceId, "pause")
  yield* untilStatus("paused")
  yield* Console.log("paused; it breaks again, and the monitor does not notice")
  isUp = false
  yield* Effect.sleep("1 second")
  isUp = true
  yield* client.send(Orders, instanceId, "resume")
  yield* untilStatus("up")

  const counters = Option.getOrThrow(yield* client.read(Counters, instanceId))
  const status = yield* client.status(instanceId)
  yield* Console.log(
    `${counters.probes} probes so far, in ${"executionId" in status ? status.executionId : 0} executions`
  )
  yield* client.send(Orders, instanceId, "stop")
  const { alerts, failures, probes } = yield* client.wait(Monitor, instanceId)
  yield* Console.log(`stopped: ${probes} probes, ${failures} failures, ${alerts} alerts`)
})

await Effect.runPromise(main.pipe(Effect.provide(App)))
