/**
 * Divides the instances of a file into batches, in the order of their ids as bytes.
 */
import * as Effect from "effect/Effect"
import type { Has } from "./fileLayout.ts"
import * as Rows from "./rows.ts"
import type { SqliteFile } from "./sqliteFile.ts"
import * as Tables from "./tables.ts"

export interface Batch {
  readonly ids: ReadonlyArray<string>
  readonly range: Rows.Range
}

/** At most this many events, unless one instance has more. */
export const maxEvents = 20_000

/** The next batch after an id; undefined after the last one. */
export const next = (file: SqliteFile, has: Has, after: string | undefined, limit: number) =>
  Effect.flatMap(idsAfter(file, has, after, limit), (all) =>
    file.reading((): Batch | undefined => {
      if (all.length === 0) return undefined
      const upTo = all.at(-1)!
      const { parameters, sql } = after === undefined
        ? { parameters: [upTo], sql: "instance_id <= ?1" }
        : { parameters: [upTo, after], sql: "instance_id <= ?1 AND instance_id > ?2" }
      const events = new Map(
        Array.from(
          file.rows(`SELECT instance_id, count(*) FROM history WHERE ${sql} GROUP BY instance_id`, ...parameters),
          ([id, count]) => [String(id), Number(count)]
        )
      )
      let sum = 0
      const end = all.findIndex((id, index) => (sum += events.get(id) ?? 0) > maxEvents && index > 0)
      const ids = end === -1 ? all : all.slice(0, end)
      return { ids, range: { after, upTo: ids.at(-1) } }
    }))

/** Every id that any table of the file has. */
export const idsAfter = (file: SqliteFile, has: Has, after: string | undefined, limit: number) =>
  file.reading(() => {
    const selects = Tables.all.filter((table) => Tables.isPresent(table, has))
      .flatMap((table) => Rows.idsAfter(table, has, after === undefined))
    const sql = `${selects.join(" UNION ")} ORDER BY 1 LIMIT ${limit}`
    return Array.from(file.rows(sql, ...(after === undefined ? [] : [after])), ([id]) => String(id))
  })
