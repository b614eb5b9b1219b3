import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as PgServer from "../utils/PgServer.ts"
import { counted } from "../utils/reads.ts"

/** Each function finds its rows by an index, beside 10,000 versions with two batches each. */
it.live("reads only the versions and batches it is called for", () =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    yield* test.sql(`
      INSERT INTO queue_datasets SELECT gen_random_uuid(), 'd' || g, 1, 1, now(), now() FROM generate_series(1, 10000) g;
      INSERT INTO queue_dataset_versions
        SELECT dataset_uuid, 1, 'Committed', 1, NULL, NULL, now(), now() FROM queue_datasets;
      INSERT INTO queue_dataset_batches
        SELECT dataset_uuid, 1, g::text, 1, 'Committed', 'out', 1, gen_random_uuid(), 1, now(), now()
        FROM queue_datasets, generate_series(1, 2) g;
      UPDATE queue_dataset_versions SET status = 'Building'
        WHERE dataset_uuid = (SELECT dataset_uuid FROM queue_datasets WHERE name = 'd5000');
      UPDATE queue_datasets SET active_version = NULL, last_version = 1 WHERE name = 'd5000'`)
    const [{ uuid, task }] = (yield* test.sql<{ uuid: string; task: string }>(
      `SELECT d.dataset_uuid AS uuid, b.task_id AS task
       FROM queue_datasets d JOIN queue_dataset_batches b USING (dataset_uuid) WHERE d.name = 'd5000' LIMIT 1`
    )) as readonly [{ uuid: string; task: string }]
    const batch = JSON.stringify({
      dataset_uuid: uuid,
      dataset_version: 1,
      batch_uri: "new",
      record_count: 1,
      task: { id: "00000000-0000-4000-8000-000000000000", name: "T", payload: "{}", max_attempts: 1, queue: "tasks" }
    })
    const run = yield* counted(test)
    const calls = [
      `dx_create_dataset('new')`,
      `dx_open_version('${uuid}')`,
      `dx_buffer_batches('[${batch},${batch}]')`,
      `dx_commit_batch('${task}', 1, 'out', 1)`,
      `dx_commit_version('${uuid}', 1, NULL, NULL, NULL)`,
      `dx_activate_version('${uuid}', 1, false, NULL)`,
      `dx_read_active_dataset('d7')`,
      `dx_read_versions('${uuid}', 10)`,
      `dx_prune_versions('${uuid}', 1, 10)`,
      `dx_discard_version('${uuid}', 1)`,
      `dx_delete_version('${uuid}', 1)`
    ]
    // Twice: the second time with the plan that the session has kept.
    for (const call of [...calls, ...calls]) {
      const { reads } = yield* run(`SELECT ${call}`)
      for (const { blocks, entries, is_table, name, scans } of reads) {
        if (!name.startsWith("queue_")) continue
        if (is_table) assert.strictEqual(scans, 0, `${call} scans ${name}`)
        assert.isAtMost(entries, 20, `${call} reads entries of ${name}`)
        assert.isAtMost(blocks, 60, `${call} reads blocks of ${name}`)
      }
    }
  }).pipe(Effect.scoped))
