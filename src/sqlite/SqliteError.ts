/**
 * Why a SQLite file of Duroxide could not be imported or compared.
 *
 * One outer error, `SqliteError`, says which operation failed; the tagged `reason` inside says why, and its message
 * what to do. No reason contains a payload or a secret.
 *
 * @since 0.2.0
 */
import * as Schema from "effect/Schema"
import { counted } from "../model/shared/quantities.ts"
import * as MigrationError from "../prisma/MigrationError.ts"
import { InvalidInput } from "../provider/ProviderError.ts"

export {
  /**
   * An option is out of its range. Nothing was done.
   *
   * @category reasons
   * @since 0.2.0
   */
  InvalidInput
} from "../provider/ProviderError.ts"

const id = <const Name extends string>(name: Name) => `duroxide-prisma/sqlite/SqliteError/${name}` as const

/**
 * The optional package that reads SQLite files is not installed, or not for this platform.
 *
 * @category reasons
 * @since 0.2.0
 */
export class PackageMissing extends Schema.TaggedError<PackageMissing>(id("PackageMissing"))("PackageMissing", {
  /** With its version, as `npm install` takes it. */
  packageName: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `the package that reads SQLite files cannot be loaded: run npm install ${this.packageName} (${this.problem})`
  }
}

/**
 * The file does not exist, may not be read, is not a SQLite database, or is damaged.
 *
 * @category reasons
 * @since 0.2.0
 */
export class FileUnreadable extends Schema.TaggedError<FileUnreadable>(id("FileUnreadable"))("FileUnreadable", {
  file: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `cannot read ${this.file}: ${this.problem}`
  }
}

/**
 * A SQLite database without the tables of Duroxide.
 *
 * @category reasons
 * @since 0.2.0
 */
