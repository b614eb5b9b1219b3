/**
 * Compares docs/observability.md with the metrics, and names the test of each.
 */
import { assert, describe, it } from "@effect/vitest"
import { Metrics, Runtime } from "duroxide-prisma"
import { Health } from "duroxide-prisma/observability"
import * as Effect from "effect/Effect"
import { FetchHttpClient } from "effect/http"
import * as Layer from "effect/Layer"
import { Otlp, PrometheusMetrics } from "effect/observability"
import * as Docs from "../utils/docs.ts"

const page = Docs.read("docs/observability.md")
/** Their examples are those of tracing.test.ts. */
const traces = Docs.section("docs/observability.md", "Traces")

const Pages = Layer.mergeAll(PrometheusMetrics.layerHttp(), Health.layerHttp())

const OtlpLive = Otlp.layerJson({
  baseUrl: "http://localhost:4318",
  resource: { serviceName: "orders" }
}).pipe(Layer.provide(FetchHttpClient.layer))

const HealthPage = Health.layerHttp().pipe(Layer.provide(Health.layerTasks()))

const problems = Effect.map(Health.check, (report) => report.problems)

const isAlive = Effect.gen(function*() {
  const runtime = yield* Runtime.Runtime
  const health = yield* runtime.health
  return health.state !== "Failed"
})

/** The rows of the tables of metrics. */
const rows = [...page.matchAll(/^\| `((?:provider\.|duroxide_)[a-z_.]+)` +\| (.*?) +\| (.*?) +\| .*? +\|$/gm)]
  .map(([, name, unit, labels]) => ({
    name: name!,
    unit: unit!,
    labels: [...labels!.matchAll(/`([a-z_]+)`/g)].map(([, label]) => label!)
  }))

