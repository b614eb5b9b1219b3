import { SendMessageCommand, SQSClient } from "@aws-sdk/client-sqs"
import type { SQSClientConfig } from "@aws-sdk/client-sqs"
import { assert, describe, it } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import type { Payload } from "../../src/queue/Queue.ts"
import type { QueueError } from "../../src/queue/QueueError.ts"
import * as SqsQueue from "../../src/queue/SqsQueue.ts"
import * as Boxes from "../outbox/utils/outbox.ts"
import { counts, isolated } from "../utils/metrics.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as SqsServer from "./utils/sqsServer.ts"

const job = (n: number): Payload => ({ kind: "job", n })

const now = { maxMessages: 10, visibilityTimeout: "1 minute", wait: 0 } as const

/** A server, and a process on its queue `jobs`. */
const open = Effect.fnUntraced(function*(declaration: SqsQueue.Declaration = {}) {
  const server = yield* SqsServer.start
  const queue = yield* SqsQueue.make({ queues: { jobs: declaration }, create: true, client: server.client })
  return { ...server, queue }
})

const reasonOf = <A, R>(effect: Effect.Effect<A, QueueError, R>) => Effect.map(Effect.flip(effect), (e) => e.reason)

/** Answers every request as `answer` says, without the retries of the SDK. */
const answering = (answer: SqsServer.Answer) =>
  Effect.map(SqsServer.fake(answer), ({ client, requests }) => ({
    requests,
    layer: SqsQueue.make({
      queues: { jobs: { url: `${client.endpoint}/0/jobs`, deadLetterUrl: `${client.endpoint}/0/jobs-dead` } },
      client: { ...client, maxAttempts: 1 }
    })
  }))

describe("SqsQueue, opening:", () => {
  it.live("create makes queues and redrive policy; a second time it changes only what is declared otherwise", () =>
    Effect.gen(function*() {
      const { client, inspect, queue } = yield* open()
      yield* queue.publish("jobs", job(1))
      const policy = () => JSON.parse(inspect("jobs")!.attributes.RedrivePolicy!) as Record<string, unknown>
      assert.include(policy(), { maxReceiveCount: 20 })
      assert.match(String(policy().deadLetterTargetArn), /:jobs-dead$/)

      const again = yield* SqsQueue.make({ queues: { jobs: { maxAttempts: 5 } }, create: true, client })
      assert.include(policy(), { maxReceiveCount: 5 })
      assert.deepStrictEqual((yield* again.receive("jobs", now)).map(({ payload }) => payload), [job(1)])
    }).pipe(Effect.scoped))

  it.live("without create, a process finds the queue and its dead letters", () =>
    Effect.gen(function*() {
      const { client, queue } = yield* open()
      yield* queue.publish("jobs", job(1))
      const other = yield* SqsQueue.make({ queues: { jobs: {} }, client })
      const [received] = yield* other.receive("jobs", now)
      yield* other.deadLetter("jobs", received!, "of no use")
      assert.strictEqual((yield* queue.depth("jobs")).dead, 1)
    }).pipe(Effect.scoped))

  it.live("a queue that does not exist: QueueNotFound; one without a redrive policy: InvalidInput", () =>
    Effect.gen(function*() {
      const { client, create } = yield* SqsServer.start
      const opening = Effect.scoped(SqsQueue.make({ queues: { jobs: {} }, client }))
      assert.deepInclude(yield* reasonOf(opening), { _tag: "QueueNotFound", queue: "jobs" })
      create("jobs")
      assert.deepInclude(yield* reasonOf(opening), { _tag: "InvalidInput", field: "queues" })
    }).pipe(Effect.scoped))

  it.live("settings that are out of their range: InvalidInput, before any request", () =>
    Effect.gen(function*() {
      const refused = (queues: SqsQueue.Options["queues"]) =>
        reasonOf(Effect.scoped(SqsQueue.make({ queues, create: true, client: { endpoint: "http://127.0.0.1:1" } })))
      for (const maxAttempts of [0, 1.5, NaN, 1001]) {
        assert.deepInclude(yield* refused({ jobs: { maxAttempts } }), { _tag: "InvalidInput", field: "maxAttempts" })
      }
      for (const name of ["", "a b", "jobs.fifo", "x".repeat(76)]) {
        assert.deepInclude(yield* refused({ [name]: {} }), { _tag: "InvalidInput", field: "queues" })
      }
      const [plain, fifo] = [
        "https://sqs.eu-west-1.amazonaws.com/1/jobs",
        "https://sqs.eu-west-1.amazonaws.com/1/jobs.fifo"
      ]
      for (const jobs of [{ url: fifo, deadLetterUrl: plain }, { url: plain, deadLetterUrl: fifo }, { url: fifo }]) {
        assert.deepInclude(yield* refused({ jobs }), {
          _tag: "InvalidInput",
          problem: "its URL is that of a FIFO queue; use a standard one"
        })
      }
    }))
})

