import { assert, it } from "@effect/vitest"
import { Activity, Client, Limits, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { Task } from "duroxide-prisma/tasks"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Docs from "../utils/docs.ts"

const Charge = Activity.make("Charge", {
  payload: { tenant: Schema.String, cents: Schema.Int },
  limitKey: ({ tenant }) => tenant
})

const ChargeLimits = Limits.layer(Limits.of(Charge, {
  total: { rate: { count: 100, per: "1 minute", burst: 10 } },
  eachKey: { concurrency: 3 },
  keys: { "tenant-7": { concurrency: 10 } }
}))

const Resize = Task.make("Resize", {
  payload: { tenant: Schema.String, image: Schema.String },
  limitKey: ({ tenant }) => tenant
})

const ResizeLimits = Limits.layer(Limits.of(Resize, { total: { concurrency: 20 }, eachKey: { concurrency: 5 } }))

const Import = Orchestration.make("Import", {
  payload: { tenant: Schema.String, file: Schema.String },
  limitKey: ({ tenant }) => tenant
})

const ImportLimits = Limits.layer(Limits.of(Import, {
  total: { concurrency: 50 },
  eachKey: { concurrency: 2 }
}))

const raise = Effect.gen(function*() {
  const { getLimit, setLimit } = yield* Admin.Admin
  yield* setLimit("activity", "Charge", { keys: { "tenant-7": { concurrency: 20 } } })
  return yield* getLimit("activity", "Charge", "tenant-7")
})

const Bill = Orchestration.make("Bill", { payload: { tenant: Schema.String, count: Schema.Int } })

const BillLive = Bill.toLayer(({ count, tenant }) =>
  Effect.forEach(
    Array.from({ length: count }, (_, cents) => cents),
    (cents) => Charge.execute({ tenant, cents }),
    { concurrency: "unbounded", discard: true }
  )
)

/** Handlers that take a minute, and what they saw. */
const observed = () => {
  let running = 0
  const seen = { most: 0, begins: Array<{ readonly tenant: string; readonly atMs: number }>() }
  const ChargeLive = Charge.toLayer(Effect.fn(function*({ tenant }) {
    seen.begins.push({ tenant, atMs: yield* Clock.currentTimeMillis })
    seen.most = Math.max(seen.most, ++running)
    yield* Effect.ensuring(Effect.sleep("1 minute"), Effect.sync(() => running--))
  }))
  return { seen, ChargeLive }
}

it("docs/limits.md: its examples are those tested here", () => {
  const here = Docs.withoutIndentation(Docs.read("test/docs/limits.test.ts"))
  const examples = Docs.blocks(Docs.read("docs/limits.md"), "ts")
  assert.lengthOf(examples, 4)
  for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
})

it.effect("docs/limits.md: limits of a task are set by the program", () =>
  Effect.gen(function*() {
    const { getLimits } = yield* Admin.Admin
    const [limit] = yield* getLimits
    assert.deepInclude(limit, { kind: "task", name: "Resize", total: { concurrency: 20, rate: null } })
  }).pipe(Effect.provide(TestRuntime.layer(ResizeLimits))))

const layerOf = (ChargeLive: ReturnType<typeof observed>["ChargeLive"], limits: typeof ChargeLimits) =>
  TestRuntime.layer(
    Layer.merge(
      Runtime.layer({ orchestrations: [Bill], activities: [Charge] }).pipe(
        Layer.provide([BillLive, ChargeLive]),
        Layer.provide(RuntimeConfig.layer({ workerConcurrency: 50 }))
      ),
      limits
    )
  )

it.effect("docs/limits.md: three of each tenant run at once, ten of one, and a raised limit counts at once", () => {
  const { ChargeLive, seen } = observed()
  return Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.start(Bill, { instanceId: "a", payload: { tenant: "tenant-1", count: 5 } })
    yield* TestRuntime.advance("10 seconds")
    assert.strictEqual(seen.most, 3)
    yield* client.start(Bill, { instanceId: "b", payload: { tenant: "tenant-7", count: 30 } })
    yield* TestRuntime.advance("30 seconds")
    assert.strictEqual(seen.most, 13)
    const limit = yield* raise
    assert.deepStrictEqual(limit!.keys.map(({ inUse, key, waiting }) => [key, inUse, waiting]), [["tenant-7", 10, 20]])
    // By then more tokens of the rate are back.
    yield* TestRuntime.advance("15 seconds")
    assert.strictEqual(seen.most, 23)
    yield* client.wait(Bill, "b")
    yield* client.wait(Bill, "a")
  }).pipe(Effect.provide(layerOf(ChargeLive, ChargeLimits)))
})

