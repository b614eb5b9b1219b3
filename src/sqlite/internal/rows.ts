/**
 * Reads the rows of a table of the file, one by one: only one row with long values is in memory.
 */
import type { Has } from "./fileLayout.ts"
import type { SqliteFile, Value } from "./sqliteFile.ts"
import type { Column, Shape, Table } from "./tables.ts"

/** The instances after `after`, up to and with `upTo`; undefined for no limit. */
export interface Range {
  readonly after: string | undefined
  readonly upTo: string | undefined
}

/** Rows without an instance. */
export const noInstance = "noInstance"

export const everything: Range = { after: undefined, upTo: undefined }

/**
 * `bytes`: texts as stored, and a number for a value that is not a text; `text`: as strings; `payloadBytes`: long ones
 * as stored, others as strings.
 */
export type As = "bytes" | "text" | "payloadBytes"

export interface Row {
  readonly rowId: number
  /** One for each column. */
  readonly values: ReadonlyArray<Value>
  /** Bytes of its payloads. */
  readonly bytes: number
}

export function* rows(
  file: SqliteFile,
  table: Table,
  shape: Shape,
  as: As,
  range: Range | typeof noInstance = everything
): Generator<Row, void, undefined> {
  const { condition, parameters } = within(table, shape, range)
  const read = (column: Column) => {
    const sql = column.sql(shape)
    return column.kind !== "text"
      ? sql
      : as === "bytes"
      // BLOBs are above all texts, so a search by id would not get past one.
      ? `CASE typeof(${sql}) WHEN 'text' THEN CAST(${sql} AS BLOB) WHEN 'null' THEN NULL ELSE 0 END`
      : `CAST(${sql} AS ${as === "payloadBytes" && column.isPayload ? "BLOB" : "TEXT"})`
  }
  const { columns } = table
  const payloads = columns.flatMap((column, index) => column.isPayload ? [{ column, index }] : [])
  // libsql reads 100 rows at once.
  const light = columns.map((column) =>
    column.isPayload
      ? `CASE WHEN octet_length(${column.sql(shape)}) <= ${longBytes} THEN ${read(column)} END`
      : read(column)
  )
  const sizes = payloads.map(({ column }) => `COALESCE(octet_length(${column.sql(shape)}), 0)`)
  const found = file.rows(
    `SELECT t.rowid, ${[...light, ...sizes].join(", ")} FROM ${table.source} AS t
     WHERE ${condition} ORDER BY ${table.order}`,
    ...parameters
  )
  for (const [rowId, ...rest] of found) {
    const values = rest.slice(0, columns.length)
    let bytes = 0
    payloads.forEach(({ column, index }, position) => {
      const size = Number(rest[columns.length + position])
      bytes += size
      if (size > longBytes) {
        const [long] = [...file.rows(`SELECT ${read(column)} FROM ${table.source} AS t WHERE t.rowid = ?`, rowId!)]
        values[index] = long![0]!
      }
    })
    yield { rowId: Number(rowId), values, bytes }
  }
}

/** SQL that lists the ids of instances after `?1`, each as often as it occurs. */
export const idsAfter = (table: Table, has: Has, isFirst: boolean): ReadonlyArray<string> =>
  table.ids(has).map(({ sql, where }) =>
    `SELECT ${sql} AS id FROM ${table.source} AS t WHERE ${where} AND ${sql} ${isFirst ? "IS NOT NULL" : "> ?1"}`
  )

// internal

const longBytes = 65_536

const within = (table: Table, shape: Shape, range: Range | typeof noInstance) => {
  if (range === noInstance) {
    const id = table.columns.find(({ name }) => name === "instance_id")
    return { condition: id === undefined ? "false" : `${id.sql(shape)} IS NULL`, parameters: [] }
  }
  const { after, upTo } = range
  if (after === undefined && upTo === undefined) return { condition: "true", parameters: [] }
  const bounds = (sql: string) =>
    [
      ...(after === undefined ? [] : [`${sql} > ?1`]),
      ...(upTo === undefined ? [] : [`${sql} <= ?${after === undefined ? 1 : 2}`])
    ].join(" AND ")
  return {
    condition: table.ids(shape.has).map(({ sql, where }) => `(${where} AND ${bounds(sql)})`).join(" OR ") || "false",
    parameters: [after, upTo].filter((id) => id !== undefined)
  }
}
