/**
 * Retries of parents that have interrupted their children.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import { Admin, FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Step = Activity.make("Step", { payload: Schema.String, error: Schema.String })
const Leaf = Orchestration.make("Leaf", { payload: Schema.String, error: Schema.String })
const Tree = Orchestration.make("Tree", { error: Schema.String })

const admin = Effect.flatMap(Admin.Admin, Effect.succeed).pipe(Effect.provide(FromDriver.layerAdmin))

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

/** What the world has seen: the keys of each step that was done. */
interface World {
  readonly done: Map<string, Set<string>>
  fails: boolean
}

const serving = (world: World, tree: Effect.Effect<void, string, Orchestration.Instance>, undo: Effect.Effect<void>) =>
  Runtime.layer({ orchestrations: [Leaf, Tree], activities: [Step] }).pipe(Layer.provide([
    Step.toLayer((what) =>
      Effect.flatMap(Activity.Call, ({ idempotencyKey }) => {
        if (what === "check" && world.fails) return Effect.fail("no")
        world.done.set(what, (world.done.get(what) ?? new Set()).add(idempotencyKey))
        return what.startsWith("undo") ? undo : Effect.void
      })
    ),
    Leaf.toLayer((what) =>
      what === "check"
        ? Step.execute("check")
        : Step.execute(what).pipe(
          Effect.andThen(Effect.sleep("10 seconds")),
          Effect.onInterrupt(() => Effect.ignore(Step.execute(`undo ${what}`)))
        )
    ),
    Tree.toLayer(() => tree)
  ]))

const start = (runtime: Parameters<typeof LocalProcess.start>[0]) =>
  LocalProcess.start(runtime, {
    runtime: { verifyReplay: true },
    provider: { longPolling: { aggressivePollInterval: "1 second" } }
  })

const seconds = (count: number) =>
  Effect.forEach(Array.from({ length: count }), () => TestClock.adjust("1 second"), { discard: true })

const keysOf = ({ done }: World) => Object.fromEntries([...done].map(([what, keys]) => [what, keys.size]))

const both = Effect.all([Leaf.execute("check"), Leaf.execute("work")], { concurrency: "unbounded", discard: true })

describe("Retry of a parent that has interrupted a child", () => {
  it.effect("goes back before the failure that made it do so, not before the child's end", () =>
    Effect.gen(function*() {
      const world: World = { done: new Map(), fails: true }
      const slow = Effect.andThen(Effect.sleep("2 seconds"), both)
      const { client } = yield* start(serving(world, slow, Effect.void))
      const { retry } = yield* admin
      yield* client.start(Tree, { instanceId: "a" })
      yield* seconds(8)
      assert.strictEqual((yield* client.status("a"))._tag, "Failed")
      world.fails = false
      const error = yield* Effect.flip(retry("a"))
      // The interrupted child has undone its step.
      assert.match(
        error.message,
        /its child a::sub::5 cannot be retried: it was interrupted .*\. Retry a from event 5 if nothing was undone$/
      )
      yield* retry("a", { from: 5 })
      yield* seconds(30)
      assert.strictEqual((yield* client.status("a"))._tag, "Completed")
      assert.deepStrictEqual(keysOf(world), { check: 1, work: 1, "undo work": 1 })
    }).pipe(inMemory))

  it.effect("lets its child finish a clean-up that a deadline has cut off", () =>
    Effect.gen(function*() {
      const world: World = { done: new Map(), fails: false }
      let isSlow = true
      const undo = Effect.suspend(() => isSlow ? Effect.sleep("1 hour") : Effect.void)
      const { client } = yield* start(serving(world, Leaf.execute("work"), undo))
      const { getInstanceInfo, retry } = yield* admin
      yield* client.start(Tree, { instanceId: "a" })
      yield* seconds(3)
      yield* client.interrupt("a", "not needed", { deadline: "5 seconds" })
      yield* seconds(10)
      assert.deepInclude(yield* client.status("a"), { _tag: "Cancelled", reason: "not needed (past its deadline)" })
      assert.strictEqual((yield* getInstanceInfo("a::sub::2")).status, "Cancelled")
      const error = yield* Effect.flip(retry("a"))
      const [, from] = /Retry a from event (\d+) to let its children finish their clean-up/.exec(error.message) ?? []
      isSlow = false
      const { instances } = yield* retry("a", { from: Number(from) })
      assert.deepStrictEqual(instances.map(({ instanceId }) => instanceId), ["a", "a::sub::2"])
      yield* seconds(10)
      assert.deepInclude(yield* client.status("a"), { _tag: "Cancelled", reason: "not needed" })
      assert.deepInclude(yield* client.status("a::sub::2"), { _tag: "Cancelled" })
      assert.deepStrictEqual(keysOf(world), { work: 1, "undo work": 1 })
    }).pipe(inMemory))
})
