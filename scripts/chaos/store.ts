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
  /** Both roles. */
  readonly group: string
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
  "instance_locks"
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
  return {
    urls: { patient: at(roles.patient), impatient: at(roles.impatient) },
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
 * Roles with the rights an application's processes need, and a disk that can be full: `chaos.full` names the tables
 * that take no new rows.
 */
const prepare = ({ group, impatient, patient }: Record<"group" | "patient" | "impatient", string>) => `
  CREATE ROLE ${group} NOLOGIN;
  CREATE ROLE ${patient} LOGIN PASSWORD 'chaos' IN ROLE ${group};
  CREATE ROLE ${impatient} LOGIN PASSWORD 'chaos' IN ROLE ${group};
  ALTER ROLE ${impatient} SET lock_timeout = '100ms';
  GRANT USAGE ON SCHEMA public TO ${group};
  GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO ${group};
  GRANT USAGE ON ALL SEQUENCES IN SCHEMA public TO ${group};

  CREATE SCHEMA chaos;
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
}`
