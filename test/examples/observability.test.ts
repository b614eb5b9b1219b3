import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { readFileSync } from "node:fs"
import { fileURLToPath } from "node:url"
import { parse } from "yaml"
import { Album, Pages, RuntimeLive } from "../../examples/observability/albums.ts"
import { serve } from "../../examples/observability/server.ts"
import { metricNames } from "../utils/metrics.ts"
import * as PgServer from "../utils/PgServer.ts"

const folder = new URL("../../examples/observability/", import.meta.url)
const read = (name: string) => readFileSync(fileURLToPath(new URL(name, folder)), "utf8")

interface Panel {
  readonly title: string
  readonly type: string
  readonly targets?: ReadonlyArray<{ readonly expr: string; readonly refId: string }>
  readonly fieldConfig?: {
    readonly defaults: object
    readonly overrides: ReadonlyArray<{
      readonly matcher: { readonly id: string; readonly options: string }
      readonly properties: ReadonlyArray<
        { readonly id: string; readonly value: ReadonlyArray<{ readonly url: string }> }
      >
    }>
  }
}

interface Linking {
  readonly links: ReadonlyArray<{ readonly title: string; readonly url: string }>
  readonly panels: ReadonlyArray<Panel>
  readonly templating: {
    readonly list: ReadonlyArray<
      {
        readonly name: string
        readonly type: string
        readonly query: string
        readonly current: { readonly value: string }
      }
    >
  }
}

/** Series of Prometheus that the metric has. */
const seriesNames = [...metricNames].flatMap(([id, type]) => {
  const name = id.replaceAll(".", "_")
  return type === "Histogram" ? [`${name}_bucket`, `${name}_sum`, `${name}_count`] : [name]
})

