import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"
import { counted, workedOff } from "../utils/reads.ts"

const id = (n: number) => `00000000-0000-0000-0000-${String(n).padStart(12, "0")}`
const ids = (...ns: ReadonlyArray<number>) => `{${ns.map(id).join()}}`
const items = (fields: object, ...ns: ReadonlyArray<number>) =>
  JSON.stringify(ns.map((n) => ({ task_id: id(n), attempt: 1, ...fields })))

/** What the functions of tasks read beside many that wait, have ended or are dead: few index entries, no table. */
const cases: Readonly<Record<string, readonly [sql: string, indexes: ReadonlyArray<string>, most: number]>> = {
  create: [
    `SELECT * FROM dx_create_tasks('[
      {"name":"T","key":"k","payload":"1","max_attempts":1,"queue":"tasks"},
      {"name":"T","key":"7","payload":"1","max_attempts":1,"queue":"tasks"}
    ]')`,
    ["queue_tasks_name_key_idx"],
    20
  ],
  claim: [
    `SELECT * FROM dx_claim_tasks('${ids(1, 2, 50_001, 3)}', '{T}', '{1000}', 'w')`,
    ["queue_tasks_pkey"],
    40
  ],
  renew: [`SELECT dx_renew_tasks('${items({ lease_ms: 1000 }, 1, 2)}')`, ["queue_tasks_pkey"], 20],
  lock: [`SELECT dx_lock_attempt('${id(1)}', 1)`, ["queue_tasks_pkey"], 4],
  take: [
    `SELECT * FROM dx_take_tasks(3, 'taken', 'me', 1000, '{T}', '{1000}', 'w')`,
    ["queue_messages_queue_visible_at_id_idx", "queue_messages_pkey", "queue_tasks_pkey"],
    60
  ],
  "take what others do not serve": [
    `SELECT * FROM dx_take_tasks(3, 'shared', 'me', 1000, '{U}', '{1000}', 'w')`,
    ["queue_tasks_queue_name_idx"],
    130
  ],
  "take none of what others do not serve": [
    `SELECT * FROM dx_take_tasks(3, 'other', 'me', 1000, '{T,U,V}', '{1000,1000,1000}', 'w')`,
    [],
    20
  ],
  "take under a limit": [
    `SELECT * FROM dx_take_tasks(3, 'limited', 'me', 1000, '{L}', '{1000}', 'w')`,
    ["queue_tasks_name_has_slot_limit_key_run_at_id_idx", "queue_messages_queue_visible_at_id_idx"],
    200
  ],
  "claim under a limit": [
    `SELECT * FROM dx_claim_tasks('${ids(60_011, 60_012)}', '{L}', '{1000}', 'w')`,
    ["queue_tasks_name_has_slot_limit_key_run_at_id_idx"],
    120
  ],
  complete: [`SELECT dx_complete_tasks('${ids(1, 2)}', '{1,1}', '{1,1}', '{f,f}', false)`, ["queue_tasks_pkey"], 20],
  fail: [
    `SELECT dx_fail_tasks('${items({ outcome: "Failed", error: "{}", delay_ms: 1 }, 2)}')`,
    ["queue_tasks_pkey"],
    20
  ],
  cancel: [`SELECT dx_cancel_tasks('{${id(3)}}', 'why')`, ["queue_tasks_pkey"], 20],
  await: [`SELECT * FROM dx_await_tasks('{${id(4)},${id(50_002)}}')`, ["queue_tasks_pkey"], 20],
  sweep: ["SELECT * FROM dx_sweep_tasks(10, 5)", ["queue_tasks_look_at_idx", "queue_tasks_dead_at_id_idx"], 200],
  "first sweep of a worker": [
    "SELECT * FROM dx_sweep_tasks(10, 5, '{T}')",
    ["queue_tasks_name_idx", "queue_tasks_look_at_idx"],
    200
  ],
  "redrive by id": [`SELECT dx_redrive_tasks('{${id(45_001)}}', NULL, 10)`, ["queue_tasks_pkey"], 20],
  "redrive by name": ["SELECT dx_redrive_tasks(NULL, 'T', 10)", ["queue_tasks_dead_at_id_idx"], 60],
  clean: ["SELECT dx_clean_tasks(1000, 1000, 20)", ["queue_tasks_ended_at_idx", "queue_task_attempts_pkey"], 150]
}

const tables = ["queue_messages", "queue_tasks", "queue_task_attempts", "queue_dataset_batches"]

