import { assert, describe, it } from "@effect/vitest"
import { Activity, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin, FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { PauseTarget } from "../../src/model/Pause.ts"
import * as LocalProcess from "../utils/localProcess.ts"

const Reserve = Activity.make("Reserve", { success: Schema.String })
const Charge = Activity.make("Charge", { success: Schema.String, error: Schema.String })
const Trip = Orchestration.make("Trip", { success: Schema.String, error: Schema.String })
const Parent = Orchestration.make("Parent", { success: Schema.String, error: Schema.String })
const Counts = KeyValue.make("count", Schema.Int)
const Go = Signal.make("Go")
const Notes = Signal.make("Notes", { payload: Schema.String })

/** What the world has seen: each call with its idempotency key. */
interface World {
  readonly calls: Array<string>
  /** Whether the bank declines. */
  declines: boolean
}

const world = (): World => ({ calls: [], declines: true })

const called = (world: World, what: string) =>
  Effect.map(Activity.Call, ({ idempotencyKey }) => void world.calls.push(`${what} ${idempotencyKey}`))

type Program = () => Effect.Effect<string, string, Orchestration.Instance>

const serving = (world: World, program: Program) =>
  Runtime.layer({ orchestrations: [Trip, Parent], activities: [Reserve, Charge] }).pipe(Layer.provide([
    Reserve.toLayer(() => Effect.as(called(world, "reserve"), "room 7")),
    Charge.toLayer(() =>
      Effect.andThen(called(world, "charge"), () => world.declines ? Effect.fail("declined") : Effect.succeed("paid"))
    ),
    Trip.toLayer(program),
    Parent.toLayer(() => Effect.map(Trip.execute(), (trip) => `parent of ${trip}`))
  ]))

const admin = Effect.flatMap(Admin.Admin, Effect.succeed).pipe(Effect.provide(FromDriver.layerAdmin))

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

const start = (runtime: Parameters<typeof LocalProcess.start>[0]) =>
  LocalProcess.start(runtime, {
    runtime: { verifyReplay: true },
    provider: { longPolling: { aggressivePollInterval: "1 second" } }
  })

/** One by one: what a process begins at its start must have begun before time passes. */
const seconds = (count: number) =>
  Effect.forEach(Array.from({ length: count }), () => TestClock.adjust("1 second"), { discard: true })

const distinct = (calls: ReadonlyArray<string>) => new Set(calls).size

describe("Retry of an instance that has failed", () => {
  it.effect("carries out again what failed, with its idempotency key, and nothing else", () =>
    Effect.gen(function*() {
      const seen = world()
      const { client } = yield* start(serving(seen, () =>
        Effect.gen(function*() {
          yield* Counts.set(1)
          const room = yield* Reserve.execute()
          yield* Counts.set(2)
          yield* Orchestration.setCustomStatus("charging")
          const paid = yield* Charge.execute()
          yield* Counts.set(3)
          return `${room}, ${paid}, ${Option.getOrThrow(yield* Counts.get)}`
        })))
      const { readHistory, retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Failed")
      seen.declines = false
      assert.deepStrictEqual((yield* retry("t")).instances.map(({ instanceId }) => instanceId), ["t"])
      const status = yield* client.status("t")
      assert.deepInclude(status, { _tag: "Running", customStatus: Option.some("charging") })
      assert.deepStrictEqual(yield* client.read(Counts, "t"), Option.some(2))
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "room 7, paid, 3")
      assert.deepStrictEqual(seen.calls.map((call) => call.split(" ")[0]), ["reserve", "charge", "charge"])
      assert.strictEqual(distinct(seen.calls), 2)
      assert.deepStrictEqual(
        (yield* readHistory("t")).filter(({ _tag }) => _tag === "OrchestrationFailed" || _tag === "ActivityFailed"),
        []
      )
    }).pipe(inMemory))

  it.effect("counts the tries of an activity as before, so that the last one runs with the key of its call", () =>
    Effect.gen(function*() {
      const seen = world()
      const { client } = yield* start(serving(seen, Charge.with({ retry: { times: 2 } }).execute))
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      assert.lengthOf(seen.calls, 3)
      seen.declines = false
      yield* retry("t")
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "paid")
      assert.lengthOf(seen.calls, 4)
      assert.strictEqual(distinct(seen.calls), 1)
    }).pipe(inMemory))

  it.effect("delivers again what came with the end: signals and messages, in their order", () =>
    Effect.gen(function*() {
      const seen = world()
      let isBroken = true
      const program: Program = () =>
        Effect.gen(function*() {
          yield* Go.wait
          const notes = [yield* Notes.wait, yield* Notes.wait]
          if (isBroken) throw new Error("a bug")
          return [...notes, yield* Notes.wait].join(" ")
        })
      const { client } = yield* start(serving(seen, program))
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(1)
      yield* client.send(Notes, "t", "one")
      yield* client.send(Go, "t")
      yield* client.send(Notes, "t", "two")
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Failed")
      isBroken = false
      yield* retry("t")
      yield* client.send(Notes, "t", "three")
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "one two three")
    }).pipe(inMemory))

  it.effect("goes back to the first turn, if that has failed", () =>
    Effect.gen(function*() {
      const seen = world()
      let isBroken = true
      const { client } = yield* start(serving(seen, () =>
        Effect.suspend(() => {
          if (isBroken) throw new Error("a bug")
          return Effect.orDie(Reserve.execute())
        })))
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      isBroken = false
      yield* retry("t")
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "room 7")
    }).pipe(inMemory))

  it.effect("is refused by default for a saga that has undone its steps, and says which event to choose", () =>
    Effect.gen(function*() {
      const seen = world()
      const { client } = yield* start(serving(seen, () => Effect.tapError(Charge.execute(), () => Reserve.execute())))
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      const error = yield* Effect.flip(retry("t"))
      assert.strictEqual(error.reason._tag, "RetryRefused")
      const from = Number(/Retry from event (\d+)/.exec(error.message)![1])
      seen.declines = false
      yield* retry("t", { from })
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "paid")
    }).pipe(inMemory))

  it.effect("is refused by default after the death of a call was cleaned up, not after a death of the program", () =>
    Effect.gen(function*() {
      const seen = world()
      const saga = Effect.onError(Charge.execute(), () => Reserve.execute())
      const survivor = Effect.gen(function*() {
        yield* Effect.catchDefect(Charge.execute(), () => Reserve.execute())
        yield* Go.wait
        return seen.declines ? yield* Effect.die(new Error("a bug of the program")) : "paid"
      })
      const { client } = yield* start(
        Runtime.layer({ orchestrations: [Trip], activities: [Reserve, Charge] }).pipe(Layer.provide([
          Reserve.toLayer(() => Effect.succeed("room 7")),
          Charge.toLayer(() => seen.declines ? Effect.die(new Error("no currency")) : Effect.succeed("paid")),
          Trip.toLayer(() =>
            Effect.flatMap(Orchestration.Instance, ({ instanceId }) => instanceId === "saga" ? saga : survivor)
          )
        ]))
      )
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "saga" })
      yield* client.start(Trip, { instanceId: "survivor" })
      yield* client.send(Go, "survivor")
      yield* seconds(5)
      for (const id of ["saga", "survivor"]) assert.strictEqual((yield* client.status(id))._tag, "Failed")
      const error = yield* Effect.flip(retry("saga"))
      assert.strictEqual(error.reason._tag, "RetryRefused")
      seen.declines = false
      const from = Number(/Retry from event (\d+)/.exec(error.message)![1])
      const { instances: [plan] } = yield* retry("saga", { from, dryRun: true })
      assert.deepInclude(plan, {
        from,
        again: [{ name: "Charge", eventId: 2 }],
        forgotten: [{ name: "Reserve", eventId: 4 }],
        tasks: []
      })
      assert.strictEqual((yield* client.status("saga"))._tag, "Failed")
      yield* retry("saga", { from })
      yield* retry("survivor")
      yield* seconds(5)
      for (const id of ["saga", "survivor"]) {
        assert.strictEqual(yield* client.wait(Trip, id, { timeout: 0 }), "paid")
      }
    }).pipe(inMemory))

  it.effect("ends as it would have without the termination that came with its last answer", () =>
    Effect.gen(function*() {
      const { client } = yield* start(
        Runtime.layer({ orchestrations: [Trip], activities: [Reserve] }).pipe(Layer.provide([
          Reserve.toLayer(() => Effect.as(Effect.sleep("10 seconds"), "room 7")),
          Trip.toLayer(() => Reserve.execute())
        ]))
      )
      const { pause, readHistory, resume, retry } = yield* admin
      const instance = PauseTarget.Instance({ instanceId: "t" })
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* pause(instance)
      yield* seconds(10)
      yield* client.send(Go, "t")
      yield* client.terminate("t", "by mistake")
      yield* resume(instance)
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Cancelled")
      assert.sameOrderedMembers((yield* readHistory("t")).map(({ _tag }) => _tag).slice(2, 5), [
        "ActivityCompleted",
        "ExternalEventPersistent",
        "OrchestrationCancelRequested"
      ])
      yield* retry("t")
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "room 7")
    }).pipe(inMemory))

  it.effect("ends again as it did from the event before its end", () =>
    Effect.gen(function*() {
      const seen = world()
      const { client } = yield* start(serving(seen, () => Effect.andThen(Go.wait, Effect.fail("no"))))
      const { readHistory, retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* client.send(Go, "t")
      yield* seconds(5)
      const end = (yield* readHistory("t")).find(({ _tag }) => _tag === "OrchestrationFailed")!
      for (let times = 0; times < 2; times++) {
        yield* retry("t", { from: end.eventId - 1 })
        yield* seconds(5)
        assert.strictEqual(yield* Effect.flip(client.wait(Trip, "t", { timeout: 0 })), "no")
      }
    }).pipe(inMemory))

  it.effect("brings back what was cancelled, with its timers", () =>
    Effect.gen(function*() {
      const seen = world()
      const { client } = yield* start(serving(seen, () => Effect.as(Effect.sleep("1 minute"), "slept")))
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* client.terminate("t", "by mistake")
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Cancelled")
      yield* retry("t")
      yield* seconds(30)
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
      yield* seconds(30)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "slept")
    }).pipe(inMemory))

  it.effect("retries the child whose failure its parent did not survive", () =>
    Effect.gen(function*() {
      const seen = world()
      const { client } = yield* start(serving(seen, Charge.execute))
      const { retry } = yield* admin
      yield* client.start(Parent, { instanceId: "p" })
      yield* seconds(5)
      assert.strictEqual((yield* client.status("p"))._tag, "Failed")
      const child = "p::sub::2"
      const error = yield* Effect.flip(retry(child))
      assert.strictEqual(error.reason._tag, "RetryRefused")
      assert.include(error.message, "retry the parent")
      seen.declines = false
      assert.deepStrictEqual((yield* retry("p")).instances.map(({ instanceId }) => instanceId), ["p", child])
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Parent, "p", { timeout: 0 }), "parent of paid")
      assert.strictEqual(distinct(seen.calls), 1)
    }).pipe(inMemory))

  it.effect("is refused where it cannot be right", () =>
    Effect.gen(function*() {
      const seen = world()
      const { client } = yield* start(serving(seen, () => Effect.as(Go.wait, "gone")))
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      const problem = (call: ReturnType<typeof retry>) => Effect.map(Effect.flip(call), ({ message }) => message)
      assert.include(yield* problem(retry("t")), "it runs")
      assert.include(yield* problem(retry("unknown")), "not found")
      yield* client.send(Go, "t")
      yield* seconds(5)
      assert.include(yield* problem(retry("t")), "it has completed")
      assert.include(yield* problem(retry("t", { from: 0 })), "invalid from")
    }).pipe(inMemory))
})

