/**
 * The application's own connections to the two databases, for its own rows and transactions.
 */
import { Config, Context, Data, Effect, Exit, Layer, Redacted, type Scope } from "effect"
import * as pg from "pg"
import * as Settings from "./settings.ts"

export class DatabaseTrouble extends Data.TaggedError("DatabaseTrouble")<{ readonly cause: unknown }> {
  override get message() {
    return this.cause instanceof Error ? this.cause.message : String(this.cause)
  }
}

export interface Connections {
  /** The schema of the URL, `public` by default. */
  readonly schema: string
  /** Runs one statement and returns its rows. */
  readonly query: <Row = Record<string, unknown>>(
    text: string,
    values?: ReadonlyArray<unknown>
  ) => Effect.Effect<ReadonlyArray<Row>, DatabaseTrouble>
  /** All of it happens, or nothing. */
  readonly transaction: <A, E, R>(
    use: (client: pg.PoolClient) => Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | DatabaseTrouble, R>
}

/** The database of tasks, outbox and datasets. */
export class State extends Context.Service<State, Connections>()("examples/lite/State") {}

/** The database of the application. */
export class AppData extends Context.Service<AppData, Connections>()("examples/lite/AppData") {}

export const open = (url: Redacted.Redacted<string>): Effect.Effect<Connections, never, Scope.Scope> =>
  Effect.gen(function*() {
    const address = new URL(Redacted.value(url))
    const schema = address.searchParams.get("schema") ?? "public"
    address.searchParams.delete("schema")
    const pool = yield* Effect.acquireRelease(
      Effect.sync(() => {
        const pool = new pg.Pool({
          connectionString: address.toString(),
          application_name: `lite ${process.pid}`,
          max: 4,
          connectionTimeoutMillis: 30_000,
          // A process that hangs in a transaction keeps its locks; the server then ends the session.
          idle_in_transaction_session_timeout: 10_000,
          onConnect: (client) => client.query(`SET search_path = ${pg.escapeIdentifier(schema)}`)
        })
        pool.on("error", () => {}) // a connection that breaks while idle is replaced when the next one is needed
        return pool
      }),
      (pool) => Effect.promise(() => pool.end())
    )
    return {
      schema,
      query: <Row>(text: string, values?: ReadonlyArray<unknown>) =>
        attempt(async () => (await pool.query(text, values && [...values])).rows as ReadonlyArray<Row>),
      transaction: (use) =>
        Effect.acquireUseRelease(
          attempt(() => pool.connect()),
          (client) =>
            attempt(() => client.query("BEGIN")).pipe(
              Effect.andThen(use(client)),
              Effect.tap(attempt(() => client.query("COMMIT")))
            ),
          // A connection that did not get as far as COMMIT is closed, which rolls back.
          (client, exit) => Effect.sync(() => client.release(Exit.isFailure(exit)))
        )
    } satisfies Connections
  })

const attempt = <A>(run: () => Promise<A>) =>
  Effect.tryPromise({ try: run, catch: (cause) => new DatabaseTrouble({ cause }) })

export const stateLayer: Layer.Layer<State, Config.ConfigError> = Layer.effect(
  State,
  Effect.flatMap(Settings.stateUrl, open)
)

export const dataLayer: Layer.Layer<AppData, Config.ConfigError> = Layer.effect(
  AppData,
  Effect.flatMap(Settings.dataUrl, open)
)

/** Creates what is missing in the application's database. */
export const createTables: Effect.Effect<void, DatabaseTrouble, AppData> = Effect.flatMap(
  AppData,
  ({ schema, query }) =>
    Effect.andThen(query(`CREATE SCHEMA IF NOT EXISTS ${pg.escapeIdentifier(schema)}`), query(tables))
)

const tables = `
  CREATE TABLE IF NOT EXISTS meters (
    id text PRIMARY KEY,
    city text NOT NULL
  );
  CREATE TABLE IF NOT EXISTS censuses (
    task_id uuid PRIMARY KEY, -- of the task that counted: a second attempt writes no second row
    reason text NOT NULL,
    dataset_version bigint,
    records bigint NOT NULL
  );
  CREATE TABLE IF NOT EXISTS stale_commits (
    task_id uuid NOT NULL,
    attempt integer NOT NULL,
    worker_id text NOT NULL,
    rejected_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (task_id, attempt)
  );
`
