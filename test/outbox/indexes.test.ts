import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { counted, workedOff } from "../utils/reads.ts"
import * as Boxes from "./utils/outbox.ts"

/**
 * What the functions of the outbox read beside many messages that are sent, due later, or of queues that no publisher
 * has: few index entries, no table.
 */
const cases: Readonly<Record<string, readonly [sql: string, indexes: ReadonlyArray<string>, most: number]>> = {
  add: ["SELECT dx_add_to_outbox('[{\"queue\":\"jobs\",\"payload\":{\"kind\":\"job\"}}]')", [], 5],
  claim: [
    "SELECT * FROM dx_claim_outbox(10, 1000, 'me', '{jobs}')",
    ["queue_outbox_queue_deliver_at_id_idx", "queue_outbox_pkey"],
    60
  ],
  "claim when few are due": [
    "SELECT * FROM dx_claim_outbox(100, 1000, 'me', '{jobs}')",
    ["queue_outbox_queue_deliver_at_id_idx", "queue_outbox_pkey"],
    400
  ],
  "claim for several queues": [
    "SELECT * FROM dx_claim_outbox(100, 1000, 'me', '{jobs,none,others}')",
    ["queue_outbox_queue_deliver_at_id_idx", "queue_outbox_pkey"],
    500
  ],
  "claim of a queue without messages": [
    "SELECT * FROM dx_claim_outbox(100, 1000, 'me', '{none}')",
    ["queue_outbox_queue_deliver_at_id_idx"],
    10
  ],
  // Entries of what the claims before it have left, rolled back, may be among those it meets.
  move: [
    "SELECT * FROM dx_claim_outbox(10, 1000, 'me', '{jobs}', '{20}')",
    ["queue_outbox_queue_deliver_at_id_idx", "queue_outbox_pkey"],
    160
  ],
  mark: ["SELECT dx_mark_sent('{1,2,3,19999}')", ["queue_outbox_pkey"], 20],
  defer: [
    "SELECT dx_defer_outbox('[{\"id\":19999,\"pause_ms\":1,\"error\":\"e\"},{\"id\":7,\"pause_ms\":1}]', 'other')",
    ["queue_outbox_pkey"],
    20
  ],
  clean: ["SELECT * FROM dx_clean_outbox(86400000, 10)", ["queue_outbox_sent_at_idx", "queue_outbox_pkey"], 60],
  read: ["SELECT * FROM dx_read_outbox(100)", ["queue_outbox_queue_deliver_at_id_idx"], 320]
}

const many = 20_000

const fill = `
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at, sent_at)
    SELECT 'jobs', '{"kind":"job"}', now(), now(), now() - g * interval '1 minute' FROM generate_series(1, ${many}) AS g;
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    SELECT 'jobs', '{"kind":"job"}', now(), now() + g * interval '1 minute' FROM generate_series(1, ${many}) AS g;
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    SELECT 'jobs', '{"kind":"job"}', now(), now() - g * interval '1 second' FROM generate_series(1, 50) AS g;
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at)
    SELECT 'elsewhere', '{"kind":"job"}', now(), now() - interval '1 day' FROM generate_series(1, ${many}) AS g;
  INSERT INTO queue_outbox (queue, payload, created_at, deliver_at, lease_token, lease_until)
    SELECT 'jobs', '{"kind":"job"}', now(), now() - interval '1 hour', 'other', 32503680000000 FROM generate_series(1, 20)`

describe("the outbox reads little:", () => {
  it.live.each(["on empty tables, analyzed", "on an outbox that was full, analyzed", "without statistics"])(
    "planned %s",
    (planned) =>
      Effect.gen(function*() {
        const test = yield* Boxes.open
        yield* test.sql("ALTER TABLE queue_outbox SET (autovacuum_enabled = off)")
        if (planned.includes("was full")) yield* workedOff(test, "queue_outbox", fill)
        else if (planned.endsWith("analyzed")) yield* test.sql("ANALYZE queue_outbox")
        const session = yield* counted(test)
        for (const [sql] of Object.values(cases)) yield* session(sql)
        yield* test.sql(fill)
        for (const [what, [sql, indexes, most]] of Object.entries(cases)) {
          const { reads } = yield* session(sql)
          assert.deepStrictEqual(reads.filter(({ is_table, scans }) => is_table && scans > 0), [], `${what}: scans`)
          const used = new Set(reads.filter(({ scans }) => scans > 0).map(({ name }) => name))
          assert.deepStrictEqual(indexes.filter((index) => !used.has(index)), [], `${what}: unused`)
          assert.isAtMost(reads.reduce((sum, { entries }) => sum + entries, 0), most, `${what}: entries`)
        }
      }).pipe(Effect.scoped)
  )
})
