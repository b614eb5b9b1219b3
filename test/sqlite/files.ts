/**
 * SQLite files as Duroxide makes them, filled with SQL.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import Libsql from "libsql"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"

/** The migrations of core 0.1.30, as its SQLite provider contains them. */
const migrations: ReadonlyArray<{ readonly version: number; readonly description: string; readonly sql: string }> = [
  {
    version: 20240101000000,
    description: "initial schema",
    sql: `
CREATE TABLE instances (
    instance_id TEXT PRIMARY KEY,
    orchestration_name TEXT NOT NULL,
    orchestration_version TEXT NOT NULL,
    current_execution_id INTEGER NOT NULL DEFAULT 1,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    updated_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE TABLE executions (
    instance_id TEXT NOT NULL,
    execution_id INTEGER NOT NULL,
    status TEXT NOT NULL DEFAULT 'Running',
    output TEXT,
    started_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    completed_at TIMESTAMP,
    PRIMARY KEY (instance_id, execution_id)
);
CREATE TABLE history (
    instance_id TEXT NOT NULL,
    execution_id INTEGER NOT NULL,
    event_id INTEGER NOT NULL,
    event_type TEXT NOT NULL,
    event_data TEXT NOT NULL, -- JSON serialized Event
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    PRIMARY KEY (instance_id, execution_id, event_id)
);
CREATE TABLE orchestrator_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    instance_id TEXT NOT NULL,
    work_item TEXT NOT NULL, -- JSON serialized WorkItem
    visible_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP,
    lock_token TEXT,
    locked_until TIMESTAMP,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_orch_visible ON orchestrator_queue(visible_at, lock_token);
CREATE INDEX idx_orch_instance ON orchestrator_queue(instance_id);
CREATE INDEX idx_orch_lock ON orchestrator_queue(lock_token);
CREATE TABLE worker_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    work_item TEXT NOT NULL, -- JSON serialized WorkItem
    lock_token TEXT,
    locked_until TIMESTAMP,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_worker_available ON worker_queue(lock_token, id);
CREATE TABLE timer_queue (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    work_item TEXT NOT NULL, -- JSON serialized WorkItem
    fire_at TIMESTAMP NOT NULL,
    lock_token TEXT,
    locked_until TIMESTAMP,
    created_at TIMESTAMP DEFAULT CURRENT_TIMESTAMP
);
CREATE INDEX idx_timer_fire ON timer_queue(fire_at, lock_token);
CREATE TABLE instance_locks (
    instance_id TEXT PRIMARY KEY,
    lock_token TEXT NOT NULL,
    locked_until INTEGER NOT NULL,
    locked_at INTEGER NOT NULL
);`
  },
  {
    version: 20240102000000,
    description: "add attempt count",
    sql: `
ALTER TABLE orchestrator_queue ADD COLUMN attempt_count INTEGER NOT NULL DEFAULT 0 CHECK(attempt_count >= 0);
ALTER TABLE worker_queue ADD COLUMN attempt_count INTEGER NOT NULL DEFAULT 0 CHECK(attempt_count >= 0);`
  },
  {
    version: 20240103000000,
    description: "add worker visible at",
    sql: "ALTER TABLE worker_queue ADD COLUMN visible_at INTEGER NOT NULL DEFAULT 0;"
  },
  {
    version: 20240104000000,
    description: "add worker activity identity",
    sql: `
ALTER TABLE worker_queue ADD COLUMN instance_id TEXT;
ALTER TABLE worker_queue ADD COLUMN execution_id INTEGER;
ALTER TABLE worker_queue ADD COLUMN activity_id INTEGER;
CREATE INDEX idx_worker_activity ON worker_queue(instance_id, execution_id, activity_id);`
  },
  {
    version: 20240105000000,
    description: "add parent instance id",
    sql: `
ALTER TABLE instances ADD COLUMN parent_instance_id TEXT REFERENCES instances(instance_id);
CREATE INDEX idx_instances_parent ON instances(parent_instance_id);`
  },
  {
    version: 20240106000000,
    description: "add pinned version",
    sql: `
ALTER TABLE executions ADD COLUMN duroxide_version_major INTEGER;
ALTER TABLE executions ADD COLUMN duroxide_version_minor INTEGER;
ALTER TABLE executions ADD COLUMN duroxide_version_patch INTEGER;`
  },
  {
    version: 20240107000000,
    description: "add sessions",
    sql: `
ALTER TABLE worker_queue ADD COLUMN session_id TEXT;
CREATE INDEX idx_worker_queue_session ON worker_queue(session_id);
CREATE TABLE sessions (
    session_id     TEXT PRIMARY KEY,
    worker_id      TEXT NOT NULL,
    locked_until   INTEGER NOT NULL,
    last_activity_at INTEGER NOT NULL
);`
  },
  {
    version: 20240108000000,
    description: "add custom status",
    sql: `
ALTER TABLE instances ADD COLUMN custom_status TEXT;
ALTER TABLE instances ADD COLUMN custom_status_version INTEGER NOT NULL DEFAULT 0;`
  },
  {
    version: 20240109000000,
    description: "add activity tags",
    sql: `
ALTER TABLE worker_queue ADD COLUMN tag TEXT;
CREATE INDEX idx_worker_queue_tag ON worker_queue(tag);`
  },
  {
    version: 20240110000000,
    description: "add kv store",
    sql: `
CREATE TABLE kv_store (
    instance_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    execution_id INTEGER NOT NULL,
    PRIMARY KEY (instance_id, key)
);`
  },
  {
    version: 20240111000000,
    description: "add kv last updated",
    sql: "ALTER TABLE kv_store ADD COLUMN last_updated_at_ms INTEGER NOT NULL DEFAULT 0;"
  },
  {
    version: 20240112000000,
    description: "add kv delta",
    sql: `
CREATE TABLE kv_delta (
    instance_id TEXT NOT NULL,
    key         TEXT NOT NULL,
    value       TEXT,
    last_updated_at_ms INTEGER NOT NULL,
    PRIMARY KEY (instance_id, key)
);
CREATE TABLE kv_store_new (
    instance_id TEXT NOT NULL,
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    last_updated_at_ms INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (instance_id, key)
);
DROP TABLE kv_store;
ALTER TABLE kv_store_new RENAME TO kv_store;`
  }
]

