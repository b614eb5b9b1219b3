import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Event } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"

const hour = 3_600_000

const Step = Activity.make("Step", { payload: Schema.String, success: Schema.String, error: Schema.String })
const Approved = Signal.make("Approved", { payload: Schema.Boolean })
const Orders = Signal.make("Orders", { payload: Schema.Int })
const Stage = KeyValue.make("stage", Schema.String)

const Program = Orchestration.make("Program", { success: Schema.Unknown, error: Schema.Unknown })

/** A runtime of one orchestration and one activity. */
const runtimeOf = (
  program: Effect.Effect<unknown, unknown, Orchestration.Instance>,
  step: (name: string) => Effect.Effect<string, string, Activity.Call> = Effect.succeed
) =>
  Runtime.layer({ orchestrations: [Program], activities: [Step] }).pipe(
    Layer.provide([Program.toLayer(() => program), Step.toLayer(step)])
  )

const on = (
  program: Effect.Effect<unknown, unknown, Orchestration.Instance>,
  step?: (name: string) => Effect.Effect<string, string, Activity.Call>,
  options?: TestRuntime.Options
) => Effect.provide(TestRuntime.layer(runtimeOf(program, step), options))

const start = Effect.flatMap(Client.Client, (client) => client.start(Program, { instanceId: "p" }))
const wait = (options?: Client.WaitOptions) =>
  Effect.flatMap(Client.Client, (client) => client.wait(Program, "p", options))
const status = Effect.flatMap(Client.Client, (client) => client.status("p"))

/** Hours since the clock was started. */
const hours = Effect.map(Clock.currentTimeMillis, (now) => (now - Date.UTC(2030, 0, 1)) / hour)

const stuck = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.exit(effect), (exit) => {
    const defect = Exit.isFailure(exit) ? Cause.squash(exit.cause) : undefined
    return defect instanceof TestRuntime.Stuck ? defect.message : assert.fail(`it is not stuck: ${String(defect)}`)
  })

const silent = Effect.provide(Logger.layer([]))

