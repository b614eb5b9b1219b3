import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Cli from "./cli.ts"
import * as Shop from "./shop.ts"

it.layer(Shop.layer, { excludeTestServices: true })("explain", (it) => {
  it.effect("without an id: running instances that wait for the same are in groups", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      yield* Shop.refresh
      const on = (args: string) => Cli.run(`${args} --url ${url}`)
      const json = (args: string) => Effect.map(on(`${args} --json`), ({ stdout }) => JSON.parse(stdout))
      const all = yield* json("explain")
      assert.deepInclude(all, { instances: 4, isMore: false })
      const [sleeping, parent] = all.groups
      assert.deepInclude(sleeping, { orchestration: "Delivery", cause: "Timer", reason: "sleeps", since: null })
      assert.lengthOf(sleeping.instanceIds, 3)
      assert.isAbove(Date.parse(sleeping.next), Date.now())
      assert.deepInclude(parent, { cause: "Child", instanceIds: ["order-4"], next: null })
      assert.isBelow(Date.parse(parent.since), Date.now())

      const some = yield* json("explain --name Delivery --limit 2")
      assert.deepInclude(some, { instances: 2, isMore: true })
      const failed = yield* on("explain --status failed")
      assert.match(failed.stdout, /^ +1 +Order +ended: .*card declined/m)
      assert.strictEqual((yield* on("explain --name Unknown")).stdout, "no instances\n")
      const both = yield* on("explain order-4 --name Order")
      assert.deepStrictEqual([both.exitCode, both.stdout], [2, ""])
      assert.include(both.stderr, "not both")
    }))

  it.effect("--json of a parent: its own id, and that of the child in the parts of the cause", () =>
    Effect.gen(function*() {
      const { url } = yield* Shop.Shop
      const { parts, ...one } = JSON.parse((yield* Cli.run(`explain order-4 --json --url ${url}`)).stdout)
      assert.deepInclude(one, { instanceId: "order-4", status: "Running", cause: "Child" })
      assert.deepInclude(parts, { instanceId: "table-return", name: "Delivery", isInterrupted: false })
    }))
})
