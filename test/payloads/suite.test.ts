/**
 * The validation suite on a store with sealed payloads: the contract of the provider holds above the codec. Left out
 * are topics that look at what is stored, as `Admin` does, or that pass on events which are only equal to those read.
 */
import { FromDriver } from "duroxide-prisma/provider"
import { ProviderTest } from "duroxide-prisma/testing/provider"
import * as Layer from "effect/Layer"
import * as memory from "../utils/memorySuite.ts"
import { encrypted } from "./utils.ts"

ProviderTest.suite(
  "memory, encrypted",
  FromDriver.layerAdmin.pipe(
    Layer.provideMerge(FromDriver.layer({ longPolling: { enabled: false } })),
    Layer.provideMerge(memory.storage),
    Layer.provide(encrypted("k1"))
  ),
  {
    time: "virtual",
    optimisticTurns: true,
    topics: [
      "atomicity",
      "blocks",
      "bulkDeletion",
      "cancellation",
      "customStatus",
      "deletion",
      "errorHandling",
      "firstTurns",
      "instanceCreation",
      "instanceLocking",
      "lockExpiration",
      "pauses",
      "poisonMessage",
      "processes",
      "prune",
      "queueSemantics",
      "retries",
      "serving",
      "sessions",
      "tagFiltering"
    ]
  }
)