export class NotDuroxide extends Schema.TaggedError<NotDuroxide>(id("NotDuroxide"))("NotDuroxide", {
  file: Schema.String,
  missing: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message() {
    return `${this.file} is not a store of Duroxide: it lacks ${this.missing.join(", ")}. ` +
      "If the file was copied, copy the files with the endings -wal and -shm too: they contain the newest data"
  }
}

/**
 * The file has columns or migrations of a Duroxide that this version does not know. Nothing was written.
 *
 * @category reasons
 * @since 0.2.0
 */
export class LayoutUnknown extends Schema.TaggedError<LayoutUnknown>(id("LayoutUnknown"))("LayoutUnknown", {
  file: Schema.String,
  differences: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message() {
    return `${this.file} has a layout that this version does not know: ${this.differences.join("; ")}. ` +
      "Update duroxide-prisma"
  }
}

/**
 * Processes seem to work on the file: some of its locks have not expired. Nothing was written.
 *
 * @category reasons
 * @since 0.2.0
 */
export class FileInUse extends Schema.TaggedError<FileInUse>(id("FileInUse"))("FileInUse", {
  file: Schema.String,
  locks: Schema.Number,
  /** When the last one expires, milliseconds since the Unix epoch. */
  untilMs: Schema.Number
}) {
  readonly isRetryable = true
  override get message() {
    return `processes seem to work on ${this.file}: it has ${counted(this.locks, "lock")}, until ` +
      `${new Date(this.untilMs).toISOString()}. Stop them, and try again when the locks have ended`
  }
}

/**
 * Another process changed the file while it was imported. What was copied stays held, so that no instance runs twice.
 *
 * @category reasons
 * @since 0.2.0
 */
export class FileChanged extends Schema.TaggedError<FileChanged>(id("FileChanged"))("FileChanged", {
  file: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `a process has changed ${this.file} since the import began, so no imported instance was released. ` +
      "Stop that process, and import again with discardUnfinished"
  }
}

/**
 * A row of the file that PostgreSQL cannot hold.
 *
 * @category models
 * @since 0.2.0
 */
export const RefusedRow = Schema.Struct({
  /** The table of the file. */
  table: Schema.String,
  rowId: Schema.Number,
  /** Null if the row has none, or none that can be read. */
  instanceId: Schema.NullOr(Schema.String),
  column: Schema.String,
  problem: Schema.String
})

/**
 * A row of the file that PostgreSQL cannot hold.
 *
 * @category models
 * @since 0.2.0
 */
export type RefusedRow = typeof RefusedRow.Type

/**
 * The file contains values that PostgreSQL cannot hold. Nothing was written.
 *
 * @category reasons
 * @since 0.2.0
 */
export class RowsRefused extends Schema.TaggedError<RowsRefused>(id("RowsRefused"))("RowsRefused", {
  file: Schema.String,
  /** The first 20. */
  rows: Schema.Array(RefusedRow),
  /** How many there are. */
  count: Schema.Number
}) {
  readonly isRetryable = false
  override get message() {
    const lines = this.rows.map(({ column, instanceId, problem, rowId, table }) =>
      `row ${rowId} of ${table}${instanceId === null ? "" : ` (instance ${instanceId})`}, ${column}: ${problem}`
    )
    const more = this.count - this.rows.length
    return `${this.file} contains ${counted(this.count, "value")} that cannot be imported: ${lines.join("; ")}` +
      `${more > 0 ? `; and ${more} more` : ""}. Change or delete these rows in the file`
  }
}

/**
 * The target has instances with ids of the file.
 *
 * @category reasons
 * @since 0.2.0
 */
export class IdsTaken extends Schema.TaggedError<IdsTaken>(id("IdsTaken"))("IdsTaken", {
  schema: Schema.String,
  /** The first 20. */
  instanceIds: Schema.Array(Schema.String),
  /** How many there are. */
  count: Schema.Number
}) {
  readonly isRetryable = false
  override get message() {
    const more = this.count - this.instanceIds.length
    return `schema ${this.schema} already has ${counted(this.count, "id")} of the file: ${
      this.instanceIds.join(", ")
    }` +
      `${more > 0 ? ` and ${more} more` : ""}. Decide which side wins with onConflict: "keep" or "replace"`
  }
}

/**
 * The target has an import of another file, or of this file before it was changed, that did not end. Nothing was
 * written.
 *
 * @category reasons
 * @since 0.2.0
 */
export class ImportUnfinished extends Schema.TaggedError<ImportUnfinished>(id("ImportUnfinished"))("ImportUnfinished", {
  /** The file that was imported, without its folder. */
  file: Schema.String,
  startedAt: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `the import of ${this.file} that began at ${this.startedAt} has not ended. Import that file again to continue ` +
      "it, or set discardUnfinished to remove what it has copied; a file that was changed meanwhile counts as another one"
  }
}

/**
 * Another process imports into this schema.
 *
 * @category reasons
 * @since 0.2.0
 */
export class ImportRunning extends Schema.TaggedError<ImportRunning>(id("ImportRunning"))("ImportRunning", {
  schema: Schema.String
}) {
  readonly isRetryable = true
  override get message() {
    return `another process is importing into schema ${this.schema}`
  }
}

/**
 * One of the reasons above, or why the target cannot be used: `SchemaBehind`, `ConnectionLost`, `PermissionDenied`, ….
 *
 * @category reasons
 * @since 0.2.0
 */
export const Reason = Schema.Union([
  PackageMissing,
  FileUnreadable,
  NotDuroxide,
  LayoutUnknown,
  FileInUse,
  FileChanged,
  RowsRefused,
  IdsTaken,
  ImportUnfinished,
  ImportRunning,
  InvalidInput,
  MigrationError.Reason
])

/**
 * One of the reasons above.
 *
 * @category reasons
 * @since 0.2.0
 */
export type Reason = typeof Reason.Type

/**
 * The one error of `SqliteImport`.
 *
 * @category errors
 * @since 0.2.0
 */
export class SqliteError extends Schema.TaggedError<SqliteError>("duroxide-prisma/sqlite/SqliteError")("SqliteError", {
  operation: Schema.Literals(["importFile", "verify"]),
  reason: Reason
}) {
  /** True when the same call may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  override get message() {
    return `${this.operation}: ${this.reason.message}`
  }
}
