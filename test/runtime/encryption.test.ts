/**
 * Schemas that encode the same value differently each time, as encryption with a random vector does.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { HistoryMismatch, recordHistory, replayHistory, TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as SchemaTransformation from "effect/SchemaTransformation"

let vector = 0
const Secret = Schema.String.pipe(Schema.decodeTo(
  Schema.String,
  SchemaTransformation.transform({
    encode: (text: string) => `${++vector}:${text}`,
    decode: (sealed: string) => sealed.slice(sealed.indexOf(":") + 1)
  })
))
const Card = Schema.Struct({ owner: Schema.String, number: Secret })

const Charge = Activity.make("Charge", { payload: Card, success: Secret })
const Go = Signal.make("Go")
const Last = KeyValue.make("last", Secret)
const Child = Orchestration.make("Child", { payload: Secret, success: Secret })
const Work = Orchestration.make("Work", { payload: Card, success: Secret, error: Secret })

const work = (number = (card: typeof Card.Type) => card.number) =>
  Work.toLayer(Effect.fn(function*(card) {
    const receipt = yield* Charge.execute({ owner: card.owner, number: number(card) })
    yield* Last.set(receipt)
    yield* Go.wait
    const twice = yield* Child.execute(receipt)
    if (card.owner === "again") return yield* Work.continueAsNew({ owner: "Ada", number: twice })
    if (card.owner === "thief") return yield* Effect.fail(twice)
    return twice
  }))

const runtime = (program = work()) =>
  Runtime.layer({ orchestrations: [Work, Child], activities: [Charge] }).pipe(Layer.provide([
    program,
    Charge.toLayer(({ number }) => Effect.succeed(`paid with ${number}`)),
    Child.toLayer((text) => Effect.as(Effect.sleep("1 minute"), `${text}, twice`)),
    Logger.layer([])
  ]))

const start = (owner: string) =>
  Effect.flatMap(
    Client.Client,
    (client) => client.start(Work, { instanceId: owner, payload: { owner, number: "42" } })
  )

/** Until the program waits for the signal. */
const go = (owner: string) =>
  Effect.gen(function*() {
    yield* TestRuntime.advance("1 hour")
    yield* (yield* Client.Client).send(Go, owner)
  })

describe("A Schema that encodes the same value differently each time", () => {
  it.effect("is deterministic: requests, results, errors and the next execution", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      for (const owner of ["Ada", "again", "thief"]) yield* start(owner)
      for (const owner of ["Ada", "again", "thief"]) yield* go(owner)
      yield* go("again")
      assert.strictEqual(yield* client.wait(Work, "Ada"), "paid with 42, twice")
      assert.strictEqual(yield* client.wait(Work, "again"), "paid with paid with 42, twice, twice")
      assert.strictEqual(yield* Effect.flip(client.wait(Work, "thief")), "paid with 42, twice")
      for (const owner of ["Ada", "again", "thief"]) {
        const history = yield* recordHistory(owner)
        yield* Effect.provide(replayHistory(Work, history), work())
        const mismatch = yield* Effect.flip(Effect.provide(replayHistory(Work, history), work(() => "other")))
        assert.instanceOf(mismatch, HistoryMismatch)
      }
    }).pipe(Effect.provide(TestRuntime.layer(runtime()))))

  it.effect("another value is another request, and the error names its place, not the value", () =>
    Effect.gen(function*() {
      yield* start("Ada")
      yield* TestRuntime.advance("1 hour")
      yield* TestRuntime.deploy(runtime(work(() => "secret")))
      yield* go("Ada")
      const error = yield* Effect.flip((yield* Client.Client).wait(Work, "Ada"))
      assert.include(
        String(error),
        "event 2: history has activity \"Charge\", the code asks for the same with another input at number"
      )
      assert.notInclude(String(error), "secret")
    }).pipe(Effect.provide(TestRuntime.layer(runtime()))))
})
