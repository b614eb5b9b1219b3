import { Queue } from "duroxide-prisma/queue"
import { SqsQueue } from "duroxide-prisma/queue/sqs"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Random from "effect/Random"
import * as SqsServer from "../queue/utils/sqsServer.ts"
import { limitSuite } from "./utils/limitSuite.ts"
import { queues } from "./utils/tasks.ts"
import { taskSuite } from "./utils/taskSuite.ts"

/** The server wakes all who wait, in their order: of two that keep that order, the first would get every message. */
const fair = (queue: Queue.Queue["Service"]): Queue.Queue["Service"] => ({
  ...queue,
  receive: (name, options) =>
    Effect.flatMap(Random.nextBoolean, (waits) =>
      waits
        ? queue.receive(name, { ...options, wait: "1 second" })
        : Effect.delay(queue.receive(name, { ...options, wait: 0 }), "20 millis"))
})

const server = Layer.effect(Queue.Queue, Effect.map(Queue.Queue, fair)).pipe(
  Layer.provide(
    Layer.unwrap(Effect.map(SqsServer.start, ({ client }) => SqsQueue.layer({ queues, create: true, client })))
  )
)

taskSuite("SqsQueue", server)

limitSuite("SqsQueue", server)
