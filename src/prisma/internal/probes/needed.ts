/**
 * What the migrations, the stored functions and the processes cannot do without.
 */
import * as Effect from "effect/Effect"
import { creating, lockName, reading } from "./probe.ts"
import type { Probe } from "./probe.ts"

/** Without one of these, nothing runs. */
export const needed: ReadonlyArray<Probe> = [
  creating("tables", "sequences, JSON, arrays, times without an end", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (
       id BIGSERIAL NOT NULL, key UUID, texts TEXT[], data JSONB, at TIMESTAMPTZ NOT NULL, is_awaited BOOLEAN,
       CONSTRAINT dx_probe_pkey PRIMARY KEY (id)
     )`,
    `INSERT INTO ${schema}.dx_probe (key, texts, data, at, is_awaited)
     VALUES (gen_random_uuid(), ARRAY['a'], '{"a": [1]}', '-infinity', true)`,
    `SELECT id = 1 AND texts[1] = 'a' AND data -> 'a' ->> 0 = '1' AND at < now() AND is_awaited AS works
     FROM ${schema}.dx_probe`
  ]),
  creating("generated columns", "since when a message is due", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (visible_at TIMESTAMPTZ NOT NULL, created_at TIMESTAMPTZ NOT NULL)`,
    `ALTER TABLE ${schema}.dx_probe ADD COLUMN due_at TIMESTAMPTZ
       GENERATED ALWAYS AS (COALESCE(NULLIF(GREATEST(visible_at, created_at), created_at), '-infinity')) STORED`,
    `INSERT INTO ${schema}.dx_probe (visible_at, created_at) VALUES (now(), now())`,
    `SELECT due_at = '-infinity' AS works FROM ${schema}.dx_probe`
  ]),
  creating("partial indexes", "one index for each kind of row", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (name TEXT NOT NULL, key TEXT, session_id TEXT)`,
    `CREATE UNIQUE INDEX dx_probe_key ON ${schema}.dx_probe (name, key) WHERE key IS NOT NULL`,
    `CREATE INDEX dx_probe_name ON ${schema}.dx_probe (name) WHERE num_nulls(session_id) = 0 AND name LIKE '{"A"%'`,
    `INSERT INTO ${schema}.dx_probe (name) VALUES ('a'), ('a')`,
    `SELECT count(*) = 2 AS works FROM ${schema}.dx_probe`
  ]),
  {
    name: "ordered indexes",
    use: "a claim reads the rows that it takes",
    creates: true,
    works: Effect.fnUntraced(function*({ one: { run } }, schema) {
      yield* run(
        `CREATE TABLE ${schema}.dx_probe (id BIGINT NOT NULL, route TEXT NOT NULL, visible_at TIMESTAMPTZ NOT NULL)`
      )
      yield* run(`CREATE INDEX dx_probe_route ON ${schema}.dx_probe (route, visible_at, id)`)
      yield* run("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
      // A server that spreads an index by a hash of its first column would sort all of it, for each claim.
      const plans = yield* Effect.forEach([
        "route = 'a' AND visible_at <= now() ORDER BY visible_at, id",
        "route > 'a' ORDER BY route, visible_at, id"
      ], (rows) => run(`EXPLAIN (FORMAT JSON) SELECT id FROM ${schema}.dx_probe WHERE ${rows} LIMIT 1`))
      return !JSON.stringify(plans).includes("Sort")
    })
  },
  creating("ON CONFLICT", "a start, a value or a lock that is there already", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id TEXT PRIMARY KEY, tries INTEGER NOT NULL, since TEXT)`,
    `INSERT INTO ${schema}.dx_probe AS b VALUES ('a', 1, 'x')`,
    `INSERT INTO ${schema}.dx_probe AS b VALUES ('a', 1, 'y')
     ON CONFLICT (id) DO UPDATE SET (tries, since) = (SELECT b.tries + 1, EXCLUDED.since)`,
    `INSERT INTO ${schema}.dx_probe VALUES ('a', 5, 'z') ON CONFLICT DO NOTHING`,
    `SELECT tries = 2 AND since = 'y' AS works FROM ${schema}.dx_probe`
  ]),
  creating("SKIP LOCKED", "claims pass what others hold", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id INTEGER PRIMARY KEY)`,
    `INSERT INTO ${schema}.dx_probe VALUES (1), (2)`,
    `SELECT FROM ${schema}.dx_probe WHERE id = 1 FOR SHARE`,
    `SELECT FROM ${schema}.dx_probe AS t WHERE id = 1 FOR NO KEY UPDATE OF t SKIP LOCKED`,
    `SELECT count(*) = 2 AS works
     FROM (SELECT id FROM ${schema}.dx_probe ORDER BY id FOR UPDATE SKIP LOCKED) AS claimed`
  ]),
  creating("composite types", "turns, decoded once", (schema) => [
    `CREATE TYPE ${schema}.dx_probe_type AS (id TEXT, left_ids BIGINT[], timers JSONB)`,
    `SELECT turn.left_ids[2] = 5 AND turn.timers ? 'x' AND turn.id IS NULL AS works
     FROM jsonb_populate_recordset(NULL::${schema}.dx_probe_type, '[{"left_ids": [4, 5], "timers": {"x": null}}]') AS turn`
  ]),
  creating("stored functions", "every statement of the hot path is one call", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id INTEGER PRIMARY KEY, tag TEXT)`,
    `INSERT INTO ${schema}.dx_probe VALUES (1, 'a'), (2, NULL)`,
    `CREATE FUNCTION ${schema}.dx_probe_function(p_ids integer[], p_now bigint DEFAULT NULL)
       RETURNS TABLE (out_id integer, out_rows bigint) LANGUAGE plpgsql
     SET search_path FROM CURRENT SET jit = off SET plan_cache_mode = force_generic_plan SET enable_seqscan = off
     SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off
     AS $probe$
     DECLARE
       v_row record;
       v_rows bigint;
       v_id integer;
     BEGIN
       BEGIN
         PERFORM 'no number'::integer;
       EXCEPTION
         WHEN data_exception THEN NULL;
       END;
       FOREACH v_id IN ARRAY p_ids[:2] LOOP
         UPDATE ${schema}.dx_probe AS t SET tag = 'b' WHERE t.id = v_id;
         GET DIAGNOSTICS v_rows = ROW_COUNT;
         FOR v_row IN SELECT t.id FROM ${schema}.dx_probe AS t WHERE t.id = v_id LOOP
           out_id := v_row.id;
           out_rows := v_rows;
           RETURN NEXT;
         END LOOP;
       END LOOP;
     END
     $probe$`,
    `SELECT array_agg(out_id) = '{1,2}' AND sum(out_rows) = 2 AS works FROM ${schema}.dx_probe_function(ARRAY[1, 2, 3])`
  ]),
  creating("row triggers", "routes of rows that others insert", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id INTEGER PRIMARY KEY, route TEXT NOT NULL DEFAULT '', visible_at INTEGER)`,
    `CREATE FUNCTION ${schema}.dx_probe_routed() RETURNS trigger LANGUAGE plpgsql AS
     $probe$BEGIN NEW.route := TG_ARGV[0]; RETURN NEW; END$probe$`,
    `CREATE TRIGGER dx_probe_route BEFORE INSERT ON ${schema}.dx_probe
     FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION ${schema}.dx_probe_routed('inserted')`,
    `CREATE TRIGGER dx_probe_moved BEFORE UPDATE OF visible_at ON ${schema}.dx_probe
     FOR EACH ROW WHEN (
       NEW.visible_at <> OLD.visible_at AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
     ) EXECUTE FUNCTION ${schema}.dx_probe_routed('moved')`,
    `INSERT INTO ${schema}.dx_probe (id, visible_at) VALUES (1, 1), (2, 1)`,
    `UPDATE ${schema}.dx_probe SET visible_at = 2 WHERE id = 2`,
    `SELECT string_agg(route, ' ' ORDER BY id) = 'inserted moved' AS works FROM ${schema}.dx_probe`
  ]),
  creating("queries over sets", "many items in one statement", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id INTEGER PRIMARY KEY, route TEXT)`,
    `INSERT INTO ${schema}.dx_probe VALUES (1, 'a'), (2, 'b'), (3, 'a')`,
    `WITH RECURSIVE routes AS MATERIALIZED (
       (SELECT route FROM ${schema}.dx_probe ORDER BY route COLLATE "C" LIMIT 1)
       UNION ALL
       SELECT (SELECT t.route FROM ${schema}.dx_probe AS t WHERE t.route > r.route ORDER BY t.route LIMIT 1)
       FROM routes AS r WHERE r.route IS NOT NULL
     ),
     gone AS (
       DELETE FROM ${schema}.dx_probe AS t USING unnest(ARRAY[3]) AS one (id) WHERE t.id = one.id RETURNING t.id
     )
     SELECT (SELECT count(route) FROM routes) = 2 AND (SELECT id FROM gone) = 3
       AND (SELECT first.id FROM unnest(ARRAY['a']) AS a (route) CROSS JOIN LATERAL (
         SELECT t.id FROM ${schema}.dx_probe AS t WHERE t.route = a.route ORDER BY t.id LIMIT 1 FOR UPDATE
       ) AS first) = 1
       AND (SELECT count(*) FROM (
         SELECT DISTINCT ON (one.x) one.x, row_number() OVER (ORDER BY one.position) AS number
         FROM ROWS FROM (unnest(ARRAY[1, 1, 2]), generate_series(1, 3)) WITH ORDINALITY AS one (x, y, position)
         ORDER BY one.x
       ) AS distinct_ones) = 2 AS works`
  ]),
  reading(
    "JSON functions",
    "sets of items are JSON",
    `SELECT (SELECT count(*) FROM jsonb_to_recordset('[{"a": 1}, {"a": 2}]') AS item (a bigint)) = 2
       AND (SELECT a FROM jsonb_to_record('{"a": 1}') AS item (a bigint)) = 1
       AND jsonb_path_exists('{"a": {"b": 1}}', '$.**.b') AND jsonb_typeof('[]') = 'array'
       AND jsonb_array_length('[1]') = 1 AND jsonb_object_agg('a', 1) = '{"a": 1}'
       AND (SELECT string_agg(x, '') FROM jsonb_array_elements_text('["a", "b"]') AS x) = 'ab'
       AND json_agg(json_build_object('a', json_build_array(to_json(1), to_jsonb('b'::text))))::text <> ''
       AND jsonb_build_array(1) || jsonb_build_object('a', 1) = '[1, {"a": 1}]' AS works`
  ),
  reading(
    "functions",
    "tokens, hashes, routes",
    `SELECT gen_random_uuid() <> gen_random_uuid()
       AND encode(sha256(convert_to('a', 'UTF8')), 'hex') LIKE 'ca978112%' AND md5('a') LIKE '0cc175b9%'
       AND hashtext('a') IS NOT NULL AND starts_with('abc', 'ab') AND num_nulls(NULL, 1) = 1
       AND cardinality(ARRAY[1, 2]) = 2 AND array_position(ARRAY['a', 'b'], 'b') = 2 AND bool_or(true) AND bool_and(true)
       AND regexp_replace('a1', '[0-9]', '') = 'a' AND format('%I', 'a b') = '"a b"' AND split_part('a b', ' ', 2) = 'b'
       AND to_timestamp(0) = '1970-01-01 00:00:00Z' AND clock_timestamp() >= now()
       AND pg_notification_queue_usage() >= 0 AND NOT pg_is_in_recovery() IS NULL
       AND pg_stat_get_xact_tuples_returned('pg_class'::regclass) >= 0 AND pg_stat_get_dead_tuples('pg_class'::regclass) >= 0
       AND pg_relation_size('pg_class') >= 0 AND current_setting('block_size')::bigint > 0 AS works`
  ),
  reading(
    "settings of a statement",
    "quiet statements, short waits, claims that do not wait for the disk",
    `SELECT set_config('duroxide.quiet', 'on', true) = 'on' AND current_setting('duroxide.quiet', true) = 'on'
       AND current_setting('duroxide.no_such', true) IS NULL AND set_config('lock_timeout', '53', true) = '53ms'
       AND current_setting('lock_timeout') = '53ms' AND set_config('synchronous_commit', 'off', true) = 'off' AS works`
  ),
  reading(
    "views of the server",
    "who is alive, and what keeps dead rows",
    `SELECT (SELECT count(*) FROM pg_stat_activity WHERE backend_xmin IS NOT NULL OR backend_xid IS NULL) > 0
       AND (SELECT count(*) FROM pg_locks WHERE objsubid = 1 AND classid = 0) >= 0
       AND (SELECT count(*) FROM pg_prepared_xacts) >= 0 AND (SELECT count(xmin) FROM pg_replication_slots) >= 0
       AND (SELECT count(age(x.transaction)) FROM pg_prepared_xacts AS x) >= 0 AS works`
  ),
  {
    name: "READ COMMITTED",
    use: "a statement sees what was committed while it waited",
    missing: "transactions keep the snapshot of their first statement, whatever level they ask for",
    isIndirect: true,
    creates: false,
    works: Effect.fnUntraced(function*({ one, other }) {
      yield* one.run("ROLLBACK; BEGIN ISOLATION LEVEL READ COMMITTED")
      // YugabyteDB has another level than the one it shows, unless a flag is set.
      const [yugabyte] = yield* one.run(
        "SELECT to_regproc('pg_catalog.yb_get_effective_transaction_isolation_level') IS NOT NULL AS is"
      )
      if (yugabyte?.["is"] === true) {
        const [row] = yield* one.run("SELECT yb_get_effective_transaction_isolation_level() AS level")
        return row?.["level"] === "read committed"
      }
      // Each statement has a snapshot of its own, in which the other transaction has ended.
      const snapshot = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text AS xmax"
      const [before] = yield* one.run(snapshot)
      yield* other.run("SELECT pg_current_xact_id()::text")
      const [after] = yield* one.run(snapshot)
      return BigInt(String(after?.["xmax"])) > BigInt(String(before?.["xmax"]))
    })
  },
  {
    name: "advisory locks",
    use: "one claim at a time for an instance",
    creates: false,
    works: Effect.fnUntraced(function*({ one, other }) {
      const attempt = `SELECT pg_try_advisory_xact_lock(hashtext('${lockName()}')) AS works`
      const [first] = yield* one.run(attempt)
      const [second] = yield* other.run(attempt)
      return first?.["works"] === true && second?.["works"] === false
    })
  }
]
