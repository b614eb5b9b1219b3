/**
 * What a statement reads, counted by the server.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as PgServer from "./PgServer.ts"

/** Reads of one table or index. */
export interface Read {
  readonly name: string
  readonly is_table: boolean
  /** Scans: of a table from end to end, of an index lookups. */
  readonly scans: number
  readonly entries: number
  readonly blocks: number
}

export interface Answer {
  readonly reads: ReadonlyArray<Read>
  readonly rows: ReadonlyArray<unknown>
  readonly rowCount: number
  readonly ms: number
}

export type Counted = (sql: string, values?: ReadonlyArray<unknown>) => Effect.Effect<Answer>

/** A session that keeps its plans; runs each statement in a transaction that is rolled back. */
export const counted = Effect.fnUntraced(function*(
  test: PgServer.TestDatabase
): Effect.fn.Return<Counted, never, Scope.Scope> {
  const url = new URL(test.url)
  url.searchParams.delete("schema")
  const client = yield* PgServer.connect(url.toString())
  yield* Effect.promise(() => client.query(`SELECT set_config('search_path', quote_ident($1), false)`, [test.schema]))
  const reads = async (): Promise<ReadonlyArray<Read>> =>
    (await client.query<Read>(
      `SELECT relname AS name, relkind = 'r' AS is_table, pg_stat_get_xact_numscans(oid)::int AS scans,
         pg_stat_get_xact_tuples_returned(oid)::int AS entries, pg_stat_get_xact_blocks_fetched(oid)::int AS blocks
       FROM pg_class WHERE relnamespace = quote_ident($1)::regnamespace AND relkind IN ('r', 'i')`,
      [test.schema]
    )).rows
  return (sql, values) =>
    Effect.promise(async () => {
      await client.query("BEGIN")
      try {
        const before = new Map((await reads()).map((read) => [read.name, read]))
        const begin = performance.now()
        const { rowCount, rows } = await client.query(sql, values === undefined ? undefined : [...values])
        const ms = performance.now() - begin
        const since = (await reads()).map((read) => ({
          ...read,
          scans: read.scans - (before.get(read.name)?.scans ?? 0),
          entries: read.entries - (before.get(read.name)?.entries ?? 0),
          blocks: read.blocks - (before.get(read.name)?.blocks ?? 0)
        }))
        return { reads: since, rows, rowCount: rowCount ?? 0, ms }
      } finally {
        await client.query("ROLLBACK")
      }
    })
})

/**
 * Leaves a queue as when its work is done: VACUUM cannot give pages back while others use the table, or where the last
 * one has a row. Until the next ANALYZE the planner then takes it for empty, however many rows it has.
 */
export const workedOff = (test: PgServer.TestDatabase, queue: string, fill: string) =>
  Effect.andThen(
    test.sql(`${fill}; DELETE FROM ${queue}`),
    test.sql(`VACUUM (TRUNCATE false, ANALYZE) ${queue}`)
  )
