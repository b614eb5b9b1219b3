/**
 * Runs what examples/lite/compose.yaml runs, without containers: its commands and settings on processes of this machine. The
 * images of PostgreSQL and MinIO are replaced by the server of the tests and fauxqs, names of services by local ports.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { startFauxqs } from "fauxqs"
import { spawn } from "node:child_process"
import * as net from "node:net"
import { fileURLToPath } from "node:url"
import { parse } from "yaml"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

interface Service {
  readonly command: ReadonlyArray<string>
  readonly environment: Record<string, string | number>
  readonly depends_on: Record<string, { readonly condition: string }>
  readonly healthcheck: { readonly test: ReadonlyArray<string> }
  readonly build?: object
}

const { services } = parse(Docs.read("examples/lite/compose.yaml"), { merge: true }) as {
  readonly services: Record<string, Service>
}
const ours = Object.keys(services).filter((name) => services[name]!.build !== undefined)

const root = fileURLToPath(new URL("../../", import.meta.url))

/** `[node, file]` of the Dockerfile. */
const [program, file] = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(Docs.read("examples/lite/Dockerfile"))![1]!) as [
  string,
  string
]

const freePort = Effect.callback<number>((resume) => {
  const server = net.createServer()
  server.listen(0, "127.0.0.1", () => {
    const { port } = server.address() as net.AddressInfo
    server.close(() => resume(Effect.succeed(port)))
  })
})

/** A process with nothing but these settings; killed with the scope. */
const start = Effect.fnUntraced(function*(command: ReadonlyArray<string>, environment: Record<string, string> = {}) {
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

/** The addresses of the databases that postgres.sql creates. */
const databases = Effect.map(
  Effect.forEach(
    [...Docs.read("examples/lite/postgres.sql").matchAll(/^CREATE DATABASE (\w+);$/gm)],
    ([, name]) => Effect.map(PgServer.emptyDatabase, ({ url }) => [name!, url] as const)
  ),
  (urls) => new Map(urls)
)

it.live(
  "compose.yaml: its commands, settings and health checks run the stack, and its services stop on SIGTERM",
  () =>
    Effect.gen(function*() {
      const urls = yield* databases
      const objectStore = yield* Effect.acquireRelease(
        Effect.promise(() => startFauxqs({ port: 0, host: "127.0.0.1", logger: false })),
        (server) => Effect.promise(() => server.stop())
      )
      const ports = new Map<string, number>([["minio", objectStore.port]])
      for (const name of ours) ports.set(name, yield* freePort)
      const here = (text: string) =>
        text.replace(
          /postgresql:\/\/.*@postgres:5432\/(\w+)/,
          (_, name) => urls.get(name)!
        )
          .replace(/http:\/\/(\w+):\d+/, (_, name) => `http://127.0.0.1:${ports.get(name)}`)
      const run = (name: string) =>
        start([program, file, ...services[name]!.command], {
          ...Object.fromEntries(
            Object.entries(services[name]!.environment).map(([key, value]) => [key, here(String(value))])
          ),
          PORT: String(ports.get(name)),
          ...(name === "client" && { RECORDS: "3000" }),
          AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: "true"
        })
      const isHealthy = (name: string) =>
        Effect.scoped(Effect.flatMap(
          start(services[name]!.healthcheck.test.slice(1).map((part) => part.replace("8080", String(ports.get(name))))),
          ({ end }) => Effect.map(end, (code) => code === 0)
        ))

      const setup = yield* run("setup")
      assert.strictEqual(yield* setup.end, 0, setup.output())
      const running = yield* Effect.forEach(ours.filter((name) => !["setup", "client"].includes(name)), run)
      for (const name of Object.keys(services["client"]!.depends_on)) {
        yield* Effect.repeat(isHealthy(name), { until: (healthy) => healthy, times: 50 })
      }
      const client = yield* run("client")
      assert.strictEqual(yield* client.end, 0, client.output())
      assert.match(client.output(), /^records queried +3,000 +3,000 distinct/m)
      for (const { child } of running) child.kill("SIGTERM")
      for (const { end, output } of running) assert.strictEqual(yield* end, 0, output())
    }).pipe(Effect.scoped),
  120_000
)
