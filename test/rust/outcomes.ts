/**
 * How the instances of a store ended, in a form in which two stores can be compared.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { Store } from "./Lives.ts"

export interface Outcome {
  readonly name: string
  readonly version: string | null
  readonly parent: string | null
  readonly customStatus: string | null
  /** How often it changed. */
  readonly customStatusVersion: number
  /** Values that a client reads. */
  readonly keyValues: Readonly<Record<string, string>>
  readonly executions: ReadonlyArray<Execution>
  /** Messages and activities that are stored still, such as timers. */
  readonly queued: ReadonlyArray<string>
}

/**
 * The events of a history without their numbers and the times at which they were written. What came from outside has no
 * order: two activities may end in another order, and two messages may arrive in one turn or in two.
 */
export interface Execution {
  readonly status: string
  readonly output: string | null
  /** What the program did, in order. */
  readonly done: ReadonlyArray<Event>
  /** What it got, sorted; `source` is the index in `done` of what it answers. */
  readonly got: ReadonlyArray<Event>
}

export type Event = Readonly<Record<string, unknown>>

/** By instance id. */
export type Outcomes = Readonly<Record<string, Outcome>>

export const read = Effect.fnUntraced(function*({ query }: Pick<Store, "query">) {
  const instances = yield* query<InstanceRow>(
    `SELECT instance_id AS id, orchestration_name AS name, orchestration_version AS version, parent_instance_id AS parent,
       custom_status AS status, custom_status_version AS changes
     FROM instances`
  )
  const executions = group(
    yield* query<ExecutionRow>(
      "SELECT instance_id AS id, CAST(execution_id AS integer) AS number, status, output FROM executions ORDER BY execution_id"
    )
  )
  const events = group(
    yield* query<EventRow>(
      `SELECT instance_id AS id, CAST(execution_id AS integer) AS number, event_data AS event
       FROM history ORDER BY execution_id, event_id`
    )
  )
  const keyValues = group(
    yield* query<KeyValueRow>(
      `SELECT instance_id AS id, key, value FROM kv_delta WHERE value IS NOT NULL
       UNION ALL
       SELECT instance_id, key, value FROM kv_store
       WHERE NOT EXISTS (SELECT 1 FROM kv_delta AS d WHERE d.instance_id = kv_store.instance_id AND d.key = kv_store.key)
       ORDER BY 2`
    )
  )
  const queued = group(
    yield* query<QueuedRow>(
      `SELECT instance_id AS id, work_item AS item FROM orchestrator_queue
       UNION ALL SELECT instance_id, work_item FROM worker_queue`
    )
  )
  return Object.fromEntries(instances.map(({ changes, id, name, parent, status, version }): [string, Outcome] => [id, {
    name,
    version,
    parent,
    customStatus: status,
    customStatusVersion: changes,
    keyValues: Object.fromEntries((keyValues.get(id) ?? []).map(({ key, value }) => [key, value])),
    executions: (executions.get(id) ?? []).map(({ number, output, status }) => ({
      status,
      output,
      ...split((events.get(id) ?? []).filter((event) => event.number === number))
    })),
    queued: (queued.get(id) ?? []).map(({ item }) => item).sort()
  }])) as Outcomes
})

/**
 * Without what differs between the two runtimes: the version in their events, the words of a failure by poison, the
 * quotes around a failure that is a text, and timers that lost a race, which stay in the queue in Duroxide.
 */
export const ofAnySide = (outcomes: Outcomes): Outcomes =>
  Object.fromEntries(
    Object.entries(outcomes).map(([id, { executions, queued, ...outcome }]): [string, Outcome] => [id, {
      ...outcome,
      executions: executions.map(({ done, got, output, status }) => ({
        status,
        output: status === "Failed" ? unquoted(output!.replace(/^poison: .*/, "poison")) : output,
        done: done.map(plainly),
        got: sorted(got.map(plainly))
      })),
      queued: executions.at(-1)?.status === "Running" ? queued : []
    }])
  )

