/**
 * The record of what operators did.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { Admin } from "../../provider/Admin.ts"
import type { ActionRecord } from "../../provider/AdminDriver.ts"
import { elapse, fails, topic } from "./harness.ts"

const retry: ActionRecord = { actor: "Ada", action: "retry", target: "i", details: "the bank is up", outcome: "done" }

const record = (action: Partial<ActionRecord> = {}) =>
  Effect.flatMap(Admin, (admin) => admin.recordAction({ ...retry, ...action }))

const list = (options?: { readonly cursor?: string; readonly limit?: number }) =>
  Effect.flatMap(Admin, (admin) => admin.listActions(options))

export const operatorActions = topic("operatorActions", {
  actions_are_listed_the_newest_first: Effect.gen(function*() {
    assert.deepStrictEqual(yield* list(), { actions: [], next: null })
    yield* record()
    yield* elapse(20)
    yield* record({ actor: "", action: "delete", target: "", details: "", outcome: "refused" })
    yield* record({ action: "interrupt", outcome: "failed" })
    const { actions, next } = yield* list()
    assert.isNull(next)
    assert.deepStrictEqual(
      actions.map(({ atMs: _atMs, id: _id, ...action }) => action),
      [
        { ...retry, action: "interrupt", outcome: "failed" },
        { actor: "", action: "delete", target: "", details: "", outcome: "refused" },
        retry
      ]
    )
    assert.lengthOf(new Set(actions.map(({ id }) => id)), 3)
    const [last, second, first] = actions.map(({ atMs }) => atMs)
    assert.isAbove(second!, first!)
    assert.isAtLeast(last!, second!)
  }),

  actions_are_listed_in_pages: Effect.gen(function*() {
    for (const target of ["a", "b", "c", "d", "e"]) yield* record({ target })
    const targets: Array<string> = []
    let cursor: string | null = null
    do {
      const page: Effect.Success<ReturnType<typeof list>> = yield* list({
        limit: 2,
        ...(cursor !== null && { cursor })
      })
      targets.push(page.actions.map(({ target }) => target).join(""))
      // Later ones are not on the pages that follow.
      yield* record({ target: "later" })
      cursor = page.next
    } while (cursor !== null)
    assert.deepStrictEqual(targets, ["ed", "cb", "a"])
    assert.strictEqual((yield* list({ limit: 8 })).next, null)
  }),

  texts_of_actions_are_cut: Effect.gen(function*() {
    yield* record({
      actor: `${"a".repeat(255)}😀`,
      action: "b".repeat(65),
      target: "c".repeat(2001),
      details: `${"d".repeat(1998)}😀e`
    })
    const { actions: [action] } = yield* list()
    assert.strictEqual(action!.actor, "a".repeat(255))
    assert.strictEqual(action!.action, "b".repeat(64))
    assert.strictEqual(action!.target, "c".repeat(2000))
    assert.strictEqual(action!.details, `${"d".repeat(1998)}😀`)
  }),

  bad_actions_are_refused: Effect.gen(function*() {
    for (const field of ["actor", "action", "target", "details"] as const) {
      yield* fails(record({ [field]: "a\0" }), /NUL/)
      yield* fails(record({ [field]: "\ud800" }), /surrogate/)
    }
    yield* fails(record({ outcome: "unknown" as never }), /must be one of done, refused, failed/)
    for (const cursor of ["", "x", "-1", "1.5", `${2n ** 63n}`]) yield* fails(list({ cursor }), /cursor/)
    for (const limit of [0, 1001, 1.5]) yield* fails(list({ limit }), /limit/)
    assert.deepStrictEqual((yield* list({ cursor: `${2n ** 63n - 1n}` })).actions, [])
  })
})
