import * as MemoryQueue from "../../src/queue/MemoryQueue.ts"
import * as QueueTest from "../../src/testing/QueueTest.ts"

QueueTest.suite("MemoryQueue", { layer: MemoryQueue.layer({ queues: QueueTest.queues }), time: "virtual" })
