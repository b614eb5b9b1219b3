/**
 * Reads a whole file once, before anything is written: what PostgreSQL could not hold, how much there is, and a
 * fingerprint of all that is imported.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { isUtf8 } from "node:buffer"
import { createHash } from "node:crypto"
import { problemOfId, problemOfKey } from "../../model/shared/identifiers.ts"
import * as SqliteError from "../SqliteError.ts"
import type { Has } from "./fileLayout.ts"
import * as Progress from "./progress.ts"
import * as Rows from "./rows.ts"
import type { SqliteFile, Value } from "./sqliteFile.ts"
import * as Tables from "./tables.ts"

export interface Examined {
  /** Equal for files that are imported alike; locks do not count. */
  readonly fingerprint: string
  /** Rows by table of PostgreSQL. */
  readonly counts: Readonly<Record<Tables.Name, number>>
  readonly rows: number
}

/** Fails with `RowsRefused`. */
export const examine = Effect.fnUntraced(function*(file: SqliteFile, has: Has, onProgress: Progress.OnProgress) {
  const tables = Tables.all.filter((table) => Tables.isPresent(table, has))
  const total = yield* file.reading(() =>
    tables.reduce((sum, { source }) => sum + Number([...file.rows(`SELECT count(*) FROM ${source}`)][0]![0]), 0)
  )
  const report = yield* Progress.phase(onProgress, "reading", total)
  const shape = Tables.plain(has)
  const hash = createHash("sha256")
  const counts: Record<Tables.Name, number> = { ...Tables.noCounts }
  const refused: Array<SqliteError.RefusedRow> = []
  let refusals = 0
  let read = 0
  for (const table of tables) {
    hash.update(`\n${table.name}\n`)
    const found = Rows.rows(file, table, shape, "bytes")
    for (let ended = false; !ended;) {
      ended = yield* file.reading(() => {
        for (let i = 0; i < step; i++) {
          const next = found.next()
          if (next.done === true) return true
          counts[table.name]++
          read++
          add(hash, next.value.values)
          for (const one of problems(table, next.value)) {
            refusals++
            if (refused.length < 20) refused.push(one)
          }
        }
        return false
      })
      yield* report(read)
    }
  }
  if (refusals > 0) return yield* new SqliteError.RowsRefused({ file: file.path, rows: refused, count: refusals })
  return { fingerprint: hash.digest("hex"), counts, rows: read } satisfies Examined
})

/** Fails with `FileInUse` if locks of the file have not expired. */
export const refuseLocks = Effect.fnUntraced(function*(file: SqliteFile, has: Has) {
  const now = yield* Clock.currentTimeMillis
  const locks = yield* file.reading(() =>
    lockTables.filter((table) => has(table, "locked_until")).map((table) => {
      const until = Tables.milliseconds("t.locked_until")
      const [row] = [...file.rows(`SELECT count(*), max(${until}) FROM ${table} AS t WHERE ${until} > ?`, now)]
      return { count: Number(row![0]), untilMs: Number(row![1] ?? 0) }
    })
  )
  const count = locks.reduce((sum, { count }) => sum + count, 0)
  if (count > 0) {
    // A number of SQLite can be later than any date.
    const untilMs = Math.min(Math.max(...locks.map(({ untilMs }) => untilMs)), Tables.times.last)
    return yield* new SqliteError.FileInUse({ file: file.path, locks: count, untilMs })
  }
})

// internal

const step = 2000

const lockTables = ["instance_locks", "orchestrator_queue", "worker_queue", "sessions"]

const add = (hash: ReturnType<typeof createHash>, values: ReadonlyArray<Value>) => {
  // With the lengths in front, two different rows never add the same bytes.
  hash.update(values.map((value) => value instanceof Uint8Array ? `#${value.byteLength}` : String(value)).join())
  for (const value of values) if (value instanceof Uint8Array) hash.update(value)
}

function* problems(table: Tables.Table, { rowId, values }: Rows.Row): Generator<SqliteError.RefusedRow> {
  const read = (name: string) => {
    const value = values[table.columns.findIndex((column) => column.name === name)]
    return value instanceof Uint8Array && isUtf8(value) ? Buffer.from(value).toString() : null
  }
  for (const [index, column] of table.columns.entries()) {
    const problem = problemOf(column, values[index]!) ??
      (indexed.includes(column.name) ? problemOfName(column.name, read(column.name), read("instance_id")) : undefined)
    if (problem !== undefined) {
      const instanceId = read("instance_id")
      yield { table: table.source, rowId, instanceId, column: column.name, problem }
    }
  }
}

/** Texts that indexes of PostgreSQL contain, whose entries have a limit. */
const indexed = ["instance_id", "parent_instance_id", "session_id", "worker_id", "key"]

const problemOf = ({ isNullable, kind, most }: Tables.Column, value: Value): string | undefined => {
  if (value === null) return isNullable ? undefined : "it is empty"
  if (kind === "time") {
    const { first, last } = Tables.times
    return isWhole(value, first, last) ? undefined : "it is not a time in the years 1 to 9999"
  }
  if (kind === "number") {
    if (isWhole(value, -most, most)) return undefined
    return `it is ${
      typeof value === "number" ? `${value}, but must be` : "not"
    } a whole number from ${-most} to ${most}`
  }
  if (!(value instanceof Uint8Array)) return "it is not a text"
  if (value.includes(0)) return "it contains a NUL character (U+0000), which PostgreSQL cannot store"
  return isUtf8(value) ? undefined : "it is not valid UTF-8"
}

const isWhole = (value: Value, least: number, most: number) =>
  typeof value === "number" && Number.isInteger(value) && value >= least && value <= most

const problemOfName = (column: string, name: string | null, instanceId: string | null) =>
  name === null ? undefined : column === "key" ? problemOfKey(name, instanceId ?? "") : problemOfId(name)
