/**
 * Programs whose histories every later release must be able to continue: one for each construct, as users write it.
 *
 * Their requests must never change, and neither may the behaviour of this package and Effect: the same timers,
 * retries, random numbers and texts. A new construct gets a new program.
 */
import { Activity, Client, KeyValue, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as DateTime from "effect/DateTime"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"

/** One history: its program, and what happens to the instance. */
export interface Scenario {
  readonly orchestration: Orchestration.Any
  readonly layer: Layer.Layer<Orchestration.Handler<string>>
  /** Starts the instance `history`, and drives it to the point at which it is recorded. */
  readonly drive: Effect.Effect<unknown, unknown, Client.Client | TestRuntime.TestRuntime>
}

type Program = (input: any) => Effect.Effect<unknown, unknown, Orchestration.Instance>

export const instanceId = "history"

/** Starts the program and lets it run until it ends, by default. */
const scenario = (name: string, program: Program, options: {
  readonly payload?: unknown
  readonly attributes?: { readonly [name: string]: string | number }
  readonly drive?: Scenario["drive"]
} = {}): Scenario => {
  const orchestration = Orchestration.make(name, {
    payload: Schema.Unknown,
    success: Schema.Unknown,
    error: Schema.Unknown
  })
  return {
    orchestration,
    layer: orchestration.toLayer((input) => Effect.map(program(input), (value) => value ?? null)),
    drive: Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(orchestration, {
        instanceId,
        payload: options.payload ?? null,
        attributes: options.attributes
      })
      yield* options.drive ?? TestRuntime.runToEnd(instanceId)
    })
  }
}

// -- what they call ----------------------------------------------------------------------------------

const Echo = Activity.make("Echo", { payload: Schema.Unknown, success: Schema.Unknown })
/** Succeeds at the given attempt, counted by the program; fails before. */
const Flaky = Activity.make("Flaky", { payload: Schema.Int, success: Schema.Int, error: Schema.String })
const Sleepy = Activity.make("Sleepy", { payload: Schema.String, success: Schema.String })
const Broken = Activity.make("Broken", { payload: Schema.String })

const Greet = Orchestration.make("Greet", { payload: Schema.String, success: Schema.String, error: Schema.String })
const Forever = Orchestration.make("Forever")

const Approved = Signal.make("Approved", { payload: Schema.Boolean, unawaited: "lost" })
const Orders = Signal.make("Orders", { payload: Schema.Int })
const Total = KeyValue.make("total", Schema.Int)
const Note = KeyValue.make("note", Schema.String)

const helpers = [
  Echo.toLayer(Effect.succeed),
  Flaky.toLayer((attempt) => attempt < 3 ? Effect.fail(`attempt ${attempt}`) : Effect.succeed(attempt)),
  Sleepy.toLayer((duration) => Effect.as(Effect.sleep(duration as Duration.Input), duration)),
  Broken.toLayer((message) => Effect.die(new Error(message))),
  Greet.toLayer((name) => name === "" ? Effect.fail("nobody") : Effect.as(Effect.sleep("1 minute"), `Hello, ${name}`)),
  Forever.toLayer(() => Effect.asVoid(Approved.wait))
] as const

/** Everything that a scenario's program may call, and the program. */
export const runtime = ({ layer, orchestration }: Scenario) =>
  Runtime.layer({ orchestrations: [orchestration, Greet, Forever], activities: [Echo, Flaky, Sleepy, Broken] }).pipe(
    Layer.provide([layer, ...helpers]),
    Layer.provide(RuntimeConfig.layer({
      tags: { _tag: "DefaultAnd", tags: ["gpu"] },
      shutdownTimeout: 1,
      cancellationCheckInterval: Infinity,
      sessionCleanupInterval: Infinity
    }))
  )

// -- the programs ------------------------------------------------------------------------------------

const iso = Effect.map(DateTime.now, DateTime.formatIso)

const raise = (value: boolean) => Effect.flatMap(Client.Client, (client) => client.send(Approved, instanceId, value))

const send = (...values: ReadonlyArray<number>) =>
  Effect.flatMap(Client.Client, (client) => Effect.forEach(values, (value) => client.send(Orders, instanceId, value)))

