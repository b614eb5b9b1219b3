/**
 * Requests to SQS: what its limits are, what a message is there, and batches in which calls share requests.
 */
import {
  ChangeMessageVisibilityBatchCommand,
  DeleteMessageBatchCommand,
  SendMessageBatchCommand,
  SQSClient
} from "@aws-sdk/client-sqs"
import type {
  BatchResultErrorEntry,
  Message,
  SendMessageBatchRequestEntry,
  ServiceInputTypes,
  ServiceOutputTypes,
  SQSClientConfig
} from "@aws-sdk/client-sqs"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type * as Scope from "effect/Scope"
import * as coalescer from "../../provider/shared/coalescer.ts"
import type { Payload } from "../Queue.ts"
import { Closed, QueueError } from "../QueueError.ts"
import * as check from "../shared/check.ts"
import { maxPayloadBytes } from "../shared/declarations.ts"
import * as faults from "./sqsFaults.ts"

/** 15 minutes. */
export const maxDelayMs = 900_000

export const mostOfBatch = 10

/** Limit in bytes of a request, and of a message with its attributes. */
const maxRequestBytes = 1_048_576

/** The last item of a batch fits, even if all of its characters are escaped. */
const maxBatchBytes = maxRequestBytes - 3 * maxPayloadBytes - 65_536

const maxSockets = 1000

export const seconds = (ms: number) => Math.ceil(ms / 1000)

export type Call = ReturnType<typeof calling>

export const calling = (client: SQSClient) =>
<Input extends ServiceInputTypes, Output extends ServiceOutputTypes>(
  operation: string,
  queue: string,
  command: Parameters<typeof client.send<Input, Output>>[0]
): Effect.Effect<Output, QueueError> =>
  Effect.tryPromise({
    try: (signal) => client.send<Input, Output>(command, { abortSignal: signal }),
    catch: (thrown) => new QueueError({ operation, queue, reason: faults.ofThrown(queue, thrown) })
  })

export const acquireClient = (
  given: SQSClientConfig | SQSClient | undefined
): Effect.Effect<SQSClient, never, Scope.Scope> =>
  given instanceof SQSClient ? Effect.succeed(given) : Effect.acquireRelease(
    Effect.sync(() =>
      new SQSClient({
        // Without these, a connection that has died is waited for without an end. A receive waits 20 seconds itself.
        // Each receive that waits holds a connection; with the 50 of the SDK, many would hold up every ack.
        requestHandler: {
          connectionTimeout: 5000,
          requestTimeout: 40_000,
          throwOnRequestTimeout: true,
          httpAgent: { keepAlive: true, maxSockets },
          httpsAgent: { keepAlive: true, maxSockets }
        },
        ...given
      })
    ),
    (client) => Effect.sync(() => client.destroy())
  )

export interface Places {
  readonly url: string
  readonly deadLetterUrl: string
}

/** A queue with its dead letters. Calls at the same time share requests of ten items. */
export interface Server extends Places {
  readonly send: (message: Outgoing) => Effect.Effect<void, QueueError>
  readonly sendDead: (message: Outgoing) => Effect.Effect<void, QueueError>
  readonly remove: (handle: string) => Effect.Effect<void, QueueError>
  readonly removeDead: (handle: string) => Effect.Effect<void, QueueError>
  readonly hide: (item: Hiding) => Effect.Effect<void, QueueError>
}

interface Outgoing {
  readonly body: string
  readonly delaySeconds?: number
  readonly reason?: string
}

interface Hiding {
  readonly handle: string
  readonly timeoutSeconds: number
}

interface BatchAnswer {
  readonly Failed?: ReadonlyArray<BatchResultErrorEntry> | undefined
}

