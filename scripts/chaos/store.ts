/**
 * The database of a run: migrated by its owner, used by roles with fewer rights, with functions to break it.
 */
import { Migrator } from "duroxide-prisma/prisma"
import { DatabaseServer } from "duroxide-prisma/server"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as Scope from "effect/Scope"
import { chmodSync, mkdirSync } from "node:fs"
import path from "node:path"
import * as pg from "pg"

export interface Store {
  /** For workers and clients. Those of `impatient` wait for a table lock for 100 milliseconds only. */
  readonly urls: { readonly patient: string; readonly impatient: string }
  /** For a session of the owner, which no fault concerns. */
  readonly ownerUrl: string
  /** The roles of `urls`. */
  readonly roles: { readonly patient: string; readonly impatient: string }
  /** Both roles. */
  readonly group: string
  /** All functions of the schema, with the types of their arguments. */
  readonly functions: ReadonlyArray<string>
  /** Runs SQL as the owner. */
  readonly sql: <Row = Record<string, unknown>>(text: string, values?: ReadonlyArray<unknown>) => Promise<Array<Row>>
  /** A connection of its own, for a transaction. */
  readonly session: () => Promise<pg.PoolClient>
  /** Drops the database and stops a server that was started for it. */
  readonly close: () => Promise<void>
}

export const tables = [
  "orchestrator_queue",
  "worker_queue",
  "history",
  "executions",
  "instances",
  "instance_locks",
  "queue_tasks",
  "queue_task_attempts",
  "queue_outbox",
  "queue_messages"
] as const

export const open = async (directory: string): Promise<Store> => {
  const scope = Scope.makeUnsafe()
  const folder = path.join(directory, "postgres")
  mkdirSync(folder)
  chmodSync(directory, 0o755) // as root, the server runs as another user
  const server = await Effect.runPromise(Scope.provide(startServer(folder), scope))
  console.log(server.description)
  const serverUrl = Redacted.value(server.url)
  const name = `duroxide_chaos_${process.pid}_${Date.now().toString(36)}`
  const admin = new pg.Client(serverUrl)
  await admin.connect()
  await admin.query(`CREATE DATABASE ${name}`)
  const at = (role?: string) => {
    const url = new URL(serverUrl)
    url.pathname = `/${name}`
    if (role !== undefined) [url.username, url.password] = [role, "chaos"]
    return url.toString()
  }
  await Effect.runPromise(Effect.provide(Migrator.migrate({ url: at() }), Logger.layer([])))
  const pool = new pg.Pool({ connectionString: at(), max: 10 })
  pool.on("error", () => {})
  const roles = { group: name, patient: `${name}_patient`, impatient: `${name}_impatient` }
  await pool.query(prepare(roles))
  const { rows } = await pool.query<{ name: string }>(
    `SELECT oid::regprocedure::text AS name FROM pg_proc
     WHERE pronamespace = 'public'::regnamespace AND prorettype <> 'trigger'::regtype ORDER BY 1`
  )
  return {
    functions: rows.map(({ name }) => name),
    roles: { patient: roles.patient, impatient: roles.impatient },
    urls: { patient: at(roles.patient), impatient: at(roles.impatient) },
    ownerUrl: at(),
    group: roles.group,
    sql: async <Row>(text: string, values?: ReadonlyArray<unknown>) =>
      (await pool.query(text, values && [...values])).rows as Array<Row>,
    session: () => pool.connect(),
    close: async () => {
      await pool.end()
      await admin.query(`DROP DATABASE ${name} WITH (FORCE)`)
      await admin.query(`DROP ROLE ${roles.patient}, ${roles.impatient}, ${roles.group}`)
      await admin.end()
      await Effect.runPromise(Scope.close(scope, Exit.void))
    }
  }
}

const startServer = (directory: string) =>
  DatabaseServer.make({ directory, settings: { fsync: "off", synchronous_commit: "off", max_connections: "200" } })

/**
 * Roles with the rights an application's processes need; tables of the application; a disk that can be full
 * (`chaos.full` names the tables that take no new rows); a clock that can be stepped (`chaos.clock`); notes of
 * attempts.
 */
