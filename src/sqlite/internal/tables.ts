/**
 * Which row of the file becomes which row of PostgreSQL: the one description for copying and for comparing.
 */
import * as CoreVersion from "../../model/shared/coreVersion.ts"
import type { Has } from "./fileLayout.ts"

/** What a file and a target have in particular. */
export interface Shape {
  readonly has: Has
  /** Orchestrations whose executions under way are pinned to this package. */
  readonly served: ReadonlyArray<string>
  /** What the column `tag` of the target contains for an activity without a tag. */
  readonly noTag: string | null
}

/** The file as it is. */
export const plain = (has: Has): Shape => ({ has, served: [], noTag: null })

export interface Column {
  /** In PostgreSQL. */
  readonly name: string
  readonly kind: "text" | "number" | "time"
  readonly isNullable: boolean
  /** May be long. */
  readonly isPayload: boolean
  /** Largest number, with either sign. */
  readonly most: number
  /** Over the row `t` of the file; milliseconds for a time. */
  readonly sql: (shape: Shape) => string
}

export interface Table {
  /** In PostgreSQL. */
  readonly name: Name
  /** In the file. */
  readonly source: string
  readonly columns: ReadonlyArray<Column>
  /** Where a row `t` of the file has the id of its instance; none for rows without one. */
  readonly ids: (has: Has) => ReadonlyArray<{ readonly sql: string; readonly where: string }>
  /** The order of rows in the file; for tables with a key, the order of `key`. */
  readonly order: string
  /** Columns, beginning with the id of the instance; empty for rows without a key. */
  readonly key: ReadonlyArray<string>
}

/**
 * Columns of PostgreSQL that a file has not, by table, and what an import leaves in them: SQL over a row `t` of
 * PostgreSQL.
 */
export const derived: Readonly<Partial<Record<Name, ReadonlyArray<{ readonly name: string; readonly sql: string }>>>> =
  {
    // The triggers and functions of the store compute the route of an instance that Duroxide has written.
    instances: [{ name: "route", sql: "''" }],
    orchestrator_queue: [
      { name: "route", sql: "dx_message_route(t.instance_id, t.work_item)" },
      { name: "lock_token", sql: "NULL" }
    ],
    worker_queue: [
      { name: "route", sql: "dx_activity_route(t.work_item, t.tag, t.session_id)" },
      { name: "lock_token", sql: "NULL" }
    ]
  }

export type Name =
  | "instances"
  | "executions"
  | "history"
  | "kv_store"
  | "kv_delta"
  | "orchestrator_queue"
  | "worker_queue"
  | "sessions"

/** Rows of each table, before the first one. */
export const noCounts: Readonly<Record<Name, number>> = {
  instances: 0,
  executions: 0,
  history: 0,
  kv_store: 0,
  kv_delta: 0,
  orchestrator_queue: 0,
  worker_queue: 0,
  sessions: 0
}

/** The SQL of a time that is a number of milliseconds, or a text in UTC. */
export const milliseconds = (sql: string): string =>
  `CASE typeof(${sql}) WHEN 'integer' THEN ${sql} WHEN 'real' THEN CAST(${sql} AS INTEGER)
    ELSE CAST(round((julianday(${sql}) - 2440587.5) * 86400000) AS INTEGER) END`

/** Reads a time in milliseconds, and gives a text where the file has a text that is not a time. */
const checkedTime = (sql: string): string =>
  `COALESCE(${milliseconds(sql)}, CASE WHEN ${sql} IS NOT NULL THEN 'no time' END)`

/** What readers of every client take: the years 1 to 9999, milliseconds since the Unix epoch. */
export const times = { first: -62_135_596_800_000, last: 253_402_300_799_999 }

export const isPresent = ({ source }: Table, has: Has): boolean => has(source, presence[source] ?? "instance_id")

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const presence: Readonly<Record<string, string>> = { worker_queue: "id", timer_queue: "id", sessions: "session_id" }

/** Largest number of a column of four bytes. Twice as many would fit, but the store continues to count. */
const mostOfFourBytes = 1_000_000_000

interface Options {
  readonly from?: Column["sql"]
  readonly isNullable?: true
  readonly isPayload?: true
  readonly most?: number
}

const column =
  (kind: Column["kind"]) => (name: string, { from, isNullable, isPayload, most }: Options = {}): Column => ({
    name,
    kind,
    isNullable: isNullable ?? false,
    isPayload: isPayload ?? false,
    most: most ?? Number.MAX_SAFE_INTEGER,
    sql: from ?? (() => kind === "time" ? checkedTime(`t.${name}`) : `t.${name}`)
  })
const text = column("text")
const number = column("number")
const time = column("time")

