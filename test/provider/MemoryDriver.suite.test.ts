import { FromDriver } from "duroxide-prisma/provider"
import { ProviderTest } from "duroxide-prisma/testing/provider"
import * as Layer from "effect/Layer"
import { storage } from "../utils/memorySuite.ts"

const layer = (polling: "short" | "long") =>
  FromDriver.layerAdmin.pipe(
    Layer.provideMerge(FromDriver.layer({ polling })),
    Layer.provideMerge(storage)
  )

ProviderTest.suite("memory", layer("short"), { time: "virtual" })

ProviderTest.suite("memory, long polling", layer("long"), {
  time: "virtual",
  polling: "long",
  topics: ["longPolling"]
})
