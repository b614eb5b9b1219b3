/**
 * A TCP proxy that stands for a server without certain features: statements that match get the error of a server that
 * does not know them, and never reach the server.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as net from "node:net"

/** What the server gets in place of a statement; undefined: the client gets an error. */
export type Rewrite = (sql: string) => string | undefined

export const refuse = (...patterns: ReadonlyArray<RegExp>): Rewrite => (sql) =>
  patterns.some((pattern) => pattern.test(sql)) ? undefined : sql

/** `url` with host and port of a proxy before its server; closed with the scope. */
export const inFrontOf = (url: string, rewrite: Rewrite): Effect.Effect<string, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => listen(new URL(url), rewrite)),
      ({ close }) => Effect.promise(close)
    ),
    ({ port }) => {
      const changed = new URL(url)
      changed.hostname = "127.0.0.1"
      changed.port = String(port)
      return changed.toString()
    }
  )

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** Fails with 0A000, as what a server does not support. */
const refusal = "DO $$ BEGIN RAISE EXCEPTION 'not supported here' USING ERRCODE = 'feature_not_supported'; END $$"

/** Fails with 0A000 while it is parsed, before its parameters are missed. */
const refusalOfParsing = "SELECT count(*) FROM pg_class FOR UPDATE"

async function listen({ hostname, port }: URL, rewrite: Rewrite) {
  const sockets = new Set<net.Socket>()
  const server = net.createServer({ noDelay: true }, (client) => {
    const upstream = net.connect({ port: Number(port === "" ? 5432 : port), host: hostname, noDelay: true })
    for (const socket of [client, upstream]) {
      sockets.add(socket)
      socket.on("close", () => sockets.delete(socket))
      socket.on("error", () => {})
    }
    const messages = makeReader(rewrite)
    client.on("data", (chunk: Buffer) => {
      for (const message of messages(chunk)) upstream.write(message)
    })
    upstream.on("data", (chunk) => client.write(chunk))
    client.on("close", () => upstream.destroy())
    upstream.on("close", () => client.destroy())
    client.on("end", () => upstream.end())
    upstream.on("end", () => client.end())
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  return {
    port: (server.address() as net.AddressInfo).port,
    close: () => {
      for (const socket of sockets) socket.destroy()
      return new Promise<void>((resolve) => server.close(() => resolve()))
    }
  }
}

/** Whole messages of a client, with other statements. */
function makeReader(rewrite: Rewrite) {
  let rest: Buffer = Buffer.alloc(0)
  let isStarted = false
  return (chunk: Buffer): ReadonlyArray<Buffer> => {
    const messages: Array<Buffer> = []
    rest = Buffer.concat([rest, chunk])
    for (;;) {
      const head = isStarted ? 1 : 0 // the first messages have no type
      if (rest.length < head + 4) return messages
      const end = head + rest.readInt32BE(head)
      if (rest.length < end) return messages
      const message = rest.subarray(0, end)
      rest = rest.subarray(end)
      if (!isStarted) isStarted = message.readInt32BE(4) === startUp
      messages.push(isStarted ? rewritten(message, rewrite) : message)
    }
  }
}

/** Version 3.0 of the protocol; other first messages ask for encryption. */
const startUp = 196_608

function rewritten(message: Buffer, rewrite: Rewrite): Buffer {
  const kind = String.fromCharCode(message[0]!)
  if (kind !== "Q" && kind !== "P") return message
  const sqlAt = kind === "Q" ? 5 : message.indexOf(0, 5) + 1 // after the name of the statement
  const end = message.indexOf(0, sqlAt)
  const sql = message.toString("utf8", sqlAt, end)
  const instead = rewrite(sql)
  if (instead === sql) return message
  const text = Buffer.from(instead ?? (kind === "Q" ? refusal : refusalOfParsing))
  const body = Buffer.concat([message.subarray(5, sqlAt), text, message.subarray(end)])
  const head = Buffer.alloc(5)
  head.write(kind)
  head.writeInt32BE(body.length + 4, 1)
  return Buffer.concat([head, body])
}
