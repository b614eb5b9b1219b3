// A process of a wake-up run: `node process.js <JSON of Settings>`, directed by messages (`orders.ts`).
import { Client, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Database, PgNotifier, PrismaProvider } from "duroxide-prisma/prisma"
import { Notifier } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Metric from "effect/Metric"
import * as Schema from "effect/Schema"
import { now, sleep } from "./orders.ts"
import type { Answer, Order, Settings } from "./orders.ts"

const Letters = Signal.make("Letters")

const Go = Signal.make("Go")

/** Takes two letters and a signal in each round; its status is the number of the round, from when it waits for them. */
const Box = Orchestration.make("Box", { payload: Schema.Int })

const roundsPerExecution = 20

const BoxLive = Box.toLayer(Effect.fnUntraced(function*(rounds) {
  for (let round = rounds; round < rounds + roundsPerExecution; round++) {
    const signal = yield* Effect.forkChild(Go.wait)
    yield* Orchestration.setCustomStatus(String(round))
    yield* Letters.wait
    yield* Letters.wait
    yield* Fiber.join(signal)
  }
  return yield* Box.continueAsNew(rounds + roundsPerExecution)
}))

const instanceId = "box"

const { dropsHints, fallbackPollMs, listens, role, urls } = JSON.parse(process.argv[2]!) as Settings

const answer = (message: Answer) => void process.send!(message)

/** Sends hints, and receives none, as long as its connection lives. */
const deaf = (url: string) =>
  Layer.effect(
    Notifier.Notifier,
    Effect.map(PgNotifier.make({ url }), (notifier) => ({
      ...notifier,
      listen: (listener: Notifier.Listener) => notifier.listen({ ...listener, receive: () => {} })
    }))
  ).pipe(Layer.provide(Database.layer({ url, maxConnections: 1 })))

const provider = (url: string) =>
  PrismaProvider.layer({
    url,
    migrate: "none",
    maxConnections: 3,
    longPolling: {
      enabled: listens,
      fallbackPollInterval: fallbackPollMs,
      // After the fallback look that makes up for a dropped hint, hints are relied on again.
      ...(dropsHints && { aggressivePollDuration: 0, aggressiveExitThreshold: 1 })
    }
  }).pipe(
    Layer.provide(dropsHints ? deaf(url) : Layer.empty)
  )

const lanes = urls.map((url) =>
  ManagedRuntime.make(
    Layer.merge(Client.layer, role === "server" ? Runtime.layer({ orchestrations: [Box] }) : Layer.empty).pipe(
      Layer.provide(BoxLive),
      // No process dies, and a look for what a dead one held would find what a lost wake-up leaves.
      Layer.provide(RuntimeConfig.layer({ orchestrationConcurrency: 4, orchestrationLockTimeout: "1 hour" })),
      Layer.provide(provider(url)),
      Layer.provide(Logger.layer([]))
    )
  )
)

const obey = (order: Order) =>
  lanes[order.lane]!.runPromise(Effect.gen(function*() {
    const client = yield* Client.Client
    switch (order.task) {
      case "start":
        return yield* Effect.as(client.start(Box, { instanceId, payload: 0 }), undefined)
      case "letter":
      case "signal": {
        yield* Effect.promise(() => sleep(order.atMs - now()))
        return yield* Effect.as(
          order.task === "letter" ? client.send(Letters, instanceId) : client.send(Go, instanceId),
          undefined
        )
      }
      case "await":
        return (yield* client.waitForStatus(instanceId, { after: order.version, timeout: order.timeoutMs })).version
    }
  }))

const counted = () => {
  const reasons: Record<string, number> = {}
  let turns = 0
  for (const one of Effect.runSync(Metric.snapshot)) {
    if (
      one.id === "duroxide_wake_reasons_total" && one.type === "Counter" && one.attributes?.["queue"] === "orchestrator"
    ) {
      reasons[one.attributes["reason"]!] = Number(one.state.count)
    }
    if (one.id === "provider.ack_orchestration_item_duration_ms" && one.type === "Histogram") turns += one.state.count
  }
  return { reasons, turns }
}

await Promise.all(lanes.map((lane) => lane.runPromise(Effect.void)))
process.on("message", (order: Order | "looks") => {
  if (order === "looks") return answer({ _tag: "Looks", ...counted() })
  obey(order).then(
    (version) => answer({ _tag: "Done", number: order.number, ...(version !== undefined && { version }) }),
    (error: unknown) => answer({ _tag: "Done", number: order.number, problem: String(error) })
  )
})
process.once("disconnect", () => void Promise.all(lanes.map((lane) => lane.dispose())).then(() => process.exit()))
answer({ _tag: "Ready" })
