import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as net from "node:net"
import { latencyProxy } from "../programs/latencyProxy.ts"

describe("latencyProxy", () => {
  it.live("whatever the delay changes to, bytes and the end of a connection arrive in the order they were sent in", () =>
    Effect.gen(function*() {
      const received: Array<number> = []
      const server = net.createServer((socket) => void socket.on("data", (chunk) => received.push(...chunk)))
      const ended = new Promise<void>((resolve) => {
        server.on("connection", (socket) => socket.on("end", resolve))
      })
      yield* Effect.promise(() => new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve)))
      yield* Effect.addFinalizer(() => Effect.sync(() => server.close()))
      const proxy = yield* latencyProxy({ targetPort: (server.address() as net.AddressInfo).port })
      const client = net.connect({ port: proxy.port, host: "127.0.0.1", noDelay: true })
      const sent = Array.from({ length: 250 }, (_, i) => i)
      for (const i of sent) {
        proxy.state.oneWayMs = [3, 0, 12, 2.6, 1][i % 5]!
        yield* Effect.promise(() => new Promise((resolve) => client.write(Uint8Array.of(i), resolve)))
        // The proxy has read it: the next byte is a chunk of its own, under the next delay.
        yield* Effect.promise(() => new Promise((resolve) => setImmediate(resolve)))
      }
      proxy.state.oneWayMs = 0
      client.end()
      yield* Effect.promise(() => ended)
      assert.deepStrictEqual(received, sent)
    }))
})
