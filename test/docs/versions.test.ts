import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { HistoryMismatch, recordHistory, replayHistory, TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Docs from "../utils/docs.ts"

const Order = Schema.Struct({ id: Schema.String, cents: Schema.Int })

const CheckFraud = Activity.make("CheckFraud", { payload: Schema.String })
const Charge = Activity.make("Charge", { payload: Order, success: Schema.String })
const Ship = Activity.make("Ship", { payload: Schema.String, success: Schema.String })
const Read = Activity.make("Read", { success: Schema.Int })
const Approved = Signal.make("Approved")

// -----------------------------------------------------------------------------
// side by side
// -----------------------------------------------------------------------------

const Fulfil1 = Orchestration.make("Fulfil", { version: "1.0.0", payload: Order, success: Schema.String })

const Fulfil1Live = Fulfil1.toLayer(Effect.fn(function*(order) {
  const receipt = yield* Charge.execute(order)
  yield* Approved.wait
  return yield* Ship.execute(receipt)
}))

const Fulfil = Orchestration.make("Fulfil", { version: "2.0.0", payload: Order, success: Schema.String })

const FulfilLive = Fulfil.toLayer(Effect.fn(function*(order) {
  yield* CheckFraud.execute(order.id) // new
  const receipt = yield* Charge.execute(order)
  yield* Approved.wait
  return yield* Ship.execute(receipt)
}))

const definitions = { orchestrations: [Fulfil, Fulfil1], activities: [CheckFraud, Charge, Ship] } as const

const RuntimeLive = Runtime.layer(definitions).pipe(Layer.provide([FulfilLive, Fulfil1Live]))

const startNewest = (order: typeof Order.Type) =>
  Effect.flatMap(
    Client.Client,
    (client) => client.start(Fulfil1, { instanceId: `order-${order.id}`, payload: order, version: "newest" })
  )

// -----------------------------------------------------------------------------
// instances without an end
// -----------------------------------------------------------------------------

const Meter1 = Orchestration.make("Meter", { version: "1.0.0", payload: Schema.Struct({ total: Schema.Int }) })

const Meter1Live = Meter1.toLayer(Effect.fn(function*({ total }) {
  yield* Effect.sleep("1 day")
  return yield* Meter1.continueAsNew({ total: total + (yield* Read.execute()) })
}))

const Meter = Orchestration.make("Meter", {
  version: "2.0.0",
  payload: Schema.Struct({
    total: Schema.Int,
    days: Schema.Int.pipe(Schema.withDecodingDefaultKey(Effect.succeed(0))) // executions of 1.0.0 do not send it
  })
})

const MeterLive = Meter.toLayer(Effect.fn(function*({ days, total }) {
  yield* Orchestration.setCustomStatus(`${total} in all, ${days} days counted`)
  yield* Effect.sleep("1 day")
  return yield* Meter.continueAsNew({ total: total + (yield* Read.execute()), days: days + 1 })
}))

// -----------------------------------------------------------------------------
// in place
// -----------------------------------------------------------------------------

const checkAgainst = (history: string) => replayHistory(Fulfil1, history).pipe(Effect.provide(Fulfil1Live))

const Fulfil1CheckedLive = Fulfil1.toLayer(Effect.fn(function*(order) {
  const receipt = yield* Charge.execute(order)
  yield* Approved.wait
  if (yield* Orchestration.changed("fraud")) yield* CheckFraud.execute(order.id) // new
  return yield* Ship.execute(receipt)
}))

const runningVersions = Effect.gen(function*() {
  const { count } = yield* Admin.Admin
  return yield* count({ status: "Running", byVersion: true })
})

// -----------------------------------------------------------------------------
// tests
// -----------------------------------------------------------------------------

const running = Effect.map(
  runningVersions,
  (counts) =>
    counts.map(({ orchestrationName, orchestrationVersion }) => `${orchestrationName} ${orchestrationVersion}`)
)

const handlers = (did: Array<string> = []) =>
  Layer.mergeAll(
    CheckFraud.toLayer((id) => Effect.sync(() => void did.push(`check ${id}`))),
    Charge.toLayer(({ id }) => Effect.sync(() => (did.push(`charge ${id}`), `receipt ${id}`))),
    Ship.toLayer((receipt) => Effect.succeed(`parcel for ${receipt}`)),
    Read.toLayer(() => Effect.succeed(7)),
    Logger.layer([])
  )

const onlyOld = (did?: Array<string>) =>
  Runtime.layer({ orchestrations: [Fulfil1, Meter1], activities: [Charge, Ship, Read] }).pipe(
    Layer.provide([Fulfil1Live, Meter1Live, handlers(did)])
  )

const onlyWithSlowParcels = (did: Array<string>) =>
  Runtime.layer({ orchestrations: [Fulfil1], activities: [Charge, Ship] }).pipe(
    Layer.provide([Fulfil1Live, Ship.toLayer((receipt) => Effect.as(Effect.sleep("1 hour"), `parcel for ${receipt}`))]),
    Layer.provide(handlers(did))
  )

const onlyNew = Runtime.layer({ orchestrations: [Fulfil], activities: [CheckFraud, Charge, Ship] }).pipe(
  Layer.provide([FulfilLive, handlers()])
)

const start = (id: string) =>
  Effect.flatMap(
    Client.Client,
    (client) => client.start(Fulfil1, { instanceId: `order-${id}`, payload: { id, cents: 100 } })
  )

const finish = (id: string) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.send(Approved, `order-${id}`)
    return yield* client.wait(Fulfil, `order-${id}`)
  })

