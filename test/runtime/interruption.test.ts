import { assert, describe, it } from "@effect/vitest"
import { Activity, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Admin, FromDriver, MemoryDriver } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as TestClock from "effect/testing/TestClock"
import { PauseTarget } from "../../src/model/Pause.ts"
import * as LocalProcess from "../utils/localProcess.ts"

const Do = Activity.make("Do")
const Undo = Activity.make("Undo")
const Trip = Orchestration.make("Trip")
const Leg = Orchestration.make("Leg")
const Go = Signal.make("Go")

type Program = Effect.Effect<void, never, Orchestration.Instance>

/** A process that runs these programs, and what its activities have done. */
const starting = Effect.fnUntraced(function*(trip: Program, leg: Program = Effect.void) {
  const done: Array<string> = []
  const runtime = Runtime.layer({ orchestrations: [Trip, Leg], activities: [Do, Undo] }).pipe(Layer.provide([
    Do.toLayer(() => Effect.sync(() => void done.push("do"))),
    Undo.toLayer(() => Effect.sync(() => void done.push("undo"))),
    Trip.toLayer(() => trip),
    Leg.toLayer(() => leg)
  ]))
  const { client } = yield* LocalProcess.start(runtime, {
    runtime: { verifyReplay: true },
    provider: { longPolling: { aggressivePollInterval: "1 second" } }
  })
  return { client, done }
})

const admin = Effect.flatMap(Admin.Admin, Effect.succeed).pipe(Effect.provide(FromDriver.layerAdmin))

const inMemory = Effect.provide([MemoryDriver.layer, Logger.layer([])])

/** One by one: what a process begins at its start must have begun before time passes. */
const seconds = (count: number) =>
  Effect.forEach(Array.from({ length: count }), () => TestClock.adjust("1 second"), { discard: true })

const undone = Effect.andThen(Do.execute(), Effect.ensuring(Go.wait, Undo.execute()))

