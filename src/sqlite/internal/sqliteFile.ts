/**
 * A SQLite file, open for reading in one transaction: all that is read is the state of one moment, also while another
 * process writes.
 *
 * Nothing is written to the file, or to its write-ahead log.
 */
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type * as Scope from "effect/Scope"
import { existsSync } from "node:fs"
import { open as openFile, stat } from "node:fs/promises"
import { basename } from "node:path"
import { pathToFileURL } from "node:url"
import * as SqliteError from "../SqliteError.ts"

export type Value = string | number | Uint8Array | null

/** An empty BLOB is a Buffer. */
type Stored = Value | ArrayBuffer

/** What is used of libsql. */
interface Statement {
  raw(): Statement
  iterate(parameters: ReadonlyArray<Value>): Iterable<unknown>
}

interface Database {
  prepare(sql: string): Statement
  exec(sql: string): unknown
  close(): unknown
}

export interface SqliteFile {
  /** The path that was given. */
  readonly path: string
  readonly name: string
  /** Whether its write-ahead log is missing. Duroxide always leaves one, with the newest transactions. */
  readonly lacksLog: boolean
  /** May throw; `reading` turns that into a failure. */
  readonly rows: (sql: string, ...parameters: ReadonlyArray<Value>) => Iterable<Array<Value>>
  readonly reading: <A>(read: () => A) => Effect.Effect<A, SqliteError.FileUnreadable>
  /** Ends the transaction: whether another process has changed the file since it began. Nothing is read after this. */
  readonly hasChanged: Effect.Effect<boolean, SqliteError.FileUnreadable>
}

export const packageName = "libsql@0.5.29"

/** Closed with the scope. */
export const open = Effect.fnUntraced(function*(
  path: string
): Effect.fn.Return<SqliteFile, SqliteError.PackageMissing | SqliteError.FileUnreadable, Scope.Scope> {
  const unreadable = (problem: string) => new SqliteError.FileUnreadable({ file: path, problem })
  const reading = <A>(read: () => A) => Effect.try({ try: read, catch: (thrown) => unreadable(problemOf(thrown)) })

  const { default: Libsql } = yield* Effect.tryPromise({
    try: () => import("libsql"),
    catch: (thrown) => new SqliteError.PackageMissing({ packageName, problem: problemOf(thrown).split("\n")[0]! })
  })
  const found = yield* Effect.tryPromise({
    try: () => stat(path),
    catch: (thrown) =>
      unreadable(
        Predicate.hasProperty(thrown, "code") && thrown.code === "ENOENT"
          ? "there is no such file"
          : problemOf(thrown)
      )
  })
  if (!found.isFile()) return yield* unreadable("it is not a file")
  // Before SQLite creates an empty one.
  const lacksLog = yield* Effect.tryPromise({
    try: () => isWithoutLog(path),
    catch: (thrown) => unreadable(problemOf(thrown))
  })
  const database = yield* Effect.acquireRelease(
    // libsql ignores its option `readonly`; SQLite does not ignore this one.
    // A process that opens or closes the file locks it for a moment, to read its log or to empty it.
    reading((): Database => new Libsql(`${pathToFileURL(path).href}?mode=ro`, { timeout: 5_000 })),
    (database) => Effect.sync(() => database.close())
  )
  const rows: SqliteFile["rows"] = function*(sql, ...parameters) {
    for (const row of database.prepare(sql).raw().iterate(parameters)) {
      yield (row as ReadonlyArray<Stored>).map((value) => value instanceof ArrayBuffer ? new Uint8Array(value) : value)
    }
  }
  const version = () => Number([...rows("PRAGMA data_version")][0]![0])
  const before = yield* reading(() => {
    // Taken before the transaction begins: a change in between counts as one during the import.
    const before = version()
    database.exec("BEGIN")
    Array.from(rows("SELECT count(*) FROM sqlite_master"))
    return before
  })
  return {
    path,
    name: basename(path),
    lacksLog,
    rows,
    reading,
    hasChanged: reading(() => {
      database.exec("COMMIT")
      return version() !== before
    })
  }
})

// internal

/** In WAL mode, as byte 18 of the header says, but without the file of the log. */
const isWithoutLog = async (path: string) => {
  const file = await openFile(path)
  try {
    const { buffer } = await file.read({ buffer: Buffer.alloc(1), position: 18 })
    return buffer[0] === 2 && !existsSync(`${path}-wal`)
  } finally {
    await file.close()
  }
}

const problemOf = (thrown: unknown): string => thrown instanceof Error ? thrown.message : String(thrown)
