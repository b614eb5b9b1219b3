/**
 * What the migrations, the stored functions and the processes use of a server, each with a try of it.
 *
 * A try runs in a transaction that is rolled back, in a schema that exists only there, or in temporary objects where
 * the login may not create one. So it leaves nothing, and needs no migration.
 */
import * as Effect from "effect/Effect"
import type * as ProviderError from "../../../provider/ProviderError.ts"
import type { Pair } from "./examined.ts"

export interface Probe {
  readonly name: string
  /** What of this package uses it, for people. */
  readonly use: string
  /** What runs without it; undefined if nothing does. */
  readonly without?: string
  /** What it means that it does not work. */
  readonly missing?: string
  /** Whether it creates objects. */
  readonly creates: boolean
  /** Whether it works, in a transaction of the caller. `place` is the schema where it may create objects. */
  readonly works: (sessions: Pair, place: string) => Effect.Effect<boolean, ProviderError.Reason>
}

/** Runs statements, the last of which selects whether it `works`. */
const statements = (steps: (place: string) => ReadonlyArray<string>): Probe["works"] =>
  Effect.fnUntraced(function*({ one }, place) {
    let works: unknown
    for (const step of steps(place)) works = (yield* one.run(step))[0]?.["works"]
    return works === true
  })

const creating = (name: string, use: string, steps: (place: string) => ReadonlyArray<string>): Probe => ({
  name,
  use,
  creates: true,
  works: statements(steps)
})

const reading = (name: string, use: string, step: string): Probe => ({
  name,
  use,
  creates: false,
  works: statements(() => [step])
})

