import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import fc from "fast-check"
import { batch, Clicks, Count, CountLive, settled, Store } from "../programs/batcher.ts"
import * as Docs from "../utils/docs.ts"
import { times } from "../utils/times.ts"

/** What a program has taken, and when, in milliseconds since its start. */
type Taken = ReadonlyArray<{ readonly clicks: ReadonlyArray<number>; readonly atMs: number }>

const Program = Orchestration.make("Program", { success: Schema.Unknown })

const start = Effect.flatMap(Client.Client, (client) => client.start(Program, { instanceId: "p" }))
const send = (click: number) => Effect.flatMap(Client.Client, (client) => client.send(Clicks, "p", click))

/** Repeats `take` until it has taken the last of `count` clicks. */
const taking = <E>(
  take: Effect.Effect<ReadonlyArray<number>, E, Orchestration.Instance>,
  count: number
) =>
  Effect.gen(function*() {
    const begun = yield* Clock.currentTimeMillis
    const taken: Array<{ readonly clicks: ReadonlyArray<number>; readonly atMs: number }> = []
    while (taken.at(-1)?.clicks.at(-1) !== count - 1) {
      taken.push({ clicks: yield* take, atMs: (yield* Clock.currentTimeMillis) - begun })
    }
    return taken
  }).pipe(Effect.orDie)

/** Sends click `index` at `timesMs[index]`, and crashes the process before those in `crashes`. */
const run = (
  program: Effect.Effect<unknown, never, Orchestration.Instance>,
  timesMs: ReadonlyArray<number>,
  crashes: ReadonlySet<number> = new Set()
) =>
  Effect.gen(function*() {
    yield* start
    let now = 0
    for (const [click, at] of timesMs.entries()) {
      yield* TestRuntime.advance(at - now)
      now = at
      if (crashes.has(click)) yield* TestRuntime.crash
      yield* send(click)
    }
    return (yield* Effect.flatMap(Client.Client, (client) => client.wait(Program, "p"))) as Taken
  }).pipe(Effect.provide(TestRuntime.layer(
    Runtime.layer({ orchestrations: [Program] }).pipe(Layer.provide(Program.toLayer(() => program)))
  )))

/** What `batch` does, in a few lines without waiting. */
const batchesOf = (timesMs: ReadonlyArray<number>, most: number, withinMs: number): Taken => {
  const taken: Array<{ readonly clicks: ReadonlyArray<number>; readonly atMs: number }> = []
  let ready = 0
  for (let click = 0; click < timesMs.length;) {
    const first = Math.max(ready, timesMs[click]!)
    const clicks: Array<number> = []
    while (clicks.length < most && click < timesMs.length && timesMs[click]! <= first + withinMs) clicks.push(click++)
    ready = clicks.length === most ? Math.max(first, timesMs[click - 1]!) : first + withinMs
    taken.push({ clicks, atMs: ready })
  }
  return taken
}

/** What `settled` does; `clicks` are those that it has taken. */
const silencesOf = (timesMs: ReadonlyArray<number>, quietMs: number, longestMs: number): Taken => {
  const taken: Array<{ readonly clicks: ReadonlyArray<number>; readonly atMs: number }> = []
  let ready = 0
  for (let click = 0; click < timesMs.length;) {
    const first = Math.max(ready, timesMs[click]!)
    let until = first + quietMs
    click++
    while (click < timesMs.length && timesMs[click]! <= Math.min(until, first + longestMs)) {
      until = Math.max(first, timesMs[click]!) + quietMs
      click++
    }
    ready = Math.min(until, first + longestMs)
    taken.push({ clicks: [click - 1], atMs: ready })
  }
  return taken
}

/** Times in whole seconds, in order, and before which clicks the process crashes. Limits lie between the seconds. */
const Arrivals = fc.tuple(
  fc.array(fc.integer({ min: 0, max: 6 }), { minLength: 1, maxLength: 25 }),
  fc.uniqueArray(fc.integer({ min: 0, max: 24 }), { maxLength: 3 })
).map(([gaps, crashes]) => {
  let now = 0
  return { timesMs: gaps.map((gap) => (now += gap * 1_000)), crashes: new Set(crashes) }
})

describe("docs/signals.md, Batching and debouncing", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/programs/batcher.ts")).replaceAll("export const", "const")
    const examples = Docs.blocks(Docs.section("docs/signals.md", "Batching and debouncing"), "ts")
    assert.lengthOf(examples, 2)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.effect("a batch is full, or ends some time after its first click; none is empty", () =>
    Effect.gen(function*() {
      const taken = yield* run(taking(batch(3, "10 seconds"), 6), [0, 4_000, 30_000, 31_000, 32_000, 50_000])
      assert.deepStrictEqual(taken, [
        { clicks: [0, 1], atMs: 10_000 },
        { clicks: [2, 3, 4], atMs: 32_000 },
        { clicks: [5], atMs: 60_000 }
      ])
    }))

  it.effect("a debounce acts once after silence, and at the latest after its longest wait", () =>
    Effect.gen(function*() {
      const program = taking(Effect.map(settled("3 seconds", "8 seconds"), (click) => [click]), 8)
      const taken = yield* run(program, [0, 2_000, 20_000, 22_000, 24_000, 26_000, 27_500, 29_000])
      assert.deepStrictEqual(taken, [
        { clicks: [1], atMs: 5_000 },
        { clicks: [6], atMs: 28_000 },
        { clicks: [7], atMs: 32_000 }
      ])
    }))

  it.effect("clicks between two executions are in the first batch of the next one", () => {
    const stored: Array<ReadonlyArray<number>> = []
    return Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Count, { instanceId: "c" })
      for (let click = 0; click < 25; click++) {
        yield* client.send(Clicks, "c", click)
        yield* TestRuntime.advance("10 seconds")
      }
      assert.deepStrictEqual(stored.flat(), Array.from({ length: 25 }, (_, click) => click))
      const status = yield* client.status("c")
      assert.strictEqual(status._tag === "Running" ? status.executionId : 0, 2)
    }).pipe(Effect.provide(TestRuntime.layer(
      Runtime.layer({ orchestrations: [Count], activities: [Store] }).pipe(
        Layer.provide([CountLive, Store.toLayer((clicks) => Effect.sync(() => void stored.push(clicks)))])
      )
    )))
  })

  it.effect("random clicks and crashes: each click is in one batch, in order, and batches end when a model says", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(Arrivals, fc.integer({ min: 1, max: 5 }), ({ crashes, timesMs }, most) =>
          Effect.gen(function*() {
            const taken = yield* run(taking(batch(most, "7500 millis"), timesMs.length), timesMs, crashes)
            assert.deepStrictEqual(
              taken.flatMap(({ clicks }) =>
                clicks
              ),
              timesMs.map((_, click) => click)
            )
            assert.deepStrictEqual(taken, batchesOf(timesMs, most, 7_500))
          }).pipe(Effect.provide(Logger.layer([])), Effect.runPromise)),
        { numRuns: times(20) }
      )
    ))

  it.effect("random clicks and crashes: a debounce acts when a model says", () =>
    Effect.promise(() =>
      fc.assert(
        fc.asyncProperty(Arrivals, ({ crashes, timesMs }) =>
          Effect.gen(function*() {
            const program = taking(
              Effect.map(settled("2500 millis", "9750 millis"), (click) => [click]),
              timesMs.length
            )
            assert.deepStrictEqual(yield* run(program, timesMs, crashes), silencesOf(timesMs, 2_500, 9_750))
          }).pipe(Effect.provide(Logger.layer([])), Effect.runPromise)),
        { numRuns: times(20) }
      )
    ))
})
