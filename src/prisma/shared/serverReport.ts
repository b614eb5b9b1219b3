/**
 * The server of a database, and the processes that listen on it, for operators.
 */
import * as Effect from "effect/Effect"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Database } from "../Database.ts"
import * as Channels from "../internal/channels.ts"
import { Prisma } from "../internal/client.ts"

export interface ServerReport {
  readonly version: string
  /** Size of all tables of the schema. */
  readonly bytes: number
  /** Processes that listen, and what they serve. */
  readonly listening: number
  readonly orchestrators: number
  readonly workers: number
}

export const read: Effect.Effect<ServerReport, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ query, schema }) => {
    const listener = `duroxide-prisma listener ${Channels.hashOf(schema).slice(0, 16)}`
    return Effect.map(
      query<ServerReport>(
        "readServer",
        Prisma.sql`
          SELECT
            split_part(current_setting('server_version'), ' ', 1) AS version,
            (
              SELECT COALESCE(sum(pg_total_relation_size(c.oid)), 0)::float8
              FROM pg_class AS c
              WHERE c.relnamespace = (SELECT n.oid FROM pg_namespace AS n WHERE n.nspname = ${schema})
                AND c.relkind = 'r'
            ) AS bytes,
            count(*)::integer AS listening,
            count(*) FILTER (WHERE a.application_name LIKE '% orchestrator%')::integer AS orchestrators,
            count(*) FILTER (WHERE a.application_name LIKE '% worker%')::integer AS workers
          FROM pg_stat_activity AS a
          WHERE a.datname = current_database()
            AND starts_with(a.application_name, ${listener})`
      ),
      ([row]) => row!
    )
  }
)
