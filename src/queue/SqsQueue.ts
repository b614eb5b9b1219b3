/**
 * Standard queues in Amazon SQS, or in a server that speaks its protocol.
 *
 * SQS counts in seconds: visibility timeouts, delays and waits are rounded up. It delivers at least once and in no
 * order, as all queues here do. It may deliver a message again after it has accepted the ack, so a worker relies only
 * on its lease in PostgreSQL.
 *
 * Needs the package `@aws-sdk/client-sqs`.
 *
 * @since 0.2.0
 */
import {
  CreateQueueCommand,
  GetQueueAttributesCommand,
  GetQueueUrlCommand,
  ReceiveMessageCommand,
  SetQueueAttributesCommand
} from "@aws-sdk/client-sqs"
import type { Message, SQSClient, SQSClientConfig } from "@aws-sdk/client-sqs"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Predicate from "effect/Predicate"
import type * as Scope from "effect/Scope"
import * as sqsReceipts from "./internal/sqsReceipts.ts"
import {
  acquireClient,
  calling,
  deliveriesOf,
  makeServer,
  maxDelayMs,
  mostOfBatch,
  read,
  seconds,
  transportable
} from "./internal/sqsRequests.ts"
import type { Call, Places, Server } from "./internal/sqsRequests.ts"
import { Queue } from "./Queue.ts"
import type { Received } from "./Queue.ts"
import { InvalidInput, QueueError, QueueNotFound } from "./QueueError.ts"
import * as check from "./shared/check.ts"
import { counted, died } from "./shared/counted.ts"
import { maxPayloadBytes } from "./shared/declarations.ts"
import * as queueGauges from "./shared/gauges.ts"

/**
 * Settings of a queue. All have defaults.
 *
 * @category options
 * @since 0.2.0
 */
export interface Declaration {
  /** Defaults to the queue of this name in the account and region of the credentials. */
  readonly url?: string | undefined
  /** Defaults to the queue that the redrive policy names. A queue needs one. */
  readonly deadLetterUrl?: string | undefined
  /**
   * With `create`: after this many deliveries without an ack a message goes to the dead letters, 1 to 1,000. Defaults
   * to 20. Otherwise the redrive policy of the queue decides.
   */
  readonly maxAttempts?: number | undefined
}

/**
 * Options of the layer. `queues` is required.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /** The queues by the name that the application uses: 1 to 75 letters, digits, hyphens and underscores. */
  readonly queues: Readonly<Record<string, Declaration>>
  /**
   * For development and tests: creates each queue that does not exist, its dead letter queue `<name>-dead`, and their
   * redrive policy. Defaults to false.
   */
  readonly create?: boolean | undefined
  /**
   * Configuration of the SDK's client, or a client, which the application closes. Without one, region and credentials
   * come from where the SDK finds them: environment, files, container or instance role.
   */
  readonly client?: SQSClientConfig | SQSClient | undefined
}

/**
 * The queues of SQS. Opening looks up each one whose URLs are not given; fails with `QueueNotFound`, `AccessDenied` or
 * `Unavailable` if that fails, and with `InvalidInput` if an option is out of its range, no region is set, or a queue
 * has no dead letter queue.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = (options: Options): Layer.Layer<Queue, QueueError> =>
  Layer.effect(Queue, Effect.tap(make(options), ({ depth, queues }) => queueGauges.make(queues, depth)))

/**
 * Opens the queue for the current scope.
 *
 * @category constructors
 * @since 0.2.0
 */
