/**
 * Serves an HTTP router with `node:http`, for a command that runs until it is stopped. An application mounts the
 * dashboard in its own server instead.
 */
import * as Effect from "effect/Effect"
import * as HttpEffect from "effect/http/HttpEffect"
import * as HttpRouter from "effect/http/HttpRouter"
import type * as Layer from "effect/Layer"
import type * as Scope from "effect/Scope"
import { createServer } from "node:http"
import type { IncomingMessage, ServerResponse } from "node:http"
import type { AddressInfo } from "node:net"
import { Readable } from "node:stream"
import { pipeline } from "node:stream/promises"
import { CommandError } from "./failure.ts"

/** Listens until the scope is closed; returns the port. `port` 0 takes a free one. */
export const serve = Effect.fnUntraced(function*<E>(
  pages: Layer.Layer<never, E, HttpRouter.HttpRouter>,
  { host, port }: { readonly host: string; readonly port: number }
): Effect.fn.Return<number, CommandError | E, Scope.Scope> {
  const handler = HttpEffect.toWebHandler(yield* HttpRouter.toHttpEffect(pages))
  const server = createServer((incoming, outgoing) => void answer(handler, incoming, outgoing))
  yield* Effect.acquireRelease(
    Effect.callback<void, CommandError>((resume) => {
      server.once("error", (error: NodeJS.ErrnoException) => resume(Effect.fail(refused(error, host, port))))
      server.listen(port, host, () => resume(Effect.void))
    }),
    () =>
      Effect.promise(async () => {
        const closed = new Promise((resolve) => server.close(resolve))
        // Streams of open pages do not end by themselves.
        server.closeAllConnections()
        await closed
      })
  )
  return (server.address() as AddressInfo).port
})

// internal

/** Longest body, in bytes: a payload has 4 MiB at most. */
const longestBody = 5 * 1024 * 1024

const answer = async (
  handler: (request: Request) => Promise<Response>,
  incoming: IncomingMessage,
  outgoing: ServerResponse
): Promise<void> => {
  const gone = new AbortController()
  outgoing.once("close", () => gone.abort())
  try {
    const response = await handler(await requestOf(incoming, gone.signal))
    outgoing.writeHead(response.status, Object.fromEntries(response.headers))
    if (response.body === null) outgoing.end()
    else await pipeline(Readable.fromWeb(response.body), outgoing)
  } catch (thrown) {
    // The browser has gone, or has sent something else than a request.
    if (!outgoing.headersSent) outgoing.writeHead(thrown instanceof TooLarge ? 413 : 400)
    outgoing.end()
  }
}

class TooLarge extends Error {}

const requestOf = async (incoming: IncomingMessage, signal: AbortSignal): Promise<Request> => {
  const method = incoming.method ?? "GET"
  const headers = Object.entries(incoming.headers).flatMap(([name, value]): ReadonlyArray<[string, string]> =>
    value === undefined ? [] : [[name, Array.isArray(value) ? value.join(", ") : value]]
  )
  const url = new URL(incoming.url ?? "/", "http://localhost")
  if (method === "GET" || method === "HEAD") return new Request(url, { method, headers, signal })
  const chunks: Array<Buffer> = []
  let bytes = 0
  for await (const chunk of incoming as AsyncIterable<Buffer>) {
    bytes += chunk.length
    if (bytes > longestBody) throw new TooLarge()
    chunks.push(chunk)
  }
  return new Request(url, { method, headers, body: Buffer.concat(chunks), signal })
}

const refused = ({ code, message }: NodeJS.ErrnoException, host: string, port: number) =>
  new CommandError({
    code: "PortUnavailable",
    message: code === "EADDRINUSE"
      ? `port ${port} of ${host} is in use: give another --port, or --port 0 for a free one`
      : `cannot listen on ${host}:${port}: ${message}`,
    exit: "usage"
  })
