/**
 * A TCP proxy that breaks a connection at a chosen point of its traffic: after a number of bytes in either direction,
 * in the middle of a statement or of its answer, or between the two.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as net from "node:net"

/** The point of the next cut, and what both sides see of it. */
export interface Cut {
  /**
   * `statement`: that many bytes from the client get through. `answer`: that many bytes from the server.
   * `between`: the server receives everything the client sends next, and the client gets no answer.
   */
  readonly within: "statement" | "answer" | "between"
  readonly afterBytes: number
  /** RST or FIN. */
  readonly manner: "reset" | "finish"
}

export interface CuttingProxy {
  /** `url` with host and port of the proxy. */
  readonly through: (url: string) => string
  /** Breaks the first connection that reaches the point; returns when it has. */
  readonly cut: (cut: Cut) => Effect.Effect<void>
}

/** In front of the server of a URL; closed with the scope. */
export const proxyFor = (url: string): Effect.Effect<CuttingProxy, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(Effect.promise(() => listen(new URL(url))), ({ close }) => Effect.promise(close)),
    ({ proxy }) => proxy
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

async function listen({ hostname, port }: URL) {
  const sockets = new Set<net.Socket>()
  let armed: { readonly cut: Cut; left: number; readonly done: () => void } | undefined

  const relay = (from: net.Socket, to: net.Socket, direction: "statement" | "answer") => {
    from.on("data", (chunk) => {
      if (armed === undefined || to.destroyed) return void to.write(chunk)
      const { cut, done } = armed
      const counts = cut.within === direction || (cut.within === "between" && direction === "statement")
      if (!counts) return void to.write(chunk)
      if (chunk.length <= armed.left) {
        armed.left -= chunk.length
        return void to.write(chunk)
      }
      const arrives = cut.within === "between" ? chunk : chunk.subarray(0, armed.left)
      armed = undefined
      from.removeAllListeners("data")
      to.removeAllListeners("data")
      // Received data are delivered first; then the connection is broken on that side.
      to.write(arrives, () => cut.manner === "reset" && cut.within !== "between" ? to.resetAndDestroy() : to.end())
      if (cut.manner === "reset") from.resetAndDestroy()
      else from.end()
      done()
    })
    from.on("end", () => to.end())
    from.on("error", () => to.destroy())
    from.on("close", () => setTimeout(() => to.destroy(), 1000))
  }

  const server = net.createServer({ noDelay: true }, (client) => {
    const upstream = net.connect({ port: Number(port === "" ? 5432 : port), host: hostname, noDelay: true })
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on("close", () => sockets.delete(socket))
    }
    relay(client, upstream, "statement")
    relay(upstream, client, "answer")
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const address = server.address() as net.AddressInfo

  const proxy: CuttingProxy = {
    through: (url) => {
      const changed = new URL(url)
      changed.hostname = "127.0.0.1"
      changed.port = String(address.port)
      return changed.toString()
    },
    cut: (cut) =>
      Effect.callback((resume) => {
        armed = { cut, left: cut.afterBytes, done: () => resume(Effect.void) }
        return Effect.sync(() => {
          armed = undefined
        })
      })
  }
  const close = () => {
    for (const socket of sockets) socket.destroy()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  }
  return { proxy, close }
}