it.effect("docs/limits.md: a tenant with much work delays another one's first call by no more than one call", () => {
  const { ChargeLive, seen } = observed()
  const limits = Limits.layer(Limits.of(Charge, { total: { concurrency: 1 } }))
  return Effect.gen(function*() {
    const client = yield* Client.Client
    const big = yield* Effect.forkChild(
      client.execute(Bill, { instanceId: "big", payload: { tenant: "big", count: 20 } })
    )
    yield* TestRuntime.advance("90 seconds")
    yield* client.start(Bill, { instanceId: "small", payload: { tenant: "small", count: 1 } })
    yield* TestRuntime.advance("1 second")
    const { explain } = yield* Admin.Admin
    const { sentence } = yield* explain("small")
    assert.include(
      sentence,
      "small waits for activity Charge, which waits for a slot of limit Charge (1 at once): 1 in use"
    )
    yield* client.wait(Bill, "small")
    assert.strictEqual(seen.begins.findIndex(({ tenant }) => tenant === "small"), 2)
    yield* Fiber.join(big)
    assert.strictEqual(seen.most, 1)
    assert.lengthOf(seen.begins, 21)
  }).pipe(Effect.provide(layerOf(ChargeLive, limits)))
})

it.effect("docs/limits.md: a crash needs no new token, and its slot is not lost", () => {
  const { ChargeLive, seen } = observed()
  const limits = Limits.layer(
    Limits.of(Charge, { total: { concurrency: 2, rate: { count: 1, per: "10 minutes", burst: 2 } } })
  )
  return Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.start(Bill, { instanceId: "a", payload: { tenant: "a", count: 2 } })
    yield* TestRuntime.advance("30 seconds")
    yield* TestRuntime.crash
    yield* TestRuntime.advance("5 minutes")
    yield* client.wait(Bill, "a")
    assert.lengthOf(seen.begins, 4)
    const { getLimit } = yield* Admin.Admin
    assert.deepInclude(yield* getLimit("activity", "Charge"), { inUse: 0, waiting: 0 })
  }).pipe(Effect.provide(layerOf(ChargeLive, limits)))
})

it.effect("docs/limits.md: two instances of each tenant run at once, and one that waits is interrupted at once", () => {
  const begun: Array<string> = []
  const ImportLive = Import.toLayer(Effect.fn(function*({ file }) {
    begun.push(file)
    yield* Effect.sleep("1 minute")
  }))
  return Effect.gen(function*() {
    const client = yield* Client.Client
    const { explain, getLimit } = yield* Admin.Admin
    for (const file of ["a", "b", "c", "d"]) {
      yield* client.start(Import, { instanceId: `import-${file}`, payload: { tenant: "tenant-7", file } })
    }
    yield* TestRuntime.advance("10 seconds")
    assert.deepStrictEqual(begun, ["a", "b"])
    const { cause, sentence } = yield* explain("import-d")
    assert.strictEqual(cause._tag, "Limited")
    assert.include(
      sentence,
      "import-d waits for a slot of limit Import/tenant-7 (2 at once): 2 in use, 1 before it, for 10 s"
    )
    yield* client.interrupt("import-d", "no longer needed")
    assert.isTrue(Exit.isFailure(yield* Effect.exit(client.wait(Import, "import-d"))))
    // A crash leaks no slot.
    yield* TestRuntime.crash
    yield* client.wait(Import, "import-c")
    assert.deepStrictEqual([...new Set(begun)].filter((file) => file !== "d"), ["a", "b", "c"])
    assert.deepInclude(yield* getLimit("orchestration", "Import"), { inUse: 0, waiting: 0 })
  }).pipe(Effect.provide(TestRuntime.layer(Layer.merge(
    Runtime.layer({ orchestrations: [Import] }).pipe(Layer.provide(ImportLive)),
    ImportLimits
  ))))
})

it.effect("docs/limits.md: children count, and begin when others end", () => {
  const Parent = Orchestration.make("Parent")
  const ParentLive = Parent.toLayer(() =>
    Effect.forEach(["a", "b", "c"], (file) => Import.execute({ tenant: "t", file }), {
      concurrency: "unbounded",
      discard: true
    })
  )
  let running = 0
  let most = 0
  const Observe = Activity.make("Observe")
  const ImportLive = Import.toLayer(() => Observe.execute())
  const ObserveLive = Observe.toLayer(() =>
    Effect.suspend(() => {
      most = Math.max(most, ++running)
      return Effect.ensuring(Effect.sleep("1 minute"), Effect.sync(() => running--))
    })
  )
  return Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.execute(Parent, { instanceId: "parent" })
    assert.strictEqual(most, 2)
  }).pipe(Effect.provide(TestRuntime.layer(Layer.merge(
    Runtime.layer({ orchestrations: [Parent, Import], activities: [Observe] }).pipe(
      Layer.provide([ParentLive, ImportLive, ObserveLive])
    ),
    ImportLimits
  ))))
})
