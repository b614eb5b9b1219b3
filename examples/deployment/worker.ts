/**
 * A worker as platforms run it: settings from the environment (docs/configuration.md), probes on `PORT`, an orderly end on SIGTERM.
 *
 *     DATABASE_URL=postgresql://… node build/examples/deployment/worker.js
 *
 * It serves one small orchestration; put your own in its place.
 */
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Health } from "duroxide-prisma/observability"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Config, Effect, Layer, Runtime as Run, Schema } from "effect"
import { PrometheusMetrics } from "effect/observability"
import { createServer } from "node:http"

const Greet = Activity.make("Greet", { payload: Schema.String, success: Schema.String })
const Welcome = Orchestration.make("Welcome", { payload: Schema.String, success: Schema.String })

const RuntimeLive = Runtime.layer({ orchestrations: [Welcome], activities: [Greet] }).pipe(
  Layer.provide([
    Welcome.toLayer((name) => Greet.execute(name)),
    Greet.toLayer((name) => Effect.succeed(`Hello, ${name}!`))
  ])
)

/**
 * - `/live`: whether this process can work. Asks the runtime only, so that an outage of the database restarts nothing.
 * - `/ready`: whether the work of the store gets done; for alerts, not for restarts.
 * - `/metrics`: for Prometheus.
 * - `POST /welcome/NAME`: starts an orchestration and answers with its result, to try it out.
 */
const answer = Effect.fnUntraced(function*(method: string, path: string) {
  const [, page, name] = path.split("/")
  if (page === "live") {
    const { state } = yield* Effect.flatMap(Runtime.Runtime, ({ health }) => health)
    return { status: state === "Failed" ? 503 : 200, body: JSON.stringify({ state }) }
  }
  if (page === "ready") {
    const report = yield* Health.check
    return { status: report.status === "healthy" ? 200 : 503, body: JSON.stringify(report) }
  }
  if (page === "metrics") return { status: 200, body: yield* PrometheusMetrics.format() }
  if (page === "welcome" && method === "POST" && name) {
    const client = yield* Client.Client
    const instanceId = `welcome-${name}`
    return { status: 200, body: yield* client.execute(Welcome, { instanceId, payload: name, ifExists: "ignore" }) }
  }
  return { status: 404, body: "no such page" }
})

const Pages = Layer.effectDiscard(Effect.gen(function*() {
  const port = yield* Config.Port("PORT").pipe(Config.withDefault(8080))
  const run = Effect.runPromiseWith(yield* Effect.context<Effect.Services<ReturnType<typeof answer>>>())
  const server = createServer((request, response) => {
    void run(answer(request.method ?? "GET", request.url ?? "/")).then(
      ({ body, status }) => void response.writeHead(status).end(body),
      () => void response.writeHead(500).end()
    )
  })
  yield* Effect.acquireRelease(
    Effect.callback<void>((resume) => void server.listen(port, () => resume(Effect.void))),
    () =>
      Effect.callback<void>((resume) => {
        server.close(() => resume(Effect.void))
        // A request that waits for a result would use up the time that the work has to end; its instance continues.
        server.closeAllConnections()
      })
  )
}))

// Migrations are applied once, by the deployment; a worker only checks them. It may start anew when they are already those
// of the next version.
const Store = PrismaProvider.layerEnvironment({ migrate: "verify", allowAhead: true })

// The settings come last, so that a wrong one is found before the store is opened. `/ready` uses them as well.
const App = Pages.pipe(
  Layer.provideMerge(RuntimeLive),
  Layer.provide(Client.layer),
  Layer.provide(Store),
  Layer.provide(RuntimeConfig.layerEnvironment())
)

const main = Run.makeRunMain(({ fiber, teardown }) => {
  const stop = () => fiber.interruptUnsafe()
  process.once("SIGINT", stop).once("SIGTERM", stop)
  // A requested stop is not a failure: an interruption exits with 0 instead of 130.
  fiber.addObserver((exit) => teardown(exit, (code) => process.exit(code === 130 ? 0 : code)))
})

main(Runtime.launch(App))
