import { shortPollingSuite, suite } from "../utils/prismaSuite.ts"

suite("queueSemantics", "poisonMessage", "blocks", "retries", "cancellation", "longPolling", "sessions", "tagFiltering")

shortPollingSuite("longPolling")
