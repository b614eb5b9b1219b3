/**
 * What can go wrong at the storage boundary.
 *
 * One outer error, `ProviderError`, says which operation failed; the tagged `reason` inside says why and whether the
 * same call may succeed later (`isRetryable`). Nothing was changed when a retryable reason is reported, except for
 * `ConnectionLost`, where the outcome of a write is unknown.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { mostEvents, mostWaiting } from "./shared/bounds.ts"

const id = <const Name extends string>(name: Name) => `duroxide-prisma/ProviderError/${name}` as const

/**
 * The lock token is unknown, expired, superseded or already settled. Another worker may own the work now.
 *
 * @category reasons
 * @since 0.1.0
 */
export class LockLost extends Schema.TaggedError<LockLost>(id("LockLost"))("LockLost", {
  lockToken: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `Invalid lock token ${this.lockToken}: it is unknown, expired or already settled`
  }
}

/**
 * An event with this id is already part of the execution's history; the whole turn was refused.
 *
 * @category reasons
 * @since 0.1.0
 */
export class DuplicateEvent extends Schema.TaggedError<DuplicateEvent>(id("DuplicateEvent"))("DuplicateEvent", {
  instanceId: Schema.String,
  executionId: Schema.Number
}) {
  readonly isRetryable = false
  override get message() {
    return `history of ${this.instanceId} execution ${this.executionId} already holds an event with one of these ids`
  }
}

/**
 * The caller passed something no provider can store or act on. Nothing was written.
 *
 * @category reasons
 * @since 0.1.0
 */
export class InvalidInput extends Schema.TaggedError<InvalidInput>(id("InvalidInput"))("InvalidInput", {
  field: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `invalid ${this.field}: ${this.problem}`
  }
}

/**
 * No instance with this id exists.
 *
 * @category reasons
 * @since 0.1.0
 */
export class InstanceNotFound extends Schema.TaggedError<InstanceNotFound>(id("InstanceNotFound"))("InstanceNotFound", {
  instanceId: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `instance ${this.instanceId} not found`
  }
}

/**
 * The instance has no execution with this id.
 *
 * @category reasons
 * @since 0.1.0
 */
export class ExecutionNotFound
  extends Schema.TaggedError<ExecutionNotFound>(id("ExecutionNotFound"))("ExecutionNotFound", {
    instanceId: Schema.String,
    executionId: Schema.Number
  })
{
  readonly isRetryable = false
  override get message() {
    return `execution ${this.executionId} of instance ${this.instanceId} not found`
  }
}

/**
 * The instance has not ended; nothing was deleted.
 *
 * @category reasons
 * @since 0.1.0
 */
export class InstanceRunning extends Schema.TaggedError<InstanceRunning>(id("InstanceRunning"))("InstanceRunning", {
  instanceId: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `instance ${this.instanceId} is Running; cancel it first, or delete it with force`
  }
}

/**
 * The instance has ended; there is nothing to pause.
 *
 * @category reasons
 * @since 0.2.0
 */
export class InstanceEnded extends Schema.TaggedError<InstanceEnded>(id("InstanceEnded"))("InstanceEnded", {
  instanceId: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `instance ${this.instanceId} has ended`
  }
}

/**
 * The instance is a sub-orchestration; only whole trees are deleted, from their root.
 *
 * @category reasons
 * @since 0.1.0
 */
export class InstanceHasParent
  extends Schema.TaggedError<InstanceHasParent>(id("InstanceHasParent"))("InstanceHasParent", {
    instanceId: Schema.String,
    parentInstanceId: Schema.String
  })
{
  readonly isRetryable = false
  override get message() {
    return `instance ${this.instanceId} is a sub-orchestration of ${this.parentInstanceId}; delete the root of its tree`
  }
}

/**
 * The instance cannot be retried from there; `problem` says why, and what can be done. Nothing was changed.
 *
 * @category reasons
 * @since 0.2.0
 */
export class RetryRefused extends Schema.TaggedError<RetryRefused>(id("RetryRefused"))("RetryRefused", {
  instanceId: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `instance ${this.instanceId} cannot be retried: ${this.problem}`
  }
}

/**
 * The instance cannot be forked there; `problem` says why, and what can be done. Nothing was written.
 *
 * @category reasons
 * @since 0.2.0
 */
