/**
 * Streams of chunks: appended by turns and by running activities, read by offset.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import { Admin } from "../../provider/Admin.ts"
import { Provider } from "../../provider/Provider.ts"
import type { ChunksAppend, NewChunk } from "../../provider/ProviderDriver.ts"
import {
  ack,
  ackWork,
  activityItem,
  activityScheduled,
  claimActivity,
  claimInstance,
  complete,
  continueAsNew,
  create,
  elapse,
  elapseLockTimeout,
  enqueueStart,
  lockTimeout,
  named,
  parallel,
  started,
  topic,
  turn
} from "./harness.ts"
import { advances, begins, completion } from "./unclaimed.ts"

const kept = { keepChunks: 100, keepBytes: 10_000 }

const chunks = (...texts: ReadonlyArray<string>): ReadonlyArray<NewChunk> =>
  texts.map((chunk) => ({ stream: "s", chunk, ...kept }))

/** An instance with an open activity of event 2. */
const withActivity = (instance: string, ids: ReadonlyArray<number> = [2]) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    yield* ack(yield* claimInstance(instance), {
      executionId: 1,
      events: [started(), ...ids.map((id) => activityScheduled(id))],
      workers: ids.map((id) => activityItem(instance, id)),
      metadata: named()
    })
  })

const append = (
  { item, lockToken }: {
    readonly lockToken: string
    readonly item: { readonly instance: string; readonly id: number }
  },
  texts: ReadonlyArray<string>,
  options: Partial<ChunksAppend> = {}
) =>
  Effect.flatMap(Provider, (provider) =>
    provider.appendChunks({
      lockToken,
      instanceId: item.instance,
      stream: "s",
      writer: `1/${item.id}/1/1/x`,
      number: 1,
      isRepeat: false,
      chunks: texts,
      ...kept,
      ...options
    }))

const read = (instance: string, from: number | null = null, stream = "s") =>
  Effect.flatMap(
    Provider,
    (provider) => provider.readStream({ instanceId: instance, stream, from, streamId: null, waits: false })
  )

const expect = Effect.fnUntraced(function*(instance: string, texts: ReadonlyArray<string>, first = 0) {
  const page = yield* read(instance)
  assert.deepStrictEqual(page.chunks.map(({ chunk }) => chunk), texts)
  assert.deepStrictEqual(page.chunks.map(({ offset }) => offset), texts.map((_, index) => first + index))
  assert.deepStrictEqual([page.firstOffset, page.nextOffset], [first, first + texts.length])
})

