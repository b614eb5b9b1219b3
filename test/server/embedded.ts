/**
 * Embedded servers in folders of their own, for tests.
 */
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as fs from "node:fs/promises"
import * as net from "node:net"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as pg from "pg"
import * as DatabaseServer from "../../src/server/DatabaseServer.ts"

export const root = fileURLToPath(new URL("../..", import.meta.url))

/** A folder that is removed afterwards; the servers of these tests need not survive a power failure. */
export const folder = Effect.acquireRelease(
  Effect.promise(() => fs.mkdtemp(path.join(tmpdir(), "database-server-"))),
  (folder) => Effect.promise(() => fs.rm(folder, { recursive: true, force: true, maxRetries: 5 }))
)

export const embedded = (options: DatabaseServer.Options) =>
  DatabaseServer.makeEmbedded({ ...options, settings: { fsync: "off", ...options.settings } }).pipe(
    Effect.provide(Logger.layer([]))
  )

export const refusal = (options: DatabaseServer.Options) =>
  Effect.map(Effect.flip(Effect.scoped(embedded(options))), ({ reason }) => reason)

type Server = DatabaseServer.DatabaseServer["Service"]

export const query = ({ url }: Server, sql: string) =>
  Effect.promise(async () => {
    const client = new pg.Client(Redacted.value(url))
    client.on("error", () => {})
    await client.connect()
    const { rows } = await client.query(sql)
    await client.end()
    return rows as ReadonlyArray<unknown>
  })

export const port = ({ url }: Server) => Number(new URL(Redacted.value(url)).port)

export const listens = (port: number) =>
  Effect.callback<boolean>((resume) => {
    const socket = net.connect(port, "127.0.0.1")
    socket.on("connect", () => {
      socket.destroy()
      resume(Effect.succeed(true))
    })
    socket.on("error", () => resume(Effect.succeed(false)))
  })

export const postmaster = (directory: string) =>
  Effect.promise(async () => {
    const text = await fs.readFile(path.join(directory, "data/postmaster.pid"), "utf8")
    return Number(text.split("\n")[0])
  })