describe("docs/versions.md", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/versions.test.ts"))
    const examples = Docs.blocks(Docs.read("docs/versions.md"), "ts")
    assert.lengthOf(examples, 6)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.effect("running instances keep their version, starts take the newest", () => {
    const did: Array<string> = []
    return Effect.gen(function*() {
      yield* start("1")
      yield* TestRuntime.deploy(RuntimeLive.pipe(Layer.provide(handlers(did))))
      yield* startNewest({ id: "2", cents: 100 })
      assert.strictEqual(yield* finish("1"), "parcel for receipt 1")
      assert.deepStrictEqual(yield* running, ["Fulfil 2.0.0"])
      assert.strictEqual(yield* finish("2"), "parcel for receipt 2")
      assert.deepStrictEqual(did, ["charge 1", "check 2", "charge 2"])
    }).pipe(Effect.provide(TestRuntime.layer(onlyOld(did))))
  })

  it.effect("an endless instance takes the new version with its next execution", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Meter1, { instanceId: "meter", payload: { total: 0 } })
      yield* TestRuntime.advance("2.5 days")
      const both = Runtime.layer({ orchestrations: [Meter1, Meter], activities: [Read] })
      yield* TestRuntime.deploy(both.pipe(Layer.provide([Meter1Live, MeterLive, handlers()])))
      assert.deepStrictEqual(yield* running, ["Meter 1.0.0"])
      yield* TestRuntime.advance("2 days")
      assert.deepStrictEqual(yield* running, ["Meter 2.0.0"])
      const status = yield* client.status("meter")
      assert.include(JSON.stringify(status), "28 in all, 1 days counted")
    }).pipe(Effect.provide(TestRuntime.layer(onlyOld()))))

  it.effect("an instance whose version no process serves waits for one that does", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start("1")
      yield* TestRuntime.deploy(onlyNew)
      yield* TestRuntime.advance("30 days")
      assert.strictEqual((yield* client.status("order-1"))._tag, "Running")
      yield* TestRuntime.deploy(onlyOld())
      assert.strictEqual(yield* finish("1"), "parcel for receipt 1")
    }).pipe(Effect.provide(TestRuntime.layer(onlyOld()))))

  it.effect("an unsafe change in place fails running instances, and a replay of their history finds it first", () =>
    Effect.gen(function*() {
      yield* start("1")
      const history = yield* recordHistory("order-1")
      yield* checkAgainst(history)
      // The program of 2.0.0 under the old version.
      const changed = Fulfil1.toLayer(Effect.fn(function*(order) {
        yield* CheckFraud.execute(order.id)
        return yield* Charge.execute(order)
      }))
      const mismatch = yield* Effect.flip(Effect.provide(replayHistory(Fulfil1, history), changed))
      assert.instanceOf(mismatch, HistoryMismatch)
      const careless = Runtime.layer({ orchestrations: [Fulfil1], activities: [CheckFraud, Charge, Ship] })
      yield* TestRuntime.deploy(careless.pipe(Layer.provide([changed, handlers()])))
      const error = yield* Effect.flip(finish("1"))
      assert.include(error.message, `history has activity "Charge", the code asks for activity "CheckFraud"`)
    }).pipe(Effect.provide(TestRuntime.layer(onlyOld()))))

  it.effect("a change that the program asks for applies to instances that come to its place with the new code", () => {
    const did: Array<string> = []
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start("waits")
      yield* start("passed")
      yield* client.send(Approved, "order-passed")
      yield* TestRuntime.advance("1 minute") // it ships
      const histories = yield* Effect.forEach(["order-waits", "order-passed"], recordHistory)
      const checked = Runtime.layer({ orchestrations: [Fulfil1], activities: [CheckFraud, Charge, Ship] })
      yield* TestRuntime.deploy(checked.pipe(Layer.provide([Fulfil1CheckedLive, handlers(did)])))
      for (const history of histories) yield* Effect.provide(replayHistory(Fulfil1, history), Fulfil1CheckedLive)
      yield* start("new")
      did.splice(0)
      for (const id of ["waits", "new"]) assert.strictEqual(yield* finish(id), `parcel for receipt ${id}`)
      yield* TestRuntime.advance("1 day")
      assert.strictEqual(yield* client.wait(Fulfil1, "order-passed"), "parcel for receipt passed")
      assert.deepStrictEqual(did, ["check waits", "check new"])

      // Later the question is removed.
      const always = Fulfil1.toLayer(Effect.fn(function*(order) {
        const receipt = yield* Charge.execute(order)
        yield* Approved.wait
        yield* CheckFraud.execute(order.id)
        return yield* Ship.execute(receipt)
      }))
      const after = yield* recordHistory("order-new")
      assert.include(after, "duroxide-prisma/changed")
      for (const program of [Fulfil1CheckedLive, always]) {
        yield* Effect.provide(replayHistory(Fulfil1, after), program)
      }
      assert.instanceOf(yield* Effect.flip(Effect.provide(replayHistory(Fulfil1, after), Fulfil1Live)), HistoryMismatch)
    }).pipe(Effect.provide(TestRuntime.layer(onlyWithSlowParcels(did))))
  })

  it.effect("safe changes in place: code after the point all instances reached, names, logs, custom statuses, durations", () =>
    Effect.gen(function*() {
      yield* start("1")
      const renamed = Fulfil1.toLayer(Effect.fn(function*({ cents, id }) {
        yield* Effect.log("charging") // no request
        yield* Effect.yieldNow
        const proof = yield* Charge.execute({ id, cents })
        yield* Approved.wait
        yield* Effect.sleep("2 hours") // no process serves it yet
        return `${yield* Ship.execute(proof)}, insured`
      }))
      yield* Effect.provide(replayHistory(Fulfil1, yield* recordHistory("order-1")), renamed)
      const runtime = Runtime.layer({ orchestrations: [Fulfil1], activities: [Charge, Ship] })
      yield* TestRuntime.deploy(runtime.pipe(Layer.provide([renamed, handlers()])))
      assert.strictEqual(yield* finish("1"), "parcel for receipt 1, insured")
    }).pipe(Effect.provide(TestRuntime.layer(onlyOld()))))
})
