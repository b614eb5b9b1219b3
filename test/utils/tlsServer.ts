/**
 * The test server with TLS in front of it, as platforms have it: whatever asks for TLS gets it, under a certificate of
 * the test; other connections are refused like those of a server that demands TLS.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as net from "node:net"
import * as tls from "node:tls"
import type { Certificate } from "./certificates.ts"

export interface TlsServer {
  readonly port: number
  /** `url` with host and port of this server. */
  readonly through: (url: string, host?: string) => string
}

/** Until the scope is closed. `offers: false` answers that there is no TLS. */
export const tlsServer = (
  target: string,
  certificate: Certificate,
  { offers = true }: { readonly offers?: boolean } = {}
): Effect.Effect<TlsServer, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.callback<{ readonly server: net.Server; readonly sockets: Set<net.Socket> }>((resume) => {
        const { hostname, port } = new URL(target)
        const secureContext = tls.createSecureContext(certificate)
        const sockets = new Set<net.Socket>()
        const server = net.createServer((raw) => {
          keep(raw)
          raw.once("data", (request) => {
            const asksForTls = request.length === 8 && request.readUInt32BE(4) === 80_877_103
            if (!asksForTls || !offers) return void raw.end(asksForTls ? "N" : refusal)
            raw.write("S")
            const client = keep(new tls.TLSSocket(raw, { isServer: true, secureContext }))
            const upstream = keep(net.connect(Number(port === "" ? 5432 : port), hostname))
            client.pipe(upstream).pipe(client)
          })
        })
        const keep = <Socket extends net.Socket>(socket: Socket) => {
          sockets.add(socket)
          socket.on("error", () => {})
          socket.on("close", () => {
            sockets.delete(socket)
          })
          return socket
        }
        server.listen(0, "127.0.0.1", () => resume(Effect.succeed({ server, sockets })))
      }),
      ({ server, sockets }) =>
        Effect.sync(() => {
          server.close()
          for (const socket of sockets) socket.destroy()
        })
    ),
    ({ server }) => {
      const { port } = server.address() as net.AddressInfo
      return {
        port,
        through: (url, host = "127.0.0.1") => {
          const own = new URL(url)
          own.hostname = host
          own.port = String(port)
          return own.toString()
        }
      }
    }
  )

/** An error as PostgreSQL sends it. */
const refusal = (() => {
  const fields = ["SFATAL", "VFATAL", "C28000", "Mno pg_hba.conf entry for host \"127.0.0.1\", no encryption", ""]
  const body = Buffer.from(`${fields.join("\0")}\0`)
  const head = Buffer.alloc(5)
  head.write("E")
  head.writeUInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
})()
