/**
 * Partitions the table `history`, which is the one that grows with the number of instances.
 *
 * The statement stands in `prisma/partitions/history.sql` of the package, plain SQL that can also be run by hand. When
 * it pays, and what it costs, is in `docs/postgresql.md`.
 *
 * @since 0.2.0
 */
import * as Effect from "effect/Effect"
import type * as Redacted from "effect/Redacted"
import { ConfigurationInvalid, ProviderError } from "../provider/ProviderError.ts"
import * as ShippedSql from "./internal/shippedSql.ts"
import * as Session from "./shared/directSession.ts"

/**
 * Which schema, and how many partitions.
 *
 * @category options
 * @since 0.2.0
 */
export interface Options {
  /** A login that owns the tables, straight to the server. */
  readonly url: string | Redacted.Redacted<string>
  /** Without quotes in it. Defaults to the URL's `schema` parameter, then to `public`. */
  readonly schema?: string | undefined
  /** 2 to 1,024; it cannot be changed later. Defaults to 8. */
  readonly partitions?: number | undefined
}

/**
 * Turns `history` into a table that is partitioned by a hash of the instance id, with all its rows, indexes and rights.
 * Returns false if it was partitioned before.
 *
 * **Details**
 *
 * One transaction locks the table exclusively and copies every row: turns wait meanwhile. Later migrations work on the
 * partitioned table. Fails with `ProviderError`, operation `partition`: `Contention` if the lock is not free within 10
 * seconds, `ConfigurationInvalid`, `PermissionDenied`, or a reason of the connection. A schema of duroxide-pg is
 * refused.
 *
 * @category operations
 * @since 0.2.0
 */
export const apply = Effect.fn("Partitions.apply")(
  function*(options: Options) {
    const partitions = options.partitions ?? 8
    if (!Number.isInteger(partitions) || partitions < 2 || partitions > 1024) {
      return yield* new ConfigurationInvalid({
        problem: `partitions must be a whole number from 2 to 1024, not ${partitions}`
      })
    }
    const session = yield* Session.openDirect(options)
    if (yield* Session.hasTable(session, Session.duroxideBooks)) {
      return yield* new ConfigurationInvalid({
        problem: `duroxide-pg owns the tables of schema ${session.schema}, and migrates them`
      })
    }
    if (yield* isPartitioned(session)) return false
    const sql = yield* ShippedSql.read("partitions/history.sql", [["duroxide", session.schema]])
    yield* session.run(sql.replace("CONSTANT integer := 8;", `CONSTANT integer := ${partitions};`))
    yield* session.run("ANALYZE history")
    return true
  },
  Effect.scoped,
  Effect.mapError((reason) => new ProviderError({ operation: "partition", reason }))
)

// internal

const isPartitioned = ({ run, schema }: Session.Session) =>
  Effect.map(
    run(
      `SELECT FROM pg_partitioned_table AS p JOIN pg_class AS c ON c.oid = p.partrelid
       WHERE c.relname = 'history' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)`,
      [schema]
    ),
    (rows) => rows.length > 0
  )
