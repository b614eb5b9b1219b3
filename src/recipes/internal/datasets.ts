/**
 * The operations of `Dataset` on a driver: they check their input, and say why something was refused.
 */
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Metrics from "../../model/Metrics.ts"
import { isUuid, maxNameBytes, problemOfName } from "../../model/shared/identifiers.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { StaleAttempt } from "../../tasks/shared/errors.ts"
import { newTask, timeOrderedUuid } from "../../tasks/shared/newTask.ts"
import type * as Task from "../../tasks/Task.ts"
import type { DatasetDriver } from "../DatasetDriver.ts"
import * as Errors from "../DatasetError.ts"
import type { AttemptId, Operations, Publication } from "./datasetModel.ts"

export const make = (driver: DatasetDriver["Service"]): Operations => {
  /** Checks the input before. */
  const call = <Answer>(
    operation: string,
    checks: ReadonlyArray<Checked>,
    send: () => Effect.Effect<Answer, ProviderError>
  ) => Effect.andThen(checked(operation, checks), Effect.suspend(send))

  const publishBatches = <T extends Task.Any>(batches: ReadonlyArray<Publication<T>>) =>
    Effect.gen(function*() {
      const operation = "publishBatches"
      if (batches.length === 0) return []
      yield* checked(
        operation,
        batches.flatMap((batch) => [
          checkVersion(batch.datasetUuid, batch.version),
          checkUri("batchUri", batch.batchUri),
          checkCount("recordCount", batch.recordCount)
        ])
      )
      const twice = differing(batches)
      if (twice !== undefined) return yield* refuse(operation, new Errors.BatchDiffers(twice))
      const answers = yield* driver.publishBatches(yield* Effect.forEach(batches, newBatch))
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

    create: (name) => call("create", [checkDatasetName(name)], () => driver.create(name)),

    openVersion: (datasetUuid) =>
      Effect.gen(function*() {
        const operation = "openVersion"
        const answer = yield* call(
          operation,
          [checkUuid("datasetUuid", datasetUuid)],
          () => driver.openVersion(datasetUuid)
        )
        return answer._tag === "Opened"
          ? answer.version
          : yield* refuse(operation, new Errors.DatasetNotFound({ dataset: datasetUuid }))
      }),

    commitBatch: (attempt, output) =>
      Effect.gen(function*() {
        const operation = "commitBatch"
        const answer = yield* call(
          operation,
          [
            ...checksOf(attempt),
            checkUri("outputUri", output.outputUri),
            checkCount("recordCount", output.recordCount)
          ],
          () => driver.commitBatch(attempt, output)
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
        const answer = yield* call(
          operation,
          [
            checkVersion(datasetUuid, version),
            ...(batchCount === undefined ? [] : [checkCount("batchCount", batchCount)]),
            ...(attempt === undefined ? [] : checksOf(attempt))
          ],
          () => driver.commitVersion(datasetUuid, version, batchCount ?? null, attempt ?? null)
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
        const answer = yield* call(
          operation,
          [
            checkVersion(datasetUuid, version),
            ...(typeof expected === "number" ? [checkCount("expected", expected, 1)] : [])
          ],
          () => driver.activate(datasetUuid, version, expected)
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
        const answer = yield* call(
          operation,
          [checkDatasetName(name)],
          () => driver.active(name)
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
        const answer = yield* call(
          operation,
          [checkUuid("datasetUuid", datasetUuid), checkCount("limit", limit, 1, maxLimit)],
          () => driver.versions(datasetUuid, limit)
        )
        return answer ?? (yield* refuse(operation, new Errors.DatasetNotFound({ dataset: datasetUuid })))
      }),

    discardVersion: (datasetUuid, version) =>
      Effect.gen(function*() {
        const operation = "discardVersion"
        const answer = yield* call(
          operation,
          [checkVersion(datasetUuid, version)],
          () => driver.discardVersion(datasetUuid, version)
        )
        if (answer._tag === "Discarded") return
        const Reason = answer._tag === "VersionIsActive" ? Errors.VersionIsActive : Errors.VersionNotFound
        return yield* refuse(operation, new Reason({ datasetUuid, version }))
      }),

    pruneVersions: (datasetUuid, { keep, limit = defaultLimit }) =>
      Effect.gen(function*() {
        const operation = "pruneVersions"
        const answer = yield* call(
          operation,
          [
            checkUuid("datasetUuid", datasetUuid),
            checkCount("keep", keep),
            checkCount("limit", limit, 1, maxLimit)
          ],
          () => driver.pruneVersions(datasetUuid, keep, limit)
        )
        return answer ?? (yield* refuse(operation, new Errors.DatasetNotFound({ dataset: datasetUuid })))
      }),

    deleteVersion: (datasetUuid, version) =>
      Effect.gen(function*() {
        const operation = "deleteVersion"
        const answer = yield* call(
          operation,
          [checkVersion(datasetUuid, version)],
          () => driver.deleteVersion(datasetUuid, version)
        )
        if (answer._tag === "Deleted") return
        return yield* refuse(operation, new Errors.VersionNotDiscarded({ ...answer, datasetUuid, version }))
      })
  }
}

// internal

/** A batch that comes twice, with different numbers of records. */
const differing = (batches: ReadonlyArray<Publication<Task.Any>>) => {
  const counts = new Map<string, number>()
  for (const { batchUri, datasetUuid, recordCount, version } of batches) {
    const key = JSON.stringify([datasetUuid.toLowerCase(), version, batchUri])
    const first = counts.get(key) ?? recordCount
    if (first !== recordCount) return { datasetUuid, version, batchUri }
    counts.set(key, first)
  }
  return undefined
}

const defaultLimit = 100
const maxLimit = 1000

const checked = (operation: string, checks: ReadonlyArray<Checked>) =>
  Effect.catch(Effect.all(checks, { discard: true }), (reason) => refuse(operation, reason))

const refuse = (operation: string, reason: Errors.Reason) => Effect.fail(new Errors.DatasetError({ operation, reason }))

const checksOf = ({ attempt, taskId }: AttemptId) => [
  checkUuid("taskId", taskId),
  checkCount("attempt", attempt, 1, 2 ** 31 - 1)
]

const stale = ({ attempt, taskId }: AttemptId) =>
  Effect.andThen(Metric.update(Metrics.taskStaleCommits, 1), Effect.fail(new StaleAttempt({ taskId, attempt })))

/** The row of the batch makes the publication idempotent, so its task needs no key. */
const newBatch = <T extends Task.Any>({ payload, task, ...batch }: Publication<T>) =>
  Effect.gen(function*() {
    const { batchUri, datasetUuid, recordCount, version } = batch
    const created = yield* newTask(task, { payload: payload ?? { batchUri, datasetUuid, recordCount, version } })
    const id = yield* timeOrderedUuid
    const wakeup = {
      kind: "buffer_batch",
      task_id: id,
      dataset_uuid: datasetUuid,
      dataset_version: version,
      batch_uri: batchUri,
      record_count: recordCount
    }
    return { batchUri, datasetUuid, recordCount, version, task: { ...created, id, wakeup } }
  })

// -- input -------------------------------------------------------------------------------------------

/** Longer than any address in S3. It is a part of an index entry, which has at most 2,704 bytes. */
const maxUriBytes = 2048

type Checked = Effect.Effect<void, Errors.InvalidInput>

const check = (field: string, problem: string | undefined): Checked =>
  problem === undefined ? Effect.void : Effect.fail(new Errors.InvalidInput({ field, problem }))

/** A number of records, batches or versions. */
const checkCount = (field: string, count: number, atLeast = 0, atMost = Number.MAX_SAFE_INTEGER): Checked =>
  check(
    field,
    Number.isSafeInteger(count) && count >= atLeast && count <= atMost
      ? undefined
      : atMost === Number.MAX_SAFE_INTEGER
      ? `it is not a whole number of at least ${atLeast}`
      : `it is not a whole number from ${atLeast} to ${atMost}`
  )

const checkUuid = (field: string, uuid: string): Checked => check(field, isUuid(uuid) ? undefined : "it is not a UUID")

const checkDatasetName = (name: string): Checked =>
  check("name", typeof name === "string" ? problemOfName(name, maxNameBytes) : "it is not a text")

const checkUri = (field: string, uri: string): Checked =>
  check(field, typeof uri === "string" ? problemOfName(uri, maxUriBytes) : "it is not a text")

/** A version of a data set. */
const checkVersion = (datasetUuid: string, version: number): Checked =>
  Effect.andThen(checkUuid("datasetUuid", datasetUuid), checkCount("version", version, 1))
