import { ProviderTest } from "duroxide-prisma/testing"
import * as MemorySuite from "./utils/memorySuite.ts"

ProviderTest.suite("memory", MemorySuite.layer({ polling: "short" }), { time: "virtual" })

ProviderTest.suite("memory, long polling", MemorySuite.layer(), {
  time: "virtual",
  polling: "long",
  topics: ["longPolling"]
})
