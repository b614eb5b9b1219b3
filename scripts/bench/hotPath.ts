/**
 * Measures the statements of every turn and activity: claims and acks of both queues, by size of the set.
 *
 *     npm run bench -- hot-path [--instances 2000 --lanes 1 --sets 1,10,50 --backlog 0]
 *
 * Runs against `DATABASE_URL`, else an embedded PostgreSQL, in a schema of its own that it drops at the end. What the
 * numbers mean, and what they do not mean, is in README.md beside this file.
 */
import { Database, Migrator, PrismaDriver } from "duroxide-prisma/prisma"
import { ProviderDriver } from "duroxide-prisma/provider"
import { DatabaseServer } from "duroxide-prisma/server"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { parseArgs } from "node:util"

const { values } = parseArgs({
  options: {
    /** Instances per set size; each runs two turns and two activities. */
    instances: { type: "string", default: "2000" },
    /** Loops that claim and settle side by side, each with a connection. */
    lanes: { type: "string", default: "1" },
    /** Set sizes, one after another. */
    sets: { type: "string", default: "1,10,50" },
    /** How many messages of one locked instance, and delayed activities, stand before the work. */
    backlog: { type: "string", default: "0" }
  }
})
const instances = Number(values.instances)
const lanes = Number(values.lanes)
const sets = values.sets.split(",").map(Number)
const backlog = Number(values.backlog)

const version = { major: 1000, minor: 0, patch: 0 }
const event = (eventId: number) => ({
  eventId,
  eventType: "ActivityScheduled",
  eventData: JSON.stringify({
    event_id: eventId,
    source_event_id: null,
    instance_id: "bench-00000000",
    execution_id: 1,
    timestamp_ms: 1795222434609,
    duroxide_version: "1000.0.0",
    type: "ActivityScheduled",
    name: "Bench",
    input: JSON.stringify({ text: "x".repeat(120) })
  })
})
const activity = (instanceId: string, activityId: number): ProviderDriver.EncodedActivity => ({
  name: "Bench",
  workItem: JSON.stringify({
    ActivityExecute: {
      instance: instanceId,
      execution_id: 1,
      id: activityId,
      name: "Bench",
      input: JSON.stringify({ text: "x".repeat(120) })
    }
  }),
  instanceId,
  executionId: 1,
  activityId,
  sessionId: null,
  tag: null
})
const turn = (
  claimed: ProviderDriver.ClaimedInstance,
  changes: Partial<ProviderDriver.OrchestrationAck>
): ProviderDriver.OrchestrationAck => ({
  lockToken: claimed.lockToken,
  executionId: 1,
  history: [],
  customStatus: null,
  keyValues: [],
  status: null,
  output: null,
  orchestrationName: null,
  orchestrationVersion: null,
  parentInstanceId: null,
  pinnedVersion: null,
  workerItems: [],
  orchestratorItems: [],
  cancelledActivities: [],
  ...changes
})

/** Every statement's time in milliseconds, and the items it carried. */
class Samples {
  readonly times: Array<number> = []
  items = 0
  wallMs = 0
}

const table: Array<Record<string, string | number>> = []
const percentile = (sorted: ReadonlyArray<number>, p: number) =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * p))] ?? 0

const phase = Effect.fnUntraced(function*(
  set: number,
  loop: (
    time: <A, E>(
      operation: string,
      call: Effect.Effect<A, E>,
      items: (answer: A) => number
    ) => Effect.Effect<A, E>
  ) => Effect.Effect<boolean, ProviderDriverError>
) {
  const samples = new Map<string, Samples>()
  const time = <A, E>(operation: string, call: Effect.Effect<A, E>, items: (answer: A) => number) =>
    Effect.suspend(() => {
      const begin = performance.now()
      return Effect.map(call, (answer) => {
        const of = samples.get(operation) ?? new Samples()
        samples.set(operation, of)
        const carried = items(answer)
        if (carried > 0) {
          of.times.push(performance.now() - begin)
          of.items += carried
        }
        return answer
      })
    })
  const begin = performance.now()
  const lane = Effect.gen(function*() {
    while (yield* loop(time));
  })
  yield* Effect.all(Array.from({ length: lanes }, () => lane), { concurrency: "unbounded" })
  const wallMs = performance.now() - begin
  for (const [operation, { items, times }] of samples) {
    const sorted = times.toSorted((a, b) => a - b)
    const total = sorted.reduce((sum, one) => sum + one, 0)
    table.push({
      operation,
      set,
      statements: sorted.length,
      "p50 ms": Number(percentile(sorted, 0.5).toFixed(2)),
      "p99 ms": Number(percentile(sorted, 0.99).toFixed(2)),
      "statements/s": Math.round(lanes * 1000 * sorted.length / total),
      "items/s": Math.round(lanes * 1000 * items / total)
    })
  }
  return wallMs
})
type ProviderDriverError = Effect.Error<ReturnType<ProviderDriver.ProviderDriver["Service"]["readInstances"]>>