export const make = Effect.fnUntraced(function*(
  options: Options
): Effect.fn.Return<Queue["Service"], QueueError, Scope.Scope> {
  yield* checkOptions(options)
  const client = yield* acquireClient(options.client)
  const call = calling(client)
  const receipts = sqsReceipts.make()
  const open = options.create === true ? create : find
  const servers = Object.fromEntries(
    yield* Effect.forEach(Object.entries(options.queues), ([queue, declaration]) =>
      Effect.gen(function*() {
        return [queue, yield* makeServer(call, queue, yield* open(call, queue, declaration))] as const
      }), { concurrency: 10 })
  )

  const declared = (operation: string, queue: string) => check.declared(operation, servers, queue)

  /** Settles a delivery, unless its time is over. */
  const settle = Effect.fnUntraced(function*(
    operation: string,
    queue: string,
    receipt: string,
    untilMs: number,
    send: (server: Server, handle: string) => Effect.Effect<void, QueueError>
  ) {
    const server = yield* declared(operation, queue)
    const handle = yield* receipts.live(operation, queue, receipt)
    yield* send(server, handle)
    receipts.changed(receipt, untilMs, yield* Clock.currentTimeMillis)
  })

  /**
   * A message that no receiver can read must not come again and again. If the move fails, the message comes once more,
   * and in the end the redrive policy moves it.
   */
  const buryForeign = (queue: string, server: Server, { Body = "", ReceiptHandle }: Message, problem: string) =>
    server.sendDead({ body: Body, reason: problem }).pipe(
      Effect.andThen(server.remove(ReceiptHandle!)),
      Effect.andThen(died(queue, 1)),
      Effect.ignore
    )

  return counted(Queue.of({
    name: "sqs",
    queues: Object.keys(servers),
    maxDelayMs,
    maxPayloadBytes,

    publish: Effect.fnUntraced(function*(queue, payload, options) {
      const server = yield* declared("publish", queue)
      const body = yield* check.payload("publish", queue, payload, maxPayloadBytes)
      const delayMs = yield* check.delay("publish", queue, options?.delay, maxDelayMs)
      yield* server.send({ body: transportable(body), delaySeconds: seconds(delayMs) })
    }),

    receive: Effect.fnUntraced(function*(queue, options) {
      const server = yield* declared("receive", queue)
      const { maxMessages, visibilityMs, waitMs } = yield* check.receiving(queue, options)
      const visibilitySeconds = seconds(visibilityMs)
      const { Messages } = yield* call(
        "receive",
        queue,
        new ReceiveMessageCommand({
          QueueUrl: server.url,
          MaxNumberOfMessages: Math.min(maxMessages, mostOfBatch),
          VisibilityTimeout: visibilitySeconds,
          WaitTimeSeconds: seconds(waitMs),
          MessageSystemAttributeNames: ["ApproximateReceiveCount"]
        })
      )
      const untilMs = (yield* Clock.currentTimeMillis) + visibilitySeconds * 1000
      const received: Array<Received> = []
      for (const message of Messages ?? []) {
        const { payload, problem } = read(message.Body)
        if (payload === undefined) yield* buryForeign(queue, server, message, problem)
        else {
          received.push({
            payload,
            receipt: receipts.make(queue, message.ReceiptHandle!, untilMs),
            deliveryCount: deliveriesOf(message)
          })
        }
      }
      return received
    }),

    ack: (queue, receipt) => settle("ack", queue, receipt, 0, (server, handle) => server.remove(handle)),

    extendVisibility: Effect.fnUntraced(function*(queue, receipt, timeout) {
      const timeoutSeconds = seconds(yield* check.timeout("extendVisibility", queue, "timeout", timeout))
      const untilMs = timeoutSeconds === 0 ? 0 : (yield* Clock.currentTimeMillis) + timeoutSeconds * 1000
      yield* settle(
        "extendVisibility",
        queue,
        receipt,
        untilMs,
        (server, handle) => server.hide({ handle, timeoutSeconds })
      )
    }),

    deadLetter: (queue, { payload, receipt }, reason) =>
      settle("deadLetter", queue, receipt, 0, (server, handle) =>
        Effect.gen(function*() {
          const body = yield* check.payload("deadLetter", queue, payload, maxPayloadBytes)
          yield* server.sendDead({ body: transportable(body), reason })
          yield* server.remove(handle)
        })),

    redrive: Effect.fnUntraced(function*(queue, { limit }) {
      const server = yield* declared("redrive", queue)
      const most = yield* check.count("redrive", queue, "limit", limit)
      let moved = 0
      // `StartMessageMoveTask` moves all of them, in the background, and does not say how many.
      while (moved < most) {
        const { Messages = [] } = yield* call(
          "redrive",
          queue,
          new ReceiveMessageCommand({
            QueueUrl: server.deadLetterUrl,
            MaxNumberOfMessages: Math.min(most - moved, mostOfBatch),
            VisibilityTimeout: 60,
            WaitTimeSeconds: 1 // without a wait, SQS asks only some of its servers
          })
        )
        if (Messages.length === 0) break
        yield* Effect.forEach(Messages, ({ Body, ReceiptHandle }) =>
          Effect.andThen(
            server.send({ body: Body!, delaySeconds: 0 }),
            server.removeDead(ReceiptHandle!)
          ), { concurrency: "unbounded", discard: true })
        moved += Messages.length
      }
      return moved
    }),

    depth: Effect.fnUntraced(function*(queue) {
      const server = yield* declared("depth", queue)
      const [own, dead] = yield* Effect.all([
        call("depth", queue, new GetQueueAttributesCommand({ QueueUrl: server.url, AttributeNames: ["All"] })),
        call("depth", queue, new GetQueueAttributesCommand({ QueueUrl: server.deadLetterUrl, AttributeNames: ["All"] }))
      ], { concurrency: 2 })
      const count = (name: "" | "Delayed" | "NotVisible", { Attributes } = own) =>
        Number(Attributes?.[`ApproximateNumberOfMessages${name}`] ?? 0)
      return {
        visible: count(""),
        delayed: count("Delayed"),
        inFlight: count("NotVisible"),
        dead: count("", dead),
        oldestVisibleMs: null
      }
    })
  }))
})

