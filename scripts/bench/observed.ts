/** What reads the metrics and takes the spans of the process under load. */
import * as Effect from "effect/Effect"
import * as FetchHttpClient from "effect/http/FetchHttpClient"
import * as Layer from "effect/Layer"
import * as Metric from "effect/Metric"
import * as OtlpSerialization from "effect/observability/OtlpSerialization"
import * as OtlpTracer from "effect/observability/OtlpTracer"
import * as PrometheusMetrics from "effect/observability/PrometheusMetrics"
import * as Option from "effect/Option"
import * as References from "effect/References"
import * as Tracer from "effect/Tracer"
import { fork } from "node:child_process"
import { once } from "node:events"
import { fileURLToPath } from "node:url"

/**
 * What is recorded. Metrics are read every second. Spans are `sent` by OTLP as JSON to a process beside; `dropped` as
 * soon as they end, which is what they cost without an exporter; or `unsampled`: no trace is sampled. `nothing` has
 * neither metrics nor spans.
 */
export type Observed = "sent" | "dropped" | "unsampled" | "metrics" | "nothing"

export const layer = (observed: Observed): Layer.Layer<never> =>
  Layer.mergeAll(
    tracers[observed],
    observed === "nothing"
      ? Layer.succeed(Metric.MetricRegistry, new NoRegistry())
      : Layer.effectDiscard(Effect.forkScoped(Effect.forever(Effect.delay(PrometheusMetrics.format(), 1_000))))
  )

// internal

const collector = Effect.acquireRelease(
  Effect.promise(async () => {
    const child = fork(fileURLToPath(new URL("collector.js", import.meta.url)), { stdio: ["ignore", 2, 2, "ipc"] })
    const [port] = await once(child, "message")
    return { child, url: `http://127.0.0.1:${port}/v1/traces` }
  }),
  ({ child }) => Effect.sync(() => child.disconnect())
)

const otlp = Layer.unwrap(
  Effect.map(collector, ({ url }) => OtlpTracer.layer({ url, resource: { serviceName: "bench" } }))
).pipe(
  Layer.provide([OtlpSerialization.layerJson, FetchHttpClient.layer])
)

/** A tracer that samples no trace that begins here. */
const unsampled = Layer.effect(
  Tracer.Tracer,
  Effect.map(Effect.tracer, (tracer) =>
    Tracer.make({
      span: (options) => tracer.span(Option.isSome(options.parent) ? options : { ...options, sampled: false })
    }))
)

const none = Layer.succeed(References.TracerEnabled, false)

const tracers: { readonly [O in Observed]: Layer.Layer<never> } = {
  sent: otlp,
  dropped: Layer.succeed(Tracer.Tracer, Tracer.make({ span: (options) => new Tracer.NativeSpan(options) })),
  unsampled: Layer.provide(unsampled, otlp),
  metrics: none,
  nothing: none
}

/** Keeps no series: an update costs the look for it. */
class NoRegistry extends Map<string, Metric.Metric.Metadata<unknown, unknown>> {
  override get() {
    return { hooks: { get: () => ({}), update: () => {}, modify: () => {} } } as never
  }
}
