/**
 * A model behind HTTP, and a `LanguageModel` that calls it. The server answers as its script says, and remembers each
 * request, so that tests can count calls and look at prompts. The wire format is that of chat completions.
 */
import { AiError, LanguageModel, type Prompt, type Response, Tool } from "effect/ai"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as HttpClient from "effect/http/HttpClient"
import * as HttpClientRequest from "effect/http/HttpClientRequest"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import type * as Scope from "effect/Scope"
import * as Stream from "effect/Stream"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

const Message = Schema.Struct({
  role: Schema.Literals(["system", "user", "assistant", "tool"]),
  content: Schema.String,
  tool_calls: Schema.optionalKey(Schema.Array(Schema.Struct({
    id: Schema.String,
    name: Schema.String,
    arguments: Schema.String
  }))),
  tool_call_id: Schema.optionalKey(Schema.String)
})

const Completion = Schema.Struct({
  model: Schema.String,
  content: Schema.String,
  calls: Schema.Array(Schema.Struct({ id: Schema.String, name: Schema.String, arguments: Schema.String })),
  usage: Schema.Struct({ prompt_tokens: Schema.Int, completion_tokens: Schema.Int })
})

/** What the model gets. */
export const ModelRequest = Schema.Struct({
  messages: Schema.Array(Message),
  tools: Schema.Array(
    Schema.Struct({ name: Schema.String, description: Schema.optionalKey(Schema.String), parameters: Schema.Json })
  ),
  schema: Schema.optionalKey(Schema.Json),
  stream: Schema.Boolean
})

export type ModelRequest = typeof ModelRequest.Type

/** What the model answers: a text, calls of tools, or a failure of HTTP. */
export interface Answer {
  readonly text?: string
  readonly calls?: ReadonlyArray<{ readonly id: string; readonly name: string; readonly params: unknown }>
  readonly status?: number
  readonly retryAfterSeconds?: number
  /** Answers never. */
  readonly hangs?: boolean
}

export interface ModelServer {
  readonly url: string
  readonly requests: ReadonlyArray<ModelRequest>
  /** The header `idempotency-key` of each request. */
  readonly keys: ReadonlyArray<string | undefined>
  /** Requests whose client went away before the answer. */
  readonly aborted: () => number
}

/** A server that answers request `index`, counted from 0, as `script` says. */
export const start = (
  script: (request: ModelRequest, index: number) => Answer,
  /** How long each answer takes. */
  options: { readonly delayMs?: number } = {}
): Effect.Effect<ModelServer, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.callback<ModelServer & { readonly close: Effect.Effect<void> }>((resume) => {
      const requests: Array<ModelRequest> = []
      const keys: Array<string | undefined> = []
      let aborted = 0
      const server = createServer((incoming, outgoing) => {
        let body = ""
        incoming.on("data", (chunk) => (body += String(chunk)))
        incoming.on("end", () => {
          const request = Schema.decodeUnknownSync(ModelRequest)(JSON.parse(body))
          requests.push(request)
          keys.push(incoming.headers["idempotency-key"] as string | undefined)
          const answer = script(request, requests.length - 1)
          outgoing.on("close", () => {
            if (!outgoing.writableFinished) aborted++
          })
          if (answer.hangs === true) return
          const after = answer.retryAfterSeconds
          outgoing.writeHead(answer.status ?? 200, {
            "content-type": "application/json",
            "x-secret": "do not record",
            ...(after === undefined ? {} : { "retry-after": String(after) })
          })
          const completion = JSON.stringify({
            model: "test-1",
            content: answer.text ?? "",
            calls: (answer.calls ?? []).map(({ id, name, params }) => ({
              id,
              name,
              arguments: JSON.stringify(params)
            })),
            usage: { prompt_tokens: body.length, completion_tokens: 10 }
          })
          setTimeout(() => outgoing.end(completion), options.delayMs ?? 0)
        })
      })
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo
        resume(Effect.succeed({
          url: `http://127.0.0.1:${port}/?key=secret`,
          requests,
          keys,
          aborted: () => aborted,
          close: Effect.callback<void>((resume) => {
            server.closeAllConnections()
            server.close(() => resume(Effect.void))
          })
        }))
      })
    }),
    ({ close }) => close
  )

