import { assert, describe, layer } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as metrics from "../utils/metrics.ts"
import { waitForStatement } from "../utils/waitUntil.ts"
import { open, Stores } from "./utils/datasets.ts"

type Fails = Effect.Effect<unknown, { readonly _tag: string; readonly reason?: unknown }>

/** The reason of the failure, or the failure itself if it has none. */
const failureOf = (self: Fails) =>
  Effect.map(Effect.flip(self), (error): Readonly<Record<string, unknown>> => {
    const reason = error.reason ?? error
    return Object.assign({ _tag: (reason as { readonly _tag: string })._tag }, reason)
  })

const tagOf = (self: Fails) => Effect.map(failureOf(self), ({ _tag }) => _tag)

layer(Stores, { excludeTestServices: true })((it) => {
  describe("publishBatch:", () => {
    it.effect("stores batch, task and wake-up in one statement", () =>
      Effect.gen(function*() {
        const { batch, database, dataset, datasetUuid, sql } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const before = yield* database.statementCounts
        const { isNew, taskId } = yield* dataset.publishBatch(batch(version, "a"))
        const after = yield* database.statementCounts
        assert.isTrue(isNew)
        assert.deepStrictEqual(after, { ...before, publishBatches: 1 })

        const [stored] = yield* sql(
          `SELECT b.task_id::text, b.status, t.name, t.payload, o.queue, o.payload AS wakeup,
                  b.xmin = t.xmin AND t.xmin = o.xmin AS together
           FROM queue_dataset_batches b JOIN queue_tasks t ON t.id = b.task_id CROSS JOIN queue_outbox o`
        )
        assert.deepStrictEqual({ ...stored, payload: JSON.parse(String(stored!.payload)) }, {
          task_id: taskId,
          status: "Buffered",
          name: "Convert",
          payload: { datasetUuid, version, batchUri: "s3://in/a", recordCount: 10 },
          queue: "tasks",
          wakeup: {
            kind: "buffer_batch",
            task_id: taskId,
            dataset_uuid: datasetUuid,
            dataset_version: version,
            batch_uri: "s3://in/a",
            record_count: 10
          },
          together: true
        })
      }))

    it.effect("stores nothing if the transaction of the application is rolled back", () =>
      Effect.gen(function*() {
        const { batch, dataset, datasetUuid, stored, transaction } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const tx = yield* transaction()
        yield* tx.dataset.publishBatch(batch(version, "a"))
        yield* tx.rollback
        assert.deepStrictEqual(yield* stored, { batches: 0, tasks: 0, outbox: 0 })
      }))

    it.effect("publishes a batch once, however often and from however many processes", () =>
      Effect.gen(function*() {
        const { batch, dataset, datasetUuid, stored } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const some = Array.from({ length: 8 }, () =>
          dataset.publishBatches([
            batch(version, "b"),
            batch(version, "a"),
            batch(version, "b")
          ]))
        const answers = (yield* Effect.all(some, { concurrency: "unbounded" })).flat()
        assert.lengthOf(answers.filter(({ isNew }) => isNew), 2)
        assert.strictEqual(new Set(answers.map(({ taskId }) => taskId)).size, 2)
        assert.deepStrictEqual(yield* stored, { batches: 2, tasks: 2, outbox: 2 })
      }))

    it.effect("refuses what contradicts the version, and leaves the transaction usable", () =>
      Effect.gen(function*() {
        const { batch, committed, dataset, datasetUuid, stored, transaction } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const ended = yield* committed(["old"])
        const tx = yield* transaction()
        yield* tx.dataset.publishBatch(batch(version, "a"))
        const differs = { ...batch(version, "a"), recordCount: 11 }
        assert.strictEqual(yield* tagOf(tx.dataset.publishBatch(differs)), "BatchDiffers")
        const twice = [batch(version, "twice"), { ...batch(version, "twice"), recordCount: 11 }]
        assert.strictEqual(yield* tagOf(tx.dataset.publishBatches(twice)), "BatchDiffers")
        assert.strictEqual(yield* tagOf(tx.dataset.publishBatch(batch(77, "a"))), "VersionNotFound")
        assert.strictEqual(yield* tagOf(tx.dataset.publishBatch(batch(ended, "new"))), "VersionNotBuilding")
        assert.isFalse((yield* tx.dataset.publishBatch(batch(ended, "old"))).isNew)
        yield* tx.commit
        assert.deepStrictEqual(yield* stored, { batches: 2, tasks: 2, outbox: 2 })
      }))

    it.effect("publishes none of a set of which one batch is refused", () =>
      Effect.gen(function*() {
        const { batch, dataset, datasetUuid, stored } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const set = [batch(version, "a"), batch(77, "b"), batch(version, "c")]
        assert.strictEqual(yield* tagOf(dataset.publishBatches(set)), "VersionNotFound")
        assert.deepStrictEqual(yield* stored, { batches: 0, tasks: 0, outbox: 0 })
      }))
  })

  describe("commitBatch:", () => {
    const output = (outputUri: string) => ({ outputUri, recordCount: 9 })

    it.effect("refuses an attempt that is not the newest, and counts it", () =>
      Effect.gen(function*() {
        const { batch, begin, dataset, datasetUuid } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const { taskId } = yield* dataset.publishBatch(batch(version, "a"))
        const zombie = yield* begin(taskId)
        const newest = yield* begin(taskId)
        assert.strictEqual(yield* tagOf(dataset.commitBatch(zombie, output("s3://out/1"))), "StaleAttempt")
        assert.strictEqual(
          yield* tagOf(dataset.commitVersion(datasetUuid, version, { attempt: zombie })),
          "StaleAttempt"
        )
        assert.deepStrictEqual(yield* dataset.commitBatch(newest, output("s3://out/2")), {
          ...output("s3://out/2"),
          attempt: 2
        })
        assert.strictEqual(yield* tagOf(dataset.commitBatch(zombie, output("s3://out/1"))), "StaleAttempt")
        assert.deepStrictEqual(Object.values(yield* metrics.counts(Metrics.taskStaleCommits)), [3])
      }).pipe(metrics.isolated))

    it.effect("answers a newer attempt with the output that is committed already", () =>
      Effect.gen(function*() {
        const { batch, begin, dataset, datasetUuid } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const { taskId } = yield* dataset.publishBatch(batch(version, "a"))
        const first = { ...output("s3://out/1"), attempt: 1 }
        assert.deepStrictEqual(yield* dataset.commitBatch(yield* begin(taskId), output("s3://out/1")), first)
        yield* dataset.commitVersion(datasetUuid, version)
        assert.deepStrictEqual(yield* dataset.commitBatch(yield* begin(taskId), output("s3://out/2")), first)
      }))

    it.effect("two zombies and the newest attempt at the same moment: one output, of the newest", () =>
      Effect.gen(function*() {
        const { batch, begin, dataset, datasetUuid, sql, transaction, ...test } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const { taskId } = yield* dataset.publishBatch(batch(version, "a"))
        const attempts = [yield* begin(taskId), yield* begin(taskId)]
        // A claim of the third attempt is under way.
        const claim = yield* transaction()
        yield* claim.run(`UPDATE queue_tasks SET attempt = 3 WHERE id = '${taskId}'`)
        const zombies = yield* Effect.forEach(
          attempts,
          (attempt) => Effect.forkChild(tagOf(dataset.commitBatch(attempt, output(`s3://out/${attempt.attempt}`))))
        )
        yield* waitForStatement({ sql, ...test }, "dx_commit_batch", "Lock")
        yield* claim.commit
        assert.deepStrictEqual(yield* Effect.forEach(zombies, Fiber.join), ["StaleAttempt", "StaleAttempt"])
        const newest = { taskId, attempt: 3 }
        assert.strictEqual((yield* dataset.commitBatch(newest, output("s3://out/3"))).outputUri, "s3://out/3")
      }))

    it.effect("a worker that is killed before its commit leaves nothing; the next attempt commits", () =>
      Effect.gen(function*() {
        const { batch, begin, dataset, datasetUuid, sql, transaction } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const { taskId } = yield* dataset.publishBatch(batch(version, "a"))
        const tx = yield* transaction()
        yield* tx.dataset.commitBatch(yield* begin(taskId), output("s3://out/1"))
        const { rows } = yield* tx.run("SELECT pg_backend_pid() AS pid")
        yield* sql("SELECT pg_terminate_backend($1)", [rows[0].pid])
        const next = yield* begin(taskId)
        assert.strictEqual(yield* tagOf(dataset.commitVersion(datasetUuid, version)), "BatchesMissing")
        assert.deepStrictEqual(yield* dataset.commitBatch(next, output("s3://out/2")), {
          ...output("s3://out/2"),
          attempt: 2
        })
      }))

    it.effect("refuses a task without a batch", () =>
      Effect.gen(function*() {
        const { dataset } = yield* open
        const attempt = { taskId: "00000000-0000-4000-8000-000000000000", attempt: 1 }
        assert.strictEqual(yield* tagOf(dataset.commitBatch(attempt, output("s3://out/1"))), "BatchNotFound")
      }))
  })

  describe("commitVersion:", () => {
    it.effect("says how many batches are missing, then commits once", () =>
      Effect.gen(function*() {
        const { batch, begin, dataset, datasetUuid, filled } = yield* open
        const version = yield* filled(["a", "b"])
        const { taskId } = yield* dataset.publishBatch(batch(version, "c"))
        const commit = dataset.commitVersion(datasetUuid, version, { batchCount: 5 })
        const missing = yield* failureOf(commit)
        assert.include(missing, { _tag: "BatchesMissing", missing: 3, published: 3 })
        const unnumbered = yield* failureOf(dataset.commitVersion(datasetUuid, version))
        assert.include(unnumbered, { _tag: "BatchesMissing", missing: 1 })

        yield* dataset.commitBatch(yield* begin(taskId), { outputUri: "s3://out/c", recordCount: 7 })
        const answers = yield* Effect.all(
          Array.from({ length: 4 }, () => dataset.commitVersion(datasetUuid, version, { batchCount: 3 })),
          { concurrency: "unbounded" }
        )
        for (const answer of answers) assert.deepStrictEqual(answer, { batchCount: 3, recordCount: 27 })
      }))

    it.effect("waits for a batch that is being published, and does not commit without it", () =>
      Effect.gen(function*() {
        const { batch, dataset, datasetUuid, filled, transaction, ...test } = yield* open
        const version = yield* filled(["a"])
        const tx = yield* transaction()
        yield* tx.dataset.publishBatch(batch(version, "late"))
        const commit = yield* Effect.forkChild(failureOf(dataset.commitVersion(datasetUuid, version)))
        yield* waitForStatement(test, "dx_commit_version", "Lock")
        yield* tx.commit
        assert.include(yield* Fiber.join(commit), { _tag: "BatchesMissing", missing: 1, published: 2 })
      }))

    it.effect("a batch that is published while the version is being committed is refused", () =>
      Effect.gen(function*() {
        const { batch, dataset, datasetUuid, filled, transaction, ...test } = yield* open
        const version = yield* filled(["a"])
        const tx = yield* transaction()
        yield* tx.dataset.commitVersion(datasetUuid, version)
        const late = yield* Effect.forkChild(tagOf(dataset.publishBatch(batch(version, "late"))))
        yield* waitForStatement(test, "dx_buffer_batches", "Lock")
        yield* tx.commit
        assert.strictEqual(yield* Fiber.join(late), "VersionNotBuilding")
      }))

    it.effect("refuses a transaction that would not see such a batch", () =>
      Effect.gen(function*() {
        const { dataset, datasetUuid, filled, transaction } = yield* open
        const version = yield* filled(["a"])
        const tx = yield* transaction("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert.include(yield* failureOf(tx.dataset.commitVersion(datasetUuid, version)), {
          _tag: "InvalidInput",
          field: "transaction"
        })
        yield* tx.commit
        yield* dataset.commitVersion(datasetUuid, version)
      }))
  })

  describe("discardVersion:", () => {
    it.effect("waits for an attempt that has locked its task, and then commits its batch", () =>
      Effect.gen(function*() {
        const { batch, begin, dataset, datasetUuid, transaction, ...test } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const running = yield* begin((yield* dataset.publishBatch(batch(version, "a"))).taskId)
        const tx = yield* transaction()
        yield* tx.run(`SELECT dx_lock_attempt('${running.taskId}', ${running.attempt})`)
        const discard = yield* Effect.forkChild(dataset.discardVersion(datasetUuid, version))
        yield* waitForStatement(test, "dx_discard_version", "Lock")
        const { outputUri } = yield* tx.dataset.commitBatch(running, { outputUri: "s3://out/a", recordCount: 1 })
        assert.strictEqual(outputUri, "s3://out/a")
        yield* tx.commit
        yield* Fiber.join(discard)
        assert.strictEqual(yield* tagOf(dataset.publishBatch(batch(version, "b"))), "VersionNotBuilding")
      }))

    it.effect("cancels its tasks, and their attempts can commit nothing", () =>
      Effect.gen(function*() {
        const { batch, begin, dataset, datasetUuid, sql } = yield* open
        const version = yield* dataset.openVersion(datasetUuid)
        const running = yield* begin((yield* dataset.publishBatch(batch(version, "a"))).taskId)
        yield* dataset.publishBatch(batch(version, "b"))
        yield* dataset.discardVersion(datasetUuid, version)
        yield* dataset.discardVersion(datasetUuid, version)
        assert.deepStrictEqual(
          yield* sql("SELECT DISTINCT status FROM queue_tasks WHERE payload LIKE $1", [`%${datasetUuid}%`]),
          [{ status: "Cancelled" }]
        )
        const output = { outputUri: "s3://out/a", recordCount: 1 }
        assert.strictEqual(yield* tagOf(dataset.commitBatch(running, output)), "StaleAttempt")
        assert.strictEqual(yield* tagOf(dataset.publishBatch(batch(version, "c"))), "VersionNotBuilding")
        assert.strictEqual(yield* tagOf(dataset.commitVersion(datasetUuid, version)), "VersionNotBuilding")
        assert.strictEqual(yield* tagOf(dataset.activate(datasetUuid, version)), "VersionNotCommitted")
      }))

    it.effect("refuses the active version, also one that is being activated", () =>
      Effect.gen(function*() {
        const { committed, dataset, datasetUuid, transaction, ...test } = yield* open
        const [first, second] = [yield* committed(["a"]), yield* committed(["b"])]
        yield* dataset.activate(datasetUuid, first)
        assert.strictEqual(yield* tagOf(dataset.discardVersion(datasetUuid, first)), "VersionIsActive")
        const tx = yield* transaction()
        yield* tx.dataset.activate(datasetUuid, second)
        const discard = yield* Effect.forkChild(tagOf(dataset.discardVersion(datasetUuid, second)))
        yield* waitForStatement(test, "dx_discard_version", "Lock")
        yield* tx.commit
        assert.strictEqual(yield* Fiber.join(discard), "VersionIsActive")
        assert.strictEqual(yield* tagOf(dataset.discardVersion(datasetUuid, 77)), "VersionNotFound")
      }))
  })

  describe("activate:", () => {
    it.effect("refuses a version that is not committed", () =>
      Effect.gen(function*() {
        const { dataset, datasetUuid, filled, name } = yield* open
        const version = yield* filled(["a"])
        assert.include(yield* failureOf(dataset.activate(datasetUuid, version)), {
          _tag: "VersionNotCommitted",
          status: "Building"
        })
        assert.strictEqual(yield* tagOf(dataset.activate(datasetUuid, 77)), "VersionNotFound")
        assert.isTrue(Option.isNone(yield* dataset.active(name)))
      }))

    it.effect("of activations that expect the same version, one succeeds", () =>
      Effect.gen(function*() {
        const { committed, dataset, datasetUuid, name } = yield* open
        const versions = [yield* committed(["a"]), yield* committed(["b"]), yield* committed(["c"])]
        const activations = yield* Effect.forEach(
          versions,
          (version) => Effect.result(dataset.activate(datasetUuid, version, { expected: null })),
          { concurrency: "unbounded" }
        )
        const won = versions.filter((_, i) => activations[i]!._tag === "Success")
        assert.lengthOf(won, 1)
        const active = Option.getOrThrow(yield* dataset.active(name))
        assert.strictEqual(active.version, won[0])
        const other = versions.find((version) => version !== won[0])!
        assert.include(yield* failureOf(dataset.activate(datasetUuid, other, { expected: other })), {
          _tag: "ActiveVersionChanged",
          expected: other,
          actual: won[0]
        })
        assert.strictEqual(yield* dataset.activate(datasetUuid, other, { expected: won[0]! }), won[0])
      }))

    it.effect("waits for one that is under way, and sees what it has changed", () =>
      Effect.gen(function*() {
        const { committed, dataset, datasetUuid, transaction, ...test } = yield* open
        const [first, second] = [yield* committed(["a"]), yield* committed(["b"])]
        const tx = yield* transaction()
        yield* tx.dataset.activate(datasetUuid, first, { expected: null })
        const other = yield* Effect.forkChild(failureOf(dataset.activate(datasetUuid, second, { expected: null })))
        yield* waitForStatement(test, "dx_activate_version", "Lock")
        yield* tx.commit
        assert.include(yield* Fiber.join(other), { _tag: "ActiveVersionChanged", expected: null, actual: first })
      }))

    it.effect("readers see one version whole, whatever is activated meanwhile", () =>
      Effect.gen(function*() {
        const { committed, dataset, datasetUuid, name } = yield* open
        const versions = [yield* committed(["a", "b", "c"]), yield* committed(["d", "e"])]
        yield* dataset.activate(datasetUuid, versions[0]!)
        const flips = yield* Effect.forkChild(Effect.forEach(
          Array.from({ length: 100_000 }),
          (_, i) => dataset.activate(datasetUuid, versions[(i + 1) % 2]!),
          { discard: true }
        ))
        const seen = [0, 0]
        while (Math.min(...seen) < 10) {
          const active = Option.getOrThrow(yield* dataset.active(name))
          seen[versions.indexOf(active.version)]!++
          assert.lengthOf(active.outputs, active.version === versions[0] ? 3 : 2)
          for (const { outputUri } of active.outputs) assert.include(outputUri, `/${active.version}/`)
          assert.strictEqual(active.recordCount, active.outputs.length * 10)
        }
        yield* Fiber.interrupt(flips)
      }))
  })

  describe("versions:", () => {
    it.effect("old ones are discarded, the active and newer ones stay, and no number is given twice", () =>
      Effect.gen(function*() {
        const { committed, dataset, datasetUuid, filled } = yield* open
        const [v1, v2, v3, v4, v5] = [
          yield* committed(["a", "b"]),
          yield* committed([]),
          yield* committed(["c"]),
          yield* committed(["d"]),
          yield* committed(["e"])
        ]
        const building = yield* filled(["f"])
        yield* dataset.activate(datasetUuid, v4)
        const pruned = yield* dataset.pruneVersions(datasetUuid, { keep: 1 })
        assert.deepStrictEqual(pruned, [
          { version: v1, outputUris: ["s3://out/1/a", "s3://out/1/b"] },
          { version: v2, outputUris: [] }
        ])
        // A crash before the deletion: they are still there.
        assert.deepStrictEqual(yield* dataset.pruneVersions(datasetUuid, { keep: 1 }), pruned)
        for (const { version } of pruned) yield* dataset.deleteVersion(datasetUuid, version)
        yield* dataset.deleteVersion(datasetUuid, v1)
        assert.deepStrictEqual(yield* dataset.pruneVersions(datasetUuid, { keep: 1 }), [])
        assert.include(yield* failureOf(dataset.deleteVersion(datasetUuid, v4)), {
          _tag: "VersionNotDiscarded",
          status: "Committed"
        })
        assert.deepStrictEqual(
          (yield* dataset.versions(datasetUuid)).map(({ isActive, status, version }) => [version, status, isActive]),
          [[building, "Building", false], [v5, "Committed", false], [v4, "Committed", true], [v3, "Committed", false]]
        )

        yield* dataset.discardVersion(datasetUuid, building)
        yield* dataset.deleteVersion(datasetUuid, building)
        assert.strictEqual(yield* dataset.openVersion(datasetUuid), building + 1)
      }))

    it.effect("show what was committed of them", () =>
      Effect.gen(function*() {
        const { batch, dataset, datasetUuid, filled } = yield* open
        const version = yield* filled(["a", "b"])
        yield* dataset.publishBatch(batch(version, "c"))
        const [building] = yield* dataset.versions(datasetUuid)
        assert.include(building, { batchCount: 3, committedBatchCount: 2, recordCount: null, committedMs: null })
      }))
  })

  describe("bad input:", () => {
    const uuid = "00000000-0000-4000-8000-000000000000"

    it.effect("each has one typed error, and sends nothing", () =>
      Effect.gen(function*() {
        const { batch, database, dataset } = yield* open
        const before = yield* database.statementCounts
        const refused: Readonly<Record<string, Fails>> = {
          "an empty name": dataset.create(""),
          "a name with NUL": dataset.create("a\0b"),
          "a name that is too long": dataset.active("x".repeat(2000)),
          "no UUID": dataset.openVersion("sales"),
          "version 0": dataset.commitVersion(uuid, 0),
          "half a version": dataset.activate(uuid, 1.5),
          "no number": dataset.activate(uuid, 1, { expected: NaN }),
          "a negative number of records": dataset.publishBatch({ ...batch(1, "a"), recordCount: -1 }),
          "an empty address": dataset.publishBatch({ ...batch(1, "a"), batchUri: "" }),
          "an address that is too long": dataset.publishBatch(batch(1, "x".repeat(3000))),
          "half a surrogate pair": dataset.commitBatch({ taskId: uuid, attempt: 1 }, {
            outputUri: "\ud800",
            recordCount: 1
          }),
          "attempt 0": dataset.commitBatch({ taskId: uuid, attempt: 0 }, { outputUri: "s3://a", recordCount: 1 }),
          "a negative batch count": dataset.commitVersion(uuid, 1, { batchCount: -1 }),
          "nothing to list": dataset.versions(uuid, { limit: 0 }),
          "keeping half a version": dataset.pruneVersions(uuid, { keep: 0.5 })
        }
        for (const [name, call] of Object.entries(refused)) assert.strictEqual(yield* tagOf(call), "InvalidInput", name)
        assert.deepStrictEqual(yield* database.statementCounts, before)
      }))

    it.effect("unknown data sets have a typed error", () =>
      Effect.gen(function*() {
        const { dataset } = yield* open
        const calls = [
          dataset.openVersion(uuid),
          dataset.active("unknown"),
          dataset.activate(uuid, 1),
          dataset.versions(uuid),
          dataset.pruneVersions(uuid, { keep: 1 })
        ]
        for (const call of calls) assert.strictEqual(yield* tagOf(call), "DatasetNotFound")
        assert.strictEqual(yield* tagOf(dataset.commitVersion(uuid, 1)), "VersionNotFound")
      }))
  })
})