export const streams = topic("streams", {
  a_turn_appends_with_its_events: Effect.gen(function*() {
    yield* create("i")
    yield* create("other")
    yield* turn("i", { events: [activityScheduled(2)], chunks: chunks("a", "b") })
    yield* turn("other", { chunks: [...chunks("o"), { stream: "t", chunk: "t", ...kept }] })
    yield* turn("i", { chunks: chunks("c") })
    yield* expect("i", ["a", "b", "c"])
    yield* expect("other", ["o"])
    assert.deepStrictEqual((yield* read("other", null, "t")).chunks.map(({ chunk }) => chunk), ["t"])
    assert.deepInclude((yield* read("i")).chunks[0]!.writer, { _tag: "Program", executionId: 1 })
  }),

  a_turn_that_is_not_stored_appends_nothing: Effect.gen(function*() {
    const timeout = yield* lockTimeout()
    yield* create("i")
    yield* turn("i", { chunks: chunks("a") })
    yield* enqueueStart("late")
    const claimed = yield* claimInstance("late", { lockTimeout: timeout })
    yield* elapseLockTimeout
    yield* Effect.ignore(
      ack(claimed, { executionId: 1, events: [started()], metadata: named(), chunks: chunks("lost") })
    )
    assert.strictEqual((yield* read("late")).nextOffset, 0)
    yield* expect("i", ["a"])
  }),

  turns_without_a_claim_append: Effect.gen(function*() {
    yield* begins("first", { events: [started()], metadata: named(), chunks: chunks("a") })
    yield* expect("first", ["a"])
    yield* withActivity("i")
    const work = yield* claimActivity(2)
    yield* advances("i", [work], { events: [completion(3, 2)], chunks: chunks("b") })
    yield* expect("i", ["b"])
  }),

  an_activity_appends_while_its_lock_is_its_own: Effect.gen(function*() {
    const timeout = yield* lockTimeout()
    yield* withActivity("i")
    const work = yield* claimActivity(2, { lockTimeout: timeout })
    assert.strictEqual(yield* append(work, ["a", "b"]), "Done")
    assert.strictEqual(yield* append(work, ["x"], { lockToken: "1.x" }), "LockLost")
    assert.strictEqual(yield* append(work, ["x"], { instanceId: "other" }), "LockLost")
    yield* elapseLockTimeout
    // It has expired, but no other worker has taken over.
    assert.strictEqual(yield* append(work, ["c"], { number: 3 }), "Done")
    const later = yield* claimActivity(2)
    assert.strictEqual(yield* append(work, ["x"], { number: 4 }), "LockLost")
    assert.strictEqual(yield* append(later, ["d"], { writer: "1/2/1/2/y" }), "Done")
    yield* expect("i", ["a", "b", "c", "d"])
    const { chunks } = yield* read("i")
    assert.deepInclude(chunks[1]!.writer, { callId: 2, deliveryNumber: 1, deliveryId: "x", number: 2 })
    assert.deepInclude(chunks[3]!.writer, { callId: 2, deliveryNumber: 2, deliveryId: "y", number: 1 })
    yield* ackWork(later.lockToken)
    assert.strictEqual(yield* append(later, ["x"]), "LockLost")
    yield* expect("i", ["a", "b", "c", "d"])
  }),

  a_cancelled_activity_appends_nothing: Effect.gen(function*() {
    yield* withActivity("i", [2, 3])
    const first = yield* claimActivity(2)
    const second = yield* claimActivity(3)
    yield* turn("i", { cancelled: [{ instanceId: "i", executionId: 1, activityId: 2 }] })
    assert.strictEqual(yield* append(first, ["x"]), "LockLost")
    assert.strictEqual(yield* append(second, ["a"]), "Done")
    // An activity that a program has left behind.
    yield* complete("i")
    assert.strictEqual(yield* append(second, ["x"]), "LockLost")
    yield* expect("i", ["a"])
    assert.isTrue((yield* read("i")).hasEnded)
  }),

  a_refused_append_leaves_no_stream: Effect.gen(function*() {
    yield* withActivity("i")
    const work = yield* claimActivity(2)
    assert.strictEqual(yield* append(work, ["x"], { lockToken: "1.x" }), "LockLost")
    assert.deepStrictEqual(yield* (yield* Admin).listStreams("i"), [])
  }),

  a_repeated_append_stores_what_is_missing: Effect.gen(function*() {
    yield* withActivity("i")
    const work = yield* claimActivity(2)
    yield* append(work, ["a"])
    yield* append(work, ["b", "c"], { number: 2 })
    yield* append(work, ["b", "c"], { number: 2, isRepeat: true })
    yield* append(work, ["c", "d", "e"], { number: 3, isRepeat: true })
    yield* append(work, ["f"], { number: 6, isRepeat: true })
    yield* expect("i", ["a", "b", "c", "d", "e", "f"])
  }),

  a_repeated_append_stores_nothing_that_was_removed_since: Effect.gen(function*() {
    yield* withActivity("i")
    const work = yield* claimActivity(2)
    yield* append(work, ["a", "b", "c", "d"], { keepChunks: 2 })
    yield* append(work, ["a", "b", "c", "d"], { keepChunks: 2, isRepeat: true })
    yield* append(work, ["b", "c", "d", "e"], { keepChunks: 2, isRepeat: true, number: 2 })
    yield* expect("i", ["d", "e"], 3)
  }),

  appends_at_the_same_time_leave_no_gap: Effect.gen(function*() {
    const ids = [2, 3, 4, 5, 6]
    yield* withActivity("i", ids)
    const works = yield* Effect.forEach(ids, (id) => claimActivity(id))
    yield* parallel(
      works.flatMap((work) =>
        Array.from(
          { length: 10 },
          (_, i) => append(work, [`${work.item.id} ${i}`], { number: i + 1, stream: i % 2 === 0 ? "s" : "t" })
        )
      )
    )
    for (const stream of ["s", "t"]) {
      const { chunks, nextOffset } = yield* read("i", null, stream)
      assert.strictEqual(nextOffset, 25)
      assert.deepStrictEqual(chunks.map(({ offset }) => offset), Array.from({ length: 25 }, (_, i) => i))
      assert.strictEqual(new Set(chunks.map(({ chunk }) => chunk)).size, 25)
    }
  }),

  a_call_is_resumed: Effect.gen(function*() {
    const provider = yield* Provider
    const resume = (call: string) => provider.resumeChunks({ instanceId: "i", stream: "s", call })
    yield* withActivity("i", [2, 20])
    const work = yield* claimActivity(2)
    assert.deepStrictEqual(yield* resume("1/2/"), { count: 0, chunks: [] })
    yield* append(work, ["a", "b"])
    yield* append(yield* claimActivity(20), ["other"])
    yield* turn("i", { chunks: chunks("program") })
    yield* append(work, ["c"], { number: 3, writer: "1/2/1/2/y" })
    assert.deepStrictEqual(yield* resume("1/2/"), { count: 3, chunks: ["a", "b", "c"] })
    yield* append(work, ["d"], { writer: "1/2/2/1/z" })
    assert.deepStrictEqual(yield* resume("1/2/"), { count: 1, chunks: ["d"] })
    assert.deepStrictEqual(yield* resume("1/20/"), { count: 1, chunks: ["other"] })
    assert.deepStrictEqual(yield* resume("1/3/"), { count: 0, chunks: [] })
  }),

  the_oldest_chunks_make_room: Effect.gen(function*() {
    const few = { keepChunks: 3, keepBytes: 10 }
    yield* withActivity("i")
    const work = yield* claimActivity(2)
    yield* append(work, ["1", "2", "3", "4"], few)
    yield* expect("i", ["2", "3", "4"], 1)
    yield* append(work, ["5", "ä6789"], { ...few, number: 5 })
    yield* expect("i", ["4", "5", "ä6789"], 3)
    // 6 bytes are kept, and 9 are added.
    yield* append(work, ["123456789"], { ...few, number: 7 })
    yield* expect("i", ["123456789"], 6)
    yield* append(work, ["longer than all that is kept"], { ...few, number: 8 })
    yield* expect("i", ["longer than all that is kept"], 7)
    yield* turn("i", { chunks: [{ stream: "s", chunk: "x", ...few }] })
    yield* expect("i", ["x"], 8)
    assert.deepStrictEqual((yield* read("i", 7)).chunks, [])
    const [info] = yield* (yield* Admin).listStreams("i")
    assert.deepInclude(info, { name: "s", firstOffset: 8, nextOffset: 9, bytes: 1 })
  }),

  pages_have_bounded_bytes: Effect.gen(function*() {
    const text = "x".repeat(100_000)
    yield* create("i")
    yield* turn("i", {
      chunks: Array.from({ length: 7 }, () => ({ stream: "s", chunk: text, keepChunks: 100, keepBytes: 10_000_000 }))
    })
    for (const [from, expected] of [[null, [0, 1, 2]], [3, [3, 4, 5]], [6, [6]], [7, []]] as const) {
      assert.deepStrictEqual((yield* read("i", from)).chunks.map(({ offset }) => offset), [...expected])
    }
  }),

  a_reader_waits_for_chunks_and_for_the_end: Effect.gen(function*() {
    const provider = yield* Provider
    const next = (from: number | null) =>
      provider.readStream({ instanceId: "i", stream: "s", from, streamId: null, waits: true })
    const reader = yield* Effect.forkChild(Effect.all([next(null), next(0)], { concurrency: 2 }))
    yield* withActivity("i")
    const work = yield* claimActivity(2)
    yield* append(work, ["a", "b"])
    yield* append(work, ["c"], { number: 3 })
    const [read] = yield* parallel([Fiber.join(reader)])
    const [first, second] = read!
    assert.strictEqual(first.chunks[0]!.chunk, "a")
    assert.strictEqual(second.chunks[0]!.chunk, "a")
    const last = yield* Effect.forkChild(next(3))
    yield* complete("i")
    const [end] = yield* parallel([Fiber.join(last)])
    assert.deepInclude(end, { chunks: [], hasEnded: true, nextOffset: 3 })
  }),

  they_go_on_in_the_next_execution: Effect.gen(function*() {
    yield* create("i")
    yield* turn("i", { chunks: chunks("a") })
    yield* continueAsNew("i", 2)
    yield* turn("i", { executionId: 2, chunks: chunks("b") })
    yield* expect("i", ["a", "b"])
    assert.deepStrictEqual((yield* read("i")).chunks.map(({ writer }) => writer.executionId), [1, 2])
  }),

  they_are_deleted_with_their_instance: Effect.gen(function*() {
    const admin = yield* Admin
    for (const id of ["i", "j"]) {
      yield* create(id)
      yield* turn(id, { chunks: chunks("a", "b") })
    }
    const { streamId } = yield* read("i")
    yield* complete("i")
    yield* elapse(5)
    yield* admin.deleteInstance("i", { force: false })
    assert.deepInclude(yield* read("i"), { streamId: null, nextOffset: 0, isKnown: false, chunks: [] })
    yield* expect("j", ["a", "b"])
    yield* create("i")
    yield* turn("i", { chunks: chunks("c") })
    yield* expect("i", ["c"])
    assert.notStrictEqual((yield* read("i")).streamId, streamId)
  }),

  operators_list_and_read_them: Effect.gen(function*() {
    const admin = yield* Admin
    yield* create("i")
    yield* turn("i", { chunks: [...chunks("a", "b", "c"), { stream: "r", chunk: "r", ...kept }] })
    const [first, second, ...others] = yield* admin.listStreams("i")
    assert.deepInclude(first, { name: "r", firstOffset: 0, nextOffset: 1, bytes: 1 })
    assert.deepInclude(second, { name: "s", firstOffset: 0, nextOffset: 3, bytes: 3 })
    assert.deepStrictEqual(others, [])
    const texts = (selection: Parameters<typeof admin.readChunks>[2]) =>
      Effect.map(admin.readChunks("i", "s", selection), ({ chunks }) => chunks.map(({ chunk }) => chunk).join(""))
    assert.strictEqual(yield* texts({}), "abc")
    assert.strictEqual(yield* texts({ from: 1 }), "bc")
    assert.strictEqual(yield* texts({ last: 1 }), "c")
    assert.strictEqual(yield* texts({ last: 9 }), "abc")
    assert.deepInclude(yield* admin.readChunks("i", "none"), { chunks: [], nextOffset: 0 })
    assert.deepStrictEqual(yield* admin.listStreams("none"), [])
  }),

  any_text_is_kept: Effect.gen(function*() {
    const texts = [`""`, `"a\\u0000b"`, `"\\ud800"`, `"ü😀 \\" \\\\"`, "null", "[1,2]"]
    yield* withActivity("i")
    yield* append(yield* claimActivity(2), texts)
    yield* turn("i", { chunks: chunks(...texts) })
    yield* expect("i", [...texts, ...texts])
  })
})
