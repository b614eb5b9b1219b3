/**
 * The statements of `Dataset`, each one call of a stored function, through the pool or on one connection.
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Metrics from "../../model/Metrics.ts"
import { Prisma } from "../../prisma/internal/client.ts"
import { bigint, json } from "../../prisma/internal/rows.ts"
import type { Statements } from "../../prisma/internal/transactionQuery.ts"
import { BufferBatch } from "../../queue/Message.ts"
import { StaleAttempt } from "../../tasks/internal/errors.ts"
import { newTask } from "../../tasks/internal/newTask.ts"
import { timeOrderedUuid } from "../../tasks/internal/timeOrderedUuid.ts"
import type * as Task from "../../tasks/Task.ts"
import * as Errors from "../DatasetError.ts"
import * as Input from "./datasetInput.ts"
import type { Active, AttemptId, Operations, Publication, Version } from "./datasetModel.ts"

export const make = ({ query, schemaSql }: Statements): Operations => {
  /** Sends one statement that calls a function with one answer. */
  const send = <Answer>(operation: string, sql: Prisma.Sql) =>
    Effect.map(
      query<{ readonly answer: Answer }>(operation, Prisma.sql`SELECT ${schemaSql}.${sql} AS answer`),
      ([row]) => row!.answer
    )

  /** Checks the input before. */
  const call = <Answer>(operation: string, checks: ReadonlyArray<Input.Checked>, sql: () => Prisma.Sql) =>
    Effect.andThen(checked(operation, checks), Effect.suspend(() => send<Answer>(operation, sql())))

  const publishBatches = <T extends Task.Any>(batches: ReadonlyArray<Publication<T>>) =>
    Effect.gen(function*() {
      const operation = "publishBatches"
      if (batches.length === 0) return []
      yield* checked(
        operation,
        batches.flatMap((batch) => [
          Input.checkVersion(batch.datasetUuid, batch.version),
          Input.checkUri("batchUri", batch.batchUri),
          Input.checkCount("recordCount", batch.recordCount)
        ])
      )
      const rows = yield* Effect.forEach(batches, batchRow)
      const answers = yield* send<ReadonlyArray<PublishAnswer>>(operation, Prisma.sql`dx_buffer_batches(${json(rows)})`)
      const published: Array<{ taskId: string; isNew: boolean }> = []
      for (const [i, answer] of answers.entries()) {
        const { batchUri, datasetUuid, version } = batches[i]!
        switch (answer._tag) {
          case "Published":
          case "Known":
            published.push({ taskId: answer.taskId, isNew: answer._tag === "Published" })
            continue
          case "Unpublished":
            continue
          case "BatchDiffers":
            return yield* refuse(operation, new Errors.BatchDiffers({ datasetUuid, version, batchUri }))
          case "VersionNotFound":
            return yield* refuse(operation, new Errors.VersionNotFound({ datasetUuid, version }))
          case "VersionNotBuilding":
            return yield* refuse(operation, new Errors.VersionNotBuilding({ ...answer, datasetUuid, version }))
        }
      }
      return published
    })

  return {
    publishBatch: (batch) => Effect.map(publishBatches([batch]), ([published]) => published!),
    publishBatches,

    create: (name) =>
      call<string>("create", [Input.checkDatasetName(name)], () => Prisma.sql`dx_create_dataset(${name})`),

    openVersion: (datasetUuid) =>
      Effect.gen(function*() {
        const operation = "openVersion"
        const answer = yield* call<{ _tag: "Opened"; version: number } | Refused<"DatasetNotFound">>(
          operation,
          [Input.checkUuid("datasetUuid", datasetUuid)],
          () => Prisma.sql`dx_open_version(${datasetUuid}::uuid)`
        )
        return answer._tag === "Opened"
          ? answer.version
          : yield* refuse(operation, new Errors.DatasetNotFound({ dataset: datasetUuid }))
      }),

    commitBatch: (attempt, output) =>
      Effect.gen(function*() {
        const operation = "commitBatch"
        const answer = yield* call<
          | { _tag: "Committed"; outputUri: string; recordCount: number; attempt: number }
          | { _tag: "VersionNotBuilding"; datasetUuid: string; version: number; status: Version["status"] }
          | Refused<"BatchNotFound" | "StaleAttempt">
        >(
          operation,
          [
            ...checksOf(attempt),
            Input.checkUri("outputUri", output.outputUri),
            Input.checkCount("recordCount", output.recordCount)
          ],
          () =>
            Prisma.sql`dx_commit_batch(${attempt.taskId}::uuid, ${attempt.attempt}::int, ${output.outputUri}, ${
              bigint(output.recordCount)
            })`
        )
        switch (answer._tag) {
          case "Committed":
            return { outputUri: answer.outputUri, recordCount: answer.recordCount, attempt: answer.attempt }
          case "VersionNotBuilding":
            return yield* refuse(operation, new Errors.VersionNotBuilding(answer))
          case "BatchNotFound":
            return yield* refuse(operation, new Errors.BatchNotFound({ taskId: attempt.taskId }))
          case "StaleAttempt":
            return yield* stale(attempt)
        }
      }),

    commitVersion: (datasetUuid, version, options) =>
      Effect.gen(function*() {
        const operation = "commitVersion"
        const { attempt, batchCount } = options ?? {}
        const answer = yield* call<
          | { _tag: "Committed"; batchCount: number; recordCount: number }
          | { _tag: "BatchesMissing"; missing: number; published: number }
          | { _tag: "VersionNotBuilding"; status: Version["status"] }
          | { _tag: "IsolationUnfit"; level: string }
          | Refused<"VersionNotFound" | "StaleAttempt">
        >(
          operation,
          [
            Input.checkVersion(datasetUuid, version),
            ...(batchCount === undefined ? [] : [Input.checkCount("batchCount", batchCount)]),
            ...(attempt === undefined ? [] : checksOf(attempt))
          ],
          () =>
            Prisma.sql`dx_commit_version(${datasetUuid}::uuid, ${bigint(version)}, ${bigint(batchCount ?? null)}, ${
              attempt?.taskId ?? null
            }::uuid, ${attempt?.attempt ?? null}::int)`
        )
        switch (answer._tag) {
          case "Committed":
            return { batchCount: answer.batchCount, recordCount: answer.recordCount }
          case "BatchesMissing":
            return yield* refuse(operation, new Errors.BatchesMissing({ ...answer, datasetUuid, version }))
          case "VersionNotBuilding":
            return yield* refuse(operation, new Errors.VersionNotBuilding({ ...answer, datasetUuid, version }))
          case "VersionNotFound":
            return yield* refuse(operation, new Errors.VersionNotFound({ datasetUuid, version }))
          case "StaleAttempt":
            return yield* stale(attempt!)
          case "IsolationUnfit":
            return yield* refuse(
              operation,
              new Errors.InvalidInput({
                field: "transaction",
                problem: `its isolation level is ${answer.level}; a version can be committed only under read committed`
              })
            )
        }
      }),

    activate: (datasetUuid, version, options) =>
      Effect.gen(function*() {
        const operation = "activate"
        const expected = options?.expected
        const answer = yield* call<
          | { _tag: "Activated"; previous: number | null }
          | { _tag: "ActiveVersionChanged"; actual: number | null }
          | { _tag: "VersionNotCommitted"; status: Version["status"] }
          | Refused<"DatasetNotFound" | "VersionNotFound">
        >(
          operation,
          [
            Input.checkVersion(datasetUuid, version),
            ...(typeof expected === "number" ? [Input.checkCount("expected", expected, 1)] : [])
          ],
          () =>
            Prisma.sql`dx_activate_version(${datasetUuid}::uuid, ${bigint(version)}, ${expected !== undefined}, ${
              bigint(expected ?? null)
            })`
        )
        switch (answer._tag) {
          case "Activated":
            return answer.previous
          case "ActiveVersionChanged":
            return yield* refuse(
              operation,
              new Errors.ActiveVersionChanged({ datasetUuid, expected: expected ?? null, actual: answer.actual })
            )
          case "VersionNotCommitted":
            return yield* refuse(operation, new Errors.VersionNotCommitted({ ...answer, datasetUuid, version }))
          case "DatasetNotFound":
            return yield* refuse(operation, new Errors.DatasetNotFound({ dataset: datasetUuid }))
          case "VersionNotFound":
            return yield* refuse(operation, new Errors.VersionNotFound({ datasetUuid, version }))
        }
      }),

    active: (name) =>
      Effect.gen(function*() {
        const operation = "active"
        const answer = yield* call<{ _tag: "Active" } & Active | Refused<"Inactive" | "DatasetNotFound">>(
          operation,
          [Input.checkDatasetName(name)],
          () => Prisma.sql`dx_read_active_dataset(${name})`
        )
        switch (answer._tag) {
          case "Active": {
            const { _tag, ...active } = answer
            return Option.some(active)
          }
          case "Inactive":
            return Option.none()
          case "DatasetNotFound":
            return yield* refuse(operation, new Errors.DatasetNotFound({ dataset: name }))
        }
      }),

    versions: (datasetUuid, options) =>
      Effect.gen(function*() {
        const operation = "versions"
        const limit = options?.limit ?? defaultLimit
        const answer = yield* call<ReadonlyArray<Version> | null>(
          operation,
          [Input.checkUuid("datasetUuid", datasetUuid), Input.checkCount("limit", limit, 1, maxLimit)],
          () => Prisma.sql`dx_read_versions(${datasetUuid}::uuid, ${limit}::int)`
        )
        return answer ?? (yield* refuse(operation, new Errors.DatasetNotFound({ dataset: datasetUuid })))
      }),

    discardVersion: (datasetUuid, version) =>
      Effect.gen(function*() {
        const operation = "discardVersion"
        const answer = yield* call<Refused<"Discarded" | "VersionIsActive" | "VersionNotFound">>(
          operation,
          [Input.checkVersion(datasetUuid, version)],
          () => Prisma.sql`dx_discard_version(${datasetUuid}::uuid, ${bigint(version)})`
        )
        if (answer._tag === "Discarded") return
        const Reason = answer._tag === "VersionIsActive" ? Errors.VersionIsActive : Errors.VersionNotFound
        return yield* refuse(operation, new Reason({ datasetUuid, version }))
      }),

    pruneVersions: (datasetUuid, { keep, limit = defaultLimit }) =>
      Effect.gen(function*() {
        const operation = "pruneVersions"
        const answer = yield* call<
          ReadonlyArray<{ version: number; outputUris: ReadonlyArray<string> }> | null
        >(
          operation,
          [
            Input.checkUuid("datasetUuid", datasetUuid),
            Input.checkCount("keep", keep),
            Input.checkCount("limit", limit, 1, maxLimit)
          ],
          () => Prisma.sql`dx_prune_versions(${datasetUuid}::uuid, ${bigint(keep)}, ${limit}::int)`
        )
        return answer ?? (yield* refuse(operation, new Errors.DatasetNotFound({ dataset: datasetUuid })))
      }),

    deleteVersion: (datasetUuid, version) =>
      Effect.gen(function*() {
        const operation = "deleteVersion"
        const answer = yield* call<
          Refused<"Deleted"> | { _tag: "VersionNotDiscarded"; status: Version["status"] }
        >(
          operation,
          [Input.checkVersion(datasetUuid, version)],
          () => Prisma.sql`dx_delete_version(${datasetUuid}::uuid, ${bigint(version)})`
        )
        if (answer._tag === "Deleted") return
        return yield* refuse(operation, new Errors.VersionNotDiscarded({ ...answer, datasetUuid, version }))
      })
  }
}

