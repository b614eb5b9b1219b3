import { shortPollingSuite, suite } from "../utils/prismaSuite.ts"

suite("queueSemantics", "poisonMessage", "blocks", "cancellation", "longPolling", "sessions", "tagFiltering")

shortPollingSuite("longPolling")
