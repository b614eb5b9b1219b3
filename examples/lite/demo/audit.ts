/**
 * Compares what a run left in databases and object store with the data set: nothing is missing, nothing is doubled.
 */
import { Effect, Schedule } from "effect"
import { AppData, State } from "../shared/databases.ts"
import { ObjectStore } from "../shared/objectStore.ts"
import type { Source } from "./source.ts"
import type { Run } from "./story.ts"

export interface Report {
  readonly batches: { readonly committed: number; readonly twice: number }
  readonly tasks: ReadonlyArray<{ readonly name: string; readonly tasks: number; readonly attempts: number }>
  readonly lost: number
  readonly failed: number
  readonly stale: number
  /** Parquet files that lost against a newer attempt; no version refers to them. */
  readonly orphans: number
  readonly outbox: number
  readonly censuses: { readonly cron: number; readonly webhook: number }
  /** One line per deviation; none when all is as it should be. */
  readonly problems: ReadonlyArray<string>
}

/** Waits up to `patience` seconds for a moment without work left, then looks. */
export const audit = Effect.fn("lite.audit")(function*(source: Source, run: Run, patience = 20) {
  const state = yield* State
  const data = yield* AppData
  const store = yield* ObjectStore
  const problems: Array<string> = []
  const compare = (what: string, found: unknown, wanted: unknown) => {
    if (found !== wanted) problems.push(`${what} is ${String(found)}, expected ${String(wanted)}`)
  }
  const count = Effect.fnUntraced(function*(db: typeof state, sql: string, values?: ReadonlyArray<unknown>) {
    const [row] = yield* db.query<{ count: number }>(`SELECT count(*)::int AS count FROM ${sql}`, values)
    return row!.count
  })

  // The cron fires all the time: what came after a moment at which all was done does not count.
  const quiet = state.query<{ moment: string }>(
    `SELECT clock_timestamp()::text AS moment
     WHERE NOT EXISTS (SELECT FROM queue_tasks WHERE ended_at IS NULL)
       AND NOT EXISTS (SELECT FROM queue_outbox WHERE sent_at IS NULL)`
  )
  const [found] = yield* Effect.repeat(quiet, {
    until: (rows) => rows.length > 0,
    schedule: Schedule.spaced("50 millis"),
    times: patience * 20
  })
  const before = [found?.moment ?? "infinity"]

  // Batches: each committed once, with all of its records, by an attempt that completed.
  const batches = yield* state.query<{ uri: string; records: number; done: number; status: string }>(
    `SELECT b.output_uri AS uri, b.output_record_count::int AS records, b.status,
            (SELECT count(*)::int FROM queue_tasks AS t
             WHERE t.id = b.task_id AND t.status = 'Completed') AS done
     FROM queue_dataset_batches AS b WHERE b.dataset_version = $1`,
    [run.version]
  )
  const committed = batches.filter(({ status }) => status === "Committed")
  compare("number of batches", batches.length, source.batches.length)
  compare("number of committed batches", committed.length, source.batches.length)
  compare("number of committed records", committed.reduce((sum, { records }) => sum + records, 0), source.records)
  compare("number of files committed", new Set(committed.map(({ uri }) => uri)).size, source.batches.length)
  compare("number of batches that completed once", committed.filter(({ done }) => done === 1).length, batches.length)
  const files = new Set(yield* store.list("parquet/"))
  compare("number of committed files that are missing", committed.filter(({ uri }) => !files.has(uri)).length, 0)

  // Records: as many as were generated, none twice, and each city has used what it used.
  const { summary } = run
  compare("version queried", summary.version, run.version)
  compare("number of records queried", summary.records, source.records)
  compare("number of distinct records", summary.distinct, source.records)
  for (const [city, wattHours] of source.wattHours) {
    compare(`watt hours of ${city}`, summary.cities[city]?.wattHours ?? 0, wattHours)
  }

  // Tasks and messages: all ended well, none left.
  const tasks = yield* state.query<{ name: string; tasks: number; attempts: number; completed: number }>(
    `SELECT name, count(*)::int AS tasks, sum(attempt)::int AS attempts,
            count(*) FILTER (WHERE status = 'Completed')::int AS completed
     FROM queue_tasks WHERE created_at <= $1 GROUP BY name ORDER BY min(created_at)`,
    before
  )
  for (const { completed, name, tasks: all } of tasks) compare(`number of completed tasks ${name}`, completed, all)
  compare("number of unsent outbox rows", yield* count(state, unsent, before), 0)
  compare("number of dead messages", yield* count(state, "queue_dead"), 0)
  compare("number of webhooks delivered", run.deliveries.length, 1)
  compare("number of webhooks with a wrong signature", run.forged, 0)

  // A count by webhook, although the webhook came twice; and one for each instant at which the cron fired.
  const counted = yield* state.query<{ id: string }>(
    "SELECT id::text AS id FROM queue_tasks WHERE name = 'Census' AND status = 'Completed' AND created_at <= $1",
    before
  )
  const censusBy = (reason: "cron" | "webhook") =>
    count(data, "censuses WHERE task_id = ANY($1::uuid[]) AND reason = $2", [counted.map(({ id }) => id), reason])
  const censuses = { cron: yield* censusBy("cron"), webhook: yield* censusBy("webhook") }
  compare("number of counts", censuses.cron + censuses.webhook, counted.length)
  compare("number of counts that the webhook started", censuses.webhook, 1)

  return {
    batches: { committed: committed.length, twice: run.sentTwice },
    tasks,
    lost: yield* count(state, "queue_task_attempts WHERE outcome = 'Lost'"),
    failed: yield* count(state, "queue_task_attempts WHERE outcome IN ('Failed', 'Died')"),
    stale: yield* count(data, "stale_commits"),
    orphans: files.size - committed.length,
    outbox: yield* count(state, "queue_outbox"),
    censuses,
    problems
  } satisfies Report
})

const unsent = "queue_outbox WHERE sent_at IS NULL AND created_at <= $1"