describe("TestRuntime", () => {
  it.effect("time: a wait lets it pass, to the moment at which the instance ends and not beyond", () =>
    Effect.gen(function*() {
      yield* start
      assert.strictEqual(yield* hours, 0)
      assert.strictEqual(yield* wait(), "slept")
      assert.strictEqual(yield* hours, 30 * 24)
    }).pipe(on(Effect.as(Effect.sleep("30 days"), "slept"))))

  it("time: the same without a test clock around it, as plain Effect", () =>
    Effect.gen(function*() {
      yield* start
      assert.strictEqual(yield* wait(), "slept")
      assert.strictEqual(yield* hours, 30 * 24)
    }).pipe(on(Effect.as(Effect.sleep("30 days"), "slept")), Effect.runPromise))

  it.effect("time: is virtual for the test, the program and the activities alike, and starts at startAt", () =>
    Effect.gen(function*() {
      const times = yield* Effect.andThen(start, wait())
      const end = DateTime.formatIso(yield* DateTime.now)
      assert.deepStrictEqual(times, ["1999-12-31T22:00:00.000Z", "1999-12-31T23:00:00.000Z"])
      assert.strictEqual(end, "1999-12-31T23:00:00.000Z")
    }).pipe(on(
      Effect.gen(function*() {
        const before = DateTime.formatIso(yield* DateTime.now)
        yield* Effect.sleep("1 hour")
        return [before, yield* Step.execute("now")]
      }),
      () => Effect.map(DateTime.now, DateTime.formatIso),
      { startAt: "1999-12-31T22:00:00Z" }
    )))

  it.effect("time: advance moves exactly that far, and everything due on the way happens at its time", () =>
    Effect.gen(function*() {
      yield* start
      yield* TestRuntime.advance("59 minutes")
      assert.strictEqual((yield* status)._tag, "Running")
      yield* TestRuntime.advance("1 minute")
      assert.strictEqual((yield* status)._tag, "Completed")
      assert.strictEqual(yield* hours, 1)
      yield* TestClock.adjust("1 hour")
      assert.strictEqual(yield* hours, 2)
      const times = (yield* TestRuntime.history("p")).map(({ timestampMs }) =>
        (timestampMs - Date.UTC(2030, 0, 1)) / hour
      )
      assert.deepStrictEqual(times, [0, 0, 0.5, 0.5, 1, 1])
    }).pipe(on(Effect.as(Effect.andThen(Effect.sleep("30 minutes"), Effect.sleep("30 minutes")), null))))

  it.effect("time: a wait for a status or a value lets it pass until they are there, or cannot come", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start
      assert.deepStrictEqual(yield* client.waitForStatus("p"), { status: Option.some("early"), version: 1 })
      assert.strictEqual(yield* hours, 1)
      const late = { after: 1, timeout: "30 minutes" } as const
      assert.deepStrictEqual(
        yield* Effect.flip(client.waitForStatus("p", late)),
        new Client.WaitTimeout({ instanceId: "p", waitedFor: "status", timeoutMs: hour / 2 })
      )
      assert.strictEqual(yield* hours, 1.5)
      assert.strictEqual(yield* client.waitForValue(Stage, "p", { until: (stage) => stage === "last" }), "last")
      assert.strictEqual(yield* hours, 2)
      const ended = yield* Effect.flip(client.waitForValue(Stage, "p", { until: (stage) => stage === "more" }))
      assert.deepStrictEqual(ended, new Client.InstanceEnded({ instanceId: "p", waitedFor: "value" }))
      assert.include(yield* stuck(client.waitForStatus("other")), "instance other does not exist")
    }).pipe(on(
      Effect.gen(function*() {
        yield* Effect.sleep("1 hour")
        yield* Orchestration.setCustomStatus("early")
        yield* Stage.set("first")
        yield* Effect.sleep("1 hour")
        yield* Stage.set("last")
        yield* Effect.sleep("1 hour")
      }),
      undefined,
      { patience: "50 millis" }
    )))

  it.effect("time: a wait with a timeout ends at its deadline", () =>
    Effect.gen(function*() {
      yield* start
      const error = yield* Effect.flip(wait({ timeout: "90 minutes" }))
      assert.deepStrictEqual(error, new Client.WaitTimeout({ instanceId: "p", timeoutMs: 1.5 * hour }))
      assert.strictEqual(yield* hours, 1.5)
      assert.strictEqual(yield* wait({ timeout: "30 minutes" }), "slept")
    }).pipe(on(Effect.as(Effect.sleep("2 hours"), "slept"))))

  it.effect("time: several may wait at once, and each finds the time at which its instance ended", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start
      yield* TestRuntime.advance("30 minutes")
      const ends = yield* Effect.all([
        Effect.andThen(client.execute(Program, { instanceId: "later" }), hours),
        Effect.andThen(wait(), hours)
      ], { concurrency: "unbounded" })
      assert.deepStrictEqual(ends, [1.5, 1])
    }).pipe(on(Effect.as(Effect.sleep("1 hour"), null))))

  it.effect("time: it passes for an activity that waits for another instance", () => {
    const Nap = Orchestration.make("Nap", { success: Schema.String })
    const runtime = Runtime.layer({ orchestrations: [Program, Nap], activities: [Step] }).pipe(Layer.provide([
      Program.toLayer(() => Step.execute("q")),
      Nap.toLayer(() => Effect.as(Effect.sleep("1 hour"), "slept")),
      Step.toLayer((instanceId) =>
        Effect.flatMap(Client.Client, (client) => client.execute(Nap, { instanceId })).pipe(Effect.orDie)
      )
    ]))
    return Effect.gen(function*() {
      yield* start
      assert.strictEqual(yield* wait(), "slept")
      assert.strictEqual(yield* hours, 1)
    }).pipe(Effect.provide(TestRuntime.layer(runtime, { patience: "50 millis" })))
  })

  it.effect("signals: a signal sent on day three reaches the wait of day two", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start
      yield* TestRuntime.advance("3 days")
      yield* client.send(Approved, "p", true)
      assert.deepStrictEqual(yield* status, { _tag: "Completed", output: "true", customStatus: Option.none() })
      assert.strictEqual(yield* hours, 72)
    }).pipe(on(Effect.andThen(Effect.sleep("2 days"), Approved.wait))))

  it.effect("calls: each finds and leaves the instances at rest", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start
      assert.deepStrictEqual(yield* client.read(Stage, "p"), Option.some("1"))
      yield* client.send(Orders, "p", 7)
      assert.deepStrictEqual(yield* client.read(Stage, "p"), Option.some("7"))
      yield* client.terminate("p", "enough")
      assert.strictEqual((yield* status)._tag, "Cancelled")
    }).pipe(on(Effect.gen(function*() {
      yield* Stage.set("1")
      yield* Stage.set(String(yield* Orders.wait))
      yield* Approved.wait
    }))))

  it.effect("activities: one that sleeps lets time pass, and keeps its lock however long it sleeps", () =>
    Effect.gen(function*() {
      yield* start
      assert.strictEqual(yield* wait(), "delivery 1")
      assert.strictEqual(yield* hours, 5)
    }).pipe(on(
      Step.execute("slow"),
      () =>
        Effect.flatMap(
          Activity.Call,
          ({ deliveryNumber }) => Effect.as(Effect.sleep("5 hours"), `delivery ${deliveryNumber}`)
        )
    )))

  it.effect("activities: one that never returns loses against a timeout, and is interrupted", () => {
    let interrupted = 0
    return Effect.gen(function*() {
      yield* start
      assert.deepStrictEqual(yield* wait(), "too late")
      assert.strictEqual(yield* hours, 7)
      assert.strictEqual(interrupted, 1)
    }).pipe(on(
      Step.execute("hangs").pipe(Effect.timeoutOption("7 hours"), Effect.map(Option.getOrElse(() => "too late"))),
      () =>
        Effect.sleep(Duration.infinity).pipe(
          Effect.as(""),
          Effect.onInterrupt(() => Effect.sync(() => void interrupted++))
        )
    ))
  })

  it.effect("activities: time waits for one that awaits something real", () =>
    Effect.gen(function*() {
      yield* start
      assert.strictEqual(yield* wait(), "answer")
      assert.strictEqual(yield* hours, 0)
    }).pipe(on(
      Step.execute("real").pipe(Effect.timeout("1 hour")),
      () => Effect.promise(() => new Promise<string>((resolve) => setTimeout(() => resolve("answer"), 30)))
    )))

  it.effect("activities: typed failures and retries work as with a real store", () => {
    let attempts = 0
    return Effect.gen(function*() {
      yield* start
      assert.strictEqual(yield* Effect.flip(wait()), "no 4")
      assert.strictEqual(yield* hours, 1 + 2 + 4)
    }).pipe(on(
      Step.execute("fails").pipe(Effect.retry({ times: 3, schedule: exponentialHours })),
      () => Effect.suspend(() => Effect.fail(`no ${++attempts}`))
    ))
  })

  it.effect("stuck: an activity that neither ends nor sleeps is named", () =>
    Effect.gen(function*() {
      yield* start
      assert.strictEqual(
        yield* stuck(wait()),
        `activity "Step" of instance p neither ends nor sleeps, and time waits for it. A handler that is never to ` +
          "answer is Effect.sleep(Duration.infinity); one that calls a real service may need more patience"
      )
    }).pipe(on(Step.execute("hangs"), () => Effect.never, { patience: "20 millis" }), silent))

  it.effect("stuck: names what an instance waits for if nothing is due that could end the wait", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start
      assert.strictEqual(
        yield* stuck(wait()),
        `instance p waits for signal "Approved", signal "Orders", and nothing is due that could end this. ` +
          "Send what it needs before you wait for it"
      )
      assert.include(yield* stuck(client.wait(Program, "other")), "instance other does not exist")
      const Unserved = Orchestration.make("Unserved", { version: "1.2.0" })
      yield* client.start(Unserved, { instanceId: "unserved" })
      assert.include(yield* stuck(client.wait(Unserved, "unserved")), "has not begun. No runtime serves Unserved@1.2.0")
    }).pipe(on(
      Effect.all([Approved.wait, Effect.andThen(Effect.sleep("1 day"), Orders.wait)], { concurrency: "unbounded" }),
      undefined,
      { patience: "20 millis" }
    )))

  it.effect("stuck: names what no runtime serves, also after a deployment without it", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start
      yield* TestRuntime.deploy(Runtime.layer({ activities: [Step] }).pipe(Layer.provide(Step.toLayer(Effect.succeed))))
      yield* client.send(Approved, "p", true)
      assert.include(yield* stuck(wait()), "No runtime serves Program@1.0.0: serve it in the layer of the test")
      yield* TestRuntime.deploy(
        Runtime.layer({ orchestrations: [Program] }).pipe(
          Layer.provide(Program.toLayer(() => Effect.andThen(Approved.wait, Step.execute("on"))))
        )
      )
      assert.include(yield* stuck(wait()), `No runtime serves activity "Step": serve it in the layer of the test`)
    }).pipe(on(Effect.andThen(Approved.wait, Step.execute("on")), undefined, { patience: "20 millis" }), silent))

  it.effect("stuck: also while an activity hangs and its lock is renewed forever", () =>
    Effect.gen(function*() {
      yield* start
      assert.include(yield* stuck(wait()), `instance p waits for activity "Step", signal "Approved"`)
    }).pipe(
      on(
        Effect.all([Step.execute("hangs"), Approved.wait], { concurrency: "unbounded" }),
        () => Effect.sleep(Duration.infinity).pipe(Effect.as("")),
        { patience: "20 millis" }
      ),
      silent
    ))

  it.effect("stuck: not while another fiber of the test may still send something", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* start
      const waiting = yield* Effect.forkChild(wait())
      yield* Effect.promise(() => new Promise((resolve) => setTimeout(resolve, 20)))
      yield* client.send(Approved, "p", true)
      assert.strictEqual(yield* Fiber.join(waiting), true)
    }).pipe(on(Approved.wait)))

  it.effect("restart: work under way is abandoned, and begins again at once", () =>
    Effect.gen(function*() {
      yield* start
      yield* TestRuntime.advance("10 minutes")
      yield* TestRuntime.restart
      assert.strictEqual(yield* wait(), "delivery 1")
      assert.closeTo(yield* hours, 1 + 10 / 60, 0.001)
    }).pipe(on(Step.execute("an hour"), hourOfWork), silent))

  it.effect("crash: work under way begins again when its lock has run out, as a second delivery", () =>
    Effect.gen(function*() {
      yield* start
      yield* TestRuntime.advance("10 minutes")
      yield* TestRuntime.crash
      assert.strictEqual(yield* wait(), "delivery 2")
      assert.closeTo(yield* hours, 1 + 10 / 60, 0.01)
      assert.isAbove(yield* hours, 1 + 10 / 60)
    }).pipe(on(Step.execute("an hour"), hourOfWork), silent))

  it.effect("crash: programs continue from their history, and timers that fell due meanwhile fire", () => {
    let runs = 0
    return Effect.gen(function*() {
      yield* start
      yield* TestRuntime.advance("1 hour")
      yield* TestRuntime.crash
      yield* TestRuntime.restart
      assert.deepStrictEqual(yield* wait(), ["a", "b"])
      assert.strictEqual(yield* hours, 2)
      assert.strictEqual(runs, 2)
    }).pipe(on(
      Effect.gen(function*() {
        const a = yield* Step.execute("a")
        yield* Effect.sleep("2 hours")
        return [a, yield* Step.execute("b")]
      }),
      (name) => Effect.sync(() => (runs++, name))
    ))
  })

  it.effect("deploy: new code continues the instances of the old code", () =>
    Effect.gen(function*() {
      yield* start
      yield* TestRuntime.advance("1 hour")
      yield* TestRuntime.deploy(runtimeOf(Effect.as(Effect.sleep("2 hours"), "new")))
      assert.strictEqual(yield* wait(), "new")
      assert.strictEqual(yield* hours, 2)
    }).pipe(on(Effect.as(Effect.sleep("2 hours"), "old"))))

  it.effect("services: handlers get theirs from outside, and the test can inspect them", () => {
    class Calls extends Context.Service<Calls, Array<string>>()("Calls") {}
    const runtime = Runtime.layer({ orchestrations: [Program], activities: [Step] }).pipe(Layer.provide([
      Program.toLayer(() => Effect.andThen(Step.execute("a"), Step.execute("b"))),
      Step.toLayer((name) => Effect.map(Calls, (calls) => (calls.push(name), name)))
    ]))
    return Effect.gen(function*() {
      yield* start
      yield* wait()
      assert.deepStrictEqual(yield* Calls, ["a", "b"])
      assert.deepStrictEqual((yield* Runtime.Runtime).activities, ["Step"])
    }).pipe(Effect.provide(TestRuntime.layer(runtime).pipe(Layer.provideMerge(Layer.succeed(Calls, [])))))
  })

  it.effect("settings: those of the runtime's own layer take precedence", () =>
    Effect.gen(function*() {
      yield* start
      yield* TestRuntime.advance("10 minutes")
      yield* TestRuntime.crash
      assert.strictEqual(yield* wait(), "delivery 2")
      assert.isAbove(yield* hours, 3)
    }).pipe(
      Effect.provide(TestRuntime.layer(
        runtimeOf(Step.execute("an hour"), hourOfWork).pipe(
          Layer.provide(RuntimeConfig.layer({ workerLockTimeout: "4 hours", shutdownTimeout: 1 }))
        )
      )),
      silent
    ))

  it.effect("runToEnd: returns how the instance has ended, whatever its types", () =>
    Effect.gen(function*() {
      yield* start
      const ended = yield* TestRuntime.runToEnd("p")
      if (ended._tag !== "Failed") return assert.fail(ended._tag)
      assert.deepInclude(ended.details, {
        _tag: "Application",
        kind: "Panicked",
        message: "boom",
        retryable: false
      })
    }).pipe(on(Effect.andThen(Effect.sleep("1 day"), Effect.die(new Error("boom")))), silent))

  it.effect("determinism: a program whose replay decides differently fails", () => {
    let runs = 0
    return Effect.gen(function*() {
      yield* start
      const ended = yield* TestRuntime.runToEnd("p")
      if (ended._tag !== "Failed") return assert.fail(ended._tag)
      assert.strictEqual(ended.details._tag, "Configuration")
    }).pipe(
      on(Effect.gen(function*() {
        const name = `run ${runs++}`
        yield* Effect.sleep("1 hour")
        return yield* Step.execute(name)
      })),
      silent
    )
  })

  it("determinism: two runs write the same histories, byte for byte", async () => {
    const run = Effect.gen(function*() {
      yield* start
      yield* TestRuntime.advance("1 hour")
      yield* TestRuntime.crash
      yield* wait()
      return (yield* TestRuntime.history("p")).map(Event.encode)
    }).pipe(
      on(
        Effect.all(
          ["a", "b", "c", "d", "e"].map((name) => Effect.andThen(Effect.sleep("30 minutes"), Step.execute(name))),
          { concurrency: "unbounded" }
        ),
        (name) =>
          name === "c"
            ? Effect.promise(() => Promise.resolve(name))
            : Effect.as(Effect.sleep(name === "a" ? "1 hour" : "1 minute"), name)
      ),
      silent
    )
    const [one, other] = [await Effect.runPromise(run), await Effect.runPromise(run)]
    assert.isAbove(one.length, 20)
    assert.deepStrictEqual(one, other)
  })

  it.effect("end: a test may end while work runs, which is then interrupted", () => {
    let interrupted = 0
    return Effect.gen(function*() {
      yield* Effect.andThen(start, TestRuntime.settle).pipe(on(
        Step.execute("hangs"),
        () => Effect.onInterrupt(Effect.never, () => Effect.sync(() => void interrupted++))
      ))
      assert.strictEqual(interrupted, 1)
    }).pipe(silent)
  })
})

// internal

const exponentialHours = Schedule.exponential("1 hour")

const hourOfWork = () =>
  Effect.flatMap(
    Activity.Call,
    ({ deliveryNumber }) => Effect.as(Effect.sleep("1 hour"), `delivery ${deliveryNumber}`)
  )