const fill = `
  INSERT INTO queue_tasks (id, name, key, payload, status, max_attempts, run_at, look_at, queue, created_at, updated_at,
      ended_at, dead_at)
    SELECT ('00000000-0000-0000-0000-' || lpad(g::text, 12, '0'))::uuid, 'T', g::text, '1',
      CASE WHEN g <= 20000 THEN 'Pending' WHEN g <= 40000 THEN 'Completed' ELSE 'Dead' END, 3, now() - interval '1 hour',
      CASE WHEN g <= 20000 THEN now() + (g - 50) * interval '1 second' END, 'tasks', now(), now(),
      CASE WHEN g > 20000 AND g <= 40000 THEN now() - g * interval '1 second' END,
      CASE WHEN g > 40000 THEN now() - g * interval '1 second' END
    FROM generate_series(1, 50000) AS g;
  INSERT INTO queue_task_attempts (task_id, attempt, worker_id, started_at, ended_at, outcome)
    SELECT id, 1, 'w', now(), now(), 'Completed' FROM queue_tasks WHERE ended_at IS NOT NULL;
  INSERT INTO queue_messages (id, queue, payload, created_at, visible_at, lease_token)
    SELECT g, 'tasks', '{}', now(), now() + interval '1 hour', 'me' FROM generate_series(1, 20000) AS g;
  INSERT INTO queue_messages (id, queue, payload, created_at, visible_at)
    SELECT 20000 + g, 'taken', jsonb_build_object('kind', 'task_wakeup', 'task_id', '00000000-0000-0000-0000-' || lpad(g::text, 12, '0')),
      now(), now()
    FROM generate_series(11, 20) AS g;
  INSERT INTO queue_tasks (id, name, payload, status, max_attempts, run_at, look_at, unserved_at, has_slot, queue, created_at,
      updated_at)
    SELECT ('00000000-0000-0000-0000-' || lpad((90000 + g)::text, 12, '0'))::uuid,
      CASE WHEN g <= 5000 THEN 'U' WHEN g <= 10000 THEN 'V' ELSE 'W' END, '1', 'Pending', 3, now() - interval '1 hour',
      now() + interval '1 hour', now(), CASE WHEN g <= 10000 AND g > 5000 THEN false END,
      CASE WHEN g <= 5000 THEN 'shared' ELSE 'other' END, now(), now()
    FROM generate_series(1, 20000) AS g;
  INSERT INTO limits (kind, name, concurrency, since) VALUES ('task', 'L', 10, now());
  INSERT INTO queue_tasks (id, name, limit_key, has_slot, payload, status, max_attempts, run_at, look_at, queue, created_at,
      updated_at)
    SELECT ('00000000-0000-0000-0000-' || lpad((60000 + g)::text, 12, '0'))::uuid, 'L', 'k' || g % 10, g <= 5, '1',
      CASE WHEN g <= 5 THEN 'Running' ELSE 'Pending' END, 3, now() - interval '1 hour', now() + interval '1 hour',
      'limited', now(), now()
    FROM generate_series(1, 20000) AS g;
  INSERT INTO queue_messages (id, queue, payload, created_at, visible_at)
    SELECT 30000 + g, 'limited', jsonb_build_object('kind', 'task_wakeup', 'task_id',
        '00000000-0000-0000-0000-' || lpad((60000 + g)::text, 12, '0')), now(), now()
    FROM generate_series(11, 20) AS g`

describe("tasks read little:", () => {
  it.live.each(["on empty tables, analyzed", "on a queue that was full, analyzed", "without statistics"])(
    "planned %s",
    (planned) =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        for (const table of tables) yield* test.sql(`ALTER TABLE ${table} SET (autovacuum_enabled = off)`)
        if (planned.includes("was full")) {
          yield* workedOff(
            test,
            "queue_messages",
            `INSERT INTO queue_messages (queue, payload, created_at, visible_at)
          SELECT 'taken', '{}', now(), now() FROM generate_series(1, 20000)`
          )
        } else if (planned.endsWith("analyzed")) { for (const table of tables) yield* test.sql(`ANALYZE ${table}`) }
        const session = yield* counted(test)
        for (const [sql] of Object.values(cases)) yield* session(sql)
        yield* test.sql(fill)
        for (const [what, [sql, indexes, most]] of Object.entries(cases)) {
          const { reads } = yield* session(sql)
          assert.deepStrictEqual(reads.filter(({ is_table, scans }) => is_table && scans > 0), [], `${what}: scans`)
          const used = new Set(reads.filter(({ scans }) => scans > 0).map(({ name }) => name))
          // PostgreSQL 18 may take another index there, as test/prisma/indexes.long.test.ts says.
          if (!planned.includes("was full")) {
            assert.deepStrictEqual(indexes.filter((index) => !used.has(index)), [], `${what}: unused`)
          }
          assert.isAtMost(reads.reduce((sum, { entries }) => sum + entries, 0), most, `${what}: entries`)
        }
      }).pipe(Effect.scoped)
  )

  it.live("claims write no index, in sets of 100, too", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.database
      yield* sql(`SELECT FROM dx_create_tasks((SELECT jsonb_agg(jsonb_build_object('name', 'T', 'key', g::text,
        'payload', '1', 'max_attempts', 3, 'queue', 'tasks')) FROM generate_series(1, 100) AS g))`)
      // One statement, so that it can read the counters of its own transaction.
      const [counts] = yield* sql(
        `SELECT updates.*
         FROM (
           SELECT count(*) FILTER (WHERE out_outcome = 'Claimed')::int AS claims
           FROM dx_claim_tasks((SELECT array_agg((payload ->> 'task_id')::uuid) FROM queue_outbox), '{T}', '{30000}', 'w')
         ) AS claimed
         CROSS JOIN LATERAL (
           SELECT claimed.claims, pg_stat_get_xact_tuples_updated(oid)::int AS all,
             pg_stat_get_xact_tuples_hot_updated(oid)::int AS heap_only
           FROM pg_class
           WHERE relname = 'queue_tasks' AND claimed.claims >= 0 AND pg_table_is_visible(oid)
         ) AS updates`
      )
      assert.deepStrictEqual(counts, { claims: 100, all: 100, heap_only: 100 })
    }).pipe(Effect.scoped))
})
