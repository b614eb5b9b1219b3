/**
 * Why a schema could not be migrated, checked, adopted or reset.
 *
 * One outer error, `MigrationError`, says which operation failed; the tagged `reason` inside says why
 * and its message what to do.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { counted } from "../model/shared/quantities.ts"
import * as ProviderError from "../provider/ProviderError.ts"
import * as Connection from "./internal/connection.ts"

const id = <const Name extends string>(name: Name) => `duroxide-prisma/prisma/MigrationError/${name}` as const

/**
 * Migrations are pending. Another process may be applying them right now.
 *
 * @category reasons
 * @since 0.1.0
 */
export class SchemaBehind extends Schema.TaggedError<SchemaBehind>(id("SchemaBehind"))("SchemaBehind", {
  schema: Schema.String,
  pending: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message() {
    return `schema ${this.schema} lacks ${counted(this.pending.length, "migration")}: ${this.pending.join(", ")}. ` +
      "Apply them with npx duroxide-prisma migrate, Migrator.layer or prisma migrate deploy"
  }
}

/**
 * The schema has migrations this code does not know: a newer release migrated it.
 *
 * @category reasons
 * @since 0.1.0
 */
export class SchemaAhead extends Schema.TaggedError<SchemaAhead>(id("SchemaAhead"))("SchemaAhead", {
  schema: Schema.String,
  unknown: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message() {
    return `schema ${this.schema} has ${counted(this.unknown.length, "migration")} this version does not know: ` +
      `${this.unknown.join(", ")}. Update duroxide-prisma, or set allowAhead for a rolling update`
  }
}

/**
 * Applied migrations have the names of this release but other texts, so the tables and functions may not be those this
 * code needs. Nothing was written.
 *
 * @category reasons
 * @since 0.2.0
 */
export class MigrationsDiffer extends Schema.TaggedError<MigrationsDiffer>(id("MigrationsDiffer"))("MigrationsDiffer", {
  schema: Schema.String,
  migrations: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message() {
    return `schema ${this.schema} has ${
      counted(this.migrations.length, "applied migration")
    } whose text differs from this ` +
      `release: ${this.migrations.join(", ")}. Use the release that applied them; or remove them with all data ` +
      "(Migrator.reset) and migrate again"
  }
}

/**
 * The schema belongs to something else: its tables would collide with ours, or another project migrated it. Nothing was
 * written.
 *
 * @category reasons
 * @since 0.1.0
 */
export class SchemaOccupied extends Schema.TaggedError<SchemaOccupied>(id("SchemaOccupied"))("SchemaOccupied", {
  schema: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `schema ${this.schema} is in use by something else: ${this.problem}. ` +
      "Choose a schema of its own, such as schema: \"duroxide\""
  }
}

/**
 * A migration failed, now or in an earlier attempt. None of its statements took effect, and no migration runs until it
 * is resolved.
 *
 * @category reasons
 * @since 0.1.0
 */
export class MigrationFailed extends Schema.TaggedError<MigrationFailed>(id("MigrationFailed"))("MigrationFailed", {
  schema: Schema.String,
  migration: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `migration ${this.migration} failed in schema ${this.schema}: ${this.problem}. ` +
      "Remove the cause, then allow another attempt: " +
      `DELETE FROM ${Connection.quoted(this.schema)}._prisma_migrations ` +
      `WHERE migration_name = '${this.migration}' AND finished_at IS NULL ` +
      `(or: prisma migrate resolve --rolled-back ${this.migration})`
  }
}

/**
 * Another process held the migration lock for longer than `lockTimeout`.
 *
 * @category reasons
 * @since 0.1.0
 */
export class LockTimeout extends Schema.TaggedError<LockTimeout>(id("LockTimeout"))("LockTimeout", {
  waitedMs: Schema.Finite
}) {
  readonly isRetryable = true
  override get message() {
    return `another process has held the migration lock for more than ${this.waitedMs} ms; try again when it is done`
  }
}

/**
 * A transaction has held tables that are to be changed for longer than `lockTimeout`. Nothing was changed.
 *
 * @category reasons
 * @since 0.2.0
 */
export class TablesInUse extends Schema.TaggedError<TablesInUse>(id("TablesInUse"))("TablesInUse", {
  schema: Schema.String,
  /** Tables that the oldest transaction holds; empty if it has just ended. */
  tables: Schema.Array(Schema.String),
  waitedMs: Schema.Finite
}) {
  readonly isRetryable = true
  override get message() {
    return `a transaction has held ${this.tables.length === 0 ? "tables" : this.tables.join(", ")} of schema ` +
      `${this.schema} for more than ${this.waitedMs} ms; try again when it has ended`
  }
}

/**
 * The schema cannot be adopted: its tables are not those duroxide-pg creates, so our statements would not work on them.
 * Nothing was written.
 *
 * @category reasons
 * @since 0.1.0
 */
export class LayoutMismatch extends Schema.TaggedError<LayoutMismatch>(id("LayoutMismatch"))("LayoutMismatch", {
  schema: Schema.String,
  /** One line each, such as `column worker_queue.tag is missing`. */
  differences: Schema.Array(Schema.String)
}) {
  readonly isRetryable = false
  override get message() {
    return `schema ${this.schema} differs from what duroxide-pg creates: ${this.differences.join("; ")}. ` +
      "Let the newest duroxide-pg migrate it, then adopt it; or use a schema of its own with Migrator.layer"
  }
}

/**
 * Work is in progress: processes hold locks that have not expired. Nothing was removed.
 *
 * @category reasons
 * @since 0.2.0
 */
export class LocksLive extends Schema.TaggedError<LocksLive>(id("LocksLive"))("LocksLive", {
  schema: Schema.String,
  instances: Schema.Int,
  activities: Schema.Int,
  sessions: Schema.Int,
  /** Leases of tasks, messages of queues, and messages of the outbox. */
  leases: Schema.Int
}) {
  readonly isRetryable = true
  override get message() {
    return `schema ${this.schema} is in use: live locks on ${counted(this.instances, "instance")}, ` +
      `${counted(this.activities, "activity", "activities")}, ${counted(this.sessions, "session")}, and ${
        counted(this.leases, "live lease")
      }. Stop the processes that work on it, or set force`
  }
}

/**
 * Objects that do not belong to this package depend on what would be removed. Nothing was removed.
 *
 * @category reasons
 * @since 0.1.0
 */
export class ObjectsDepend extends Schema.TaggedError<ObjectsDepend>(id("ObjectsDepend"))("ObjectsDepend", {
  schema: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `nothing was removed from schema ${this.schema}: ${this.problem}. Drop the dependent objects first`
  }
}

/**
 * Why a schema could not be migrated, checked, adopted or reset: one of the reasons above, or a reason of the
 * connection (`ConnectionLost`, `AuthenticationFailed`, `ConfigurationInvalid`, `PermissionDenied`, …).
 *
 * @category reasons
 * @since 0.1.0
 */
export const Reason = Schema.Union([
  SchemaBehind,
  SchemaAhead,
  MigrationsDiffer,
  SchemaOccupied,
  MigrationFailed,
  LockTimeout,
  TablesInUse,
  LayoutMismatch,
  LocksLive,
  ObjectsDepend,
  ProviderError.Reason
])

/**
 * One of the reasons above.
 *
 * @category reasons
 * @since 0.1.0
 */
export type Reason = typeof Reason.Type

/**
 * The one error of `Migrator`.
 *
 * **Details**
 *
 * Rendered as `operation: message of the reason`. `isRetryable` is the reason's.
 *
 * @category errors
 * @since 0.1.0
 */
export class MigrationError
  extends Schema.TaggedError<MigrationError>("duroxide-prisma/prisma/MigrationError")("MigrationError", {
    operation: Schema.Literals(["migrate", "verify", "adopt", "reset"]),
    reason: Reason
  })
{
  /** True when the same call may succeed later. */
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  override get message() {
    return `${this.operation}: ${this.reason.message}`
  }
}
