import { FromDriver, Notifier } from "duroxide-prisma/provider"
import { ProviderTest } from "duroxide-prisma/testing/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { storage } from "../utils/memorySuite.ts"
import { layerWithoutOptimisticTurns } from "../utils/withoutOptimisticTurns.ts"

const layer = (polling: "short" | "long") =>
  FromDriver.layerAdmin.pipe(
    Layer.provideMerge(FromDriver.layer({ longPolling: { enabled: polling === "long" } })),
    Layer.provideMerge(storage)
  )

ProviderTest.suite("memory", layer("short"), { time: "virtual", optimisticTurns: true })

ProviderTest.suite("memory, long polling", layer("long"), {
  time: "virtual",
  polling: "long",
  topics: ["longPolling"]
})

ProviderTest.suite(
  "memory, with a notifier",
  layer("long").pipe(
    Layer.provide(Layer.unwrap(Effect.sync(() => Notifier.layer(Notifier.makeInProcess().connect("suite")))))
  ),
  { time: "virtual", polling: "long", optimisticTurns: true }
)

ProviderTest.suite(
  "memory, without optimistic turns",
  FromDriver.layerAdmin.pipe(
    Layer.provideMerge(FromDriver.layer({ longPolling: { enabled: false } })),
    Layer.provide(layerWithoutOptimisticTurns),
    Layer.provideMerge(storage)
  ),
  { time: "virtual", topics: ["optimisticTurns", "firstTurns", "handover"] }
)
