import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Test from "../utils/driver.ts"
import { session } from "../utils/session.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

/** An instance with a claimed activity; the token of that. */
const begin = Effect.fnUntraced(function*({ driver }: Test.Opened, instanceId: string) {
  yield* driver.startOrchestrations([Test.start(instanceId)])
  const { lockToken } = yield* Test.claimOne(driver)
  yield* driver.ackOrchestrationItems([
    Test.turn(lockToken, {
      ...Test.named,
      history: Test.events(1),
      workerItems: [Test.activity({ instanceId, executionId: 1, activityId: 1 })]
    })
  ])
  const [activity] = yield* Test.take(driver)
  return activity!.lockToken
})

const append = ({ driver }: Test.Opened, lockToken: string, instanceId: string) =>
  Effect.map(
    driver.appendChunks([{
      lockToken,
      instanceId,
      stream: "s",
      writer: "1/1/1/1/x",
      number: 1,
      isRepeat: false,
      chunks: ["1", "2"],
      keepChunks: 10,
      keepBytes: 100
    }]),
    ([answer]) => answer
  )

const rows = ({ sql }: Test.Opened) =>
  Effect.map(
    sql<{ streams: number; chunks: number }>(
      `SELECT (SELECT count(*)::int FROM progress_streams) AS streams,
         (SELECT count(*)::int FROM progress_chunks) AS chunks`
    ),
    ([row]) => row
  )

describe("The streams of an instance", () => {
  it.live("are deleted with its row, as Duroxide deletes it", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      for (const id of ["a", "b"]) {
        assert.strictEqual(yield* append(test, yield* begin(test, id), id), "Done")
      }
      assert.deepStrictEqual(yield* rows(test), { streams: 2, chunks: 4 })
      yield* test.sql("DELETE FROM instances WHERE instance_id = 'a'")
      assert.deepStrictEqual(yield* rows(test), { streams: 1, chunks: 2 })
    }).pipe(Effect.scoped))

  it.live("are not created while the instance is deleted, and an append does not wait for that", () =>
    Effect.gen(function*() {
      const test = yield* Test.open()
      const lockToken = yield* begin(test, "a")
      const other = yield* session(test)
      yield* other("DELETE FROM instances WHERE instance_id = 'a'")
      assert.strictEqual(yield* append(test, lockToken, "a"), "Locked")
      yield* other("COMMIT")
      assert.strictEqual(yield* append(test, lockToken, "a"), "LockLost")
      assert.deepStrictEqual(yield* rows(test), { streams: 0, chunks: 0 })
    }).pipe(Effect.scoped))

  it.live("are deleted after an append that is under way", () =>
    Effect.gen(function*() {
      const test = yield* Test.open({ patient: true })
      const lockToken = yield* begin(test, "a")
      yield* append(test, lockToken, "a")
      const other = yield* session(test)
      // As an append holds it.
      yield* other("SELECT FROM progress_streams FOR UPDATE")
      const deleting = yield* Effect.forkChild(
        test.admin.deleteInstances({ instanceIds: ["a"], mustHaveEnded: [] })
      )
      yield* waitForStatement(test, "dx_delete_instances", "Lock")
      yield* other("INSERT INTO progress_chunks SELECT id, 2, 2, '1', 0, '3', now() FROM progress_streams")
      yield* other("COMMIT")
      yield* Fiber.join(deleting)
      assert.deepStrictEqual(yield* rows(test), { streams: 0, chunks: 0 })
    }).pipe(Effect.scoped))
})