export class ForkRefused extends Schema.TaggedError<ForkRefused>(id("ForkRefused"))("ForkRefused", {
  instanceId: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `instance ${this.instanceId} cannot be forked: ${this.problem}`
  }
}

/**
 * The instance takes no more signals: 10,000 messages wait for it, or its history has 50,000 events. Nothing was sent.
 *
 * @category reasons
 * @since 0.2.0
 */
export class InstanceFull extends Schema.TaggedError<InstanceFull>(id("InstanceFull"))("InstanceFull", {
  instanceId: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `instance ${this.instanceId} is full: ${mostWaiting} messages wait for it, or its history has ${mostEvents} ` +
      "events. Send again when its program has taken some, or has continued as new"
  }
}

/**
 * A child of an instance to delete is not listed; nothing was deleted.
 *
 * @category reasons
 * @since 0.1.0
 */
export class ChildLeftBehind extends Schema.TaggedError<ChildLeftBehind>(id("ChildLeftBehind"))("ChildLeftBehind", {
  instanceId: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `child ${this.instanceId} would be left behind as an orphan; delete the whole tree`
  }
}

/**
 * A stored history event or message cannot be decoded.
 *
 * @category reasons
 * @since 0.1.0
 */
export class DataCorrupted extends Schema.TaggedError<DataCorrupted>(id("DataCorrupted"))("DataCorrupted", {
  instanceId: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `stored data of ${this.instanceId} cannot be decoded: ${this.problem}`
  }
}

/**
 * The database could not be reached, or the connection broke while a statement ran. Whether a write took effect is
 * unknown.
 *
 * @category reasons
 * @since 0.1.0
 */
export class ConnectionLost extends Schema.TaggedError<ConnectionLost>(id("ConnectionLost"))("ConnectionLost", {
  problem: Schema.String,
  /** Nothing answered at the address, so the statement has not left. Absent where it may have. */
  isUnsent: Schema.optionalKey(Schema.Literal(true))
}) {
  readonly isRetryable = true
  override get message() {
    return `no connection to the database: ${this.problem}`
  }
}

/**
 * The server refused the credentials (SQLSTATE 28000, 28P01, missing password).
 *
 * @category reasons
 * @since 0.1.0
 */
export class AuthenticationFailed
  extends Schema.TaggedError<AuthenticationFailed>(id("AuthenticationFailed"))("AuthenticationFailed", {
    problem: Schema.String
  })
{
  readonly isRetryable = false
  override get message() {
    return `the database refused the login: ${this.problem}. Check user and password of the connection`
  }
}

/**
 * The connection settings cannot work as they are: missing database, TLS not offered, bad URL, bad schema name.
 *
 * @category reasons
 * @since 0.1.0
 */
export class ConfigurationInvalid
  extends Schema.TaggedError<ConfigurationInvalid>(id("ConfigurationInvalid"))("ConfigurationInvalid", {
    problem: Schema.String
  })
{
  readonly isRetryable = false
  override get message() {
    return `the database settings cannot work: ${this.problem}`
  }
}

/**
 * The role lacks a right (SQLSTATE 42501).
 *
 * @category reasons
 * @since 0.1.0
 */
export class PermissionDenied extends Schema.TaggedError<PermissionDenied>(id("PermissionDenied"))("PermissionDenied", {
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `the database role lacks a right: ${this.problem}`
  }
}

/**
 * A table, column or function is missing (SQLSTATE class 42, 3F000): the schema is not migrated, or to another
 * version.
 *
 * @category reasons
 * @since 0.1.0
 */
export class SchemaMismatch extends Schema.TaggedError<SchemaMismatch>(id("SchemaMismatch"))("SchemaMismatch", {
  sqlState: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `the database schema does not fit this version: ${this.problem} (${this.sqlState}). Run the migrations`
  }
}

/**
 * Lost against a concurrent transaction (40001, 40P01, 55P03) or a changed statement plan (0A000); trying again works.
 *
 * @category reasons
 * @since 0.1.0
 */
