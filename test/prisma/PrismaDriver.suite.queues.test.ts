import { shortPollingSuite, suite } from "../utils/prismaSuite.ts"

suite("queueSemantics", "poisonMessage", "cancellation", "longPolling", "sessions", "tagFiltering")

shortPollingSuite("longPolling")
