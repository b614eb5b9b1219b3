import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import * as PgServer from "./PgServer.ts"

export type Run = (sql: string, values?: ReadonlyArray<unknown>) => Effect.Effect<ReadonlyArray<any>>

/** Another session in the same schema, with an open transaction. */
export const session = Effect.fnUntraced(function*(test: PgServer.TestDatabase): Effect.fn.Return<
  Run,
  never,
  Scope.Scope
> {
  const url = new URL(test.url)
  url.searchParams.delete("schema")
  const client = yield* PgServer.connect(url.toString())
  const run: Run = (sql, values = []) =>
    Effect.promise(async () => (await client.query(sql, [...values])).rows as ReadonlyArray<any>)
  yield* run(`SELECT set_config('search_path', quote_ident($1), false)`, [test.schema])
  yield* run("BEGIN")
  return run
})
