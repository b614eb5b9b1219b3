/**
 * SQS servers in this process, for tests: one that works, and one that answers as a test wants.
 */
import type { SQSClientConfig } from "@aws-sdk/client-sqs"
import * as Effect from "effect/Effect"
import { startFauxqs } from "fauxqs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

// The SDK warns on Node 20, which this package supports.
process.env.AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED = "true"

export const secret = "hunter2"

/** For the SDK's client. The servers take any credentials. */
export const configFor = (port: number) =>
  ({
    endpoint: `http://127.0.0.1:${port}`,
    region: "us-east-1",
    credentials: { accessKeyId: "test", secretAccessKey: secret }
  }) satisfies SQSClientConfig

export interface Inspected {
  readonly url: string
  readonly attributes: Readonly<Record<string, string>>
  readonly messages: {
    /** Those that could be delivered. */
    readonly ready: ReadonlyArray<{
      readonly body: string
      readonly messageAttributes: Readonly<Record<string, { readonly StringValue?: string }>>
    }>
  }
}

/** A server without queues. */
export const start = Effect.map(
  Effect.acquireRelease(
    Effect.promise(() => startFauxqs({ port: 0, host: "127.0.0.1", logger: false })),
    (server) => Effect.promise(() => server.stop())
  ),
  (server) => ({
    client: configFor(server.port),
    create: (name: string) => server.createQueue(name),
    /** Null without a queue of this name. */
    inspect: (name: string): Inspected | null => server.inspectQueue(name) ?? null
  })
)

/** A request that sends or settles several messages. */
export interface Request {
  readonly Entries?: ReadonlyArray<{ readonly Id: string; readonly MessageBody?: string }>
}

/** How a request is answered; undefined: it is not. */
export type Answer = (request: Request) => { readonly status: number; readonly body: object } | undefined

export const failure = (status: number, code: string, message: string) => ({ status, body: { __type: code, message } })

export const fake = Effect.fnUntraced(function*(answer: Answer) {
  const requests: Array<Request> = []
  let closed = 0
  const server = yield* Effect.acquireRelease(
    Effect.callback<ReturnType<typeof createServer>>((resume) => {
      const server = createServer((request, response) => {
        let text = ""
        response.on("close", () => {
          if (!response.writableEnded) closed++
        })
        request.setEncoding("utf8").on("data", (part: string) => (text += part)).on("end", () => {
          const body = JSON.parse(text) as Request
          requests.push(body)
          const answered = answer(body)
          if (answered === undefined) return
          response.writeHead(answered.status, { "content-type": "application/x-amz-json-1.0" })
          response.end(JSON.stringify(answered.body))
        })
      })
      server.listen(0, "127.0.0.1", () => resume(Effect.succeed(server)))
    }),
    (server) =>
      Effect.sync(() => {
        server.close()
        server.closeAllConnections()
      })
  )
  return {
    client: configFor((server.address() as AddressInfo).port),
    requests,
    /** Requests whose connection was closed without an answer. */
    closed: () => closed
  }
})