/** Reads a time that the file may lack: then the beginning of the epoch. */
const orEpoch = (sql: string) => `COALESCE(${checkedTime(sql)}, 0)`

const pastTime = (name: string) => time(name, { from: () => orEpoch(`t.${name}`) })

/** When work is due. As everywhere in the store, the end of the year 9999 stands for all later times. */
const dueTime = (from: Column["sql"]) =>
  time("visible_at", {
    from: (shape) => {
      const sql = from(shape)
      return `CASE WHEN typeof(${sql}) = 'integer' THEN min(${sql}, ${times.last}) ELSE ${sql} END`
    }
  })

/** A column that older files lack. */
const later = (source: string, name: string, otherwise = "NULL", sql = `t.${name}`) => ({ has }: Shape) =>
  has(source, name) ? sql : otherwise

const quoted = (value: string) => `'${value.replaceAll("'", "''")}'`

const ofColumn = () => [{ sql: "t.instance_id", where: "true" }]

function makeState(): ReadonlyArray<Table> {
  const pin = (part: "major" | "minor" | "patch") => {
    const name = `duroxide_version_${part}`
    return number(name, {
      isNullable: true,
      most: mostOfFourBytes,
      from: (shape) => {
        const stored = later("executions", name)(shape)
        return shape.served.length === 0
          ? stored
          : `CASE WHEN EXISTS (
              SELECT 1 FROM instances AS i
              WHERE i.instance_id = t.instance_id AND i.current_execution_id = t.execution_id
                AND t.status IN ('Running', 'ContinuedAsNew')
                AND i.orchestration_name IN (${shape.served.map(quoted).join(", ")})
            ) THEN ${CoreVersion.current[part]} ELSE ${stored} END`
      }
    })
  }
  const updated = (source: string) => number("last_updated_at_ms", { from: later(source, "last_updated_at_ms", "0") })
  return [
    {
      name: "instances",
      source: "instances",
      columns: [
        text("instance_id"),
        text("orchestration_name"),
        text("orchestration_version", { isNullable: true }),
        number("current_execution_id"),
        pastTime("created_at"),
        pastTime("updated_at"),
        text("parent_instance_id", { isNullable: true, from: later("instances", "parent_instance_id") }),
        text("custom_status", { isNullable: true, isPayload: true, from: later("instances", "custom_status") }),
        number("custom_status_version", {
          from: later("instances", "custom_status_version", "0"),
          most: mostOfFourBytes
        })
      ],
      ids: ofColumn,
      order: "t.instance_id",
      key: ["instance_id"]
    },
    {
      name: "executions",
      source: "executions",
      columns: [
        text("instance_id"),
        number("execution_id"),
        text("status"),
        text("output", { isNullable: true, isPayload: true }),
        pastTime("started_at"),
        time("completed_at", { isNullable: true }),
        pin("major"),
        pin("minor"),
        pin("patch")
      ],
      ids: ofColumn,
      order: "t.instance_id, t.execution_id",
      key: ["instance_id", "execution_id"]
    },
    {
      name: "history",
      source: "history",
      columns: [
        text("instance_id"),
        number("execution_id"),
        number("event_id"),
        text("event_type"),
        text("event_data", { isPayload: true }),
        pastTime("created_at")
      ],
      ids: ofColumn,
      order: "t.instance_id, t.execution_id, t.event_id",
      key: ["instance_id", "execution_id", "event_id"]
    },
    {
      name: "kv_store",
      source: "kv_store",
      columns: [
        text("instance_id"),
        text("key"),
        text("value", { isPayload: true }),
        // Core 0.1.30 no longer stores which execution has set the value.
        number("execution_id", {
          from: later(
            "kv_store",
            "execution_id",
            "COALESCE((SELECT i.current_execution_id FROM instances AS i WHERE i.instance_id = t.instance_id), 1)"
          )
        }),
        updated("kv_store")
      ],
      ids: ofColumn,
      order: "t.instance_id, t.key",
      key: ["instance_id", "key"]
    },
    {
      name: "kv_delta",
      source: "kv_delta",
      columns: [
        text("instance_id"),
        text("key"),
        text("value", { isNullable: true, isPayload: true }),
        updated("kv_delta")
      ],
      ids: ofColumn,
      order: "t.instance_id, t.key",
      key: ["instance_id", "key"]
    }
  ]
}

