/**
 * What is used where the server has it. Without it, something of this package is left out.
 */
import * as Effect from "effect/Effect"
import { creating, lockName, reading } from "./probe.ts"
import type { Probe } from "./probe.ts"

const sessionLocks: Probe = {
  name: "locks of sessions",
  use: "a dead process is noticed at once, one migration at a time",
  without: "a dead process is noticed after three minutes; run one migration at a time",
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
}

export const storageParameters: Probe = {
  ...creating("storage parameters", "vacuum visits the queues often", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id INTEGER PRIMARY KEY) WITH (
       fillfactor = 45, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000,
       autovacuum_vacuum_cost_delay = 0, vacuum_index_cleanup = on, vacuum_truncate = off
     )`,
    `SELECT 'fillfactor=45' = ANY (reloptions) AS works FROM pg_class WHERE oid = '${schema}.dx_probe'::regclass`
  ]),
  without: "tables have the settings of the server: if it keeps dead rows, claims read past more of them"
}

export const statementTriggers: Probe = {
  ...creating("statement triggers", "messages of your own transactions wake publishers", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id INTEGER PRIMARY KEY)`,
    `CREATE FUNCTION ${schema}.dx_probe_noted() RETURNS trigger LANGUAGE plpgsql AS
     $probe$BEGIN PERFORM set_config('duroxide.probe', 'noted', true); RETURN NULL; END$probe$`,
    `CREATE TRIGGER dx_probe_noted AFTER INSERT ON ${schema}.dx_probe
     FOR EACH STATEMENT WHEN (current_setting('duroxide.quiet', true) IS DISTINCT FROM 'on')
     EXECUTE FUNCTION ${schema}.dx_probe_noted()`,
    `INSERT INTO ${schema}.dx_probe VALUES (1)`,
    "SELECT current_setting('duroxide.probe', true) = 'noted' AS works"
  ]),
  without: "publishers find messages of your own transactions when they poll"
}

export const tableLocks: Probe = {
  ...creating("locks of tables", "migrations of tables in use", (schema) => [
    `CREATE TABLE ${schema}.dx_probe (id INTEGER PRIMARY KEY)`,
    `LOCK TABLE ${schema}.dx_probe IN EXCLUSIVE MODE`,
    "SELECT true AS works"
  ]),
  without: "stop all processes before a migration"
}

export const optional: ReadonlyArray<Probe> = [
  sessionLocks,
  tableLocks,
  storageParameters,
  statementTriggers,
  {
    ...creating("partitions", "a large history can be split", (schema) => [
      `CREATE TABLE ${schema}.dx_probe (id TEXT PRIMARY KEY) PARTITION BY HASH (id)`,
      `CREATE TABLE ${schema}.dx_probe_0 PARTITION OF ${schema}.dx_probe FOR VALUES WITH (MODULUS 2, REMAINDER 0)`,
      `CREATE TABLE ${schema}.dx_probe_1 PARTITION OF ${schema}.dx_probe FOR VALUES WITH (MODULUS 2, REMAINDER 1)`,
      `INSERT INTO ${schema}.dx_probe VALUES ('a'), ('b')`,
      `SELECT count(*) = 2 AS works FROM ${schema}.dx_probe`
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