export const makeServer = Effect.fnUntraced(function*(call: Call, queue: string, { deadLetterUrl, url }: Places) {
  /** Each item succeeds or fails for itself. */
  const shared = <Item>(
    operation: string,
    sizeOf: (item: Item) => number,
    send: (items: ReadonlyArray<Item>) => Effect.Effect<BatchAnswer, QueueError>
  ): Effect.Effect<(item: Item) => Effect.Effect<void, QueueError>, never, Scope.Scope> =>
    Effect.map(
      coalescer.make<Item, Result.Result<void, QueueError>, QueueError>({
        lanes: 4,
        maxBatch: mostOfBatch,
        maxBytes: maxBatchBytes,
        sizeOf,
        send: (items) =>
          Effect.map(send(items), ({ Failed = [] }) => {
            const failures = new Map(Failed.map((entry) => [Number(entry.Id), entry]))
            return items.map((_, i) => {
              const entry = failures.get(i)
              if (entry === undefined) return Result.succeed(undefined)
              const reason = faults.ofEntry(queue, entry.Code, entry.SenderFault, operation !== "publish")
              return Result.fail(new QueueError({ operation, queue, reason }))
            })
          }),
        // Such a request was refused as a whole, so that none of its items was stored.
        splitOn: ({ reason: { _tag } }) => _tag === "Unexpected" || _tag === "PayloadInvalid",
        isHeld: () => false,
        patience: Duration.zero,
        closed: new QueueError({ operation, queue, reason: new Closed({}) })
      }),
      (one) => (item: Item) => Effect.flatMap(one(item), Effect.fromResult)
    )

  const sending = (operation: string, place: string) =>
    shared<Outgoing>(
      operation,
      ({ body }) => Buffer.byteLength(body),
      (items) => call(operation, queue, new SendMessageBatchCommand({ QueueUrl: place, Entries: items.map(entryOf) }))
    )
  const removing = (operation: string, place: string) =>
    shared<string>(
      operation,
      () => 0,
      (handles) =>
        call(
          operation,
          queue,
          new DeleteMessageBatchCommand({
            QueueUrl: place,
            Entries: handles.map((handle, i) => ({ Id: String(i), ReceiptHandle: handle }))
          })
        )
    )
  const server: Server = {
    url,
    deadLetterUrl,
    send: yield* sending("publish", url),
    sendDead: yield* sending("deadLetter", deadLetterUrl),
    remove: yield* removing("ack", url),
    removeDead: yield* removing("redrive", deadLetterUrl),
    hide: yield* shared<Hiding>(
      "extendVisibility",
      () => 0,
      (items) =>
        call(
          "extendVisibility",
          queue,
          new ChangeMessageVisibilityBatchCommand({
            QueueUrl: url,
            Entries: items.map(({ handle, timeoutSeconds }, i) => ({
              Id: String(i),
              ReceiptHandle: handle,
              VisibilityTimeout: timeoutSeconds
            }))
          })
        )
    )
  }
  return server
})

const entryOf = ({ body, delaySeconds = 0, reason }: Outgoing, i: number): SendMessageBatchRequestEntry => ({
  Id: String(i),
  MessageBody: body,
  ...(delaySeconds > 0 && { DelaySeconds: delaySeconds }),
  ...(reason !== undefined && reason !== "" && Buffer.byteLength(body) < maxRequestBytes - 4096 && {
    MessageAttributes: {
      reason: { DataType: "String", StringValue: check.reason(reason).replace(untransportable, "\ufffd") }
    }
  })
})

/** SQS takes the characters that XML has, and some servers that stand in for it none beyond U+FFFF. */
const untransportable = /[^\t\n\r\x20-\ud7ff\ue000-\ufffd]/g

export const transportable = (json: string) =>
  json.replace(untransportable, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`)

type Read = { readonly payload: Payload; readonly problem?: never } | {
  readonly payload?: never
  readonly problem: string
}

/** Others may write to the queue too. What could not be published here is not delivered. */
export const read = (body: string | undefined): Read => {
  let payload: unknown
  try {
    payload = JSON.parse(body ?? "")
  } catch {
    return { problem: "the body is not JSON" }
  }
  const json = check.payloadJson(payload, maxPayloadBytes)
  return typeof json === "string" ? { payload: payload as Payload } : { problem: json.message }
}

export const deliveriesOf = ({ Attributes }: Message) => Math.max(1, Number(Attributes?.ApproximateReceiveCount ?? 1))
