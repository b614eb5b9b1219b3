/**
 * A TCP proxy between a test and its server: adds latency, keeps order, and breaks connections on command.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as net from "node:net"

export interface Options {
  readonly targetPort: number
  readonly targetHost?: string
  /** Milliseconds added to each direction. */
  readonly oneWayMs?: number
  /** Up to this many additional milliseconds, at random. */
  readonly jitterMs?: number
}

export interface LatencyProxy {
  readonly port: number
  /**
   * May be changed while connections are open. `blackhole` swallows everything in both directions; `isDown` breaks new
   * connections at once; `targetPort` is where new ones lead, as if a name had got another address.
   */
  readonly state: { oneWayMs: number; jitterMs: number; blackhole: boolean; isDown: boolean; targetPort: number }
  /** `url` with host and port of the proxy. */
  readonly through: (url: string) => string
  /** Breaks all connections with RST (ECONNRESET). */
  readonly reset: () => void
  /** Ends all connections with FIN, like a server that shuts down cleanly. */
  readonly finish: () => void
  /** Reads nothing further from the open connections, not even their end. */
  readonly freeze: () => void
}

/** Closed with the scope, together with its connections. */
export const latencyProxy = (options: Options): Effect.Effect<LatencyProxy, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(Effect.promise(() => listen(options)), ({ close }) => Effect.promise(close)),
    ({ proxy }) => proxy
  )

/** A proxy in front of the server of a URL. */
export const proxyFor = (url: string, options: Omit<Options, "targetPort" | "targetHost"> = {}) => {
  const { hostname, port } = new URL(url)
  return latencyProxy({ ...options, targetHost: hostname, targetPort: Number(port === "" ? 5432 : port) })
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

async function listen(options: Options) {
  const state = {
    oneWayMs: options.oneWayMs ?? 0,
    jitterMs: options.jitterMs ?? 0,
    blackhole: false,
    isDown: false,
    targetPort: options.targetPort
  }
  const sockets = new Set<net.Socket>()

  const relay = (from: net.Socket, to: net.Socket) => {
    // What is on its way, in order: nothing overtakes what was sent before it, however the delay changes.
    const queue: Array<{ readonly due: number; readonly deliver: () => void }> = []
    let last = 0
    const send = (deliver: () => void) => {
      last = Math.max(last, performance.now() + state.oneWayMs + Math.random() * state.jitterMs)
      queue.push({ due: last, deliver })
      if (queue.length === 1) pump()
    }
    const pump = () => {
      for (let next = queue[0]; next !== undefined; next = queue[0]) {
        const wait = next.due - performance.now()
        // Timers are 1 ms coarse: wake early, then spin for the remainder.
        if (wait > 0) return void (wait < 2.5 ? setImmediate(pump) : setTimeout(pump, wait - 2))
        queue.shift()
        next.deliver()
      }
    }
    from.on("data", (chunk) => {
      if (!state.blackhole) send(() => to.destroyed || to.write(chunk))
    })
    from.on("end", () => send(() => to.end()))
    from.on("error", () => to.destroy())
    from.on("close", () => send(() => to.destroy()))
  }

  const server = net.createServer({ noDelay: true }, (client) => {
    if (state.isDown) return void client.resetAndDestroy()
    const upstream = net.connect({
      port: state.targetPort,
      host: options.targetHost ?? "127.0.0.1",
      noDelay: true
    })
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on("close", () => sockets.delete(socket))
    }
    relay(client, upstream)
    relay(upstream, client)
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as net.AddressInfo

  const proxy: LatencyProxy = {
    port,
    state,
    through: (url) => {
      const changed = new URL(url)
      changed.hostname = "127.0.0.1"
      changed.port = String(port)
      return changed.toString()
    },
    reset: () => {
      for (const socket of sockets) socket.resetAndDestroy()
    },
    finish: () => {
      for (const socket of sockets) socket.end()
    },
    freeze: () => {
      for (const socket of sockets) socket.pause()
    }
  }
  const close = () => {
    for (const socket of sockets) socket.destroy()
    return new Promise<void>((resolve) => server.close(() => resolve()))
  }
  return { proxy, close }
}
