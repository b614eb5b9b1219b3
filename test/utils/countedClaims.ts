/**
 * Claims of one row by SQL, and how many entries of the index they have read.
 */
import * as Effect from "effect/Effect"
import type { Run } from "./session.ts"

/** One claim of each queue, and rows for it. Times are SQL. */
export const queues = [
  {
    queue: "worker_queue",
    insert: (count: number, visibleAt: string, createdAt = "now()") =>
      `INSERT INTO worker_queue (work_item, visible_at, created_at, route)
       SELECT '{}', ${visibleAt}, ${createdAt}, 'A' FROM generate_series(1, ${count})`,
    claim: "SELECT * FROM dx_fetch_work_items(1, 60000, true, NULL, NULL, NULL, ARRAY['A'])"
  },
  {
    queue: "orchestrator_queue",
    insert: (count: number, visibleAt: string, createdAt = "now()") =>
      `INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at, route)
       SELECT 'i' || n || clock_timestamp(), '{}', ${visibleAt}, ${createdAt}, '1000.0.0 =1.0.0 O'
       FROM generate_series(1, ${count}) AS n`,
    claim: "SELECT * FROM dx_fetch_orchestration_items(1, 60000, NULL, NULL, ARRAY['O'], ARRAY['1.0.0'])"
  }
] as const

/** Claims in one session. */
export const counting = (run: Run, { claim, queue }: (typeof queues)[number]) => {
  const entries = Effect.map(
    run(`SELECT pg_stat_get_xact_tuples_returned('${queue}_route_visible_at_id_idx'::regclass)::int AS read`),
    ([row]) => row.read as number
  )
  return Effect.gen(function*() {
    const before = yield* entries
    const { length: claimed } = (yield* run(claim)).filter(({ out_lock_token }) => out_lock_token !== null)
    return { claimed, read: (yield* entries) - before }
  })
}
