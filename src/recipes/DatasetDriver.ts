/**
 * The seam that a storage of data sets implements: each operation is one atomic statement, and answers with what it did
 * or why it did nothing. Input is checked above it, by `Dataset`.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { ProviderError } from "../provider/ProviderError.ts"
import type { NewTask } from "../tasks/TaskDriver.ts"
import type { Active, AttemptId, Batch, Output, Version } from "./internal/datasetModel.ts"

type Call<A> = Effect.Effect<A, ProviderError>

/** An answer that is only its tag. */
type Plain<Tag extends string> = { readonly [T in Tag]: { readonly _tag: T } }[Tag]

interface OfStatus<Tag extends string> {
  readonly _tag: Tag
  readonly status: Version["status"]
}

/**
 * The storage contract of data sets.
 *
 * @category services
 * @since 0.2.0
 */
export class DatasetDriver extends Context.Service<DatasetDriver, {
  /** Answers with the id of the data set of this name. */
  readonly create: (name: string) => Call<string>
  readonly openVersion: (
    datasetUuid: string
  ) => Call<{ readonly _tag: "Opened"; readonly version: number } | Plain<"DatasetNotFound">>
  /** Stores batches with their tasks, all or none. A batch that is known has its task already. */
  readonly publishBatches: (batches: ReadonlyArray<NewBatch>) => Call<ReadonlyArray<PublishAnswer>>
  readonly commitBatch: (attempt: AttemptId, output: Output) => Call<
    | { readonly _tag: "Committed"; readonly outputUri: string; readonly recordCount: number; readonly attempt: number }
    | OfStatus<"VersionNotBuilding"> & { readonly datasetUuid: string; readonly version: number }
    | Plain<"BatchNotFound" | "StaleAttempt">
  >
  readonly commitVersion: (
    datasetUuid: string,
    version: number,
    batchCount: number | null,
    attempt: AttemptId | null
  ) => Call<
    | { readonly _tag: "Committed"; readonly batchCount: number; readonly recordCount: number }
    | { readonly _tag: "BatchesMissing"; readonly missing: number; readonly published: number }
    | OfStatus<"VersionNotBuilding">
    | { readonly _tag: "IsolationUnfit"; readonly level: string }
    | Plain<"VersionNotFound" | "StaleAttempt">
  >
  /** `expected`: the version that must be active, null for none; undefined: any. */
  readonly activate: (datasetUuid: string, version: number, expected: number | null | undefined) => Call<
    | { readonly _tag: "Activated"; readonly previous: number | null }
    | { readonly _tag: "ActiveVersionChanged"; readonly actual: number | null }
    | OfStatus<"VersionNotCommitted">
    | Plain<"DatasetNotFound" | "VersionNotFound">
  >
  readonly active: (
    name: string
  ) => Call<({ readonly _tag: "Active" } & Active) | Plain<"Inactive" | "DatasetNotFound">>
  /** Null: there is no such data set. */
  readonly versions: (datasetUuid: string, limit: number) => Call<ReadonlyArray<Version> | null>
  readonly discardVersion: (
    datasetUuid: string,
    version: number
  ) => Call<Plain<"Discarded" | "VersionIsActive" | "VersionNotFound">>
  /** Null: there is no such data set. */
  readonly pruneVersions: (datasetUuid: string, keep: number, limit: number) => Call<
    ReadonlyArray<{ readonly version: number; readonly outputUris: ReadonlyArray<string> }> | null
  >
  readonly deleteVersion: (
    datasetUuid: string,
    version: number
  ) => Call<Plain<"Deleted"> | OfStatus<"VersionNotDiscarded">>
}>()("duroxide-prisma/recipes/DatasetDriver") {}

/**
 * A batch to publish, and its task.
 *
 * @category models
 * @since 0.2.0
 */
export interface NewBatch extends Batch {
  readonly task: NewTask
}

/**
 * What became of a batch. `Unpublished`: another one of the call was refused.
 *
 * @category models
 * @since 0.2.0
 */
export type PublishAnswer =
  | { readonly _tag: "Published" | "Known"; readonly taskId: string }
  | OfStatus<"VersionNotBuilding">
  | Plain<"Unpublished" | "BatchDiffers" | "VersionNotFound">
