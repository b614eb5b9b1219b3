import { shortPollingSuite, suite } from "../utils/prismaSuite.ts"

suite(
  "queueSemantics",
  "poisonMessage",
  "blocks",
  "explanations",
  "retries",
  "processes",
  "pauses",
  "operatorActions",
  "cancellation",
  "longPolling",
  "sessions",
  "tagFiltering"
)

shortPollingSuite("longPolling")
