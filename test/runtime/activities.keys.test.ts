import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { Admin, Provider } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"

/** A payment service: it charges once for each key, and records its requests. */
class Payments {
  readonly charged = new Set<string>()
  readonly asked: Array<{ readonly key: string; readonly tryNumber: number; readonly deliveryNumber: number }> = []

  get keys() {
    return new Set(this.asked.map(({ key }) => key))
  }
  /** Try and delivery of each request, in order. */
  get numbers() {
    return this.asked.map(({ deliveryNumber, tryNumber }) => `${tryNumber}.${deliveryNumber}`)
  }
}
class PaymentsOf extends Context.Service<PaymentsOf, Payments>()("PaymentsOf") {}

const Charge = Activity.make("Charge", {
  payload: { cents: Schema.Int },
  success: Schema.Int,
  error: Schema.String
})
const Checkout = Orchestration.make("Checkout", { success: Schema.Unknown, error: Schema.Unknown })

const order = { cents: 4200 }

/** Charges, then behaves as the test wants for this request, counted from 1. */
const app = (
  program: Effect.Effect<unknown, unknown, Orchestration.Instance>,
  then: (request: number) => Effect.Effect<void, string>
) =>
  Effect.provide(
    TestRuntime.layer(
      Runtime.layer({ orchestrations: [Checkout], activities: [Charge] }).pipe(Layer.provide([
        Checkout.toLayer(() => program),
        Charge.toLayer(Effect.fnUntraced(function*() {
          const { deliveryNumber, idempotencyKey, tryNumber } = yield* Activity.Call
          const payments = yield* PaymentsOf
          payments.charged.add(idempotencyKey)
          payments.asked.push({ key: idempotencyKey, tryNumber, deliveryNumber })
          yield* then(payments.asked.length)
          return payments.asked.length
        }))
      ]))
    ).pipe(Layer.provideMerge(Layer.sync(PaymentsOf, () => new Payments())))
  )

const start = Effect.flatMap(
  Client.Client,
  (client) => client.start(Checkout, { instanceId: "order-1" })
)
const wait = Effect.flatMap(Client.Client, (client) => client.wait(Checkout, "order-1"))
const silent = Effect.provide(Logger.layer([]))

const twoFailures = (request: number) => request < 3 ? Effect.fail("line is busy") : Effect.void

describe("Activity.Call.idempotencyKey", () => {
  it.effect("is the same for all tries of the retry option, so the charge happens once", () =>
    Effect.gen(function*() {
      yield* start
      assert.strictEqual(yield* wait, 3)
      const payments = yield* PaymentsOf
      assert.deepStrictEqual(payments.numbers, ["1.1", "2.1", "3.1"])
      assert.strictEqual(payments.charged.size, 1)
    }).pipe(app(Charge.with({ retry: { times: 5 } }).execute(order), twoFailures)))

  it.effect("survives a death, a timeout, a restart between tries, and a crash in the middle of one", () =>
    Effect.gen(function*() {
      yield* start
      const payments = yield* PaymentsOf
      // The first try dies. The second one takes too long, also in a new process, which crashes in the third.
      yield* TestRuntime.advance("11 minutes")
      assert.deepStrictEqual(payments.numbers, ["1.1", "2.1"])
      yield* TestRuntime.restart
      yield* TestRuntime.advance("21 minutes")
      assert.deepStrictEqual(payments.numbers, ["1.1", "2.1", "2.1", "3.1"])
      yield* TestRuntime.crash
      assert.strictEqual(yield* wait, 5)
      assert.deepStrictEqual(payments.numbers, ["1.1", "2.1", "2.1", "3.1", "3.2"])
      assert.strictEqual(payments.charged.size, 1)
    }).pipe(
      app(
        Charge.with({ timeout: "30 minutes", retry: { times: 5 } }).execute(order),
        (request) =>
          request === 1
            ? Effect.die(new Error("out of memory"))
            : request === 5
            ? Effect.void
            : Effect.sleep("1 hour")
      ),
      silent
    ))

  it.effect("differs for every call: side by side, one after another, with Effect.retry, in the next execution", () =>
    Effect.gen(function*() {
      yield* start
      yield* wait
      const payments = yield* PaymentsOf
      assert.lengthOf(payments.asked, 10)
      assert.strictEqual(payments.keys.size, 10)
      assert.deepStrictEqual(new Set(payments.numbers), new Set(["1.1"]))
    }).pipe(
      app(
        Effect.gen(function*() {
          const { executionId } = yield* Orchestration.Instance
          const charge = Charge.execute(order)
          yield* Effect.all([charge, charge], { concurrency: "unbounded" })
          yield* charge
          yield* Effect.retry(charge, { times: 1 })
          if (executionId === 1) return yield* Checkout.continueAsNew()
          return "paid"
        }),
        (request) => request === 4 || request === 9 ? Effect.fail("line is busy") : Effect.void
      )
    ))

  it.effect("differs after the instance was deleted and its id started again", () =>
    Effect.gen(function*() {
      const admin = yield* Admin.Admin
      yield* start
      yield* wait
      yield* admin.deleteInstance("order-1")
      yield* TestRuntime.advance("1 second")
      yield* start
      yield* wait
      assert.strictEqual((yield* PaymentsOf).charged.size, 2)
    }).pipe(app(Charge.execute(order), () => Effect.void)))

  it.effect("of a call that Duroxide in Rust asks for, names instance, execution and event", () =>
    Effect.gen(function*() {
      const provider = yield* Provider.Provider
      yield* provider.enqueueForWorker({
        _tag: "ActivityExecute",
        instance: "rust",
        executionId: 2,
        id: 7,
        name: "Charge",
        input: JSON.stringify(order)
      })
      yield* TestRuntime.settle
      const { asked } = yield* PaymentsOf
      assert.deepStrictEqual(asked, [{ key: "rust/2/7", tryNumber: 1, deliveryNumber: 1 }])
    }).pipe(app(Effect.succeed("idle"), () => Effect.void), silent))
})
