/**
 * Data sets in versions: a version is built from batches, committed as a whole, and then made the active one. Readers
 * always see one version whole: the active one of the moment they ask.
 *
 * A batch is published as three rows in one statement: the batch, the task that will process it, and the task's wake-up
 * in the outbox. Its output is committed once, by the newest attempt at its task. Files stay where the application puts
 * them: this module keeps their addresses.
 *
 * Each operation is one statement. `within` sends it in a transaction of the application; the service `Dataset` sends
 * it in a transaction of its own.
 *
 * @since 0.2.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { PayloadCodec } from "../provider/PayloadCodec.ts"
import { DatasetDriver } from "./DatasetDriver.ts"
import type { Operations } from "./internal/datasetModel.ts"
import * as datasets from "./internal/datasets.ts"
import * as sealedDatasets from "./shared/sealedDatasets.ts"

export { Batch } from "./internal/datasetModel.ts"
export type {
  Active,
  AttemptId,
  CommittedOutput,
  Operations,
  Output,
  Publication,
  Published,
  PublishError,
  Version
} from "./internal/datasetModel.ts"

/**
 * The data sets of a schema, each operation in a transaction of its own.
 *
 * @category services
 * @since 0.2.0
 */
export class Dataset extends Context.Service<Dataset, Operations>()("duroxide-prisma/Dataset") {}

/**
 * The data sets of a database.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer: Layer.Layer<Dataset, never, DatasetDriver> = Layer.effect(
  Dataset,
  Effect.gen(function*() {
    const codec = Option.getOrUndefined(yield* Effect.serviceOption(PayloadCodec))
    return datasets.make(sealedDatasets.publishing(yield* DatasetDriver, codec))
  })
)

/**
 * The operations inside a transaction of the application, that of `Transaction` of `duroxide-prisma/prisma`.
 *
 * **Details**
 *
 * After a `ProviderError` the transaction is aborted, as after every failed statement in PostgreSQL; after the other
 * errors it stays usable.
 *
 * **Gotchas**
 *
 * The caller must begin the transaction. Rows stay locked until it ends: keep it short.
 *
 * @category constructors
 * @since 0.2.0
 */
export const within = (transaction: { readonly datasets: DatasetDriver["Service"] }): Operations =>
  datasets.make(transaction.datasets)
