import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { FromDriver, MemoryDriver, Provider, ProviderDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as App from "../utils/app.ts"

class Odd extends Schema.TaggedError<Odd>()("Odd", { n: Schema.Int }) {}

const Double = Activity.make("Double", { payload: Schema.Int, success: Schema.Int })
const Halve = Orchestration.make("Halve", { payload: Schema.Int, success: Schema.Int, error: Odd })
const Sum = Orchestration.make("Sum", { payload: Schema.Array(Schema.Int), success: Schema.Int, error: Odd })
/** Fails with a string, as far as its parents know. */
const WithText = Orchestration.make("Halve", { version: "2.0.0", payload: Schema.Int, error: Schema.String })
const Caught = Orchestration.make("Caught", { success: Schema.String })
const Named = Orchestration.make("Named", { payload: Schema.Int, success: Schema.Int, error: Odd })
const Patient = Orchestration.make("Patient", { success: Schema.String })
const Hasty = Orchestration.make("Hasty", { success: Schema.String })
const Launch = Orchestration.make("Launch", { payload: Schema.String })
const Counter = Orchestration.make("Counter", { payload: Schema.Int, success: Schema.String })
const Forgetful = Orchestration.make("Forgetful", { payload: Schema.Int, success: Schema.Array(Schema.String) })

const Go = Signal.make("Go", { payload: Schema.String })
const Words = Signal.make("Words", { payload: Schema.String })
const Total = KeyValue.make("total", Schema.Int)
const Draft = KeyValue.make("draft", Schema.String)

const runtime = Runtime.layer({
  orchestrations: [Halve, Sum, Caught, Named, Patient, Hasty, Launch, Counter, Forgetful],
  activities: [Double]
}).pipe(Layer.provide([
  Double.toLayer((n) => Effect.succeed(n * 2)),
  Halve.toLayer((n) => n % 2 === 0 ? Effect.succeed(n / 2) : Effect.fail(new Odd({ n }))),
  Sum.toLayer((numbers) =>
    Effect.map(
      Effect.forEach(numbers, Halve.execute, { concurrency: "unbounded" }),
      (halves) => halves.reduce((sum, half) => sum + half, 0)
    )
  ),
  Caught.toLayer(() =>
    WithText.executeWithId({ instanceId: "taken", payload: 1 }).pipe(
      Effect.as("it ran"),
      Effect.catch((error) => Effect.succeed(`failed: ${error}`)),
      Effect.catchDefect(() => Effect.succeed("died"))
    )
  ),
  Named.toLayer((n) => Halve.executeWithId({ instanceId: "half-of-it", payload: n })),
  Patient.toLayer(() => Go.wait),
  Hasty.toLayer(() => Effect.race(Patient.execute(), Effect.as(Effect.sleep(20), "no time for children"))),
  Launch.toLayer((instanceId) => Halve.startDetached({ instanceId, payload: 8 })),
  Counter.toLayer(Effect.fn(function*(n) {
    const total = Option.getOrElse(yield* Total.get, () => 0)
    yield* Total.set(total + n)
    yield* Draft.set(`draft of ${n}`)
    yield* Orchestration.setCustomStatus(`counting ${n}`)
    if (n < 3) return yield* Counter.continueAsNew(n + 1)
    yield* Draft.clear
    return `${total + n}, ${yield* Orchestration.customStatus}, ${Option.getOrElse(yield* Draft.get, () => "no draft")}`
  })),
  Forgetful.toLayer(Effect.fn(function*(round) {
    const first = yield* Words.wait
    if (round === 1) return yield* Forgetful.continueAsNew(2)
    // Of two takers the second is interrupted, and takes no message.
    const second = yield* Effect.raceFirst(Words.wait, Effect.andThen(Effect.sleep("1 hour"), Words.wait))
    return [first, second, yield* Words.wait]
  }))
]))

const failure = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.flip(effect)

it.layer(App.layer(runtime), { excludeTestServices: true })("Composition", (it) => {
  describe("Orchestration.execute", () => {
    it.effect("children run side by side and answer their parent", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        assert.strictEqual(yield* client.execute(Sum, { instanceId: "sum", payload: [2, 4, 6] }), 6)
        assert.strictEqual((yield* client.status("sum::sub::2"))._tag, "Completed")
      }))

    it.effect("a typed failure of a child is a typed failure of its parent", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const error = yield* failure(client.execute(Sum, { instanceId: "odd-sum", payload: [2, 3] }))
        assert.instanceOf(error, Odd)
      }))

    it.effect("an id that is taken fails the parent instead of leaving it waiting", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        assert.strictEqual(yield* client.execute(Named, { instanceId: "named", payload: 4 }), 2)
        const error = yield* failure(client.execute(Named, { instanceId: "named-again", payload: 6 }))
        assert.include(error.message, "sub-orchestration instance id 'half-of-it' already exists and is terminal")
      }))

    it.effect("a taken id is not a typed failure of the child, even if its errors are strings", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Patient, { instanceId: "taken" })
        assert.strictEqual(yield* client.execute(Caught, { instanceId: "caught" }), "died")
      }))

    it.effect("a child that loses a race is cancelled", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        assert.strictEqual(
          yield* client.execute(Hasty, { instanceId: "hasty" }),
          "no time for children"
        )
        const error = yield* failure(client.wait(Patient, "hasty::sub::2"))
        assert.include(error.message, "was cancelled: its parent no longer waits for it")
      }))
  })

  describe("Client.wait", () => {
    it.effect("an unreadable failure is not a typed failure of the program, even if its errors are strings", () =>
      Effect.gen(function*() {
        const driver = MemoryDriver.make()
        const illegible = { instanceId: "illegible", status: "Failed", failure: "no event", output: "a text" } as const
        const error = yield* Effect.gen(function*() {
          return yield* failure((yield* Client.Client).wait(WithText, "illegible"))
        }).pipe(
          Effect.provide(Client.layer.pipe(
            Layer.fresh,
            Layer.provide(FromDriver.layer()),
            Layer.provide(Layer.succeed(ProviderDriver.ProviderDriver, {
              ...driver,
              readEnds: () => Effect.succeed([illegible])
            }))
          ))
        )
        assert.instanceOf(error, Client.InstanceFailed)
        assert.include(String(error), "a text")
      }))
  })

  describe("Orchestration.startDetached", () => {
    it.effect("starts an independent instance", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.execute(Launch, { instanceId: "launch", payload: "launched" })
        assert.strictEqual(yield* client.wait(Halve, "launched"), 4)
      }))
  })

  describe("Orchestration.continueAsNew", () => {
    it.effect("keeps values and status; clients see them while they change", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        assert.strictEqual(
          yield* client.execute(Counter, { instanceId: "counter", payload: 1 }),
          "6, counting 3, no draft"
        )
        assert.deepStrictEqual(yield* client.read(Total, "counter"), Option.some(6))
        assert.deepStrictEqual(yield* client.read(Draft, "counter"), Option.none())
        const provider = yield* Provider.Provider
        assert.deepStrictEqual((yield* provider.read("counter"))[0]!.executionId, 3)
      }))
  })

  describe("Signal.wait", () => {
    it.effect("messages are read in order, including early ones and those carried over into the next execution", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Forgetful, { instanceId: "reader", payload: 1 })
        for (const word of ["zero", "one", "two"]) yield* client.send(Words, "reader", word)
        const waiting = yield* Effect.forkChild(client.wait(Forgetful, "reader"))
        yield* client.send(Words, "reader", "three")
        assert.deepStrictEqual(yield* Fiber.join(waiting), ["one", "two", "three"])
      }))
  })
})
