/**
 * Runs what examples/lite/compose.yaml runs, without containers: its commands and settings on processes of this
 * machine. The images of PostgreSQL and MinIO are replaced by the server of the tests and fauxqs, names of services by
 * local ports.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { startFauxqs } from "fauxqs"
import { parse } from "yaml"
import * as Command from "../utils/command.ts"
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

/** `[node, file]` of the Dockerfile. */
const [program, file] = JSON.parse(/^ENTRYPOINT (.*)$/m.exec(Docs.read("examples/lite/Dockerfile"))![1]!) as [
  string,
  string
]

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
      for (const name of ours) ports.set(name, yield* Command.freePort)
      const here = (text: string) =>
        text.replace(
          /postgresql:\/\/.*@postgres:5432\/(\w+)/,
          (_, name) => urls.get(name)!
        )
          .replace(/http:\/\/(\w+):\d+/, (_, name) => `http://127.0.0.1:${ports.get(name)}`)
      const run = (name: string) =>
        Command.start([program, file, ...services[name]!.command], {
          ...Object.fromEntries(
            Object.entries(services[name]!.environment).map(([key, value]) => [key, here(String(value))])
          ),
          PORT: String(ports.get(name)),
          ...(name === "client" && { RECORDS: "3000" }),
          AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED: "true"
        })
      const isHealthy = (name: string) =>
        Effect.scoped(Effect.flatMap(
          Command.start(
            services[name]!.healthcheck.test.slice(1).map((part) => part.replace("8080", String(ports.get(name))))
          ),
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
    }).pipe(Effect.scoped)
)
