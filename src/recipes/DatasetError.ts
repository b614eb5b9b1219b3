/**
 * What can go wrong with a data set.
 *
 * One outer error, `DatasetError`, says which operation failed; the tagged `reason` inside says why. No statement has
 * failed: in a transaction of the application the transaction stays usable. Failures of the database are
 * `ProviderError`s.
 *
 * @since 0.2.0
 */
import * as Schema from "effect/Schema"
import { InvalidInput } from "../provider/ProviderError.ts"

export {
  /**
   * An argument is out of its range; nothing was sent. Or `commitVersion` was called in a transaction that is not READ
   * COMMITTED; nothing has changed.
   *
   * @category reasons
   * @since 0.2.0
   */
  InvalidInput
} from "../provider/ProviderError.ts"

const id = <const Name extends string>(name: Name) => `duroxide-prisma/DatasetError/${name}` as const

const Status = Schema.Literals(["Building", "Committed", "Discarded"])

/**
 * No data set has this name or id.
 *
 * @category reasons
 * @since 0.2.0
 */
export class DatasetNotFound extends Schema.TaggedError<DatasetNotFound>(id("DatasetNotFound"))("DatasetNotFound", {
  /** The name or the id that was given. */
  dataset: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `there is no data set "${this.dataset}"`
  }
}

/**
 * The data set has no version of this number: it was never opened, or was deleted.
 *
 * @category reasons
 * @since 0.2.0
 */
export class VersionNotFound extends Schema.TaggedError<VersionNotFound>(id("VersionNotFound"))("VersionNotFound", {
  datasetUuid: Schema.String,
  version: Schema.Number
}) {
  readonly isRetryable = false
  override get message() {
    return `data set ${this.datasetUuid} has no version ${this.version}`
  }
}

/**
 * The version was committed or discarded, so no batch can be added to it or committed.
 *
 * @category reasons
 * @since 0.2.0
 */
export class VersionNotBuilding
  extends Schema.TaggedError<VersionNotBuilding>(id("VersionNotBuilding"))("VersionNotBuilding", {
    datasetUuid: Schema.String,
    version: Schema.Number,
    status: Status
  })
{
  readonly isRetryable = false
  override get message() {
    return `version ${this.version} of data set ${this.datasetUuid} is ${this.status}, not Building`
  }
}

/**
 * Only a committed version can be activated.
 *
 * @category reasons
 * @since 0.2.0
 */
export class VersionNotCommitted
  extends Schema.TaggedError<VersionNotCommitted>(id("VersionNotCommitted"))("VersionNotCommitted", {
    datasetUuid: Schema.String,
    version: Schema.Number,
    status: Status
  })
{
  readonly isRetryable = false
  override get message() {
    return `version ${this.version} of data set ${this.datasetUuid} is ${this.status}, not Committed`
  }
}

/**
 * Only a discarded version can be deleted.
 *
 * @category reasons
 * @since 0.2.0
 */
export class VersionNotDiscarded
  extends Schema.TaggedError<VersionNotDiscarded>(id("VersionNotDiscarded"))("VersionNotDiscarded", {
    datasetUuid: Schema.String,
    version: Schema.Number,
    status: Status
  })
{
  readonly isRetryable = false
  override get message() {
    return `version ${this.version} of data set ${this.datasetUuid} is ${this.status}, not Discarded`
  }
}

/**
 * The active version cannot be discarded. Activate another one first.
 *
 * @category reasons
 * @since 0.2.0
 */
export class VersionIsActive extends Schema.TaggedError<VersionIsActive>(id("VersionIsActive"))("VersionIsActive", {
  datasetUuid: Schema.String,
  version: Schema.Number
}) {
  readonly isRetryable = false
  override get message() {
    return `version ${this.version} of data set ${this.datasetUuid} is the active one`
  }
}

/**
 * The version cannot be committed yet: batches are not committed, or not even published.
 *
 * @category reasons
 * @since 0.2.0
 */
export class BatchesMissing extends Schema.TaggedError<BatchesMissing>(id("BatchesMissing"))("BatchesMissing", {
  datasetUuid: Schema.String,
  version: Schema.Number,
  /** Batches that are not committed, those included that are still to be published. */
  missing: Schema.Number,
  /** Batches that were published, committed or not. */
  published: Schema.Number
}) {
  readonly isRetryable = true
  override get message() {
    return `version ${this.version} of data set ${this.datasetUuid} lacks ${this.missing} batches; ` +
      `${this.published} are published`
  }
}

/**
 * The batch was published before, with another number of records.
 *
 * @category reasons
 * @since 0.2.0
 */
export class BatchDiffers extends Schema.TaggedError<BatchDiffers>(id("BatchDiffers"))("BatchDiffers", {
  datasetUuid: Schema.String,
  version: Schema.Number,
  batchUri: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `batch ${this.batchUri} of version ${this.version} was published with another number of records`
  }
}

/**
 * The task processes no batch, or the version of its batch was deleted.
 *
 * @category reasons
 * @since 0.2.0
 */
export class BatchNotFound extends Schema.TaggedError<BatchNotFound>(id("BatchNotFound"))("BatchNotFound", {
  taskId: Schema.String
}) {
  readonly isRetryable = false
  override get message() {
    return `task ${this.taskId} has no batch`
  }
}

/**
 * Another version than the expected one is active, so the active version was left as it is.
 *
 * @category reasons
 * @since 0.2.0
 */
export class ActiveVersionChanged
  extends Schema.TaggedError<ActiveVersionChanged>(id("ActiveVersionChanged"))("ActiveVersionChanged", {
    datasetUuid: Schema.String,
    /** Null: none was expected to be active. */
    expected: Schema.NullOr(Schema.Number),
    /** Null: none is active. */
    actual: Schema.NullOr(Schema.Number)
  })
{
  readonly isRetryable = false
  override get message() {
    const named = (version: number | null) => version === null ? "no version" : `version ${version}`
    return `${named(this.actual)} of data set ${this.datasetUuid} is active, not ${named(this.expected)}`
  }
}

/**
 * All reasons.
 *
 * @category models
 * @since 0.2.0
 */
export type Reason =
  | DatasetNotFound
  | VersionNotFound
  | VersionNotBuilding
  | VersionNotCommitted
  | VersionNotDiscarded
  | VersionIsActive
  | BatchesMissing
  | BatchDiffers
  | BatchNotFound
  | ActiveVersionChanged
  | InvalidInput

/**
 * An operation on a data set was refused.
 *
 * @category errors
 * @since 0.2.0
 */
export class DatasetError extends Schema.TaggedError<DatasetError>("duroxide-prisma/DatasetError")("DatasetError", {
  /** Such as `commitVersion`. */
  operation: Schema.String,
  reason: Schema.Union([
    DatasetNotFound,
    VersionNotFound,
    VersionNotBuilding,
    VersionNotCommitted,
    VersionNotDiscarded,
    VersionIsActive,
    BatchesMissing,
    BatchDiffers,
    BatchNotFound,
    ActiveVersionChanged,
    InvalidInput
  ])
}) {
  get isRetryable(): boolean {
    return this.reason.isRetryable
  }
  override get message() {
    return `${this.operation}: ${this.reason.message}`
  }
}
