/**
 * Data sets in PostgreSQL: each operation is one call of one stored function, through the pool or on one connection.
 */
import * as Effect from "effect/Effect"
import type { TransactionConnection } from "../../../model/shared/transactionConnection.ts"
import type { DatasetDriver, NewBatch } from "../../../recipes/DatasetDriver.ts"
import { Prisma } from "../client.ts"
import { bigint, json } from "../rows.ts"
import { taskRow } from "../tasks/driver.ts"
import { statementsOn } from "../transactionQuery.ts"
import type { Statements } from "../transactionQuery.ts"

export const make = ({ query, schemaSql }: Statements): DatasetDriver["Service"] => {
  const call = <Answer>(operation: string, sql: Prisma.Sql) =>
    Effect.map(
      query<{ readonly answer: Answer }>(operation, Prisma.sql`SELECT ${schemaSql}.${sql} AS answer`),
      ([row]) => row!.answer
    )
  return {
    create: (name) => call("create", Prisma.sql`dx_create_dataset(${name})`),
    openVersion: (datasetUuid) => call("openVersion", Prisma.sql`dx_open_version(${datasetUuid}::uuid)`),
    publishBatches: (batches) => call("publishBatches", Prisma.sql`dx_buffer_batches(${json(batches.map(batchRow))})`),
    commitBatch: ({ attempt, taskId }, { outputUri, recordCount }) =>
      call(
        "commitBatch",
        Prisma.sql`dx_commit_batch(${taskId}::uuid, ${attempt}::int, ${outputUri}, ${bigint(recordCount)})`
      ),
    commitVersion: (datasetUuid, version, batchCount, attempt) =>
      call(
        "commitVersion",
        Prisma.sql`dx_commit_version(${datasetUuid}::uuid, ${bigint(version)}, ${bigint(batchCount)}, ${
          attempt?.taskId ?? null
        }::uuid, ${attempt?.attempt ?? null}::int)`
      ),
    activate: (datasetUuid, version, expected) =>
      call(
        "activate",
        Prisma.sql`dx_activate_version(${datasetUuid}::uuid, ${bigint(version)}, ${expected !== undefined}, ${
          bigint(expected ?? null)
        })`
      ),
    active: (name) => call("active", Prisma.sql`dx_read_active_dataset(${name})`),
    versions: (datasetUuid, limit) =>
      call("versions", Prisma.sql`dx_read_versions(${datasetUuid}::uuid, ${limit}::int)`),
    discardVersion: (datasetUuid, version) =>
      call("discardVersion", Prisma.sql`dx_discard_version(${datasetUuid}::uuid, ${bigint(version)})`),
    pruneVersions: (datasetUuid, keep, limit) =>
      call("pruneVersions", Prisma.sql`dx_prune_versions(${datasetUuid}::uuid, ${bigint(keep)}, ${limit}::int)`),
    deleteVersion: (datasetUuid, version) =>
      call("deleteVersion", Prisma.sql`dx_delete_version(${datasetUuid}::uuid, ${bigint(version)})`)
  }
}

/** On a connection of the application. */
export const makeOn = (connection: TransactionConnection, schema: string): DatasetDriver["Service"] =>
  make(statementsOn(connection, schema))

// internal

const batchRow = ({ batchUri, datasetUuid, recordCount, task, version }: NewBatch) => ({
  dataset_uuid: datasetUuid,
  dataset_version: version,
  batch_uri: batchUri,
  record_count: recordCount,
  task: taskRow(task)
})