describe("SqsQueue, what SQS does not take:", () => {
  it.live("a delay of 900 seconds is the longest", () =>
    Effect.gen(function*() {
      const { queue } = yield* open()
      yield* queue.publish("jobs", job(1), { delay: "900 seconds" })
      const reason = yield* reasonOf(queue.publish("jobs", job(1), { delay: "901 seconds" }))
      assert.deepInclude(reason, { _tag: "DelayTooLong", maxMs: 900_000 })
      assert.strictEqual((yield* queue.depth("jobs")).delayed, 1)
    }).pipe(Effect.scoped))

  it.live("times are rounded up to whole seconds", () =>
    Effect.gen(function*() {
      const { queue } = yield* open()
      yield* queue.publish("jobs", job(1), { delay: "1 millis" })
      assert.strictEqual((yield* queue.depth("jobs")).delayed, 1)
      yield* queue.publish("jobs", job(2))
      const [received] = yield* queue.receive("jobs", { ...now, visibilityTimeout: "1 millis" })
      yield* queue.ack("jobs", received!.receipt)
    }).pipe(Effect.scoped))

  it.live("characters that SQS does not take arrive, also in a payload of the largest size", () =>
    Effect.gen(function*() {
      const { queue } = yield* open()
      const text = "\ufffe\uffff\u0001🎉"
      const fill = "🎉".repeat(Math.floor((queue.maxPayloadBytes - 100) / 4))
      yield* Effect.forEach([text, fill, "x", fill], (text) => queue.publish("jobs", { kind: "text", text }), {
        concurrency: "unbounded"
      })
      const received = yield* queue.receive("jobs", now)
      assert.deepStrictEqual(new Set(received.map(({ payload }) => payload.text)), new Set([text, fill, "x"]))
      yield* queue.deadLetter("jobs", received[0]!, text)
      yield* queue.redrive("jobs", { limit: 1 })
      assert.deepStrictEqual((yield* queue.receive("jobs", now))[0]!.payload, received[0]!.payload)
    }).pipe(Effect.scoped))

  it.live("a message of another client that could not be published goes to the dead letters, with the reason", () =>
    isolated(Effect.gen(function*() {
      const { client, inspect, queue } = yield* open()
      const foreign = yield* Effect.acquireRelease(
        Effect.sync(() => new SQSClient(client)),
        (client) => Effect.sync(() => client.destroy())
      )
      const bodies = [
        "no JSON",
        "[]",
        "{\"kind\":1}",
        "{\"kind\":\"half\",\"text\":\"\\ud800\"}",
        "x".repeat(1_048_576)
      ]
      const QueueUrl = inspect("jobs")!.url
      for (const MessageBody of bodies) {
        yield* Effect.promise(() => foreign.send(new SendMessageCommand({ QueueUrl, MessageBody })))
      }
      yield* queue.publish("jobs", job(1))
      assert.deepStrictEqual((yield* queue.receive("jobs", now)).map(({ payload }) => payload), [job(1)])
      const dead = inspect("jobs-dead")!.messages.ready
      assert.sameMembers(dead.map(({ body }) => body), bodies)
      const reasons = Object.fromEntries(dead.map(({ body, messageAttributes }) => [
        body.slice(0, 10),
        messageAttributes.reason?.StringValue
      ]))
      assert.strictEqual(reasons["no JSON"], "the body is not JSON")
      assert.include(reasons["[]"], "it is not an object")
      assert.include(reasons["{\"kind\":1}"], "it has no kind")
      assert.strictEqual((yield* queue.depth("jobs")).inFlight, 1)
      assert.deepStrictEqual(yield* counts(Metrics.queueMessagesDead), { jobs: 5 })
    })).pipe(Effect.scoped))
})

