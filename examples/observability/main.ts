/**
 * `npm run example -- observability`, in a clone: resizes the pictures of some albums, and shows its own pages.
 *
 *     npm run example -- observability 3600   serves http://localhost:9464/metrics and /health for an hour
 *
 * With `docker compose -f examples/observability/compose.yaml up`, Prometheus reads them, and Grafana shows a dashboard at
 * http://localhost:3000. Its links lead to the dashboard of this package, which is another process:
 *
 *     npx duroxide-prisma ui --schema example_observability
 *
 * Open once what it prints, which has the token. Where yours is elsewhere, change the variable `dashboard_url` of
 * Grafana. With `DUROXIDE_DASHBOARD_URL=http://localhost:4983`, log lines and spans have such links, too. The one back
 * is an option of a dashboard that is mounted in a service:
 * `Dashboard.layer({ metricsUrl: "http://localhost:3000/d/duroxide-prisma", … })`.
 *
 * With `OTEL_EXPORTER_OTLP_ENDPOINT`, metrics, traces and logs are also sent there.
 */
import { Client, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Console, Effect, Layer, Schedule } from "effect"
import { FetchHttpClient } from "effect/http"
import { Otlp } from "effect/observability"
import { Album, Pages, RuntimeLive } from "./albums.ts"
import { serve } from "./server.ts"

const seconds = Number(process.argv[2] ?? 3)

const OtlpLive = process.env["OTEL_EXPORTER_OTLP_ENDPOINT"] === undefined
  ? Layer.empty
  : Otlp.layerJson({
    baseUrl: process.env["OTEL_EXPORTER_OTLP_ENDPOINT"],
    resource: { serviceName: "albums" }
  }).pipe(Layer.provide(FetchHttpClient.layer))

const App = RuntimeLive.pipe(
  Layer.provide(RuntimeConfig.layerEnvironment()),
  Layer.provideMerge(Client.layer),
  Layer.provideMerge(PrismaProvider.layerDefault({ schema: "example_observability" })),
  Layer.provideMerge(OtlpLive)
)

const main = Effect.gen(function*() {
  const client = yield* Client.Client
  const port = yield* serve(Pages, { port: process.argv[2] === undefined ? 0 : 9464 })
  yield* Console.log(`http://localhost:${port}/metrics and http://localhost:${port}/health`)
  let albums = 0
  yield* Effect.suspend(() =>
    client.start(Album, { instanceId: `album ${new Date().toISOString()} ${++albums}`, payload: { pictures: 10 } })
  ).pipe(
    Effect.repeat(Schedule.spaced("250 millis")),
    Effect.timeoutOption(`${seconds} seconds`)
  )
  const page = (name: string) => Effect.promise(async () => (await fetch(`http://localhost:${port}/${name}`)).text())
  const counters = (yield* page("metrics")).split("\n").filter((line) => /^duroxide_\w+_total/.test(line))
  yield* Effect.forEach(counters, (line) => Console.log(line))
  yield* Console.log(yield* page("health"))
})

await Effect.runPromise(main.pipe(Effect.scoped, Effect.provide(App)))