function makeWork(): ReadonlyArray<Table> {
  const json = (path: string) => `CASE WHEN json_valid(t.work_item) THEN json_extract(t.work_item, '${path}') END`
  const attempts = (source: string) =>
    number("attempt_count", { from: later(source, "attempt_count", "0"), most: mostOfFourBytes })

  /** A copy of a field of the work item. Rows that were written before the column was added have none. */
  const copied = (name: string, field: string, cast = (sql: string) => sql) => ({ has }: Pick<Shape, "has">) => {
    const fromItem = json(`$.ActivityExecute.${field}`)
    return cast(has("worker_queue", name) ? `COALESCE(t.${name}, ${fromItem})` : fromItem)
  }
  // Without migrations, Duroxide has made this column a text.
  const whole = (sql: string) => `CAST(${sql} AS INTEGER)`
  const activityInstance = copied("instance_id", "instance")
  const timerInstance = `COALESCE(${json("$.TimerFired.instance")}, ${json("$.TimerSchedule.instance")})`
  const message = [text("instance_id"), text("work_item", { isPayload: true })]
  return [
    {
      name: "orchestrator_queue",
      source: "orchestrator_queue",
      columns: [
        ...message,
        dueTime(() => orEpoch("t.visible_at")),
        pastTime("created_at"),
        attempts("orchestrator_queue")
      ],
      ids: ofColumn,
      order: "t.id",
      key: []
    },
    {
      // Of cores before 0.1.20; later ones leave it empty.
      name: "orchestrator_queue",
      source: "timer_queue",
      columns: [
        text("instance_id", { from: () => timerInstance }),
        text("work_item", {
          isPayload: true,
          from: () =>
            `CASE WHEN t.work_item LIKE '{"TimerSchedule"%' THEN '{"TimerFired"' || substr(t.work_item, 17)
              ELSE t.work_item END`
        }),
        dueTime(() => checkedTime("t.fire_at")),
        pastTime("created_at"),
        number("attempt_count", { from: () => "0" })
      ],
      ids: () => [{ sql: timerInstance, where: "true" }],
      order: "t.id",
      key: []
    },
    {
      name: "worker_queue",
      source: "worker_queue",
      columns: [
        text("work_item", { isPayload: true }),
        // 0 means since ever; gauges show the age of the oldest row.
        dueTime(
          later(
            "worker_queue",
            "visible_at",
            orEpoch("t.created_at"),
            `CASE WHEN t.visible_at = 0 THEN ${orEpoch("t.created_at")} ELSE ${checkedTime("t.visible_at")} END`
          )
        ),
        pastTime("created_at"),
        attempts("worker_queue"),
        text("instance_id", { isNullable: true, from: activityInstance }),
        number("execution_id", { isNullable: true, from: copied("execution_id", "execution_id", whole) }),
        number("activity_id", { isNullable: true, from: copied("activity_id", "id", whole) }),
        text("session_id", { isNullable: true, from: copied("session_id", "session_id") }),
        text("tag", {
          isNullable: true,
          from: (shape) => {
            const stored = copied("tag", "tag")(shape)
            return shape.noTag === null || shape.served.length === 0
              ? stored
              : `COALESCE(${stored}, CASE WHEN (
                  SELECT i.orchestration_name FROM instances AS i WHERE i.instance_id = ${activityInstance(shape)}
                ) IN (${shape.served.map(quoted).join(", ")}) THEN ${quoted(shape.noTag)} END)`
          }
        })
      ],
      ids: (has) => {
        const old = { sql: json("$.ActivityExecute.instance"), where: "true" }
        return has("worker_queue", "instance_id")
          ? [{ sql: "t.instance_id", where: "t.instance_id IS NOT NULL" }, { ...old, where: "t.instance_id IS NULL" }]
          : [old]
      },
      order: "t.id",
      key: []
    },
    {
      name: "sessions",
      source: "sessions",
      columns: [
        text("session_id"),
        text("worker_id"),
        // Every lock of the file is released.
        number("locked_until", { from: () => "0" }),
        number("last_activity_at")
      ],
      ids: () => [],
      order: "t.session_id",
      key: []
    }
  ]
}

// -----------------------------------------------------------------------------
// tables
// -----------------------------------------------------------------------------

/** In the order in which they are copied. Those of `state` are complete with the batch of their instance. */
export const state: ReadonlyArray<Table> = makeState()

/** Copied at the end, so that no instance runs before all are there. */
export const work: ReadonlyArray<Table> = makeWork()

/**
 * `work` in the order of its insertion. Messages come from the last to the first: each gets a smaller id than those
 * before.
 */
export const insertedWork: ReadonlyArray<Table> = [
  ...work.filter(({ name }) => name === "orchestrator_queue").toReversed().map((table) => ({
    ...table,
    order: "t.id DESC"
  })),
  ...work.filter(({ name }) => name !== "orchestrator_queue")
]

export const all: ReadonlyArray<Table> = [...state, ...work]