describe("observability", () => {
  it.live("/metrics is a page for Prometheus with what the application did, and /health says that it is well", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const app = RuntimeLive.pipe(
        Layer.provideMerge(Client.layer),
        Layer.provideMerge(PrismaProvider.layer({ url })),
        Layer.provideMerge(Logger.layer([]))
      )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const port = yield* serve(Pages, { port: 0 })
        const get = (page: string) =>
          Effect.promise(async () => {
            const response = await fetch(`http://127.0.0.1:${port}/${page}`)
            return { status: response.status, text: await response.text(), type: response.headers.get("content-type") }
          })
        yield* Effect.exit(client.execute(Album, { instanceId: "album", payload: { pictures: 3 } }))
        // Its reading leads to the sample of the store that the next one shows.
        yield* get("metrics")
        const { status, text, type } = yield* Effect.repeat(get("metrics"), {
          until: ({ text }) => text.includes("duroxide_oldest_message_age_seconds{")
        })
        assert.strictEqual(status, 200)
        assert.include(type, "text/plain; version=0.0.4")
        assert.match(
          text,
          /^duroxide_orchestration_starts_total\{orchestration_name="Album",version="1\.0\.0",initiated_by="client"\} \d+$/m
        )
        assert.match(text, /^duroxide_activity_duration_seconds_bucket\{activity_name="Resize",.*le="0\.05"\} \d+$/m)
        assert.match(text, /^provider_enqueue_orchestrator_duration_ms_count \d+$/m)
        assert.match(text, /^duroxide_pool_connections\{state="idle"\} \d+$/m)
        assert.match(text, /^duroxide_oldest_message_age_seconds\{queue="worker",tag="default"\} [\d.]+$/m)
        const ours = [...text.matchAll(/^# TYPE (\w+) /gm)].map(([, name]) => name!)
          .filter((name) => /^(provider|duroxide)_/.test(name))
        assert.includeMembers([...metricNames.keys()].map((id) => id.replaceAll(".", "_")), ours)

        const health = yield* get("health")
        assert.strictEqual(health.status, 200)
        assert.deepInclude(JSON.parse(health.text), { status: "healthy", problems: [] })
      }).pipe(Effect.scoped, Effect.provide(app))
    }).pipe(Effect.scoped))

  it("the dashboard shows metrics that exist, and all that show whether work is done", () => {
    const { panels } = JSON.parse(read("grafana/dashboard.json")) as { readonly panels: ReadonlyArray<Panel> }
    const charts = panels.filter(({ type }) => type !== "row")
    assert.isAbove(charts.length, 15)
    const used = charts.flatMap(({ targets = [], title }) => {
      assert.isNotEmpty(targets, title)
      return targets.flatMap(({ expr }) => [...expr.matchAll(/\b(?:duroxide|provider)_\w+/g)].map(([name]) => name))
    })
    assert.deepStrictEqual(used.filter((name) => !seriesNames.includes(name)), [])
    // Reading the numbers of samples is what leads to the next ones.
    const shown = (id: string) => used.some((name) => name.startsWith(id.replaceAll(".", "_")))
    assert.deepStrictEqual([...metricNames.keys()].filter((id) => !shown(id)).sort(), [
      "duroxide_outbox_samples_total",
      "duroxide_queue_samples_total",
      "duroxide_replica_samples_total",
      "duroxide_store_samples_total"
    ])
  })

  it("its links lead to the dashboard of this package: to all instances, and from each series of an orchestration", () => {
    const { links, panels, templating } = JSON.parse(read("grafana/dashboard.json")) as Linking
    const variable = templating.list.find(({ name }) => name === "dashboard_url")
    assert.deepInclude(variable, { type: "textbox", query: "http://localhost:4983" })
    assert.strictEqual(variable!.current.value, variable!.query)
    assert.deepStrictEqual(links.map(({ title, url }) => [title, url]), [["Instances", "${dashboard_url}/#/"]])

    const linked = panels.flatMap(({ fieldConfig, targets = [], title }) => {
      assert.notProperty(fieldConfig?.defaults ?? {}, "links", title)
      return (fieldConfig?.overrides ?? []).flatMap(({ matcher, properties }) => {
        assert.strictEqual(matcher.id, "byFrameRefID", title)
        const target = targets.find(({ refId }) => refId === matcher.options)
        return properties.filter(({ id }) => id === "links").flatMap(({ value }) =>
          value.map(({ url }) => ({ expr: target!.expr, url }))
        )
      })
    })
    // Names may have characters with a meaning in a URL.
    const ofName = "${dashboard_url}/#/instances?name=${__field.labels.orchestration_name:percentencode}"
    const statusOf = (expr: string) =>
      expr.includes("_failures_total") ? "&status=Failed" : expr.includes("_blocks_total") ? "&status=Blocked" : ""
    for (const { expr, url } of linked) assert.strictEqual(url, ofName + statusOf(expr), expr)
    assert.isTrue(linked.some(({ url }) => url.endsWith("Failed")))
    assert.sameMembers(
      linked.map(({ expr }) => expr),
      panels.flatMap(({ targets = [] }) => targets).map(({ expr }) => expr).filter((expr) =>
        /by \([^)]*orchestration_name/.test(expr)
      )
    )
  })

  it("the compose file runs PostgreSQL, Prometheus and Grafana, with files that exist", () => {
    const { services } = parse(read("compose.yaml")) as {
      readonly services: Record<string, { readonly image: string; readonly volumes?: ReadonlyArray<string> }>
    }
    assert.sameMembers(Object.keys(services), ["postgres", "prometheus", "grafana"])
    for (const { image, volumes = [] } of Object.values(services)) {
      assert.match(image, /^[\w/]+:v?\d/)
      for (const volume of volumes) assert.isNotEmpty(read(volume.split(":")[0]!))
    }
    const { scrape_configs: [job] } = parse(read("prometheus.yaml")) as {
      readonly scrape_configs: readonly [
        { readonly static_configs: readonly [{ readonly targets: ReadonlyArray<string> }] }
      ]
    }
    assert.deepStrictEqual(job.static_configs[0].targets, ["host.docker.internal:9464"])
    const { datasources: [source] } = parse(read("grafana/datasources.yaml")) as {
      readonly datasources: readonly [{ readonly url: string }]
    }
    assert.strictEqual(source.url, "http://prometheus:9090")
    assert.include(read("grafana/dashboards.yaml"), "path: /etc/dashboards")
  })
})
