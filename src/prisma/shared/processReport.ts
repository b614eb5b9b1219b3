/**
 * When processes that died were found dead: another process finds them, when it starts.
 *
 * Bounds: the rows of processes.
 */
import * as Effect from "effect/Effect"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Database } from "../Database.ts"
import { Prisma } from "../internal/client.ts"

/** Milliseconds since the Unix epoch, by the id of the process. */
export const readDeaths: Effect.Effect<ReadonlyMap<string, number>, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ query, schemaSql }) =>
    Effect.map(
      query<{ readonly id: string; readonly atMs: number }>(
        "readDeaths",
        Prisma.sql`
          SELECT p.id::text AS id, floor(extract(epoch FROM p.found_dead_at) * 1000)::float8 AS "atMs"
          FROM ${schemaSql}.processes AS p
          WHERE p.found_dead_at IS NOT NULL`
      ),
      (rows) => new Map(rows.map(({ atMs, id }) => [id, atMs]))
    )
)