export const scenarios: { readonly [name: string]: Scenario } = {
  "sleep-and-clock": scenario("SleepAndClock", () =>
    Effect.gen(function*() {
      const times = [yield* iso]
      for (const duration of ["0 millis", "1500 micros", "1 second", "30 days"] as const) {
        yield* Effect.sleep(duration)
        times.push(yield* iso)
      }
      return [...times, yield* Clock.currentTimeNanos.pipe(Effect.map(String))]
    })),

  "all": scenario("All", (names: ReadonlyArray<string>) =>
    Effect.gen(function*() {
      const unbounded = yield* Effect.all(names.map((name) => Sleepy.execute(name)), { concurrency: "unbounded" })
      const two = yield* Effect.forEach(names, (name) => Echo.execute(name), { concurrency: 2 })
      const [successes, failures] = yield* Effect.partition([3, 1, 3], (attempt) => Flaky.execute(attempt), {
        concurrency: "unbounded"
      })
      return { unbounded, two, successes, failures }
    }), { payload: ["3 hours", "1 hour", "2 hours"] }),

  "race": scenario("Race", () =>
    Effect.gen(function*() {
      const timer = yield* Effect.race(Sleepy.execute("2 hours"), Effect.as(Effect.sleep("1 hour"), "timer"))
      const activity = yield* Effect.raceFirst(Sleepy.execute("1 hour"), Effect.as(Effect.sleep("2 hours"), "timer"))
      const three = yield* Effect.raceAll([Approved.wait, Orders.wait, Effect.as(Effect.sleep("1 minute"), "timer")])
      const child = yield* Effect.raceFirst(Forever.execute(), Echo.execute("echo"))
      return { timer, activity, three, child }
    })),

  "retry": scenario("Retry", () =>
    Effect.gen(function*() {
      let attempt = 0
      const third = yield* Effect.suspend(() => Flaky.execute(++attempt)).pipe(
        Effect.retry({ schedule: Schedule.exponential("1 second"), times: 5 })
      )
      const jittered = yield* Flaky.execute(1).pipe(
        Effect.retry({ schedule: Schedule.jittered(Schedule.spaced("1 minute")), times: 3 }),
        Effect.flip
      )
      const ofActivity = yield* Effect.flip(
        Flaky.with({ retry: { times: 2, schedule: Schedule.spaced("10 seconds") } }).execute(1)
      )
      const repeated = yield* Effect.repeat(iso, { schedule: Schedule.spaced("1 hour"), times: 2 })
      return { third, jittered, ofActivity, repeated }
    })),

  "timeout": scenario("Timeout", () =>
    Effect.gen(function*() {
      const caught = yield* Sleepy.execute("2 hours").pipe(
        Effect.timeout("1 hour"),
        Effect.catchIf(Cause.isTimeoutError, () => Effect.succeed("too late"))
      )
      const option = yield* Effect.timeoutOption(Approved.wait, "1 day")
      const inTime = yield* Effect.timeout(Sleepy.execute("1 hour"), "1 day")
      const ofActivity = yield* Effect.flip(Sleepy.with({ timeout: "30 minutes" }).execute("2 hours"))
      return { caught, option: Option.isNone(option), inTime, ofActivity: ofActivity._tag }
    })),

  "child": scenario("Child", () =>
    Effect.gen(function*() {
      const named = yield* Greet.executeWithId({ instanceId: "greeter", payload: "you" })
      const [one, other] = yield* Effect.all([Greet.execute("one"), Greet.execute("other")], {
        concurrency: "unbounded"
      })
      const failed = yield* Effect.flip(Greet.execute(""))
      return [named, one, other, failed]
    })),

  "detached": scenario("Detached", () =>
    Effect.gen(function*() {
      yield* Greet.startDetached({ instanceId: "detached-1", payload: "world" })
      yield* Effect.sleep("1 second")
      yield* Greet.startDetached({ instanceId: "detached-2", payload: "moon" })
    })),

  "signal": scenario("Signal", () =>
    Effect.gen(function*() {
      const first = yield* Approved.wait
      yield* Effect.sleep("1 day")
      const both = yield* Effect.all([Approved.wait, Approved.wait], { concurrency: "unbounded" })
      return [first, both]
    }), {
    drive: Effect.gen(function*() {
      yield* raise(true)
      // No instance waits for this one.
      yield* raise(false)
      yield* TestRuntime.advance("1 day")
      yield* raise(true)
      yield* raise(false)
    })
  }),

  "kept-signals": scenario("KeptSignals", () =>
    Effect.gen(function*() {
      yield* Effect.sleep("1 hour")
      const early = yield* Orders.wait
      const nothing = yield* Effect.timeoutOption(Effect.andThen(Orders.wait, Orders.wait), "1 hour")
      const late = yield* Orders.wait
      return [early, Option.isNone(nothing), late]
    }), {
    drive: Effect.gen(function*() {
      yield* send(1, 2)
      yield* TestRuntime.advance("2 hours")
      yield* send(3)
      yield* TestRuntime.runToEnd(instanceId)
    })
  }),

  "key-values": scenario("KeyValues", () =>
    Effect.gen(function*() {
      const before = yield* Total.get
      yield* Total.set(1)
      yield* Note.set("a")
      yield* Echo.execute("step")
      const total = Option.getOrThrow(yield* Total.get)
      yield* Total.set(total + 1)
      yield* Note.clear
      yield* Effect.sleep("1 second")
      return [
        Option.isNone(before),
        yield* Total.get.pipe(Effect.map(Option.getOrNull)),
        Option.isNone(yield* Note.get)
      ]
    })),

  "custom-status": scenario("CustomStatus", () =>
    Effect.gen(function*() {
      yield* Orchestration.setCustomStatus("begun")
      yield* Effect.sleep("1 second")
      const status = yield* Orchestration.customStatus
      yield* Orchestration.setCustomStatus(null)
      yield* Echo.execute(status)
      yield* Orchestration.setCustomStatus("done")
    })),

  "attributes": scenario("Attributes", (round: number) =>
    Effect.gen(function*() {
      yield* Orchestration.setAttributes({
        round,
        customer: "c1",
        until: yield* DateTime.now,
        first: round === 1 ? "" : null
      })
      yield* Effect.sleep("1 minute")
      if (round === 1) return yield* Orchestration.make("Attributes", { payload: Schema.Int }).continueAsNew(2)
      yield* Greet.executeWithId({ instanceId: "greeter", payload: "you", attributes: { of: instanceId } })
    }), { payload: 1, attributes: { kind: "gift", size: 3 } }),

  "continue-as-new": scenario("ContinueAsNew", (round: number) =>
    Effect.gen(function*() {
      const orders = yield* Effect.all([Orders.wait, Orders.wait])
      const total = Option.getOrElse(yield* Total.get, () => 0) + orders[0] + orders[1]
      yield* Total.set(total)
      yield* Orchestration.setCustomStatus(`round ${round}`)
      yield* Effect.forkChild(Effect.sleep("1 day"))
      yield* Effect.sleep("1 minute")
      if (round < 3) return yield* Orchestration.make("ContinueAsNew", { payload: Schema.Int }).continueAsNew(round + 1)
      return { total, status: yield* Orchestration.customStatus, draw: yield* Random.nextInt }
    }), { payload: 1, drive: Effect.andThen(send(1, 2, 3, 4, 5, 6, 7), TestRuntime.runToEnd(instanceId)) }),

  "random": scenario("Random", () =>
    Effect.gen(function*() {
      const first = yield* Random.nextIntBetween(0, 1_000_000)
      yield* Echo.execute(first)
      return [
        first,
        yield* Random.next,
        yield* Random.nextBoolean,
        yield* Random.shuffle(["a", "b", "c", "d", "e"])
      ]
    })),

  "fibers": scenario("Fibers", () =>
    Effect.gen(function*() {
      const ready = yield* Deferred.make<string>()
      const fiber = yield* Effect.forkChild(
        Effect.andThen(Effect.sleep("1 hour"), Effect.flatMap(Deferred.await(ready), Echo.execute))
      )
      yield* Sleepy.execute("30 minutes")
      yield* Deferred.succeed(ready, "ready")
      const joined = yield* Fiber.join(fiber)
      const interrupted = yield* Effect.forkChild(Sleepy.execute("1 day"))
      yield* Effect.sleep("1 minute")
      yield* Fiber.interrupt(interrupted)
      return joined
    })),

  "session-and-tag": scenario("SessionAndTag", () =>
    Effect.gen(function*() {
      const { execute } = Echo.with({ sessionId: "session-1", tag: "gpu" })
      return [yield* execute("a"), yield* execute("b")]
    })),

  "failure": scenario("Failure", (reason: string) =>
    Effect.gen(function*() {
      yield* Effect.catchDefect(Broken.execute("caught"), () => Effect.void)
      yield* Effect.forkChild(Approved.wait)
      yield* Effect.sleep("1 second")
      return yield* Effect.fail({ reason })
    }), { payload: "none left" }),

  "death": scenario("Death", () => Effect.andThen(Echo.execute("last words"), Broken.execute("boom"))),

  "cancelled": scenario(
    "Cancelled",
    () =>
      Effect.all([
        Approved.wait,
        Orders.wait,
        Effect.sleep("1 day"),
        Sleepy.execute("1 day"),
        Forever.execute()
      ], {
        concurrency: "unbounded"
      }),
    {
      drive: Effect.gen(function*() {
        const client = yield* Client.Client
        yield* TestRuntime.advance("1 hour")
        yield* client.terminate(instanceId, "not wanted any more")
      })
    }
  ),

  "still-waiting": scenario("StillWaiting", () =>
    Effect.gen(function*() {
      yield* Echo.execute("asked")
      const answer = yield* Effect.timeoutOption(Approved.wait, "7 days")
      return Option.getOrNull(answer)
    }), { drive: TestRuntime.advance("3 days") })
}
