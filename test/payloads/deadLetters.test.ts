import { assert, it } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Consumer, Message } from "duroxide-prisma/queue"
import { SqsQueue } from "duroxide-prisma/queue/sqs"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as SqsServer from "../queue/utils/sqsServer.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Payloads from "./utils.ts"

const Unserved = Message.make("unserved", { text: Schema.String })
const Text = Message.make("mistaken", { text: Schema.String })
const Number = Message.make("mistaken", { text: Schema.Number })

it.live("a consumer's dead letters in SQS are as encrypted as the messages were", () =>
  Effect.scoped(Effect.gen(function*() {
    const server = yield* SqsServer.start
    const test = yield* PgServer.database
    const deadLetters = () => server.inspect("jobs-dead")?.messages.ready ?? []
    yield* Effect.gen(function*() {
      const outbox = yield* Outbox.Outbox
      yield* outbox.add("jobs", Unserved, { text: "canary" })
      yield* outbox.add("jobs", Text, { text: "canary" })
      yield* waitUntil(Effect.sync(() => deadLetters().length === 2))
    }).pipe(Effect.provide(
      Outbox.layer.pipe(
        Layer.merge(Outbox.publisher()),
        Layer.merge(Consumer.layer({ queue: "jobs", handlers: [Consumer.on(Number, () => Effect.void)] })),
        Layer.provideMerge(SqsQueue.layer({ queues: { jobs: {} }, create: true, client: server.client })),
        Layer.provideMerge(PrismaProvider.layerDatabase({ url: test.url, migrate: "none", maxConnections: 5 })),
        Layer.provide(Payloads.encrypted("k1")),
        Layer.provide(Logger.layer([]))
      )
    ))
    const text = JSON.stringify(deadLetters())
    assert.notInclude(text, "canary")
    assert.include(text, "$sealed")
  })))
