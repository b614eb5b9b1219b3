import { shortPollingSuite, suite } from "../utils/prismaSuite.ts"

suite(
  "queueSemantics",
  "poisonMessage",
  "blocks",
  "retries",
  "processes",
  "cancellation",
  "longPolling",
  "sessions",
  "tagFiltering"
)

shortPollingSuite("longPolling")
