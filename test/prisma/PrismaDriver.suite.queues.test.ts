import { shortPollingSuite, suite } from "../utils/prismaSuite.ts"

suite(
  "queueSemantics",
  "poisonMessage",
  "blocks",
  "explanations",
  "retries",
  "processes",
  "pauses",
  "cancellation",
  "longPolling",
  "sessions",
  "tagFiltering"
)

shortPollingSuite("longPolling")
