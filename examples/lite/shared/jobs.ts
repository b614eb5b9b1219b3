/**
 * The tasks of the platform: definitions, shared by those who create them and the worker that runs them.
 */
import { Dataset, DatasetError } from "duroxide-prisma/recipes/datasets"
import { Task } from "duroxide-prisma/tasks"
import { Schedule, Schema } from "effect"

const retry = { maxAttempts: 20, schedule: Schedule.spaced("500 millis") }

/** Buffered NDJSON becomes a file of Parquet. */
export const ConvertBatch = Task.make("ConvertBatch", {
  payload: Dataset.Batch,
  success: Schema.Struct({ outputUri: Schema.String, recordCount: Schema.Int }),
  queue: "batches",
  // Short, so that the demo is quick: a worker that is silent for this time loses its task.
  lease: "3 seconds",
  retry
})

/** Commits a version when all of its batches are committed, and makes it the active one. */
export const FinishVersion = Task.make("FinishVersion", {
  payload: { dataset: Schema.String, datasetUuid: Schema.String, version: Schema.Int, batches: Schema.Int },
  success: Schema.Struct({ recordCount: Schema.Int }),
  error: DatasetError.DatasetError,
  queue: "platform",
  lease: "3 seconds",
  // It waits for batches, which may take some attempts themselves.
  retry: { ...retry, maxAttempts: 500 }
})

/** Counts the records of the active version. */
export const Census = Task.make("Census", {
  payload: { reason: Schema.Literals(["cron", "webhook"]) },
  queue: "platform",
  lease: "3 seconds",
  retry
})
