import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { FromDriver, MemoryDriver, ProviderDriver } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "./utils/localProcess.ts"

const Go = Signal.make("Go")

/** Returns the id it runs under. */
const Order = Orchestration.make("Order", {
  payload: { id: Schema.String },
  success: Schema.String,
  instanceId: ({ id }) => `order-${id}`
})

/** Waits for `Go`, and returns the ids of its three children. */
const Batch = Orchestration.make("Batch", { success: Schema.Array(Schema.String) })

const idOfThis = Effect.map(Orchestration.Instance, ({ instanceId }) => instanceId)

const runtime = Runtime.layer({ orchestrations: [Batch, Order] }).pipe(
  Layer.provide([
    Order.toLayer(() => idOfThis),
    Batch.toLayer(Effect.fn(function*() {
      yield* Go.wait
      yield* Order.startDetached({ payload: { id: "detached" } })
      return [
        yield* Order.execute({ id: "a" }),
        yield* Order.executeWithId({ payload: { id: "b" } }),
        yield* Order.executeWithId({ instanceId: "mine", payload: { id: "c" } })
      ]
    }))
  ])
)

const scenario = <A, E>(test: (client: Client.Client["Service"]) => Effect.Effect<A, E, TestRuntime.TestRuntime>) =>
  Effect.flatMap(Client.Client, test).pipe(Effect.provide(TestRuntime.layer(runtime)))

describe("a timeout", () => {
  for (const timeout of [-1, Number.NaN, "30 secs" as "30 seconds"]) {
    it.effect(`of ${timeout} is refused`, () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        for (
          const error of [
            yield* Effect.flip(client.wait(Order, "x", { timeout })),
            yield* Effect.flip(client.waitForStatus("x", { timeout }))
          ]
        ) {
          assert(error._tag === "ProviderError" && error.reason._tag === "InvalidInput", error._tag)
          assert.strictEqual(error.reason.field, "timeout")
        }
      }).pipe(Effect.provide(Client.layer.pipe(Layer.provide(FromDriver.layer()), Layer.provide(MemoryDriver.layer)))))
  }
})

describe("a definition with instanceId:", () => {
  it.effect("derives the id of a start without one", () =>
    scenario(Effect.fn(function*(client) {
      assert.strictEqual(yield* client.execute(Order, { payload: { id: "1" } }), "order-1")
      yield* client.start(Order, { payload: { id: "2" } })
      assert.strictEqual(yield* client.wait(Order, Order.instanceId({ id: "2" })), "order-2")
    })))

  it.effect("uses the id of a start that has one", () =>
    scenario(Effect.fn(function*(client) {
      assert.strictEqual(yield* client.execute(Order, { instanceId: "mine", payload: { id: "1" } }), "mine")
      assert.strictEqual((yield* client.status("order-1"))._tag, "NotFound")
    })))

  it.effect("makes a second start with the same payload fail because the id is taken", () =>
    scenario(Effect.fn(function*(client) {
      yield* client.start(Order, { payload: { id: "1" } })
      const error = yield* Effect.flip(client.start(Order, { payload: { id: "1" } }))
      assert.instanceOf(error, Client.InstanceAlreadyExists)
      yield* client.start(Order, { payload: { id: "1" }, ifExists: "ignore" })
    })))

  it.effect("checks the derived id, after the payload", () =>
    scenario(Effect.fn(function*(client) {
      const start = (id: unknown) => Effect.flip(client.start(Order, { payload: { id: id as string } }))
      for (const id of ["x".repeat(2000), "a::sub::1", "\0"]) {
        const error = yield* start(id)
        assert(error._tag === "ProviderError" && error.reason._tag === "InvalidInput", error._tag)
        assert.strictEqual(error.reason.field, "instanceId")
      }
      assert.strictEqual((yield* start(7))._tag, "PayloadMismatch")
    })))

  it.effect("derives ids of detached starts and of executeWithId, not of plain execute", () =>
    scenario(Effect.fn(function*(client) {
      yield* client.start(Batch, { instanceId: "batch" })
      yield* client.send(Go, "batch")
      const [child, ...named] = yield* client.wait(Batch, "batch")
      assert.match(child!, /^batch::sub::/)
      assert.deepStrictEqual(named, ["order-b", "mine"])
      assert.strictEqual(yield* client.wait(Order, "order-detached"), "order-detached")
    })))
})

describe("a definition without instanceId:", () => {
  it.effect("refuses an untyped start without an id", () =>
    scenario(Effect.fn(function*(client) {
      const error = yield* Effect.flip(client.start(Batch, {} as { instanceId: string }))
      assert(error._tag === "ProviderError" && error.reason._tag === "InvalidInput", error._tag)
      assert.strictEqual(error.reason.field, "instanceId")
    })))
})

describe("Client.wait with a timeout that is over at once:", () => {
  it.effect("looks once, however long the store takes", () =>
    Effect.gen(function*() {
      const driver = yield* ProviderDriver.ProviderDriver
      const slow = LocalProcess.intercept(driver, (call) => Effect.delay(call, "20 millis"))
      const slowly = Effect.flatMap(Client.Client, (client) => client.wait(Order, "order-1", { timeout: 0 })).pipe(
        Effect.provide(Client.layer.pipe(
          Layer.provide(FromDriver.layer()),
          Layer.provide(Layer.succeed(ProviderDriver.ProviderDriver, slow))
        ))
      )
      const { client } = yield* LocalProcess.start(runtime)
      const started = yield* Effect.forkChild(client.execute(Order, { payload: { id: "1" } }))
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(started), "order-1")
      const waiting = yield* Effect.forkChild(slowly)
      yield* TestClock.adjust("1 second")
      assert.strictEqual(yield* Fiber.join(waiting), "order-1")
    }).pipe(Effect.scoped, Effect.provide(MemoryDriver.layer)))

  it.effect("returns the result of an instance that has ended", () =>
    scenario(Effect.fn(function*(client) {
      yield* client.execute(Order, { payload: { id: "1" } })
      assert.strictEqual(yield* client.wait(Order, "order-1", { timeout: 0 }), "order-1")
      const again = { payload: { id: "1" }, ifExists: "ignore", timeout: 0 } as const
      assert.strictEqual(yield* client.execute(Order, again), "order-1")
    })))

  it.effect("fails for an instance that runs, and for an unknown id, without a claim about either", () =>
    scenario(Effect.fn(function*(client) {
      yield* client.start(Batch, { instanceId: "batch" })
      for (const id of ["batch", "unknown"]) {
        const error = yield* Effect.flip(client.wait(Batch, id, { timeout: 0 }))
        assert.instanceOf(error, Client.WaitTimeout)
        assert.include(error.message, "if it was started, it continues")
      }
    })))
})
