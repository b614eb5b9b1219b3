import { assert, describe, it } from "@effect/vitest"
import { Activity, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin, FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "../utils/localProcess.ts"

const Reserve = Activity.make("Reserve", { payload: Schema.Int, success: Schema.String })
const Trip = Orchestration.make("Trip", { success: Schema.String })
const Leg = Orchestration.make("Leg", { success: Schema.String })
const Go = Signal.make("Go", { payload: Schema.String })
const Count = KeyValue.make("count", Schema.Int)

type Program = Effect.Effect<string, never, Orchestration.Instance>

const starting = Effect.fnUntraced(function*(trip: Program, leg: Program = Effect.succeed("")) {
  const keys: Array<string> = []
  const runtime = Runtime.layer({ orchestrations: [Trip, Leg], activities: [Reserve] }).pipe(Layer.provide([
    Reserve.toLayer(() =>
      Effect.map(Activity.Call, ({ idempotencyKey }) => {
        keys.push(idempotencyKey)
        return "room 7"
      })
    ),
    Trip.toLayer(() => trip),
    Leg.toLayer(() => leg)
  ]))
  const { client } = yield* LocalProcess.start(runtime, {
    runtime: { verifyReplay: true, onMismatch: "block" },
    provider: { longPolling: { aggressivePollInterval: "1 second" } }
  })
  return { client, keys }
})

const admin = Effect.flatMap(Admin.Admin, Effect.succeed).pipe(Effect.provide(FromDriver.layerAdmin))

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

const seconds = (count: number) =>
  Effect.forEach(Array.from({ length: count }), () => TestClock.adjust("1 second"), { discard: true })

const refusal = (call: Effect.Effect<unknown, { readonly message: string }>) =>
  Effect.map(Effect.flip(call), ({ message }) => message)

describe("Admin.fork", () => {
  it.effect("continues from the event, with values, status and random numbers; the other instance stays as it is", () =>
    Effect.gen(function*() {
      const { client, keys } = yield* starting(Effect.gen(function*() {
        const number = yield* Random.nextIntBetween(0, 1_000_000)
        yield* Count.set(1)
        yield* Orchestration.setCustomStatus("reserving")
        const room = yield* Reserve.execute(number)
        yield* Count.set(2)
        const answer = yield* Go.wait
        return `${room}, ${answer}`
      }))
      const { fork, readHistory } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      yield* client.send(Go, "t", "to Rome")
      yield* seconds(3)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "room 7, to Rome")
      const before = yield* readHistory("t")
      const answered = before.find(({ _tag }) => _tag === "ActivityCompleted")!
      yield* fork("t", { atEvent: answered.eventId, newId: "f" })
      yield* seconds(3)
      assert.strictEqual((yield* client.status("f"))._tag, "Running")
      yield* client.send(Go, "f", "to Oslo")
      yield* seconds(3)
      assert.strictEqual(yield* client.wait(Trip, "f", { timeout: 0 }), "room 7, to Oslo")
      assert.strictEqual((yield* client.read(Count, "f"))._tag, "Some")
      assert.lengthOf(keys, 1)
      assert.deepStrictEqual(yield* readHistory("t"), before)
      assert.include(yield* refusal(fork("t", { atEvent: 2, newId: "f" })), "the id f is taken")
    }).pipe(inMemory))

  it.effect("begins again what was open, under keys and ids of its own", () =>
    Effect.gen(function*() {
      const { client, keys } = yield* starting(
        Effect.map(
          Effect.all([Reserve.execute(1), Leg.execute(), Effect.as(Effect.sleep("10 seconds"), "slept")], {
            concurrency: "unbounded"
          }),
          (all) => all.join()
        ),
        Effect.as(Effect.sleep("5 seconds"), "leg")
      )
      const { fork } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(2)
      yield* fork("t", { atEvent: 4, newId: "f" })
      yield* seconds(20)
      for (const id of ["t", "f"]) {
        assert.strictEqual(yield* client.wait(Trip, id, { timeout: 0 }), "room 7,leg,slept")
        assert.strictEqual((yield* client.status(`${id}::sub::3`))._tag, "Completed")
      }
      assert.strictEqual(new Set(keys).size, 2)
    }).pipe(inMemory))

  it.effect("does what follows at its own time: a sleep that is set again is as long as before", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(Effect.gen(function*() {
        yield* Reserve.execute(1)
        const begun = yield* Clock.currentTimeMillis
        yield* Effect.sleep("10 seconds")
        return `${begun} ${yield* Clock.currentTimeMillis}`
      }))
      const { fork, readHistory } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(60)
      yield* fork("t", { atEvent: 3, newId: "f" })
      yield* seconds(9)
      assert.strictEqual((yield* client.status("f"))._tag, "Running", "it sleeps again")
      yield* seconds(2)
      assert.strictEqual(yield* client.wait(Trip, "f", { timeout: 0 }), "60000 70000")
      assert.strictEqual((yield* readHistory("f")).filter(({ _tag }) => _tag === "TimerFired").length, 1)
    }).pipe(inMemory))

  it.effect("has the values of earlier executions, and no parent", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(
        Effect.gen(function*() {
          const { executionId } = yield* Orchestration.Instance
          if (executionId === 1) {
            yield* Count.set(7)
            return yield* Trip.continueAsNew()
          }
          const count = yield* Count.get
          yield* Go.wait
          return `${count._tag === "Some" ? count.value : "none"}`
        }),
        Trip.execute()
      )
      const { fork } = yield* admin
      yield* client.start(Leg, { instanceId: "p" })
      yield* seconds(4)
      yield* fork("p::sub::2", { atEvent: 2, newId: "f" })
      yield* client.send(Go, "f", "on")
      yield* seconds(4)
      assert.strictEqual(yield* client.wait(Trip, "f", { timeout: 0 }), "7")
      assert.strictEqual((yield* client.status("p"))._tag, "Running")
      yield* client.send(Go, "p::sub::2", "on")
      yield* seconds(4)
      assert.strictEqual(yield* client.wait(Leg, "p", { timeout: 0 }), "7")
    }).pipe(inMemory))

  it.effect("ends as the other one did from the event before its end", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(Effect.as(Go.wait, "gone"))
      const { fork } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* client.send(Go, "t", "on")
      yield* seconds(3)
      yield* fork("t", { atEvent: 3, newId: "f" })
      yield* seconds(3)
      assert.strictEqual(yield* client.wait(Trip, "f", { timeout: 0 }), "gone")
    }).pipe(inMemory))

  it.effect("is refused where it cannot be right", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(
        Effect.andThen(Leg.executeWithId({ instanceId: "of its own" }), Go.wait),
        Effect.as(Effect.sleep("5 seconds"), "leg")
      )
      const { fork } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(2)
      assert.include(yield* refusal(fork("unknown", { atEvent: 1, newId: "f" })), "not found")
      assert.include(
        yield* refusal(fork("t", { atEvent: 9, newId: "f" })),
        "the event must be one from 1 to 2 of its execution 1"
      )
      assert.include(yield* refusal(fork("t", { atEvent: 2, newId: "f" })), "a child whose id is taken")
      assert.include(yield* refusal(fork("t", { atEvent: 1, newId: "a::sub::b" })), "newId")
      assert.include(yield* refusal(fork("t", { atEvent: 0, newId: "f" })), "atEvent")
      assert.strictEqual((yield* client.status("f"))._tag, "NotFound")
      yield* seconds(6)
      yield* fork("t", { atEvent: 3, newId: "f" })
      yield* client.send(Go, "f", "on")
      yield* seconds(3)
      assert.strictEqual(yield* client.wait(Trip, "f", { timeout: 0 }), "on")
    }).pipe(inMemory))
})
