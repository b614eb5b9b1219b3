/**
 * Which version of a data set readers see.
 */
import { Dataset } from "duroxide-prisma/recipes/datasets"
import { Effect } from "effect"

/** The active version; none also before the data set exists. */
export const activeVersion = (name: string) =>
  Effect.flatMap(Dataset.Dataset, (datasets) => datasets.active(name)).pipe(
    Effect.catchTag(
      "DatasetError",
      (error) => error.reason._tag === "DatasetNotFound" ? Effect.succeedNone : Effect.fail(error)
    )
  )