/** The test that proves each metric, by file and name. */
const proofs: Record<string, Record<string, ReadonlyArray<string>>> = {
  "test/provider/metrics.test.ts": {
    "each of the five histograms observes its own call, in milliseconds of the monotonic clock": [
      "provider.fetch_orchestration_item_duration_ms",
      "provider.ack_orchestration_item_duration_ms",
      "provider.dequeue_worker_duration_ms",
      "provider.ack_worker_duration_ms",
      "provider.enqueue_orchestrator_duration_ms"
    ],
    "the size of a set is observed for each statement, and what each claim finds": [
      "duroxide_statement_batch_size",
      "duroxide_claim_batch_size"
    ]
  },
  "test/provider/retries.test.ts": {
    "every failed statement of every call is counted, also when a retry heals it": ["provider.infrastructure_errors"],
    "every repeated send of a turn is counted: retries, and single sends of a split set": [
      "provider.ack_orchestration_retries"
    ]
  },
  "test/provider/pollGauges.test.ts": {
    "each look is counted with its reason": ["duroxide_wake_reasons_total"],
    "the time from a hint to the next claim is observed, once for each claim of work": ["duroxide_hint_to_claim_ms"],
    "the mode of each queue is shown": ["duroxide_aggressive_polling"],
    "the state of the listener is shown": ["duroxide_listener_connected"]
  },
  "test/prisma/poolGauges.test.ts": {
    "show open and waiting connections while the database is open": [
      "duroxide_pool_connections",
      "duroxide_pool_waiting"
    ]
  },
  "test/prisma/readReplica.long.test.ts": {
    "answers the reads of Admin, with its lag; all else goes to the primary": [
      "duroxide_replica_samples_total",
      "duroxide_replica_lag_seconds"
    ]
  },
  "test/provider/storeGauges.test.ts": {
    "cost nothing until they are read; a reader finds the sample that the one before led to": [
      "duroxide_store_samples_total",
      "duroxide_oldest_message_age_seconds",
      "duroxide_orchestrator_queue_depth",
      "duroxide_worker_queue_depth",
      "duroxide_active_orchestrations",
      "duroxide_blocked_instances",
      "duroxide_limited_activities",
      "duroxide_limited_instances"
    ]
  },
  "test/runtime/metrics.test.ts": {
    "starts are counted once, by who began them; ends by their status; history sizes and turns": [
      "duroxide_orchestration_starts_total",
      "duroxide_orchestration_turns_total",
      "duroxide_orchestration_completions_total",
      "duroxide_orchestration_history_size"
    ],
    "failures are counted once, by what failed": ["duroxide_orchestration_failures_total"],
    "what no code here can run is counted at each try, by name and reason": [
      "duroxide_orchestration_blocks_total",
      "duroxide_activity_blocks_total"
    ],
    "the duration of an execution is that of all its turns, by the clock of the store": [
      "duroxide_orchestration_duration_seconds"
    ],
    "a turn without a claim is counted with its start, and with the result that leads to it": [
      "duroxide_orchestration_dispatcher_processing_duration_ms",
      "duroxide_optimistic_turns_total"
    ],
    "activities are counted and timed, by name, outcome and tag": [
      "duroxide_activity_executions_total",
      "duroxide_activity_duration_seconds"
    ],
    "a handler that ignores its interruption is counted while it runs": ["duroxide_uninterrupted_handlers"],
    "lossy signals that find no open wait are counted": ["duroxide_signals_lost_total"],
    "an instance that fails as poison is counted": ["duroxide_orchestration_poison_total"],
    "an activity that fails as poison is counted": ["duroxide_activity_poison_total"]
  },
  "test/runtime/setAside.test.ts": {
    "blocks its instance for an hour, then it is set aside, and the next one is taken": [
      "duroxide_signals_set_aside_total"
    ]
  },
  "test/runtime/warmInstances.long.test.ts": {
    "limits: the least recently used programs are dropped, by number and by bytes": [
      "duroxide_orchestration_replays_total",
      "duroxide_warm_instances"
    ],
    "10,000 instances that wait: memory grows with the programs kept, not with those that wait": [
      "duroxide_warm_instance_bytes"
    ]
  },
  "test/queue/metrics.test.ts": {
    "PgQueue counts what it delivers, acknowledges and moves to the dead letters": [
      "duroxide_queue_messages_received_total",
      "duroxide_queue_messages_redelivered_total",
      "duroxide_queue_messages_acked_total",
      "duroxide_queue_messages_dead_total"
    ],
    "Consumer measures handlers by kind and outcome": ["duroxide_queue_handler_duration_seconds"],
    "reading the gauges of a queue samples it: what waits, since when, and what is dead": [
      "duroxide_queue_samples_total",
      "duroxide_queue_messages",
      "duroxide_queue_oldest_age_seconds"
    ]
  },
  "test/outbox/publisher.long.test.ts": {
    "a refused message does not block others; the log says so once, and a gauge counts it": [
      "duroxide_outbox_published_total",
      "duroxide_outbox_failures_total",
      "duroxide_outbox_samples_total",
      "duroxide_outbox_messages",
      "duroxide_outbox_oldest_age_seconds"
    ]
  },
  "test/tasks/recovery.long.test.ts": {
    "attempts are counted by their outcome, refused outputs apart, and tasks that have not ended by a sweep": [
      "duroxide_task_attempts_total",
      "duroxide_task_duration_seconds",
      "duroxide_task_stale_commits_total",
      "duroxide_tasks",
      "duroxide_task_oldest_age_seconds"
    ]
  },
  "test/schedules/scheduler.test.ts": {
    "occurrences are counted by their outcome": ["duroxide_schedule_runs_total"]
  },
  "test/recipes/Delivery.test.ts": {
    "attempts are counted by outcome and status, and timed": [
      "duroxide_delivery_attempts_total",
      "duroxide_delivery_duration_seconds"
    ]
  }
}

const timeUnits = ["milliseconds", "seconds", "bytes"]

describe("docs/observability.md:", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/observability.test.ts"))
    const examples = Docs.blocks(page.replace(traces, ""), "ts")
    assert.lengthOf(examples, 5)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
    for (const layer of [Pages, OtlpLive, HealthPage]) assert.isTrue(Layer.isLayer(layer))
    for (const effect of [problems, isAlive]) assert.isTrue(Effect.isEffect(effect))
  })

  it("its tables have every metric, with its unit and its labels", () => {
    const all = Object.values(Metrics).map(({ attributes, id, labels }) => ({
      name: id,
      labels: [...labels],
      unit: attributes?.["unit"]
    }))
    assert.deepStrictEqual(
      rows.map(({ labels, name, unit }) => ({
        name,
        labels,
        unit: timeUnits.includes(unit) ? unit : undefined
      })).toSorted((a, b) => a.name < b.name ? -1 : 1),
      all.toSorted((a, b) => a.name < b.name ? -1 : 1)
    )
  })

  it("each metric has a test, which exists", () => {
    const tests = Object.entries(proofs).flatMap(([file, tests]) =>
      Object.entries(tests).map(([test, names]) => ({ file, test, names }))
    )
    assert.sameMembers(tests.flatMap(({ names }) => [...names]), rows.map(({ name }) => name))
    for (const { file, test } of tests) assert.include(Docs.read(file), `"${test}"`)
  })
})