export interface TestFile {
  readonly path: string
  /** Runs statements, on a connection that stays open: what they write is in the write-ahead log. */
  readonly sql: (text: string, ...values: ReadonlyArray<unknown>) => void
  /** Closes that connection, which moves the log into the file. */
  readonly close: () => void
}

/** A file with the first migrations, all by default; removed with the scope. */
export const make = (count = migrations.length): Effect.Effect<TestFile, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const folder = mkdtempSync(join(tmpdir(), "duroxide-sqlite-"))
      const path = join(folder, "store #1?.db")
      const database = new Libsql(path)
      database.pragma("journal_mode = WAL")
      database.exec(
        `CREATE TABLE _sqlx_migrations (version BIGINT PRIMARY KEY, description TEXT NOT NULL,
         installed_on TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP, success BOOLEAN NOT NULL, checksum BLOB NOT NULL,
         execution_time BIGINT NOT NULL)`
      )
      const sql: TestFile["sql"] = (text, ...values) => {
        if (values.length === 0) database.exec(text)
        else database.prepare(text).run(...values)
      }
      for (const { description, sql: text, version } of migrations.slice(0, count)) {
        sql(text)
        sql("INSERT INTO _sqlx_migrations VALUES (?, ?, '2026-01-01 00:00:00', 1, x'00', 1)", version, description)
      }
      let isOpen = true
      const close = () => {
        if (isOpen) database.close()
        isOpen = false
      }
      return { folder, path, sql, close }
    }),
    ({ close, folder }) =>
      Effect.sync(() => {
        close()
        rmSync(folder, { recursive: true })
      })
  )

/** The text of an event. */
export const event = (instanceId: string, eventId: number, type: string, fields: object, executionId = 1) =>
  JSON.stringify({
    event_id: eventId,
    source_event_id: null,
    instance_id: instanceId,
    execution_id: executionId,
    timestamp_ms: 1_790_000_000_000 + eventId,
    duroxide_version: "0.1.30",
    type,
    ...fields
  })

/** An instance that waits for a signal, in execution 1, with `events` events. */
export const addWaiting = (
  { sql }: TestFile,
  id: string,
  { events = 2, name = "Errand" }: { readonly events?: number; readonly name?: string } = {}
) => {
  sql(
    `INSERT INTO instances (instance_id, orchestration_name, orchestration_version, created_at, updated_at)
     VALUES (?, ?, '1.0.0', '2026-10-01 10:00:00', '2026-10-01 10:00:01')`,
    id,
    name
  )
  sql(
    `INSERT INTO executions (instance_id, execution_id, started_at, duroxide_version_major, duroxide_version_minor,
       duroxide_version_patch) VALUES (?, 1, '2026-10-01 10:00:00', 0, 1, 30)`,
    id
  )
  const started = { name, version: "1.0.0", input: `"${id}"`, parent_instance: null, parent_id: null }
  for (let n = 1; n <= events; n++) {
    const [type, data] = n === 1
      ? ["OrchestrationStarted", event(id, 1, "OrchestrationStarted", started)]
      : n === events
      ? ["ExternalSubscribed", event(id, n, "ExternalSubscribed", { name: "Answer" })]
      : ["CustomStatusUpdated", event(id, n, "CustomStatusUpdated", { status: "x".repeat(200) })]
    sql("INSERT INTO history VALUES (?, 1, ?, ?, ?, '2026-10-01 10:00:00')", id, n, type, data)
  }
}

