/**
 * A PgBouncer in transaction mode in front of the tests' server.
 */
import * as Effect from "effect/Effect"
import { spawn } from "node:child_process"
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises"
import * as net from "node:net"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { isRoot, serverUser } from "../../src/server/internal/embeddedPostgres.ts"
import * as Command from "../utils/command.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** Connections to the server that all clients share. */
export const poolSize = 3

/** Started for the scope; the same address as `url`, through the pooler. */
export const inFrontOf = Effect.fnUntraced(function*(url: string) {
  const server = new URL(PgServer.server().url)
  const port = yield* Command.freePort
  const folder = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "duroxide-prisma-pgbouncer-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true, force: true }))
  )
  const quoted = (text: string) => `'${decodeURIComponent(text).replaceAll("'", "''")}'`
  const settings = path.join(folder, "pgbouncer.ini")
  yield* Effect.promise(async () => {
    await writeFile(
      settings,
      `[databases]
* = host=${server.hostname} port=${server.port || 5432} user=${quoted(server.username)} password=${
        quoted(server.password)
      }
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = ${poolSize}
`
    )
    await chmod(folder, 0o755)
  })
  // It does not run as root either.
  const user = isRoot ? yield* Effect.orDie(serverUser(folder)) : undefined
  const log: Array<string> = []
  yield* Effect.acquireRelease(
    Effect.sync(() => {
      const child = spawn("pgbouncer", [settings], { ...user, stdio: ["ignore", "pipe", "pipe"] })
      child.stdout.on("data", (chunk: Buffer) => log.push(chunk.toString()))
      child.stderr.on("data", (chunk: Buffer) => log.push(chunk.toString()))
      child.on("exit", (code) => log.push(`ended with ${code}`))
      return child
    }),
    (child) => Effect.sync(() => child.kill("SIGINT"))
  )
  yield* waitUntil(Effect.promise(() => answers(port))).pipe(
    Effect.timeout("10 seconds"),
    Effect.catch(() => Effect.die(new Error(`pgbouncer did not start:\n${log.join("")}`)))
  )
  const pooled = new URL(url)
  pooled.hostname = "127.0.0.1"
  pooled.port = String(port)
  return pooled.toString()
})

const answers = (port: number) =>
  new Promise<boolean>((resolve) => {
    const socket = net.connect(port, "127.0.0.1", () => {
      socket.destroy()
      resolve(true)
    })
    socket.on("error", () => resolve(false))
  })
