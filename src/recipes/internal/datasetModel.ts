/**
 * What is known of data sets, and the operations on them; `Dataset` exports these.
 */
import type * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type { PayloadMismatch, PayloadTooLarge } from "../../model/shared/payload.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import type * as Task from "../../tasks/Task.ts"
import type { DatasetError } from "../DatasetError.ts"

/**
 * A batch of buffered records.
 *
 * @category models
 * @since 0.2.0
 */
export const Batch = Schema.Struct({
  datasetUuid: Schema.String,
  version: Schema.Number,
  /** Where the records are. */
  batchUri: Schema.String,
  recordCount: Schema.Number
})

/**
 * The batch that the payload of a task names.
 *
 * @category models
 * @since 0.2.0
 */
export type Batch = typeof Batch.Type

/**
 * A batch to publish, and the task that will process it. The payload of the task defaults to the batch; a task whose
 * Schema wants another one gets it here.
 *
 * @category models
 * @since 0.2.0
 */
export type Publication<T extends Task.Any> =
  & Batch
  & { readonly task: T }
  & (Batch extends T["payload"]["Type"] ? { readonly payload?: T["payload"]["Type"] }
    : { readonly payload: T["payload"]["Type"] })

/**
 * A batch that is published, now or before.
 *
 * @category models
 * @since 0.2.0
 */
export interface Published {
  readonly taskId: string
  /** Whether this call has published it. */
  readonly isNew: boolean
}

/**
 * An attempt at a task: `Task.Attempt` in a handler.
 *
 * @category models
 * @since 0.2.0
 */
export interface AttemptId {
  readonly taskId: string
  readonly attempt: number
}

/**
 * What an attempt makes of a batch.
 *
 * @category models
 * @since 0.2.0
 */
export interface Output {
  readonly outputUri: string
  readonly recordCount: number
}

/**
 * The output of a batch as it is stored.
 *
 * @category models
 * @since 0.2.0
 */
export interface CommittedOutput extends Output {
  /** The attempt that committed it. If it is an earlier one, the output of this attempt is not used: delete it. */
  readonly attempt: number
}

/**
 * The active version of a data set.
 *
 * @category models
 * @since 0.2.0
 */
export interface Active {
  readonly datasetUuid: string
  readonly version: number
  readonly recordCount: number
  /** Milliseconds since the Unix epoch. */
  readonly committedMs: number
  /** By the URI of their batches. */
  readonly outputs: ReadonlyArray<Output>
}

/**
 * A version of a data set.
 *
 * @category models
 * @since 0.2.0
 */
export interface Version {
  readonly version: number
  readonly status: "Building" | "Committed" | "Discarded"
  readonly isActive: boolean
  /** Records in all its outputs; null until committed. */
  readonly recordCount: number | null
  readonly batchCount: number
  readonly committedBatchCount: number
  /** Milliseconds since the Unix epoch. */
  readonly createdMs: number
  /** Milliseconds since the Unix epoch; null until committed. */
  readonly committedMs: number | null
}

/**
 * Why batches are not published.
 *
 * @category errors
 * @since 0.2.0
 */
export type PublishError = DatasetError | PayloadMismatch | PayloadTooLarge | ProviderError

/**
 * The operations on data sets. Each fails with `DatasetError` if it is refused, and with `ProviderError` if its
 * statement fails.
 *
 * @category models
 * @since 0.2.0
 */
