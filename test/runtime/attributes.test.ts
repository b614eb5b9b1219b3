import { assert, describe, it } from "@effect/vitest"
import { Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as DateTime from "effect/DateTime"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"

const Paid = Signal.make("Paid", { payload: Schema.Int })
const Order = Orchestration.make("Order", { payload: Schema.String, success: Schema.String })
const Child = Orchestration.make("Child")
const Other = Orchestration.make("Other")

type Program = (payload: string) => Effect.Effect<string, never, Orchestration.Instance>

const runtime = (program: Program) =>
  Runtime.layer({ orchestrations: [Order, Child, Other] }).pipe(Layer.provide([
    Order.toLayer(program),
    Child.toLayer(() => Effect.asVoid(Paid.wait)),
    Other.toLayer(() => Effect.asVoid(Paid.wait))
  ]))

const on = (program: Program) => Effect.provide([TestRuntime.layer(runtime(program)), Logger.layer([])])

const attributesOf = (instanceId: string) =>
  Effect.flatMap(
    Admin.Admin,
    ({ getInstanceInfo }) => Effect.map(getInstanceInfo(instanceId), ({ attributes }) => attributes)
  )

const found = (attributes: NonNullable<Admin.InstanceSearch["attributes"]>) =>
  Effect.flatMap(
    Admin.Admin,
    ({ list }) =>
      Effect.map(list({ attributes, orderBy: "id" }), ({ instances }) => instances.map(({ instanceId }) => instanceId))
  )

/** Sets attributes, waits for a payment, and sets others. */
const shop: Program = Effect.fnUntraced(function*(customer) {
  yield* Orchestration.setAttributes({ customer, due: DateTime.add(yield* DateTime.now, { days: 1 }), coupon: "x" })
  const amount = yield* Paid.wait
  yield* Orchestration.setAttributes({ amount, coupon: null })
  yield* Paid.wait
  return "done"
})

describe("attributes", () => {
  it.effect("of a start and of a program are found, and are the same after a replay", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const due = DateTime.add(yield* DateTime.now, { days: 1 })
      yield* client.start(Order, { instanceId: "o", payload: "c1", attributes: { kind: "gift", customer: "c0" } })
      yield* TestRuntime.settle
      assert.deepStrictEqual(yield* attributesOf("o"), { coupon: "x", customer: "c1", due, kind: "gift" })
      assert.deepStrictEqual(yield* found({ customer: "c1", kind: "gift", due }), ["o"])
      assert.deepStrictEqual(yield* found({ customer: "c0" }), [])
      // The program is lost, and its history replayed.
      yield* TestRuntime.restart
      yield* client.send(Paid, "o", 12)
      yield* TestRuntime.settle
      const expected = { amount: 12, customer: "c1", due, kind: "gift" }
      assert.deepStrictEqual(yield* attributesOf("o"), expected)
      yield* TestRuntime.restart
      yield* client.send(Paid, "o", 0)
      assert.strictEqual(yield* client.wait(Order, "o"), "done")
      assert.deepStrictEqual(yield* attributesOf("o"), expected)
      assert.deepStrictEqual(yield* found({ amount: { from: 12 } }), ["o"])
    }).pipe(on(shop)))

  it.effect("fail the instance if the code sets others than are recorded; the error shows no value", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Order, { instanceId: "o", payload: "c1" })
      yield* TestRuntime.settle
      yield* TestRuntime.deploy(runtime(Effect.fnUntraced(function*(customer) {
        yield* Orchestration.setAttributes({ customer: `other ${customer}` })
        yield* Paid.wait
        return ""
      })))
      yield* client.send(Paid, "o", 12)
      const { message } = yield* Effect.flip(client.wait(Order, "o"))
      assert.match(message, /history has change of attributes, the code asks for the same with another value/)
      assert.notMatch(message, /c1/)
    }).pipe(on(shop)))

  it.effect("are inherited by the next execution, and counted over all of them", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Order, { instanceId: "o", payload: "1", attributes: { first: 1 } })
      yield* client.send(Paid, "o", 0)
      assert.strictEqual(yield* client.wait(Order, "o"), "in 3")
      const expected = { first: 1, last: "2", second: "2" }
      assert.deepStrictEqual(yield* attributesOf("o"), expected)
      const events = yield* Effect.flatMap(Admin.Admin, ({ readHistory }) => readHistory("o"))
      assert.deepInclude(events[0], { _tag: "OrchestrationStarted", attributes: expected })
    }).pipe(on(Effect.fnUntraced(function*(round) {
      if (round === "3") return `in ${(yield* Orchestration.Instance).executionId}`
      yield* Orchestration.setAttributes({ last: round, ...(round === "2" ? { second: "2" } : {}) })
      yield* Effect.sleep("1 minute")
      return yield* Order.continueAsNew(String(Number(round) + 1))
    }))))

  it.effect("are given to children and detached instances", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Order, { instanceId: "o", payload: "c1" })
      yield* TestRuntime.settle
      assert.deepStrictEqual(yield* found({ customer: "c1" }), ["child", "other"])
      assert.deepStrictEqual(yield* attributesOf("o"), {})
      yield* client.send(Paid, "child", 1)
      assert.strictEqual(yield* client.wait(Order, "o"), "")
    }).pipe(on(Effect.fnUntraced(function*(customer) {
      yield* Other.startDetached({ instanceId: "other", attributes: { customer } })
      yield* Child.executeWithId({ instanceId: "child", attributes: { customer, of: "o" } })
      return ""
    }))))

  it.effect("are refused by a start that gives bad ones, which starts nothing", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const bad: ReadonlyArray<readonly [attributes: any, problem: RegExp]> = [
        [{ "a b": 1 }, /the name "a b" must have 1 to 64 of/],
        [{ amount: Infinity }, /the number of amount is Infinity/],
        [{ customer: null }, /the value of customer must be a text, a number, a Date or a DateTime/],
        [{ customer: "\ud800" }, /the text of customer cannot be stored: .* surrogate/],
        [
          Object.fromEntries(Array.from({ length: 21 }, (_, i) => [`a${i}`, i])),
          /at most 20 attributes, and this one would have 21/
        ]
      ]
      for (const [attributes, problem] of bad) {
        const { reason } = yield* Effect.flip(
          client.start(Order, { instanceId: "o", payload: "", attributes }) as Effect.Effect<void, any>
        )
        assert.strictEqual(reason._tag, "InvalidInput")
        assert.strictEqual(reason.field, "attributes")
        assert.match(reason.problem, problem)
      }
      assert.strictEqual((yield* client.status("o"))._tag, "NotFound")
    }).pipe(on(shop)))

  it.effect("that a program may not set are a defect of it", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const failure = (payload: string) =>
        Effect.gen(function*() {
          yield* client.start(Order, { instanceId: payload, payload, attributes: { a: 1, b: 2 } })
          return (yield* Effect.flip(client.wait(Order, payload))).message
        })
      assert.include(yield* failure("many"), "attributes are refused: an instance has at most 20")
      assert.include(yield* failure("odd"), "begin with a letter")
      assert.include(yield* failure("key"), "it is reserved, use Orchestration.setAttributes")
      assert.deepStrictEqual(yield* attributesOf("many"), { a: 1, b: 2 })
    }).pipe(on(Effect.fnUntraced(function*(what) {
      if (what === "many") {
        yield* Orchestration.setAttributes(Object.fromEntries(Array.from({ length: 19 }, (_, i) => [`n${i}`, i])))
      }
      if (what === "odd") yield* Orchestration.setAttributes({ "": 1 })
      if (what === "key") yield* KeyValue.make("duroxide-prisma/attributes", Schema.String).set("")
      return ""
    }))))

  it.effect("are no values: they survive the removal of all", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Order, { instanceId: "o", payload: "" })
      assert.strictEqual(yield* client.wait(Order, "o"), "k/")
      assert.deepStrictEqual(yield* attributesOf("o"), { customer: "c1" })
    }).pipe(on(Effect.fnUntraced(function*() {
      yield* Orchestration.setAttributes({ customer: "c1" })
      yield* KeyValue.make("k", Schema.Int).set(1)
      const before = [...(yield* KeyValue.getAll).keys()].join()
      yield* KeyValue.clearAll
      return `${before}/${[...(yield* KeyValue.getAll).keys()].join()}`
    }))))
})
