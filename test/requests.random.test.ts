/**
 * A random model of requests: whatever happens to processes, callers and executions, a request is answered once.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Request, Runtime, Signal } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Random from "effect/Random"
import * as Result from "effect/Result"
import * as Schema from "effect/Schema"
import { times } from "./utils/times.ts"

const seeds = times(25)
const steps = 30

/** Every answer has its place in the order of answers, and the payload that was asked. */
const Answer = Schema.Struct({ place: Schema.Int, of: Schema.Int })

const Ask = Request.make("Ask", { payload: Schema.Int, success: Answer, error: Answer })

const Next = Signal.make("Next")
const Close = Signal.make("Close")

/** Takes up to so many minutes, each time it runs. */
const Work = Activity.make("Work", { payload: Schema.Int, success: Schema.Int })

const State = Schema.Struct({ answered: Schema.Int, concurrency: Schema.Int })

const Service = Orchestration.make("Service", { payload: State, success: Schema.Int })

const service = Effect.fn(function*({ answered, concurrency }: typeof State.Type) {
  let place = answered
  yield* Ask.serve(
    Effect.fn(function*(of) {
      if (of % 3 !== 0) yield* Work.execute(of)
      place++
      return yield* of % 5 === 0 ? Effect.fail({ place, of }) : Effect.succeed({ place, of })
    }),
    {
      concurrency,
      validate: (of) => of % 7 === 0 ? Result.fail({ place: 0, of }) : Result.succeed(undefined)
    }
  )
  yield* Effect.raceFirst(
    Close.wait,
    Effect.flatMap(Next.wait, () => Effect.suspend(() => Service.continueAsNew({ answered: place, concurrency })))
  )
  return place
})

const layer = TestRuntime.layer(
  Runtime.layer({ orchestrations: [Service], activities: [Work] }).pipe(Layer.provide([
    Service.toLayer(service),
    Work.toLayer((minutes) => Effect.as(Effect.sleep(`${minutes} minutes`), minutes))
  ]))
).pipe(Layer.provideMerge(Logger.layer([])))

type Seen = { readonly place: number; readonly of: number }

const scenario = (seed: number) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.start(Service, {
      instanceId: "s",
      payload: { answered: 0, concurrency: yield* Random.nextIntBetween(1, 4) }
    })
    const answers = new Map<number, Set<string>>()
    const waiting: Array<Fiber.Fiber<void, unknown>> = []
    let asked = 0
    /** The payload is the number of the question, so that a second answer to a repeated id would show. */
    const ask = (id: number) =>
      client.request(Ask, "s", id, { requestId: `r${id}` }).pipe(
        Effect.catchIf((error): error is Seen => "place" in error, (refused) => Effect.succeed(refused)),
        Effect.map((answer: Seen) => {
          answers.set(id, (answers.get(id) ?? new Set()).add(JSON.stringify(answer)))
        })
      )
    const repeat = Effect.gen(function*() {
      if (asked === 0) return
      const id = yield* Random.nextIntBetween(1, asked)
      waiting.push(yield* Effect.forkChild(ask(id), { startImmediately: true }))
    })
    for (let step = 0; step < steps; step++) {
      const choice = yield* Random.nextIntBetween(0, 9)
      if (choice < 4) {
        asked++
        waiting.push(yield* Effect.forkChild(ask(asked), { startImmediately: true }))
      } else if (choice < 6) yield* repeat
      else if (choice === 6) yield* client.send(Next, "s")
      else if (choice === 7) yield* TestRuntime.crash
      else if (choice === 8) yield* TestRuntime.restart
      // A caller that dies: another one asks the same later.
      else if (waiting.length > 0) {
        yield* Fiber.interrupt(waiting.splice(yield* Random.nextIntBetween(0, waiting.length - 1), 1)[0]!)
      }
      if (yield* Random.nextBoolean) yield* TestRuntime.advance(`${yield* Random.nextIntBetween(0, 20)} minutes`)
    }
    // Everyone asks again, and once more when all is answered.
    for (let round = 0; round < 2; round++) {
      for (let id = 1; id <= asked; id++) yield* ask(id)
    }
    for (const fiber of waiting) yield* Fiber.join(fiber)
    yield* client.send(Close, "s")
    const total = yield* client.wait(Service, "s")

    const seen = [...answers].map(([id, texts]) => [id, [...texts]] as const)
    assert.deepStrictEqual(seen.filter(([, texts]) => texts.length !== 1), [], `seed ${seed}`)
    assert.strictEqual(seen.length, asked)
    const places = seen.map(([id, [text]]) => {
      const { of, place }: Seen = JSON.parse(text!)
      assert.strictEqual(of, id)
      assert.strictEqual(place === 0, id % 7 === 0, "the check refuses what it must, and nothing else")
      return place
    }).filter((place) => place > 0).sort((a, b) => a - b)
    assert.deepStrictEqual(places, Array.from({ length: total }, (_, i) => i + 1), `seed ${seed}`)
    return seen.length
  }).pipe(Effect.provide(layer), Random.withSeed(String(seed)))

describe("Requests, by a random model", () => {
  it.effect(
    "are answered once, with kills of processes and callers, repeats, and continue-as-new",
    () =>
      Effect.gen(function*() {
        let answered = 0
        for (let seed = 1; seed <= seeds; seed++) answered += yield* scenario(seed)
        assert.isAbove(answered, seeds * 5)
      })
  )
})