describe("Client.interrupt", () => {
  it.effect("lets the program clean up before it is cancelled", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(Effect.ensuring(undone, Effect.sleep("10 seconds")))
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* client.interrupt("t", "not needed", { deadline: "1 hour" })
      yield* seconds(5)
      assert.deepStrictEqual(done, ["do", "undo"])
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
      yield* seconds(10)
      const error = yield* Effect.flip(client.wait(Trip, "t", { timeout: 0 }))
      assert.deepInclude(error, { _tag: "InstanceCancelled", reason: "not needed" })
    }).pipe(inMemory))

  it.effect("terminates what does not clean up before the earliest deadline, with its children", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(Leg.execute(), Effect.ensuring(undone, Effect.sleep("1 day")))
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* client.interrupt("t", "not needed", { deadline: "2 hours" })
      yield* client.interrupt("t", "hurry", { deadline: "1 minute" })
      yield* seconds(50)
      assert.deepStrictEqual(done, ["do", "undo"])
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
      yield* seconds(20)
      const status = yield* client.status("t")
      assert.deepInclude(status, { _tag: "Cancelled", reason: "not needed (past its deadline)" })
      assert.strictEqual((yield* client.status("t::sub::2"))._tag, "Cancelled")
    }).pipe(inMemory))

  it.effect("cleans up the children first, and then the parent", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(Effect.ensuring(Leg.execute(), Do.execute()), undone)
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* client.interrupt("t", "not needed")
      yield* seconds(10)
      assert.deepStrictEqual(done, ["do", "undo", "do"])
      for (const id of ["t", "t::sub::2"]) {
        assert.deepInclude(yield* client.status(id), { _tag: "Cancelled", reason: "not needed" })
      }
    }).pipe(inMemory))

  it.effect("waits for a start, and leaves what has ended as it is", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(Effect.ensuring(Go.wait, Undo.execute()))
      yield* client.interrupt("t", "too early")
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      assert.deepInclude(yield* client.status("t"), { _tag: "Cancelled", reason: "too early" })
      assert.isEmpty(done, "there is nothing to undo")
      yield* client.interrupt("t", "too late")
      yield* seconds(5)
      assert.deepInclude(yield* client.status("t"), { _tag: "Cancelled", reason: "too early" })
    }).pipe(inMemory))

  it.effect("reaches an instance that is blocked, at the latest at its deadline", () =>
    Effect.gen(function*() {
      let isNew = false
      const { client } = yield* starting(
        Effect.suspend(() => isNew ? Do.execute() : Undo.execute()).pipe(
          Effect.andThen(Go.wait)
        )
      )
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      isNew = true
      yield* client.send(Go, "t")
      yield* client.interrupt("t", "not worth it", { deadline: "10 minutes" })
      yield* seconds(120)
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
      const { sentence } = yield* (yield* admin).explain("t")
      assert.match(sentence, /^t, whose interruption has come and was not read, is blocked for /)
      yield* TestClock.adjust("10 minutes")
      yield* seconds(60)
      assert.strictEqual((yield* client.status("t"))._tag, "Cancelled")
    }).pipe(inMemory))

  it.effect("does not end the next instance of its id at the deadline of the deleted one", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(Go.wait)
      const { deleteInstance } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      yield* client.interrupt("t", "not needed", { deadline: "1 minute" })
      yield* seconds(3)
      yield* deleteInstance("t")
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(90)
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
    }).pipe(inMemory))

  it.effect("of a child is the defect ChildCancelled of its parent, after the clean-up of the child", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(
        Effect.catchDefect(
          Leg.execute(),
          (defect) => defect instanceof Orchestration.ChildCancelled ? Do.execute() : Effect.die(defect)
        ),
        undone
      )
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* client.interrupt("t::sub::2", "not needed")
      yield* seconds(10)
      assert.deepStrictEqual(done, ["do", "undo", "do"])
      assert.strictEqual((yield* client.status("t"))._tag, "Completed")
    }).pipe(inMemory))

  it.effect("reaches a program that continues as new again and again, and only one of its executions", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(
        Effect.andThen(
          Effect.ensuring(Effect.uninterruptible(Do.execute()), Undo.execute()),
          Effect.andThen(Effect.sleep("100 millis"), Trip.continueAsNew())
        )
      )
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(5)
      yield* client.interrupt("t", "not needed")
      yield* seconds(5)
      assert.deepInclude(yield* client.status("t"), { _tag: "Cancelled", reason: "not needed" })
      const steps = (what: string) => done.filter((one) => one === what).length
      assert.strictEqual(steps("do"), steps("undo"))
    }).pipe(inMemory))

  it.effect("of a paused instance waits for the resume, but its deadline does not", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(undone)
      const { pause, resume } = yield* admin
      for (const [instanceId, deadline] of [["late", "10 seconds"], ["in time", "1 hour"]] as const) {
        yield* client.start(Trip, { instanceId })
        yield* seconds(3)
        yield* pause(PauseTarget.Instance({ instanceId }))
        yield* client.interrupt(instanceId, "not needed", { deadline })
        assert.match(
          (yield* (yield* admin).explain(instanceId)).sentence,
          /whose interruption has come .*: after "resume" it cleans up, and is Cancelled, or past its deadline, 1970-.*, it/
        )
        yield* seconds(20)
        assert.match(
          (yield* (yield* admin).explain(instanceId)).sentence,
          deadline === "1 hour"
            ? /, and is Cancelled, or past its deadline/
            : /after "resume" it is Cancelled, without clean-up/
        )
        assert.strictEqual((yield* client.status(instanceId))._tag, "Running")
        yield* resume(PauseTarget.Instance({ instanceId }))
        yield* seconds(20)
        assert.strictEqual((yield* client.status(instanceId))._tag, "Cancelled")
      }
      assert.deepStrictEqual(done, ["do", "do", "undo"])
    }).pipe(inMemory))

  it.effect("refuses a deadline that is not a duration, and takes one of a hundred years as none", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(undone)
      yield* client.start(Trip, { instanceId: "t" })
      const error = yield* Effect.flip(client.interrupt("t", "why", { deadline: "soon" as never }))
      assert.include(error.message, "deadline")
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
      yield* client.interrupt("t", "why", { deadline: Number.MAX_VALUE })
      yield* seconds(5)
      assert.deepInclude(yield* client.status("t"), { _tag: "Cancelled", reason: "why" })
    }).pipe(inMemory))
})

describe("A child whose call is interrupted", () => {
  it.effect("cleans up before the call ends", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(
        Effect.andThen(Effect.timeoutOption(Leg.execute(), "10 seconds"), Do.execute()),
        undone
      )
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(20)
      assert.deepStrictEqual(done, ["do", "undo", "do"])
      assert.strictEqual((yield* client.status("t"))._tag, "Completed")
      assert.strictEqual((yield* client.status("t::sub::2"))._tag, "Cancelled")
    }).pipe(inMemory))
})

