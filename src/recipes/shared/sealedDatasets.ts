/**
 * A driver of data sets that stores the payloads of the tasks of batches through a `PayloadCodec`.
 */
import * as Effect from "effect/Effect"
import type { PayloadCodec } from "../../provider/PayloadCodec.ts"
import { sealing } from "../../tasks/shared/sealedDriver.ts"
import type { DatasetDriver } from "../DatasetDriver.ts"

type Driver = DatasetDriver["Service"]

export const publishing = (self: Driver, codec: PayloadCodec["Service"] | undefined): Driver => {
  if (codec === undefined) return self
  const seal = sealing(codec, "publishBatches")
  return {
    ...self,
    publishBatches: (batches) =>
      Effect.flatMap(
        Effect.forEach(batches, (batch) => Effect.map(seal(batch.task), (task) => ({ ...batch, task }))),
        self.publishBatches
      )
  }
}