// internal

type PublishAnswer =
  | { readonly _tag: "Published" | "Known"; readonly taskId: string }
  | { readonly _tag: "VersionNotBuilding"; readonly status: Version["status"] }
  | Refused<"Unpublished" | "BatchDiffers" | "VersionNotFound">

/** An answer that is only its tag. */
type Refused<Tag extends string> = { readonly [T in Tag]: { readonly _tag: T } }[Tag]

const defaultLimit = 100
const maxLimit = 1000

const checked = (operation: string, checks: ReadonlyArray<Input.Checked>) =>
  Effect.catch(Effect.all(checks, { discard: true }), (reason) => refuse(operation, reason))

const refuse = (operation: string, reason: Errors.Reason) => Effect.fail(new Errors.DatasetError({ operation, reason }))

const checksOf = ({ attempt, taskId }: AttemptId) => [
  Input.checkUuid("taskId", taskId),
  Input.checkCount("attempt", attempt, 1, 2 ** 31 - 1)
]

const stale = ({ attempt, taskId }: AttemptId) =>
  Effect.andThen(Metric.update(Metrics.taskStaleCommits, 1), Effect.fail(new StaleAttempt({ taskId, attempt })))

/** A batch and its task. The row of the batch makes the publication idempotent, so the task needs no key. */
const batchRow = <T extends Task.Any>({ payload, task, ...batch }: Publication<T>) =>
  Effect.gen(function*() {
    const { batchUri, datasetUuid, recordCount, version } = batch
    const row = {
      dataset_uuid: datasetUuid,
      dataset_version: version,
      batch_uri: batchUri,
      record_count: recordCount
    }
    const created = yield* newTask(task, { payload: payload ?? { batchUri, datasetUuid, recordCount, version } })
    return {
      ...row,
      task: { ...created, id: yield* timeOrderedUuid, wakeup: yield* Effect.orDie(BufferBatch.encode(row)) }
    }
  })
