import { assert, describe, it } from "@effect/vitest"
import { ProviderError } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import * as Stream from "effect/Stream"
import * as Bulk from "../../src/operating/bulk.ts"
import { Refusal } from "../../src/operating/Refusal.ts"
import { ConnectionLost, InstanceNotFound } from "../../src/provider/ProviderError.ts"

const lost = new ProviderError.ProviderError({
  operation: "retry",
  reason: new ConnectionLost({ problem: "gone" })
})

describe("Bulk.each", () => {
  it.effect("takes parents before their children, each item once", () =>
    Effect.gen(function*() {
      const taken: Array<string> = []
      const tally = yield* Bulk.each({
        items: Stream.make(
          { id: "grandchild", parentId: "child" },
          { id: "child", parentId: "root" },
          { id: "root", parentId: null },
          { id: "other", parentId: "elsewhere" }
        ),
        act: (id) => Effect.sync(() => taken.push(id))
      })
      assert.deepStrictEqual(taken, ["root", "other", "child", "grandchild"])
      assert.deepInclude(tally, { done: 4, open: 0, refusals: 0 })
      assert.deepStrictEqual(yield* Stream.runCollect(Bulk.named(["a", "b", "a"])), [
        { id: "a", parentId: null },
        { id: "b", parentId: null }
      ])
    }))

  it.effect("counts what is about one item, and continues", () =>
    Effect.gen(function*() {
      const seen: Array<number> = []
      const tally = yield* Bulk.each({
        items: Bulk.named(["a", "b", "c", "d"]),
        act: (id): Effect.Effect<void, Refusal | ProviderError.ProviderError> =>
          id === "b"
            ? Effect.fail(new Refusal({ code: "InstanceEnded", message: "instance b has ended: Completed" }))
            : id === "c"
            ? Effect.fail(
              new ProviderError.ProviderError({
                operation: "retry",
                reason: new InstanceNotFound({ instanceId: id })
              })
            )
            : Effect.void,
        onProgress: ({ done, refusals }) => Effect.sync(() => seen.push(done + refusals))
      })
      assert.deepInclude(tally, { done: 2, open: 0, refusals: 2, ids: ["a", "d"] })
      assert.deepStrictEqual(tally.refused.map(({ code, id }) => [id, code]), [
        ["b", "InstanceEnded"],
        ["c", "InstanceNotFound"]
      ])
      assert.deepStrictEqual(seen.sort((a, b) => a - b), [1, 2, 3, 4])
    }))

  it.effect("stops at what every item would meet, and says how far it came", () =>
    Effect.gen(function*() {
      let tally: Bulk.Tally | undefined
      const error = yield* Effect.flip(Bulk.each({
        items: Bulk.named(["a", "b"]),
        act: (id) => id === "a" ? Effect.void : Effect.fail(lost),
        onStart: (started) => void (tally = started)
      }))
      assert.strictEqual(error, lost)
      assert.deepInclude(tally, { done: 1, open: 1, refusals: 0 })
    }))

  it.effect("says how far it came when it is interrupted", () =>
    Effect.gen(function*() {
      let tally: Bulk.Tally | undefined
      const begun = yield* Latch.make()
      const fiber = yield* Effect.forkChild(Bulk.each({
        items: Bulk.named(["a", "b"]),
        act: (id) => id === "a" ? Effect.void : Effect.andThen(begun.open, Effect.never),
        onStart: (started) => void (tally = started)
      }))
      yield* begun.await
      yield* Fiber.interrupt(fiber)
      assert.deepInclude(tally, { done: 1, open: 1 })
    }))
})