/** A `LanguageModel` of that server, over Effect's HTTP client. */
export const layerModel = (
  url: string,
  /** A key for each request, for providers that honour one. */
  key: Effect.Effect<string | undefined> = Effect.succeed(undefined)
): Layer.Layer<LanguageModel.LanguageModel> =>
  Layer.effect(
    LanguageModel.LanguageModel,
    Effect.gen(function*() {
      const client = yield* HttpClient.HttpClient
      const complete = Effect.fnUntraced(
        function*(options: LanguageModel.ProviderOptions, stream: boolean) {
          const idempotencyKey = yield* key
          const response = yield* client.execute(
            HttpClientRequest.post(url).pipe(
              HttpClientRequest.setHeaders(idempotencyKey === undefined ? {} : { "idempotency-key": idempotencyKey }),
              HttpClientRequest.bodyJsonUnsafe(requestOf(options, stream))
            )
          )
          const http = { response: { status: response.status, headers: response.headers } }
          if (response.status === 429) {
            const seconds = Number(response.headers["retry-after"])
            return yield* AiError.make({
              module: "TestModel",
              method: "complete",
              reason: new AiError.RateLimitError(
                seconds > 0 ? { retryAfter: Duration.seconds(seconds), http } : { http }
              )
            })
          }
          if (response.status !== 200) {
            return yield* AiError.make({
              module: "TestModel",
              method: "complete",
              reason: AiError.reasonFromHttpStatus({ status: response.status, http })
            })
          }
          return partsOf(Schema.decodeUnknownSync(Completion)(yield* response.json))
        },
        Effect.catchTag("HttpClientError", (error) =>
          Effect.fail(AiError.make({
            module: "TestModel",
            method: "complete",
            reason: new AiError.NetworkError({
              reason: "TransportError",
              method: "POST",
              url,
              description: error.message
            })
          })))
      )
      return yield* LanguageModel.make({
        generateText: (options) => complete(options, false),
        streamText: (options) =>
          Stream.fromIterableEffect(Effect.map(complete(options, true), (parts) => parts.flatMap(piecesOf)))
      })
    })
  ).pipe(Layer.provide(FetchHttpClient.layer))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const textOf = (content: Prompt.Message["content"]) =>
  typeof content === "string" ? content : content.flatMap((part) => part.type === "text" ? part.text : []).join("")

const requestOf = (
  { prompt, responseFormat, tools }: LanguageModel.ProviderOptions,
  stream: boolean
): ModelRequest => ({
  messages: prompt.content.flatMap((message): ReadonlyArray<typeof Message.Type> =>
    message.role === "tool"
      ? message.content.flatMap((part) =>
        part.type === "tool-result"
          ? [{ role: "tool", content: JSON.stringify(part.result), tool_call_id: part.id }]
          : []
      )
      : [{
        role: message.role,
        content: textOf(message.content),
        ...(message.role === "assistant"
          ? {
            tool_calls: message.content.flatMap((part) =>
              part.type === "tool-call"
                ? [{ id: part.id, name: part.name, arguments: JSON.stringify(part.params) }]
                : []
            )
          }
          : {})
      }]
  ),
  tools: tools.map((tool) => {
    const description = Tool.getDescription(tool)
    return {
      name: tool.name,
      ...(description === undefined ? {} : { description }),
      parameters: JSON.parse(JSON.stringify(Tool.getJsonSchema(tool)))
    }
  }),
  ...(responseFormat.type === "json"
    ? { schema: JSON.parse(JSON.stringify(Tool.getJsonSchemaFromSchema(responseFormat.schema))) }
    : {}),
  stream
})

const partsOf = ({ calls, content, model, usage }: typeof Completion.Type): Array<Response.PartEncoded> => [
  { type: "response-metadata", modelId: model },
  ...(content === "" ? [] : [{ type: "text" as const, text: content }]),
  ...calls.map(({ id, name, arguments: params }) => ({
    type: "tool-call" as const,
    id,
    name,
    params: JSON.parse(params)
  })),
  {
    type: "finish",
    reason: calls.length > 0 ? "tool-calls" : "stop",
    usage: { inputTokens: { total: usage.prompt_tokens }, outputTokens: { total: usage.completion_tokens } }
  }
]

/** A part as a stream gives it: text in pieces. */
const piecesOf = (part: Response.PartEncoded): ReadonlyArray<Response.StreamPartEncoded> =>
  part.type !== "text" ? [part as Response.StreamPartEncoded] : [
    { type: "text-start", id: "t" },
    ...[...part.text.matchAll(/\S+\s*/g)].map(([delta]) => ({ type: "text-delta" as const, id: "t", delta })),
    { type: "text-end", id: "t" }
  ]