const prepare = ({ group, impatient, patient }: Record<"group" | "patient" | "impatient", string>) => `
  CREATE ROLE ${group} NOLOGIN;
  CREATE ROLE ${patient} LOGIN PASSWORD 'chaos' IN ROLE ${group};
  CREATE ROLE ${impatient} LOGIN PASSWORD 'chaos' IN ROLE ${group};
  ALTER ROLE ${impatient} SET lock_timeout = '100ms';
  GRANT USAGE ON SCHEMA public TO ${group};
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${group};
  GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ${group};
  REVOKE EXECUTE ON ALL FUNCTIONS IN SCHEMA public FROM PUBLIC;
  GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO ${group};

  CREATE SCHEMA chaos;
  CREATE TABLE chaos.orders (id text PRIMARY KEY);
  CREATE TABLE chaos.shipped (order_id text PRIMARY KEY);
  CREATE TABLE chaos.parcels (order_id text);
  CREATE TABLE chaos.paid (label text);
  GRANT USAGE ON SCHEMA chaos TO ${group};
  GRANT SELECT, INSERT ON ALL TABLES IN SCHEMA chaos TO ${group};

  CREATE TABLE chaos.full (table_name text PRIMARY KEY);
  CREATE FUNCTION chaos.refuse_when_full() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
  BEGIN
    IF EXISTS (SELECT FROM chaos.full WHERE table_name = TG_TABLE_NAME) THEN
      RAISE 'could not extend file "base/1/1": No space left on device' USING ERRCODE = '53100';
    END IF;
    RETURN NEW;
  END $$;
  ${
  tables.map((table) =>
    `CREATE TRIGGER chaos_full BEFORE INSERT ON public.${table}
       FOR EACH ROW EXECUTE FUNCTION chaos.refuse_when_full();`
  ).join("\n")
}

  CREATE TABLE chaos.attempts (
    task_id uuid, attempt integer, worker_id text, outcome text,
    at float8 DEFAULT extract(epoch FROM clock_timestamp()) * 1000
  );
  CREATE FUNCTION chaos.note_claim() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
  BEGIN
    INSERT INTO chaos.attempts (task_id, attempt, worker_id) VALUES (NEW.id, NEW.attempt, NEW.worker_id);
    RETURN NULL;
  END $$;
  CREATE TRIGGER chaos_claim AFTER UPDATE ON public.queue_tasks
    FOR EACH ROW WHEN (NEW.attempt > OLD.attempt) EXECUTE FUNCTION chaos.note_claim();
  CREATE FUNCTION chaos.note_end() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
  BEGIN
    INSERT INTO chaos.attempts (task_id, attempt, worker_id, outcome)
    VALUES (NEW.task_id, NEW.attempt, NEW.worker_id, NEW.outcome);
    RETURN NULL;
  END $$;
  CREATE TRIGGER chaos_end AFTER INSERT ON public.queue_task_attempts
    FOR EACH ROW EXECUTE FUNCTION chaos.note_end();

  ${clock({ impatient, patient })}`

/**
 * A clock of the server that can be stepped without a step of the machine's: functions of its names stand before those
 * of PostgreSQL in the search path of every function of the schema, of the triggers among them, and of every session;
 * default values of columns take the time from them, too.
 */
const clock = (roles: Record<"patient" | "impatient", string>) => `
  CREATE TABLE chaos.clock (ahead interval NOT NULL);
  INSERT INTO chaos.clock VALUES ('0');
  CREATE SCHEMA chaos_clock;
  GRANT USAGE ON SCHEMA chaos_clock TO PUBLIC;
  ${
  ["clock_timestamp VOLATILE", "statement_timestamp STABLE", "transaction_timestamp STABLE", "now STABLE"].map(
    (one) => {
      const [name, volatility] = one.split(" ")
      return `CREATE FUNCTION chaos_clock.${name}() RETURNS timestamptz LANGUAGE sql ${volatility} SECURITY DEFINER
      SET search_path = pg_catalog AS 'SELECT pg_catalog.${name}() + ahead FROM chaos.clock';`
    }
  ).join("\n  ")
}
  DO $do$
  DECLARE
    v_one record;
    v_word text := '\\m(now\\(\\)|(clock|statement|transaction)_timestamp\\(\\))';
    v_keyword text := '\\m(current_timestamp|current_date|current_time|localtimestamp|localtime)\\M';
  BEGIN
    FOR v_one IN
      SELECT oid::regprocedure AS name, prosrc, proconfig FROM pg_proc WHERE pronamespace = 'public'::regnamespace
    LOOP
      IF v_one.prosrc ~* v_keyword THEN
        RAISE '% reads a clock by a keyword, which cannot be stepped', v_one.name;
      END IF;
      -- One without a search path of its own is inlined into its caller, and has the path of that one.
      IF v_one.proconfig::text LIKE '%search_path=%' THEN
        EXECUTE format('ALTER FUNCTION %s SET search_path = public, chaos_clock, pg_catalog, pg_temp', v_one.name);
      END IF;
    END LOOP;
    FOR v_one IN
      SELECT d.adrelid::regclass AS table_name, a.attname, pg_get_expr(d.adbin, d.adrelid) AS value
      FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum
      JOIN pg_class c ON c.oid = d.adrelid
      WHERE c.relnamespace = 'public'::regnamespace
    LOOP
      IF v_one.value ~* v_keyword OR v_one.value ~ v_word THEN
        EXECUTE format('ALTER TABLE %s ALTER %I SET DEFAULT %s', v_one.table_name, v_one.attname,
          regexp_replace(
            regexp_replace(v_one.value, v_keyword, 'chaos_clock.now()', 'gi'), v_word, 'chaos_clock.\\1', 'g'
          ));
      END IF;
    END LOOP;
  END
  $do$;
  ALTER ROLE ${roles.patient} SET search_path = public, chaos_clock, pg_catalog;
  ALTER ROLE ${roles.impatient} SET search_path = public, chaos_clock, pg_catalog;`
