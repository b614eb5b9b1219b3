/**
 * HTTP for the services: routes of Web `Request` and `Response`, served by `node:http`, so that the example needs no
 * framework. The same routes run in whatever passes on Web requests, such as a Lambda function.
 */
import { Data, Effect } from "effect"
import { createServer, type IncomingMessage } from "node:http"
import type { AddressInfo } from "node:net"

/** A problem of the request, with its status. */
export class Problem extends Data.TaggedError("Problem")<{ readonly status: number; readonly problem: string }> {
  override get message() {
    return this.problem
  }
}

export interface Call {
  readonly request: Request
  /** The `:name` parts of the path, decoded. */
  readonly path: Readonly<Record<string, string>>
}

export type Route<R> = (call: Call) => Effect.Effect<Response, unknown, R>

/**
 * Answers by the table of routes, such as `"POST /datasets/:name/versions"`. A `Problem` is answered with its status; any
 * other failure is logged and answered with 503, since requests are safe to repeat.
 */
export const router = <Routes extends Readonly<Record<string, Route<any>>>>(routes: Routes) => {
  type R = Effect.Services<ReturnType<Routes[keyof Routes]>>
  const table = Object.entries(routes).map(([name, route]) => {
    const [method, pattern] = name.split(" ") as [string, string]
    return { method, parts: pattern.split("/"), route: route as Route<R> }
  })
  return (request: Request): Effect.Effect<Response, never, R> => {
    const parts = new URL(request.url).pathname.split("/")
    const found = table.find(({ method, parts: pattern }) =>
      method === request.method && pattern.length === parts.length &&
      pattern.every((part, i) => part.startsWith(":") ? parts[i] !== "" : part === parts[i])
    )
    if (found === undefined) return Effect.succeed(Response.json({ problem: "no such page" }, { status: 404 }))
    const path = Object.fromEntries(
      found.parts.flatMap((part, i) => part.startsWith(":") ? [[part.slice(1), decodeURIComponent(parts[i]!)]] : [])
    )
    return Effect.suspend(() => found.route({ request, path })).pipe(
      Effect.catchCause((cause) => {
        const failure = cause.reasons.find((reason) => reason._tag === "Fail")?.error
        return failure instanceof Problem
          ? Effect.succeed(Response.json({ problem: failure.problem }, { status: failure.status }))
          : Effect.as(
            Effect.logError(`${request.method} ${parts.join("/")} failed`, cause),
            Response.json({ problem: "try again" }, { status: 503 })
          )
      })
    )
  }
}

/** The body of a request as JSON, or a 400. */
export const json = (request: Request) =>
  Effect.tryPromise({
    try: () => request.json(),
    catch: () => new Problem({ status: 400, problem: "the body is not JSON" })
  })

/** Serves on the port, or on a free one, until the scope is closed; returns the port. */
export const serve = Effect.fnUntraced(function*<R>(
  route: (request: Request) => Effect.Effect<Response, never, R>,
  port: number
) {
  const run = Effect.runPromiseWith(yield* Effect.context<R>())
  const server = createServer((incoming, outgoing) => {
    const answer = async () => {
      const body = await bodyOf(incoming)
      const request = new Request(`http://${incoming.headers.host ?? "localhost"}${incoming.url}`, {
        method: incoming.method ?? "GET",
        headers: Object.entries(incoming.headers).flatMap(([name, value]) =>
          value === undefined ? [] : [[name, String(value)]]
        ),
        body: body.length === 0 ? null : body
      })
      const response = await run(route(request))
      outgoing.writeHead(response.status, Object.fromEntries(response.headers))
      outgoing.end(Buffer.from(await response.arrayBuffer()))
    }
    // Only a broken connection, or a body that is too large.
    answer().catch(() => outgoing.writeHead(413, { connection: "close" }).end())
  })
  yield* Effect.acquireRelease(
    Effect.callback<void, Error>((resume) => {
      server.once("error", (error) => resume(Effect.fail(error)))
      server.listen(port, () => resume(Effect.void))
    }),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        server.closeIdleConnections()
      })
  )
  return (server.address() as AddressInfo).port
})

const maxBytes = 8 * 1024 * 1024

const bodyOf = async (incoming: IncomingMessage): Promise<Uint8Array<ArrayBuffer>> => {
  const chunks: Array<Buffer> = []
  let bytes = 0
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > maxBytes) throw new Error("the body is too large")
    chunks.push(chunk)
  }
  return new Uint8Array(Buffer.concat(chunks))
}
