import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as SqsQueue from "../../src/queue/SqsQueue.ts"
import * as QueueTest from "../../src/testing/QueueTest.ts"
import * as SqsServer from "./utils/sqsServer.ts"

const layer = Layer.unwrap(
  Effect.map(SqsServer.start, ({ client }) => SqsQueue.layer({ queues: QueueTest.queues, create: true, client }))
)

QueueTest.suite("SqsQueue", { layer, timeout: "1 second", messages: 1000 })