// -----------------------------------------------------------------------------
// internal: opening
// -----------------------------------------------------------------------------

const checkOptions = Effect.fnUntraced(function*({ queues }: Options): Effect.fn.Return<void, QueueError> {
  for (const [name, { deadLetterUrl, maxAttempts = 20, url }] of Object.entries(queues)) {
    const invalid = (field: string, problem: string) => check.fail("open", name, new InvalidInput({ field, problem }))
    const problem = check.queueName(name)
    if (problem !== undefined) return yield* invalid("queues", problem)
    if ([url, deadLetterUrl].some((one) => one?.endsWith(".fifo") === true)) {
      return yield* invalid("queues", "its URL is that of a FIFO queue; use a standard one")
    }
    if (!Number.isInteger(maxAttempts) || maxAttempts < 1 || maxAttempts > 1000) {
      return yield* invalid("maxAttempts", "it must be a whole number from 1 to 1000")
    }
  }
})

const find = Effect.fnUntraced(function*(
  call: Call,
  queue: string,
  declaration: Declaration
): Effect.fn.Return<Places, QueueError> {
  const url = declaration.url ?? (yield* urlOf(call, queue, queue))
  if (declaration.deadLetterUrl !== undefined) return { url, deadLetterUrl: declaration.deadLetterUrl }
  const { Attributes } = yield* call(
    "open",
    queue,
    new GetQueueAttributesCommand({ QueueUrl: url, AttributeNames: ["RedrivePolicy"] })
  )
  const arn = deadLetterArn(Attributes?.RedrivePolicy)
  if (arn === undefined) {
    return yield* check.fail(
      "open",
      queue,
      new InvalidInput({
        field: "queues",
        problem: "the queue has no redrive policy; give it one, or set deadLetterUrl"
      })
    )
  }
  const [, , , , owner, name] = arn.split(":")
  return { url, deadLetterUrl: yield* urlOf(call, queue, name!, owner) }
})

const create = Effect.fnUntraced(function*(
  call: Call,
  queue: string,
  declaration: Declaration
): Effect.fn.Return<Places, QueueError> {
  const deadLetterUrl = declaration.deadLetterUrl ?? (yield* findOrCreate(call, queue, `${queue}-dead`))
  const url = declaration.url ?? (yield* findOrCreate(call, queue, queue))
  const { Attributes } = yield* call(
    "open",
    queue,
    new GetQueueAttributesCommand({ QueueUrl: deadLetterUrl, AttributeNames: ["QueueArn"] })
  )
  yield* call(
    "open",
    queue,
    new SetQueueAttributesCommand({
      QueueUrl: url,
      Attributes: {
        RedrivePolicy: JSON.stringify({
          deadLetterTargetArn: Attributes?.QueueArn,
          maxReceiveCount: declaration.maxAttempts ?? 20
        })
      }
    })
  )
  return { url, deadLetterUrl }
})

/** `CreateQueue` alone fails for a queue with other attributes. */
const findOrCreate = (call: Call, queue: string, name: string) =>
  Effect.catchIf(
    urlOf(call, queue, name),
    ({ reason }) => reason._tag === "QueueNotFound",
    () => Effect.map(call("open", queue, new CreateQueueCommand({ QueueName: name })), ({ QueueUrl }) => QueueUrl!)
  )

const urlOf = (call: Call, queue: string, name: string, owner?: string) =>
  call(
    "open",
    queue,
    new GetQueueUrlCommand({
      QueueName: name,
      ...(owner !== undefined && owner !== "" && { QueueOwnerAWSAccountId: owner })
    })
  ).pipe(
    Effect.mapError((error) =>
      error.reason._tag === "QueueNotFound"
        ? new QueueError({ operation: "open", queue, reason: new QueueNotFound({ queue: name }) })
        : error
    ),
    Effect.map(({ QueueUrl }) => QueueUrl!)
  )

const deadLetterArn = (policy: string | undefined): string | undefined => {
  const parsed: unknown = JSON.parse(policy ?? "null")
  return Predicate.isObject(parsed) && typeof parsed.deadLetterTargetArn === "string"
    ? parsed.deadLetterTargetArn
    : undefined
}