describe("Retry and fork of an interrupted instance", () => {
  it.effect("end or continue from every event, also in the middle of the turn in which the program ended", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(Effect.andThen(Go.wait, Effect.andThen(Do.execute(), Undo.execute())))
      const { fork, readHistory, retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      yield* client.send(Go, "t")
      yield* client.interrupt("t", "too early")
      yield* seconds(3)
      const events = yield* readHistory("t")
      assert.strictEqual(events.at(-1)?._tag, "OrchestrationFailed")
      assert.isTrue(events.some(({ _tag }) => _tag === "ActivityScheduled"))
      /** Where the signal is cut off, it is sent again. */
      const ends = Effect.fnUntraced(function*(instanceId: string) {
        yield* seconds(5)
        if ((yield* client.status(instanceId))._tag === "Running") yield* client.send(Go, instanceId)
        yield* seconds(5)
        return (yield* client.status(instanceId))._tag
      })
      const signal = events.findIndex(({ _tag }) => _tag === "ExternalEvent" || _tag === "ExternalEventPersistent") + 1
      for (let from = 1; from < events.length; from++) {
        yield* fork("t", { atEvent: from, newId: `f-${from}` })
        assert.include(["Completed", "Cancelled"], yield* ends(`f-${from}`), `fork at ${from}`)
      }
      for (let from = events.length - 1; from > signal + 1; from--) {
        yield* retry("t", { from })
        assert.strictEqual(yield* ends("t"), "Cancelled", `retry from ${from}`)
      }
      yield* retry("t", { from: 1 })
      assert.strictEqual(yield* ends("t"), "Completed")
    }).pipe(inMemory))

  it.effect("know how an interrupted child has ended whose answer is after the cut", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(
        Effect.andThen(Effect.timeoutOption(Leg.execute(), "5 seconds"), Go.wait),
        Effect.ensuring(Effect.sleep("1 hour"), Effect.sleep("20 seconds"))
      )
      const { fork, readHistory, retry } = yield* admin
      const interruptedAt = (instanceId: string) =>
        Effect.map(
          readHistory(instanceId),
          (events) => events.find(({ _tag }) => _tag === "SubOrchestrationCancelRequested")!.eventId
        )
      for (const instanceId of ["terminated", "interrupted"]) {
        yield* client.start(Trip, { instanceId })
        yield* seconds(10)
        if (instanceId === "terminated") yield* client.terminate(instanceId, "stop")
        yield* seconds(30)
        if (instanceId === "interrupted") yield* client.interrupt(instanceId, "stop")
        yield* seconds(3)
        const from = yield* interruptedAt(instanceId)
        yield* fork(instanceId, { atEvent: from, newId: `fork of ${instanceId}` })
        yield* retry(instanceId, { from })
        for (const id of [instanceId, `fork of ${instanceId}`]) yield* client.send(Go, id)
        yield* seconds(5)
        for (const id of [instanceId, `fork of ${instanceId}`]) {
          assert.strictEqual((yield* client.status(id))._tag, "Completed", id)
        }
      }
    }).pipe(inMemory))

  it.effect("continues from the interruption, without its deadline, if nothing was cleaned up", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(Effect.andThen(Go.wait, Do.execute()))
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      yield* client.interrupt("t", "by mistake", { deadline: "1 minute" })
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Cancelled")
      yield* retry("t")
      yield* seconds(120)
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
      yield* client.send(Go, "t")
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Completed")
      assert.deepStrictEqual(done, ["do"])
    }).pipe(inMemory))

  it.effect("is refused if something was cleaned up, and can be forced", () =>
    Effect.gen(function*() {
      const { client, done } = yield* starting(undone)
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      yield* client.interrupt("t", "by mistake")
      yield* seconds(5)
      const error = yield* Effect.flip(retry("t"))
      assert.strictEqual(error.reason._tag, "RetryRefused")
      assert.include(error.message, "has cleaned up since event")
      const from = Number(/retry from event (\d+)/.exec(error.message)![1])
      yield* retry("t", { from })
      yield* seconds(3)
      assert.strictEqual((yield* client.status("t"))._tag, "Running")
      yield* client.send(Go, "t")
      yield* seconds(5)
      assert.strictEqual((yield* client.status("t"))._tag, "Completed")
      assert.deepStrictEqual(done, ["do", "undo", "undo"])
    }).pipe(inMemory))

  it.effect("is refused if its deadline has cut the clean-up, which an explicit retry finishes", () =>
    Effect.gen(function*() {
      let hangs = true
      const { client, done } = yield* starting(
        Effect.ensuring(Go.wait, Effect.andThen(Undo.execute(), Effect.suspend(() => hangs ? Go.wait : Effect.void)))
      )
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      yield* client.interrupt("t", "not needed", { deadline: "10 seconds" })
      yield* seconds(20)
      assert.deepInclude(yield* client.status("t"), { reason: "not needed (past its deadline)" })
      const error = yield* Effect.flip(retry("t"))
      const from = Number(/Retry from event (\d+) to let it finish that/.exec(error.message)![1])
      yield* retry("t", { from })
      yield* client.send(Go, "t")
      yield* seconds(3)
      hangs = false
      assert.deepInclude(yield* client.status("t"), { _tag: "Cancelled", reason: "not needed" })
      assert.deepStrictEqual(done, ["undo"])
    }).pipe(inMemory))

  it.effect("is refused for a parent while its child still cleans up", () =>
    Effect.gen(function*() {
      const { client } = yield* starting(
        Leg.with({ onInterrupt: "interruptAndContinue" }).execute(),
        Effect.ensuring(Go.wait, Effect.sleep("1 minute"))
      )
      const { retry } = yield* admin
      yield* client.start(Trip, { instanceId: "t" })
      yield* seconds(3)
      yield* client.interrupt("t", "by mistake")
      yield* seconds(3)
      assert.strictEqual((yield* client.status("t"))._tag, "Cancelled")
      assert.include((yield* Effect.flip(retry("t"))).message, "is being cancelled")
      yield* seconds(60)
      assert.deepStrictEqual((yield* retry("t")).instances.map(({ instanceId }) => instanceId), ["t", "t::sub::2"])
      yield* seconds(3)
      yield* client.send(Go, "t::sub::2")
      yield* seconds(70)
      assert.strictEqual((yield* client.status("t"))._tag, "Completed")
    }).pipe(inMemory))
})
