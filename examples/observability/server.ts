/**
 * Serves pages with `node:http`, so that the example needs no further package. An application serves them beside its own:
 * `HttpRouter.serve(Pages)`, on the HTTP server of its platform.
 */
import { Context, Effect, Layer } from "effect"
import { HttpRouter } from "effect/http"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

/** Serves on the port, or on a free one, until the scope is closed; returns the port. */
export const serve = Effect.fnUntraced(function*<R>(
  pages: Layer.Layer<never, never, HttpRouter.HttpRouter | R>,
  options: { readonly port: number }
) {
  const services = yield* Effect.context<R>()
  const { dispose, handler } = HttpRouter.toWebHandler(
    pages.pipe(Layer.provide(Layer.succeedContext(services))) as Layer.Layer<never, never, HttpRouter.HttpRouter>,
    { disableLogger: true }
  )
  yield* Effect.addFinalizer(() => Effect.promise(dispose))
  const server = createServer((request, response) => {
    const url = `http://${request.headers.host}${request.url}`
    void handler(new Request(url, { method: request.method ?? "GET" }), Context.empty()).then(async (answer) => {
      response.writeHead(answer.status, Object.fromEntries(answer.headers))
      response.end(await answer.text())
    })
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(options.port, () => resume(Effect.void))),
    () => Effect.callback<void>((resume) => void server.close(() => resume(Effect.void)))
  )
  return (server.address() as AddressInfo).port
})