const run = Effect.gen(function*() {
  const driver = yield* ProviderDriver.ProviderDriver
  const fetch = (limit: number) =>
    driver.fetchOrchestrationItems({ limit, lockTimeoutMs: 60_000, versions: { min: version, max: version } })
  const many = (all: ReadonlyArray<unknown>) => all.length

  if (backlog > 0) {
    const messages = Array.from({ length: backlog }, () => ({
      instanceId: "hot",
      workItem: "{\"ExternalRaised\":{}}",
      visibleAtMs: null,
      delayMs: null
    }))
    yield* driver.enqueueForOrchestrator(messages.slice(0, 1))
    yield* driver.fetchOrchestrationItems({ limit: 1, lockTimeoutMs: 3_600_000, versions: null })
    for (let i = 0; i < backlog; i += 1000) yield* driver.enqueueForOrchestrator(messages.slice(i, i + 1000))
    for (let i = 0; i < backlog; i += 1000) {
      yield* driver.enqueueForWorker(messages.slice(i, i + 1000).map((_, j) => activity("hot", i + j)))
      const claimed = yield* driver.fetchWorkItems({
        limit: 1000,
        lockTimeoutMs: 60_000,
        tags: { _tag: "Any" },
        session: null
      })
      yield* driver.abandonWorkItems(
        claimed.map(({ lockToken }) => ({ lockToken, delayMs: 3_600_000, ignoreAttempt: false }))
      )
    }
  }

  for (const set of sets) {
    let next = 0
    yield* phase(set, (time) =>
      Effect.gen(function*() {
        if (next >= instances) return false
        const starts = Array.from({ length: Math.min(set, instances - next) }, (_, i) => ({
          instanceId: `bench-${set}-${next + i}`,
          orchestrationName: "Bench",
          orchestrationVersion: "1.0.0",
          workItem: JSON.stringify({ StartOrchestration: { instance: `bench-${set}-${next + i}`, input: "1" } }),
          pinnedVersion: version,
          delayMs: null
        }))
        next += set
        yield* time("startOrchestrations", driver.startOrchestrations(starts), many)
        return true
      }))
    yield* phase(set, (time) =>
      Effect.gen(function*() {
        const claimed = yield* time("fetchOrchestrationItems, first turn", fetch(set), many)
        if (claimed.length === 0) return false
        yield* time(
          "ackOrchestrationItems, 3 events 2 activities",
          driver.ackOrchestrationItems(claimed.map((claim) =>
            turn(claim, {
              history: [event(1), event(2), event(3)],
              orchestrationName: "Bench",
              orchestrationVersion: "1.0.0",
              status: "Running",
              workerItems: [activity(claim.instanceId, 2), activity(claim.instanceId, 3)]
            })
          )),
          many
        )
        return true
      }))
    yield* phase(set, (time) =>
      Effect.gen(function*() {
        const claimed = yield* time(
          "fetchWorkItems",
          driver.fetchWorkItems({ limit: set, lockTimeoutMs: 60_000, tags: { _tag: "DefaultOnly" }, session: null }),
          many
        )
        if (claimed.length === 0) return false
        yield* time(
          "ackWorkItems",
          driver.ackWorkItems(claimed.map(({ lockToken, workItem }) => ({
            lockToken,
            completion: { instanceId: JSON.parse(workItem).ActivityExecute.instance as string, workItem }
          }))),
          many
        )
        return true
      }))
    yield* phase(set, (time) =>
      Effect.gen(function*() {
        const claimed = yield* time("fetchOrchestrationItems, last turn", fetch(set), many)
        if (claimed.length === 0) return false
        yield* time(
          "ackOrchestrationItems, 3 events, end",
          driver.ackOrchestrationItems(claimed.map((claim) =>
            turn(claim, { history: [event(4), event(5), event(6)], status: "Completed", output: "1" })
          )),
          many
        )
        return true
      }))
  }
})

const heapOnlyUpdates = Effect.gen(function*() {
  const database = yield* Database.Database
  const rows = yield* Effect.promise(() =>
    database.client.$queryRawUnsafe<ReadonlyArray<Record<string, unknown>>>(
      `SELECT relname AS table, n_tup_upd::int AS updates, round(100.0 * n_tup_hot_upd / n_tup_upd, 1)::float8 AS "heap-only %"
       FROM pg_stat_user_tables WHERE schemaname = $1 AND n_tup_upd > 0 ORDER BY 1`,
      database.schema
    )
  )
  console.table(rows)
})

await Effect.gen(function*() {
  const server = yield* DatabaseServer.DatabaseServer
  const schema = `bench_${process.pid}`
  const database = Database.layer({ url: server.url, schema, maxConnections: lanes })
  console.log(`${server.description}; ${instances} instances per set size, ${lanes} lane(s), backlog ${backlog}`)
  yield* Effect.gen(function*() {
    yield* run
    console.table(table)
    yield* heapOnlyUpdates
  }).pipe(
    Effect.ensuring(Effect.gen(function*() {
      const { client } = yield* Database.Database
      yield* Effect.promise(() => client.$executeRawUnsafe(`DROP SCHEMA "${schema}" CASCADE`))
    })),
    Effect.provide(
      PrismaDriver.layer().pipe(
        Layer.provideMerge(database),
        Layer.provide(Migrator.layer({ url: Redacted.value(server.url), schema }))
      )
    )
  )
}).pipe(
  Effect.provide(DatabaseServer.layer({ directory: ".duroxide/bench" })),
  Effect.scoped,
  Effect.runPromise
)