export interface Operations {
  /** Creates a data set and returns its id; of the one that exists, if there is one of this name. */
  readonly create: (name: string) => Effect.Effect<string, DatasetError | ProviderError>
  /** Opens the next version and returns its number, from 1. Fails with `DatasetNotFound`. */
  readonly openVersion: (datasetUuid: string) => Effect.Effect<number, DatasetError | ProviderError>
  /** `publishBatches` of one batch. */
  readonly publishBatch: <T extends Task.Any>(
    batch: Publication<T>
  ) => Effect.Effect<Published, PublishError>
  /**
   * Publishes batches: stores each with its task and the task's wake-up, `buffer_batch`. Answers in their order.
   *
   * **Details**
   *
   * A batch is published once: again with the same version, address and number of records, it has the same task. Fails
   * with `BatchDiffers`, `VersionNotFound`, `VersionNotBuilding` or `PayloadMismatch`; then none of them is published.
   */
  readonly publishBatches: <T extends Task.Any>(
    batches: ReadonlyArray<Publication<T>>
  ) => Effect.Effect<ReadonlyArray<Published>, PublishError>
  /**
   * Commits the output of the batch of a task, for its newest attempt (`Task.Attempt` in a handler).
   *
   * **Details**
   *
   * A batch is committed once: if an earlier attempt has committed it, that output is returned, and this one is not
   * used. Fails with `StaleAttempt` if a newer attempt has begun or the task has ended, with `VersionNotBuilding` if
   * the version was discarded, and with `BatchNotFound`.
   *
   * **Gotchas**
   *
   * The task itself ends later, when the handler returns; an attempt that is lost in between runs again. With the
   * attempt's `commit` after this call in the same transaction, both happen or neither.
   */
  readonly commitBatch: (
    attempt: AttemptId,
    output: Output
  ) => Effect.Effect<CommittedOutput, DatasetError | Task.StaleAttempt | ProviderError>
  /**
   * Commits a version whose batches are all committed. No batch can be published to it from then on. Committing it
   * again returns the same.
   *
   * **Details**
   *
   * Fails with `BatchesMissing`, `VersionNotFound` or `VersionNotBuilding` (it was discarded). With `attempt` it fails
   * with `StaleAttempt` unless that is the newest attempt at its task.
   *
   * **Gotchas**
   *
   * Without `batchCount`, a version is complete when all batches published so far are committed, even if it has no
   * batches. Set it unless all batches were published in one transaction that has committed. A transaction of the
   * application needs the isolation level READ COMMITTED.
   */
  readonly commitVersion: (datasetUuid: string, version: number, options?: {
    /** Fewest batches of the version. Defaults to those that were published. */
    readonly batchCount?: number | undefined
    /** The attempt that commits it. Defaults to none. */
    readonly attempt?: AttemptId | undefined
  }) => Effect.Effect<
    { readonly batchCount: number; readonly recordCount: number },
    DatasetError | Task.StaleAttempt | ProviderError
  >
  /**
   * Makes a committed version the active one, also one that is older than the active one. Returns the version that was
   * active before, null for none. Fails with `ActiveVersionChanged`, `DatasetNotFound`, `VersionNotFound` or
   * `VersionNotCommitted`.
   */
  readonly activate: (datasetUuid: string, version: number, options?: {
    /** The version that must be active, null for none. Defaults to any. */
    readonly expected?: number | null | undefined
  }) => Effect.Effect<number | null, DatasetError | ProviderError>
  /**
   * The active version and its outputs at one moment; none before the first activation. Fails with `DatasetNotFound`.
   */
  readonly active: (name: string) => Effect.Effect<Option.Option<Active>, DatasetError | ProviderError>
  /** The newest versions, the newest first. Fails with `DatasetNotFound`. */
  readonly versions: (datasetUuid: string, options?: {
    /** 1 to 1,000. Defaults to 100. */
    readonly limit?: number | undefined
  }) => Effect.Effect<ReadonlyArray<Version>, DatasetError | ProviderError>
  /**
   * Discards a version that is building or committed: it can no longer be changed or activated, and its tasks that have
   * not ended are cancelled. Fails with `VersionIsActive` or `VersionNotFound`.
   */
  readonly discardVersion: (
    datasetUuid: string,
    version: number
  ) => Effect.Effect<void, DatasetError | ProviderError>
  /**
   * Discards committed versions that are older than the active one, and returns discarded versions, the oldest first,
   * with the outputs that were committed to them. Fails with `DatasetNotFound`.
   *
   * **Details**
   *
   * Delete the files of a version first, then the version with `deleteVersion`. Until then, each call returns it again.
   *
   * **Gotchas**
   *
   * A reader may still read files of a version that was active a moment ago: keep one at least.
   */
  readonly pruneVersions: (datasetUuid: string, options: {
    /** Committed versions older than the active one that stay, the newest ones; from 0. */
    readonly keep: number
    /** Most versions to discard, and to return, 1 to 1,000. Defaults to 100. */
    readonly limit?: number | undefined
  }) => Effect.Effect<
    ReadonlyArray<{ readonly version: number; readonly outputUris: ReadonlyArray<string> }>,
    DatasetError | ProviderError
  >
  /**
   * Deletes a discarded version and its batches. Nothing happens if it does not exist. Fails with
   * `VersionNotDiscarded`.
   */
  readonly deleteVersion: (datasetUuid: string, version: number) => Effect.Effect<void, DatasetError | ProviderError>
}