/**
 * Instances that Duroxide failed because SQLite refused it a lock, which happens now and then under load, with their
 * parents, which it then does not notify.
 */
export const refusedBySqlite = (outcomes: Outcomes): ReadonlySet<string> =>
  new Set(
    Object.entries(outcomes).flatMap(([id, { executions, parent }]) =>
      executions.at(-1)?.output?.startsWith("infrastructure:") === true ? parent === null ? [id] : [id, parent] : []
    )
  )

/** Shows the first instances that ended in another way. */
export const assertEqual = (actual: Outcomes, expected: Outcomes, except: ReadonlySet<string>): void => {
  const differ = [...new Set([...Object.keys(actual), ...Object.keys(expected)])]
    .filter((id) => !except.has(id) && JSON.stringify(actual[id]) !== JSON.stringify(expected[id]))
  const first = (outcomes: Outcomes) => Object.fromEntries(differ.slice(0, 3).map((id) => [id, outcomes[id]]))
  assert.deepStrictEqual(first(actual), first(expected), `${differ.length} differ: ${differ.slice(0, 100).join(", ")}`)
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

interface InstanceRow {
  readonly id: string
  readonly name: string
  readonly version: string | null
  readonly parent: string | null
  readonly status: string | null
  readonly changes: number
}

interface ExecutionRow {
  readonly id: string
  readonly number: number
  readonly status: string
  readonly output: string | null
}

interface EventRow {
  readonly id: string
  readonly number: number
  readonly event: string
}

interface KeyValueRow {
  readonly id: string
  readonly key: string
  readonly value: string
}

interface QueuedRow {
  readonly id: string
  readonly item: string
}

const group = <Row extends { readonly id: string }>(
  rows: ReadonlyArray<Row>
): ReadonlyMap<string, ReadonlyArray<Row>> => {
  const groups = new Map<string, Array<Row>>()
  for (const row of rows) {
    const others = groups.get(row.id)
    if (others === undefined) groups.set(row.id, [row])
    else others.push(row)
  }
  return groups
}

/** Written with what arrives, not by the program. */
const arrivals = new Set([
  "ActivityCompleted",
  "ActivityFailed",
  "TimerFired",
  "ExternalEvent",
  "ExternalEventPersistent",
  "SubOrchestrationCompleted",
  "SubOrchestrationFailed",
  "OrchestrationCancelRequested"
])

/** `fire_at_ms` stays: all timers of these instances were set before their store was copied. */
const split = (rows: ReadonlyArray<EventRow>): Pick<Execution, "done" | "got"> => {
  const all = rows.map(({ event }) => JSON.parse(event) as StoredEvent)
  const [got, done] = [true, false].map((arrives) => all.filter(({ type }) => arrivals.has(type) === arrives))
  const plain = ({ source_event_id, ...event }: StoredEvent) => ({
    ...without(event, ["event_id", "timestamp_ms", "last_updated_at_ms"]),
    source: source_event_id === null ? null : done!.findIndex(({ event_id }) => event_id === source_event_id)
  })
  return {
    done: done!.map(plain),
    got: sorted(got!.map(plain))
  }
}

const without = (event: Event, keys: ReadonlyArray<string>): Event =>
  Object.fromEntries(Object.entries(event).filter(([key]) => !keys.includes(key)))

const plainly = (event: Event): Event => {
  const { Application: failure, ...others } = (event.details ?? {}) as Details
  return {
    ...without(event, ["duroxide_version"]),
    details: failure === undefined ? Object.keys(others) : { ...failure, message: unquoted(failure.message) }
  }
}

interface Details {
  readonly Application?: { readonly message: string }
  readonly Poison?: unknown
}

const unquoted = (text: string): string => text.startsWith("\"") ? JSON.parse(text) as string : text

const sorted = (events: ReadonlyArray<Event>): ReadonlyArray<Event> =>
  events.map((event) => JSON.stringify(event)).sort().map((text) => JSON.parse(text) as Event)

interface StoredEvent extends Event {
  readonly event_id: number
  readonly source_event_id: number | null
  readonly type: string
}
