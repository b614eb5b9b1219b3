import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"
import { counted, workedOff } from "../utils/reads.ts"

/**
 * What each function of queues reads beside large backlogs, counted by the server: no table is scanned, and few entries
 * of indexes are read. A session may plan on empty tables, or on full ones.
 */

const token = "00000000-0000-4000-8000-000000000000"
const tokens = `array_fill('${token}'::text, ARRAY[10])`

const first = `
  INSERT INTO queue_messages (queue, payload, created_at, visible_at) VALUES ('work', '{}', now(), now());
  INSERT INTO queue_dead VALUES (1000000, 'work', '{}', now(), now(), 1, 20, 'no');`

/** 100,000 delayed messages, 10,000 under leases, those of other queues, dead ones, and 20 to receive. */
const backlog = `
  INSERT INTO queue_messages (queue, payload, created_at, visible_at)
    SELECT 'work', '{}', now(), now() + interval '1 hour' FROM generate_series(1, 100000);
  INSERT INTO queue_messages (id, queue, payload, created_at, visible_at, lease_token)
    SELECT 500000 + g, 'work', '{}', now(), now() + interval '1 minute', '${token}' FROM generate_series(1, 10000) AS g;
  INSERT INTO queue_messages (queue, payload, created_at, visible_at)
    SELECT 'other', '{}', now(), now() - interval '1 hour' FROM generate_series(1, 10000);
  INSERT INTO queue_dead
    SELECT 2000000 + g, CASE WHEN g > 100 THEN 'other' ELSE 'work' END, '{}', now(), now() - interval '1 hour', 1, 20, 'no'
    FROM generate_series(1, 10000) AS g;
  INSERT INTO queue_messages (queue, payload, created_at, visible_at)
    SELECT 'work', '{}', now(), now() - interval '1 second' FROM generate_series(1, 20);`

const ids = `ARRAY(SELECT 500000 + g FROM generate_series(1, 10) AS g)::bigint[]`

/** Each works on ten messages, or on the twenty that are visible. */
const calls: Readonly<Record<string, string>> = {
  dx_publish_messages:
    `SELECT dx_publish_messages((SELECT jsonb_agg(jsonb_build_object('queue', 'work', 'payload', '{}'::jsonb,
      'delay_ms', 0, 'max_attempts', 20)) FROM generate_series(1, 10)))`,
  dx_receive_messages: `SELECT * FROM dx_receive_messages(10, 'work', '${token}', 60000)`,
  "dx_receive_messages, more than there are": `SELECT * FROM dx_receive_messages(1000, 'work', '${token}', 60000)`,
  "dx_settle_messages, deleting": `SELECT dx_settle_messages(${ids}, ${tokens}, NULL)`,
  dx_extend_messages:
    `SELECT dx_extend_messages(${ids}, ${tokens}, array_fill(1000::bigint, ARRAY[10]), array_fill(false, ARRAY[10]))`,
  "dx_settle_messages, burying": `SELECT dx_settle_messages(${ids}, ${tokens}, array_fill('no'::text, ARRAY[10]))`,
  dx_redrive_messages: `SELECT dx_redrive_messages('work', 10)`
}

describe("the functions of queues, what they read:", () => {
  for (const planned of ["empty", "emptied", "full"] as const) {
    it.live(`few rows beside large backlogs, in a session that planned on ${planned} tables`, () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        if (planned === "emptied") {
          yield* test.sql("ALTER TABLE queue_messages SET (autovacuum_enabled = off)")
          yield* workedOff(
            test,
            "queue_messages",
            `INSERT INTO queue_messages (queue, payload, created_at, visible_at)
            SELECT 'work', '{}', now(), now() FROM generate_series(1, 20000)`
          )
        }
        yield* test.sql(first)
        const session = yield* counted(test)
        const plan = Effect.forEach(Object.values(calls), (sql) => session(sql), { discard: true })
        if (planned !== "full") yield* plan
        yield* test.sql(backlog)
        if (planned !== "emptied") yield* test.sql("ANALYZE queue_messages; ANALYZE queue_dead")
        yield* plan
        for (const [name, call] of Object.entries(calls)) {
          const { reads } = yield* session(call)
          for (const read of reads.filter(({ is_table }) => is_table)) {
            assert.strictEqual(read.scans, 0, `${name} scans ${read.name}`)
          }
          const entries = reads.reduce((sum, read) => sum + (read.is_table ? 0 : read.entries), 0)
          assert.isAtMost(entries, 200, `${name} reads ${JSON.stringify(reads.filter((read) => read.entries > 0))}`)
        }
      }).pipe(Effect.scoped))
  }
})