describe("Retry of a blocked instance", () => {
  it.effect("from an earlier event lets it ask for what its code asks for now", () =>
    Effect.gen(function*() {
      const seen = world()
      seen.declines = false
      const first = yield* start(serving(seen, () => Effect.as(Effect.andThen(Reserve.execute(), Go.wait), "old")))
      yield* first.client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* first.stop
      const { client } = yield* start(serving(seen, () => Effect.andThen(Reserve.execute(), Charge.execute())))
      yield* client.send(Go, "t")
      yield* seconds(5)
      const status = yield* client.status("t")
      const block = status._tag === "Running" ? Option.getOrThrow(status.block) : assert.fail("it has ended")
      assert.strictEqual(
        block.problem,
        `event 4: history has wait for signal "Go", the code asks for activity "Charge"`
      )
      const { retry } = yield* admin
      yield* retry("t", { from: block.eventId - 1, reason: "no more wait" })
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "paid")
      assert.deepStrictEqual(seen.calls.map((call) => call.split(" ")[0]), ["reserve", "charge"])
    }).pipe(inMemory))
})

describe("Retry from an earlier event", () => {
  it.effect("does what follows at the time of the retry: a sleep that is set again is as long as before", () =>
    Effect.gen(function*() {
      const seen = world()
      const times: Array<string> = []
      const clock = Effect.map(Clock.currentTimeMillis, (ms) => String(ms / 1000))
      const runtime = serving(seen, () =>
        Effect.gen(function*() {
          const before = yield* clock
          yield* Orchestration.setCustomStatus(yield* clock)
          const again = yield* clock
          yield* Effect.sleep("10 seconds")
          times.push(`${before} ${again} ${yield* clock}`)
          yield* Charge.execute()
          return yield* clock
        }))
      const { client, stop } = yield* start(runtime)
      const { readHistory, retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(60)
      assert.strictEqual((yield* client.status("t"))._tag, "Failed")
      seen.declines = false
      // The status stays, the sleep does not.
      yield* retry("t", { from: 2 })
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Running", "it sleeps again")
      yield* stop
      const second = yield* start(runtime)
      yield* seconds(6)
      assert.strictEqual(yield* second.client.wait(Trip, "t", { timeout: 0 }), "70")
      assert.deepStrictEqual(new Set(times), new Set(["0 0 10", "0 60 70"]), "replays see the same")
      const timer = (yield* readHistory("t")).find(({ _tag }) => _tag === "TimerCreated")
      assert.deepInclude(timer, { fireAtMs: 70_000 })
    }).pipe(inMemory))

  it.effect("gives requests that are made again keys of their own", () =>
    Effect.gen(function*() {
      const seen = world()
      seen.declines = false
      let isBroken = true
      const { client } = yield* start(serving(seen, () =>
        Effect.gen(function*() {
          yield* Reserve.execute()
          yield* Charge.execute()
          yield* Reserve.execute()
          if (isBroken) throw new Error("a bug")
          return "done"
        })))
      const { fork, readHistory, retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Failed")
      isBroken = false
      yield* retry("t", { from: 3 })
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "done")
      assert.deepStrictEqual(seen.calls.map((call) => call.split(" ")[0]), [
        "reserve",
        "charge",
        "reserve",
        "charge",
        "reserve"
      ])
      // None of them is that of another call.
      assert.strictEqual(distinct(seen.calls.map((call) => call.split(" ")[1]!)), 5)
      const error = yield* Effect.flip(fork("t", { atEvent: 5, newId: "u" }))
      assert.include(error.message, "a retry has removed event 5 of its execution 1")
      const ids = (yield* readHistory("t")).map(({ eventId }) => eventId)
      assert.deepStrictEqual(ids, ids.toSorted((a, b) => a - b))
    }).pipe(inMemory))

  it.effect("of a blocked instance drops the result of a request that it removes", () =>
    Effect.gen(function*() {
      const seen = world()
      seen.declines = false
      const first = yield* start(
        Runtime.layer({ orchestrations: [Trip] }).pipe(
          Layer.provide(Trip.toLayer(() => Effect.as(Reserve.execute(), "old")))
        )
      )
      yield* first.client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* first.stop
      // Its result leads to the turn that does not fit, and waits in the queue.
      const { client } = yield* start(serving(seen, Charge.execute))
      yield* seconds(5)
      const status = yield* client.status("t")
      assert.isTrue(status._tag === "Running" && Option.isSome(status.block))
      const { retry } = yield* admin
      yield* retry("t", { from: 1 })
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "paid")
      assert.deepStrictEqual(seen.calls.map((call) => call.split(" ")[0]), ["reserve", "charge"])
    }).pipe(inMemory))

  it.effect("cannot keep the end", () =>
    Effect.gen(function*() {
      const { client } = yield* start(serving(world(), () => Effect.as(Go.wait, "gone")))
      const { readHistory, retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* client.terminate("t", "by mistake")
      yield* seconds(5)
      const history = yield* readHistory("t")
      const closing = history.find((event) => "reason" in event && event.reason === "orchestration_terminal")!
      const error = yield* Effect.flip(retry("t", { from: closing.eventId }))
      assert.include(error.message, `the event must be one from 1 to ${closing.eventId - 1} of its execution 1`)
      assert.strictEqual((yield* client.status("t"))._tag, "Cancelled")
    }).pipe(inMemory))
})

describe("Retry of an instance whose code has changed", () => {
  it.effect("keeps the answers that are recorded before the cut", () =>
    Effect.gen(function*() {
      const seen = world()
      const answers: Array<boolean> = []
      const { client } = yield* start(serving(seen, () =>
        Effect.gen(function*() {
          yield* Reserve.execute()
          answers.push(yield* Orchestration.changed("checks"))
          return yield* Charge.execute()
        })))
      const { readHistory, retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      seen.declines = false
      yield* retry("t")
      yield* seconds(5)
      assert.strictEqual(yield* client.wait(Trip, "t", { timeout: 0 }), "paid")
      assert.notInclude(answers, false)
      assert.lengthOf(
        (yield* readHistory("t")).filter((event) =>
          event._tag === "ActivityScheduled" && event.name === "duroxide-prisma/changed"
        ),
        1
      )
    }).pipe(inMemory))
})