/** A message for an instance, as old as the file, undelivered. */
export const addMessage = ({ sql }: TestFile, id: string, item: object, visibleAt: unknown = 1_790_000_000_123) =>
  sql(
    `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
     VALUES (?, ?, ?, '2026-10-01 10:00:00')`,
    id,
    JSON.stringify(item),
    visibleAt
  )

export const signal = (id: string, data: string) => ({ ExternalRaised: { instance: id, name: "Answer", data } })

/**
 * Instances in every state: `parent` waits for its `child`, `eternal` has continued as new, `done`, `failed`, `unread`,
 * whose one event is not an event, and `new`, which is a message only. Work has locks and attempts.
 */
export const addEverything = (file: TestFile, lockedUntil = 1_790_000_000_000) => {
  const { sql } = file
  for (const id of ["parent", "child", "eternal", "done", "failed", "unread"]) addWaiting(file, id, { events: 3 })
  sql(
    "UPDATE instances SET parent_instance_id = 'parent', custom_status = 'half', custom_status_version = 2 WHERE instance_id = 'child'"
  )
  sql(
    "UPDATE executions SET status = 'Completed', output = '\"ok ü\"', completed_at = '2026-10-01 10:00:02' WHERE instance_id = 'done'"
  )
  sql(
    "UPDATE executions SET status = 'Failed', output = 'boom', completed_at = 1790000000456 WHERE instance_id = 'failed'"
  )
  sql("UPDATE executions SET status = 'ContinuedAsNew', output = '2' WHERE instance_id = 'eternal'")
  sql(`INSERT INTO executions (instance_id, execution_id, started_at, duroxide_version_major, duroxide_version_minor,
         duroxide_version_patch) VALUES ('eternal', 2, '2026-10-01 10:00:03', 0, 1, 30);
       UPDATE instances SET current_execution_id = 2 WHERE instance_id = 'eternal';
       UPDATE history SET event_data = 'garbage \\u0000' WHERE instance_id = 'unread' AND event_id = 2`)
  sql(
    "INSERT INTO history VALUES ('eternal', 2, 1, 'OrchestrationStarted', ?, '2026-10-01 10:00:03')",
    event("eternal", 1, "OrchestrationStarted", { name: "Errand", version: "1.0.0", input: "2" }, 2)
  )
  sql(`INSERT INTO kv_store VALUES ('eternal', 'käse', '', 1790000000001), ('done', 'k', '1', 0);
       INSERT INTO kv_delta VALUES ('eternal', 'käse', NULL, 1790000000002), ('parent', 'new', 'v', 1790000000003)`)
  sql("INSERT INTO sessions VALUES ('session', 'worker', ?, 1790000000000)", lockedUntil)
  sql("INSERT INTO instance_locks VALUES ('parent', 'lock_1', ?, 1)", lockedUntil)
  const worker = (id: string, activityId: number, more: object, columns: string) =>
    sql(
      `INSERT INTO worker_queue (work_item, visible_at, attempt_count, created_at, lock_token, locked_until, instance_id,
         execution_id, activity_id, session_id, tag)
       VALUES (?, 1790000000007, ${activityId}, '2026-10-01 10:00:04', 'token', ${lockedUntil}, ?, 1, ?, ${columns})`,
      JSON.stringify({
        ActivityExecute: { instance: id, execution_id: 1, id: activityId, name: "Charge", input: "1", ...more }
      }),
      id,
      activityId
    )
  worker("child", 3, { session_id: "session" }, "'session', NULL")
  worker("child", 2, { tag: "gpu" }, "NULL, 'gpu'")
  worker("parent", 1, {}, "NULL, NULL")
  addMessage(file, "eternal", {
    TimerFired: { instance: "eternal", execution_id: 2, id: 5, fire_at_ms: 4_000_000_000_000 }
  }, 4_000_000_000_000)
  addMessage(file, "child", signal("child", "first"))
  addMessage(file, "parent", {
    SubOrchCompleted: { parent_instance: "parent", parent_execution_id: 1, parent_id: 3, result: "1" }
  })
  addMessage(file, "child", signal("child", "second"), 1_789_999_999_999)
  sql(
    `UPDATE orchestrator_queue SET attempt_count = 4, lock_token = 'lock_1', locked_until = ${lockedUntil} WHERE instance_id = 'parent'`
  )
  addMessage(file, "new", {
    StartOrchestration: {
      instance: "new",
      orchestration: "Errand",
      input: "1",
      version: null,
      parent_instance: null,
      parent_id: null,
      execution_id: 1
    }
  })
}
