/**
 * Moves what Duroxide stored in a SQLite file to PostgreSQL, and compares both.
 *
 * An import can be killed at any time and called again: it continues. No instance of the file runs before all of them
 * are in PostgreSQL, and a file that was imported is not imported again. See docs/migrating-from-sqlite.md.
 *
 * @since 0.2.0
 */
import * as Effect from "effect/Effect"
import * as Compare from "./internal/compare.ts"
import * as Copy from "./internal/copy.ts"
import type * as Differences from "./internal/differences.ts"
import type * as Progressing from "./internal/progress.ts"
import type * as Place from "./internal/target.ts"
import * as SqliteError from "./SqliteError.ts"

/**
 * Where the rows go. The schema must have the migrations of this version.
 *
 * @category options
 * @since 0.2.0
 */
export interface Target extends Place.Options {}

/**
 * How to import. Everything but `file` and `target` has a default.
 *
 * @category options
 * @since 0.2.0
 */
export interface ImportOptions extends Copy.Options {}

/**
 * How far a call is.
 *
 * @category models
 * @since 0.2.0
 */
export interface Progress extends Progressing.Progress {}

/**
 * What an import has written.
 *
 * @category models
 * @since 0.2.0
 */
export interface ImportReport extends Copy.Report {}

/**
 * Imports a file: instances, executions, histories, key-values, both queues and sessions.
 *
 * **Details**
 *
 * Reads the whole file first, and writes nothing if it has a row that PostgreSQL cannot hold, an unknown layout, or
 * locks that have not expired. Then it copies instances in batches, each in one transaction with its progress, and at
 * the end all messages and activities in one transaction, which also releases the instances. After a failure or a kill,
 * a call with the same file and options continues behind the last batch. A file that was imported already is reported
 * as such, and nothing is copied; then `serve` pins executions of the file that are still under way, still pinned to
 * Duroxide, and locked by no process.
 *
 * All locks of the file are released; numbers of attempts stay. Ids of messages are new, in the same order, in front of
 * those of messages that were sent here before.
 *
 * Fails with `SqliteError`.
 *
 * **Gotchas**
 *
 * Stop all processes that use the file before, and for good: two stores would run the same instances.
 *
 * @see {@link verify} for comparing file and target
 * @category operations
 * @since 0.2.0
 */
export const importFile: (options: ImportOptions) => Effect.Effect<ImportReport, SqliteError.SqliteError> = Effect.fn(
  "SqliteImport.importFile"
)(
  Copy.run,
  Effect.scoped,
  Effect.mapError((reason) => new SqliteError.SqliteError({ operation: "importFile", reason }))
)

/**
 * What to compare.
 *
 * @category options
 * @since 0.2.0
 */
export interface VerifyOptions extends Compare.Options {}

/**
 * A row that only one side has, or that differs.
 *
 * @category models
 * @since 0.2.0
 */
export interface Difference extends Differences.Difference {}

/**
 * The result of a comparison.
 *
 * @category models
 * @since 0.2.0
 */
export interface VerifyReport extends Compare.Report {}

/**
 * Compares a file with what was imported: every row of every table by value, long texts by their SHA-256.
 *
 * **Details**
 *
 * Looks at the instances of the file only; others that the target has do not matter, nor do instances that an import
 * with `keep` has left out. Writes nothing.
 *
 * Fails with `SqliteError`; differences do not make it fail.
 *
 * **Gotchas**
 *
 * Compare before processes run on the target: an instance that has continued differs from the file.
 *
 * @category operations
 * @since 0.2.0
 */
export const verify: (options: VerifyOptions) => Effect.Effect<VerifyReport, SqliteError.SqliteError> = Effect.fn(
  "SqliteImport.verify"
)(
  Compare.run,
  Effect.scoped,
  Effect.mapError((reason) => new SqliteError.SqliteError({ operation: "verify", reason }))
)

/**
 * A comparison as lines of text, for people.
 *
 * @category conversions
 * @since 0.2.0
 */
export const render: (report: VerifyReport) => string = Compare.render
