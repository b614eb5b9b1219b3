/**
 * The only service that needs a way out of the private network: forwards requests to origins that are allowed.
 *
 * The caller sends its request here, with the address it is meant for in the header `x-egress-url`.
 */
import { Effect } from "effect"
import * as Http from "../shared/http.ts"
import { health, ready } from "../shared/process.ts"
import * as Settings from "../shared/settings.ts"

/** Not of the request that is forwarded, but of this connection. */
const hopHeaders = new Set(["connection", "content-length", "host", "keep-alive", "transfer-encoding", "x-egress-url"])

export const forward = (allowed: ReadonlySet<string>): Http.Route<never> =>
  Effect.fnUntraced(function*({ request }) {
    const target = yield* Effect.try({
      try: () => new URL(request.headers.get("x-egress-url") ?? ""),
      catch: () => new Http.Problem({ status: 400, problem: "x-egress-url is not a URL" })
    })
    if (!allowed.has(target.origin)) {
      yield* Effect.logWarning(`refused a request to ${target.origin}`)
      return yield* new Http.Problem({ status: 403, problem: `${target.origin} is not allowed` })
    }
    return yield* Effect.tryPromise({
      try: async (signal) => {
        const headers = [...request.headers].filter(([name]) => !hopHeaders.has(name))
        const body = new Uint8Array(await request.arrayBuffer())
        const answer = await fetch(target, {
          method: request.method,
          headers,
          ...(body.length === 0 ? {} : { body }),
          redirect: "manual", // would lead around the list
          signal
        })
        const content = await answer.arrayBuffer()
        return new Response(content.byteLength === 0 ? null : content, {
          status: answer.status,
          headers: [...answer.headers].filter(([name]) => !hopHeaders.has(name) && name !== "content-encoding")
        })
      },
      catch: () => new Http.Problem({ status: 502, problem: `${target.origin} did not answer` })
    })
  })

export const main = Effect.gen(function*() {
  const allowed = new Set((yield* Settings.egressAllow).split(",").map((origin) => origin.trim()))
  const routes = Http.router({ "GET /health": health, "POST /": forward(allowed) })
  return yield* ready(yield* Http.serve(routes, yield* Settings.port))
})