export class Contention extends Schema.TaggedError<Contention>(id("Contention"))("Contention", {
  sqlState: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = true
  override get message() {
    return `lost against a concurrent transaction: ${this.problem} (${this.sqlState})`
  }
}

/**
 * The server or the pool cannot take the statement now: starting, stopping, failing over, out of connections, memory
 * or disk, our own statement timeout, or every pooled connection is busy. Or there is no password to log in with now.
 *
 * @category reasons
 * @since 0.1.0
 */
export class Unavailable extends Schema.TaggedError<Unavailable>(id("Unavailable"))("Unavailable", {
  sqlState: Schema.NullOr(Schema.String),
  problem: Schema.String
}) {
  readonly isRetryable = true
  override get message() {
    return `the database cannot be used now: ${this.problem}${this.sqlState === null ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * The `PayloadCodec` cannot encode a payload, or not fetch it now, as while its object store does not answer. Nothing
 * was written.
 *
 * @category reasons
 * @since 0.3.0
 */
export class PayloadUnavailable
  extends Schema.TaggedError<PayloadUnavailable>(id("PayloadUnavailable"))("PayloadUnavailable", {
    problem: Schema.String
  })
{
  readonly isRetryable = true
  override get message() {
    return `a payload cannot be encoded or decoded now: ${this.problem}`
  }
}

/**
 * The database refused the data (SQLSTATE class 22, 23 or 54).
 *
 * @category reasons
 * @since 0.1.0
 */
export class DataRefused extends Schema.TaggedError<DataRefused>(id("DataRefused"))("DataRefused", {
  sqlState: Schema.String,
  problem: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `the database refused the data: ${this.problem} (${this.sqlState})`
  }
}

/**
 * The transaction of the application has failed before (SQLSTATE 25P02): PostgreSQL accepts no further statement in it,
 * and its `COMMIT` would roll it back, so nothing is stored.
 *
 * @category reasons
 * @since 0.1.0
 */
export class TransactionAborted
  extends Schema.TaggedError<TransactionAborted>(id("TransactionAborted"))("TransactionAborted", {})
{
  readonly isRetryable = false
  override get message() {
    return "the transaction is aborted, because an earlier statement in it failed: roll it back, or back to a savepoint " +
      "before that statement, and run it anew"
  }
}

/**
 * The provider was closed while or before the call; `problem` says by whom, if not by its own layer.
 *
 * @category reasons
 * @since 0.1.0
 */
export class Closed extends Schema.TaggedError<Closed>(id("Closed"))("Closed", {
  problem: Schema.optionalKey(Schema.String)
}) {
  readonly isRetryable = false
  override get message() {
    return this.problem ?? "the provider is closed"
  }
}

/**
 * Anything the classifier does not know; `cause` is the thrown value.
 *
 * @category reasons
 * @since 0.1.0
 */
export class Unexpected extends Schema.TaggedError<Unexpected>(id("Unexpected"))("Unexpected", {
  sqlState: Schema.NullOr(Schema.String),
  problem: Schema.String,
  cause: Schema.Defect()
}) {
  readonly isRetryable = false
  override get message() {
    return `unexpected: ${this.problem}${this.sqlState === null ? "" : ` (${this.sqlState})`}`
  }
}

/**
 * Every reason a provider may report.
 *
 * @category reasons
 * @since 0.1.0
 */
export const Reason = Schema.Union([
  LockLost,
  DuplicateEvent,
  InvalidInput,
  InstanceNotFound,
  ExecutionNotFound,
  InstanceRunning,
  InstanceEnded,
  InstanceHasParent,
  ChildLeftBehind,
  RetryRefused,
  ForkRefused,
  InstanceFull,
  DataCorrupted,
  ConnectionLost,
  AuthenticationFailed,
  ConfigurationInvalid,
  PermissionDenied,
  SchemaMismatch,
  Contention,
  Unavailable,
  PayloadUnavailable,
  DataRefused,
  TransactionAborted,
  Closed,
  Unexpected
])

/**
 * One of the reasons above.
 *
 * @category reasons
 * @since 0.1.0
 */
export type Reason = typeof Reason.Type

/**
 * The one error of `Provider` and `ProviderDriver`.
 *
 * **Details**
 *
 * Rendered as `operation: message of the reason`. `isRetryable` is the reason's.
 *
 * @category errors
 * @since 0.1.0
 */
export class ProviderError extends Schema.TaggedError<ProviderError>("duroxide-prisma/ProviderError")("ProviderError", {
  operation: Schema.String,
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
