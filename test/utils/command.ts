/**
 * Commands as a platform runs them: with nothing but the environment they are given, killed with the scope.
 */
import * as Effect from "effect/Effect"
import { spawn } from "node:child_process"
import * as net from "node:net"
import { fileURLToPath } from "node:url"

const root = fileURLToPath(new URL("../../", import.meta.url))

/** A port that is free now. */
export const freePort = Effect.callback<number>((resume) => {
  const server = net.createServer()
  server.listen(0, "127.0.0.1", () => {
    const { port } = server.address() as net.AddressInfo
    server.close(() => resume(Effect.succeed(port)))
  })
})

/** `node` is the Node of this process. */
export const start = Effect.fnUntraced(function*(
  command: ReadonlyArray<string>,
  environment: Record<string, string> = {}
) {
  const child = yield* Effect.acquireRelease(
    Effect.sync(() =>
      spawn(command[0] === "node" ? process.execPath : command[0]!, command.slice(1), { cwd: root, env: environment })
    ),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  )
  let output = ""
  for (const stream of [child.stdout, child.stderr]) stream.setEncoding("utf8").on("data", (text) => (output += text))
  const end = new Promise<number | null>((resolve) => child.once("close", resolve))
  return { child, output: () => output, end: Effect.promise(() => end) }
})
