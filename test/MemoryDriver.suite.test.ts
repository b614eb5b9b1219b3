import { ProviderTest } from "duroxide-prisma/testing"
import * as MemorySuite from "./utils/memorySuite.ts"

ProviderTest.suite("memory", MemorySuite.layer(), { time: "virtual" })