/** Without one of these, nothing runs. */
export const needed: ReadonlyArray<Probe> = [
  creating("tables", "sequences, JSON, arrays, times without an end", (place) => [
    `CREATE TABLE ${place}.t (
       id BIGSERIAL NOT NULL, key UUID, texts TEXT[], data JSONB, at TIMESTAMPTZ NOT NULL, is_awaited BOOLEAN,
       CONSTRAINT t_pkey PRIMARY KEY (id)
     )`,
    `INSERT INTO ${place}.t (key, texts, data, at, is_awaited)
     VALUES (gen_random_uuid(), ARRAY['a'], '{"a": [1]}', '-infinity', true)`,
    `LOCK TABLE ${place}.t IN EXCLUSIVE MODE`,
    `SELECT id = 1 AND texts[1] = 'a' AND data -> 'a' ->> 0 = '1' AND at < now() AND is_awaited AS works
     FROM ${place}.t`
  ]),
  creating("generated columns", "since when a message is due", (place) => [
    `CREATE TABLE ${place}.t (visible_at TIMESTAMPTZ NOT NULL, created_at TIMESTAMPTZ NOT NULL)`,
    `ALTER TABLE ${place}.t ADD COLUMN due_at TIMESTAMPTZ
       GENERATED ALWAYS AS (COALESCE(NULLIF(GREATEST(visible_at, created_at), created_at), '-infinity')) STORED`,
    `INSERT INTO ${place}.t (visible_at, created_at) VALUES (now(), now())`,
    `SELECT due_at = '-infinity' AS works FROM ${place}.t`
  ]),
  creating("partial indexes", "one index for each kind of row", (place) => [
    `CREATE TABLE ${place}.t (name TEXT NOT NULL, key TEXT, session_id TEXT)`,
    `CREATE UNIQUE INDEX t_key ON ${place}.t (name, key) WHERE key IS NOT NULL`,
    `CREATE INDEX t_name ON ${place}.t (name) WHERE num_nulls(session_id) = 0 AND name LIKE '{"A"%'`,
    `INSERT INTO ${place}.t (name) VALUES ('a'), ('a')`,
    `SELECT count(*) = 2 AS works FROM ${place}.t`
  ]),
  {
    name: "ordered indexes",
    use: "a claim reads the rows that it takes",
    creates: true,
    works: Effect.fnUntraced(function*({ one: { run } }, place) {
      yield* run(`CREATE TABLE ${place}.t (id BIGINT NOT NULL, route TEXT NOT NULL, visible_at TIMESTAMPTZ NOT NULL)`)
      yield* run(`CREATE INDEX t_route ON ${place}.t (route, visible_at, id)`)
      yield* run("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
      // A server that spreads an index by a hash of its first column would sort all of it, for each claim.
      const plans = yield* Effect.forEach([
        "route = 'a' AND visible_at <= now() ORDER BY visible_at, id",
        "route > 'a' ORDER BY route, visible_at, id"
      ], (rows) => run(`EXPLAIN (FORMAT JSON) SELECT id FROM ${place}.t WHERE ${rows} LIMIT 1`))
      return !JSON.stringify(plans).includes("Sort")
    })
  },
  creating("ON CONFLICT", "a start, a value or a lock that is there already", (place) => [
    `CREATE TABLE ${place}.t (id TEXT PRIMARY KEY, tries INTEGER NOT NULL, since TEXT)`,
    `INSERT INTO ${place}.t AS b VALUES ('a', 1, 'x')`,
    `INSERT INTO ${place}.t AS b VALUES ('a', 1, 'y')
     ON CONFLICT (id) DO UPDATE SET (tries, since) = (SELECT b.tries + 1, EXCLUDED.since)`,
    `INSERT INTO ${place}.t VALUES ('a', 5, 'z') ON CONFLICT DO NOTHING`,
    `SELECT tries = 2 AND since = 'y' AS works FROM ${place}.t`
  ]),
  creating("SKIP LOCKED", "claims pass what others hold", (place) => [
    `CREATE TABLE ${place}.t (id INTEGER PRIMARY KEY)`,
    `INSERT INTO ${place}.t VALUES (1), (2)`,
    `SELECT FROM ${place}.t WHERE id = 1 FOR SHARE`,
    `SELECT FROM ${place}.t AS t WHERE id = 1 FOR NO KEY UPDATE OF t SKIP LOCKED`,
    `SELECT count(*) = 2 AS works
     FROM (SELECT id FROM ${place}.t ORDER BY id FOR UPDATE SKIP LOCKED) AS claimed`
  ]),
  creating("composite types", "turns, decoded once", (place) => [
    `CREATE TYPE ${place}.c AS (id TEXT, left_ids BIGINT[], timers JSONB)`,
    `SELECT turn.left_ids[2] = 5 AND turn.timers ? 'x' AND turn.id IS NULL AS works
     FROM jsonb_populate_recordset(NULL::${place}.c, '[{"left_ids": [4, 5], "timers": {"x": null}}]') AS turn`
  ]),
  creating("stored functions", "every statement of the hot path is one call", (place) => [
    `CREATE TABLE ${place}.t (id INTEGER PRIMARY KEY, tag TEXT)`,
    `INSERT INTO ${place}.t VALUES (1, 'a'), (2, NULL)`,
    `CREATE FUNCTION ${place}.f(p_ids integer[], p_now bigint DEFAULT NULL)
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
         UPDATE ${place}.t AS t SET tag = 'b' WHERE t.id = v_id;
         GET DIAGNOSTICS v_rows = ROW_COUNT;
         FOR v_row IN SELECT t.id FROM ${place}.t AS t WHERE t.id = v_id LOOP
           out_id := v_row.id;
           out_rows := v_rows;
           RETURN NEXT;
         END LOOP;
       END LOOP;
     END
     $probe$`,
    `SELECT array_agg(out_id) = '{1,2}' AND sum(out_rows) = 2 AS works FROM ${place}.f(ARRAY[1, 2, 3])`
  ]),
  creating("row triggers", "routes of rows that others insert", (place) => [
    `CREATE TABLE ${place}.t (id INTEGER PRIMARY KEY, route TEXT NOT NULL DEFAULT '', visible_at INTEGER)`,
    `CREATE FUNCTION ${place}.routed() RETURNS trigger LANGUAGE plpgsql AS
     $probe$BEGIN NEW.route := TG_ARGV[0]; RETURN NEW; END$probe$`,
    `CREATE TRIGGER t_route BEFORE INSERT ON ${place}.t
     FOR EACH ROW WHEN (NEW.route = '') EXECUTE FUNCTION ${place}.routed('inserted')`,
    `CREATE TRIGGER t_moved BEFORE UPDATE OF visible_at ON ${place}.t
     FOR EACH ROW WHEN (
       NEW.visible_at <> OLD.visible_at AND current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on'
     ) EXECUTE FUNCTION ${place}.routed('moved')`,
    `INSERT INTO ${place}.t (id, visible_at) VALUES (1, 1), (2, 1)`,
    `UPDATE ${place}.t SET visible_at = 2 WHERE id = 2`,
    `SELECT string_agg(route, ' ' ORDER BY id) = 'inserted moved' AS works FROM ${place}.t`
  ]),
  creating("queries over sets", "many items in one statement", (place) => [
    `CREATE TABLE ${place}.t (id INTEGER PRIMARY KEY, route TEXT)`,
    `INSERT INTO ${place}.t VALUES (1, 'a'), (2, 'b'), (3, 'a')`,
    `WITH RECURSIVE routes AS MATERIALIZED (
       (SELECT route FROM ${place}.t ORDER BY route COLLATE "C" LIMIT 1)
       UNION ALL
       SELECT (SELECT t.route FROM ${place}.t AS t WHERE t.route > r.route ORDER BY t.route LIMIT 1)
       FROM routes AS r WHERE r.route IS NOT NULL
     ),
     gone AS (
       DELETE FROM ${place}.t AS t USING unnest(ARRAY[3]) AS one (id) WHERE t.id = one.id RETURNING t.id
     )
     SELECT (SELECT count(route) FROM routes) = 2 AND (SELECT id FROM gone) = 3
       AND (SELECT first.id FROM unnest(ARRAY['a']) AS a (route) CROSS JOIN LATERAL (
         SELECT t.id FROM ${place}.t AS t WHERE t.route = a.route ORDER BY t.id LIMIT 1 FOR UPDATE
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
    creates: false,
    works: Effect.fnUntraced(function*({ one, other }) {
      // Each statement has a snapshot of its own, in which the other transaction has ended.
      yield* one.run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED")
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

/** Without these, something of ours is left out. */
export const optional: ReadonlyArray<Probe> = [
  {
    name: "locks of sessions",
    use: "a dead process is noticed at once, one migration at a time",
    without: "processes poll, a dead one is noticed after three minutes; run one migration at a time",
    creates: false,
    works: Effect.fnUntraced(function*({ one, other }) {
      const key = `hashtext('${lockName()}')::bigint`
      return yield* Effect.acquireUseRelease(
        one.run(`SELECT pg_advisory_lock_shared(${key})::text`),
        () =>
          Effect.map(
            other.run(
              `SELECT EXISTS (
                 SELECT FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
                   AND (classid::bigint << 32) | objid::bigint = ${key}
                   AND database = (SELECT oid FROM pg_database WHERE datname = current_database())
               ) AS works`
            ),
            ([row]) => row?.["works"] === true
          ),
        () => Effect.ignore(one.run(`SELECT pg_advisory_unlock_shared(${key})`))
      )
    })
  },
  {
    ...creating("storage parameters", "vacuum visits the queues often", (place) => [
      `CREATE TABLE ${place}.t (id INTEGER PRIMARY KEY) WITH (
         fillfactor = 45, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
         autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on, vacuum_truncate = off
       )`,
      `SELECT 'fillfactor=45' = ANY (reloptions) AS works FROM pg_class WHERE oid = '${place}.t'::regclass`
    ]),
    without: "tables have the settings of the server: if it keeps dead rows, claims read past more of them"
  },
  {
    ...creating("statement triggers", "plain SQL and transactions of yours wake publishers", (place) => [
      `CREATE TABLE ${place}.t (id INTEGER PRIMARY KEY)`,
      `CREATE FUNCTION ${place}.noted() RETURNS trigger LANGUAGE plpgsql AS
       $probe$BEGIN PERFORM set_config('duroxide.probe', 'noted', true); RETURN NULL; END$probe$`,
      `CREATE TRIGGER t_noted AFTER INSERT ON ${place}.t
       FOR EACH STATEMENT WHEN (current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on')
       EXECUTE FUNCTION ${place}.noted()`,
      `INSERT INTO ${place}.t VALUES (1)`,
      "SELECT current_setting('duroxide.probe', true) = 'noted' AS works"
    ]),
    without: "publishers find messages that a transaction of yours has written when they poll"
  },
  {
    ...creating("partitions", "a large history can be split", (place) => [
      `CREATE TABLE ${place}.t (id TEXT PRIMARY KEY) PARTITION BY HASH (id)`,
      `CREATE TABLE ${place}.t_0 PARTITION OF ${place}.t FOR VALUES WITH (MODULUS 2, REMAINDER 0)`,
      `CREATE TABLE ${place}.t_1 PARTITION OF ${place}.t FOR VALUES WITH (MODULUS 2, REMAINDER 1)`,
      `INSERT INTO ${place}.t VALUES ('a'), ('b')`,
      `SELECT count(*) = 2 AS works FROM ${place}.t`
    ]),
    without: "the history stays one table"
  },
  {
    ...reading(
      "LZ4",
      "large texts are compressed fast",
      "SELECT 'lz4' = ANY (enumvals) AS works FROM pg_settings WHERE name = 'default_toast_compression'"
    ),
    missing: "the server was built without it",
    without: "large texts are compressed by a slower method"
  }
]

// internal

/** Two examinations at the same time must not meet. */
const lockName = () => `duroxide_prisma.doctor ${globalThis.crypto.randomUUID()}`