describe("SqsQueue, failures:", () => {
  it.live("expired credentials: AccessDenied with the code alone, and no secret in the error", () =>
    Effect.gen(function*() {
      const { layer } = yield* answering(() =>
        SqsServer.failure(403, "ExpiredToken", `The token ${SqsServer.secret} of account 123456789012 has expired`)
      )
      const queue = yield* layer
      const calls = {
        publish: queue.publish("jobs", { kind: "job", text: SqsServer.secret }),
        receive: queue.receive("jobs", now),
        redrive: queue.redrive("jobs", { limit: 1 }),
        depth: queue.depth("jobs")
      }
      for (const [operation, call] of Object.entries<Effect.Effect<unknown, QueueError>>(calls)) {
        const error = yield* Effect.flip(call)
        assert.deepInclude(error.reason, { _tag: "AccessDenied", problem: "ExpiredToken" }, operation)
        const shown = `${error.message} ${error.stack} ${JSON.stringify(error)} ${String(error.cause)}`
        assert.notInclude(shown, SqsServer.secret)
        assert.notInclude(shown, "123456789012")
      }
    }).pipe(Effect.scoped))

  it.live("answers of SQS have one reason each", () =>
    Effect.gen(function*() {
      const expected = [
        [400, "com.amazonaws.sqs#QueueDoesNotExist", "QueueNotFound"],
        [400, "AccessDeniedException", "AccessDenied"],
        [403, "InvalidClientTokenId", "AccessDenied"],
        [403, "SignatureDoesNotMatch", "AccessDenied"],
        [400, "RequestThrottled", "Unavailable"],
        [500, "InternalError", "Unavailable"],
        [503, "ServiceUnavailable", "Unavailable"],
        [400, "SomethingNew", "Unexpected"]
      ] as const
      for (const [status, code, tag] of expected) {
        const { layer } = yield* answering(() => SqsServer.failure(status, code, "a message"))
        const queue = yield* layer
        assert.strictEqual((yield* reasonOf(queue.publish("jobs", job(1))))._tag, tag, code)
      }
    }).pipe(Effect.scoped))

  it.live("no server, no credentials, no region: one clear reason each", () =>
    Effect.gen(function*() {
      const opening = (client: SQSClientConfig) =>
        reasonOf(Effect.scoped(SqsQueue.make({ queues: { jobs: {} }, client: { maxAttempts: 1, ...client } })))
      const config = SqsServer.configFor(1)
      assert.strictEqual((yield* opening(config))._tag, "Unavailable")
      const credentials = () =>
        Promise.reject(Object.assign(new Error(SqsServer.secret), { name: "CredentialsProviderError" }))
      assert.deepInclude(yield* opening({ ...config, credentials }), { _tag: "AccessDenied" })
      const region = () => Promise.reject(new Error("Region is missing"))
      assert.deepInclude(yield* opening({ ...config, region }), { _tag: "InvalidInput", field: "client" })
    }))

  it.live("of a batch, only the messages that SQS refuses fail", () =>
    Effect.gen(function*() {
      const { layer, requests } = yield* answering(({ Entries = [] }) => ({
        status: 200,
        body: {
          Successful: [],
          Failed: Entries.flatMap(({ Id, MessageBody = "" }) =>
            /"n":3\b/.test(MessageBody)
              ? [{ Id, Code: "InternalError", SenderFault: false, Message: MessageBody }]
              : /"n":5\b/.test(MessageBody)
              ? [{ Id, Code: "SomethingNew", SenderFault: true, Message: MessageBody }]
              : []
          )
        }
      }))
      const queue = yield* layer
      const results = yield* Effect.forEach(
        Array.from({ length: 50 }, (_, n) => n),
        (n) => Effect.result(queue.publish("jobs", job(n))),
        { concurrency: "unbounded" }
      )
      const failed = results.flatMap((result, n) => result._tag === "Failure" ? [[n, result.failure.reason._tag]] : [])
      assert.deepStrictEqual(failed, [[3, "Unavailable"], [5, "Unexpected"]])
      assert.isBelow(requests.length, 15)
      for (const { Entries = [] } of requests) assert.isAtMost(Entries.length, 10)
    }).pipe(Effect.scoped))

  it.live("a message because of which SQS refuses the whole batch fails alone", () =>
    Effect.gen(function*() {
      const { layer } = yield* answering(({ Entries = [] }) =>
        Entries.some(({ MessageBody = "" }) => /"n":3\b/.test(MessageBody))
          ? SqsServer.failure(400, "BatchRequestTooLong", "too long")
          : { status: 200, body: { Successful: [], Failed: [] } }
      )
      const queue = yield* layer
      const results = yield* Effect.forEach(
        Array.from({ length: 20 }, (_, n) => n),
        (n) => Effect.result(queue.publish("jobs", job(n))),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(results.flatMap(({ _tag }, n) => _tag === "Failure" ? [n] : []), [3])
    }).pipe(Effect.scoped))

  it.live("a receive that is interrupted ends its request", () =>
    Effect.gen(function*() {
      const { closed, layer, received } = yield* Effect.map(
        SqsServer.fake(() => undefined),
        ({ client, ...server }) => ({
          ...server,
          received: Effect.sync(() => server.requests.length === 1),
          layer: SqsQueue.make({
            queues: { jobs: { url: `${client.endpoint}/0/jobs`, deadLetterUrl: `${client.endpoint}/0/dead` } },
            client
          })
        })
      )
      const queue = yield* layer
      const fiber = yield* Effect.forkChild(queue.receive("jobs", { ...now, wait: "20 seconds" }))
      yield* waitUntil(received)
      assert.strictEqual(closed(), 0)
      yield* Fiber.interrupt(fiber)
      yield* waitUntil(Effect.sync(() => closed() === 1))
    }).pipe(Effect.scoped))
})

describe("SqsQueue and the outbox:", () => {
  it.live("a message with a longer delay than SQS has stays in PostgreSQL; others leave", () =>
    Effect.gen(function*() {
      const { rows, url } = yield* Boxes.open
      const { client, queue } = yield* open()
      const database = yield* Layer.build(Boxes.process(url))
      const outbox = Context.get(database, Outbox.Outbox)
      yield* outbox.add("jobs", job(1), { delay: "1 hour" })
      yield* outbox.add("jobs", job(2))
      yield* Layer.build(
        Outbox.publisher().pipe(
          Layer.provide(SqsQueue.layer({ queues: { jobs: {} }, client }))
        )
      ).pipe(Effect.provide(database))
      yield* waitUntil(Effect.map(queue.depth("jobs"), ({ visible }) => visible === 1))
      yield* waitUntil(Effect.map(rows, (all) => all.some(({ is_sent }) => is_sent)))
      assert.deepStrictEqual((yield* queue.receive("jobs", now)).map(({ payload }) => payload), [job(2)])
      const [first] = yield* rows
      assert.deepInclude(first, { is_sent: false, payload: { kind: "job", n: 1 }, last_error: null })
      assert.isAbove(first!.due_in_ms, 30 * 60_000)
    }).pipe(Effect.scoped))
})
