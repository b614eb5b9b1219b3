/**
 * The recorded orchestrations, written as one would write them here.
 *
 * The recordings were made through Duroxide's Node binding. Where its results have a shape of their own (a join
 * yields `{ok}` objects, a race `{index, value}`, an uncaught error the text `Error: …`), the helpers below give that
 * shape to what plain Effect combinators return. Where its calls leave open what a definition here states (which
 * version of a child is started) or keep texts unchanged (values that are not JSON), they are made one level below.
 */
import { Activity, KeyValue, Orchestration, Signal } from "duroxide-prisma"
import { ErrorDetails } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import type * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import { engine } from "../../../src/replay/context.ts"

/** An orchestration with its program. */
export interface Definition {
  readonly definition: Orchestration.Any
  readonly layer: Layer.Layer<Orchestration.Handler<string>>
  readonly code: Code<unknown, string>
}

type Code<A, E> = (input: any) => Effect.Effect<A, E, Orchestration.Instance>

export const define = (name: string, code: Code<unknown, string>, version = "1.0.0"): Definition => {
  const definition = Orchestration.make(name, {
    version,
    payload: Schema.Unknown,
    success: Schema.Unknown,
    error: Schema.String
  })
  return { definition, layer: definition.toLayer(code), code }
}

const activity = (name: string) =>
  Activity.make(name, { payload: Schema.Unknown, success: Schema.Unknown, error: Schema.String }).execute

const Echo = activity("Echo")
const Fail = activity("Fail")
const Flaky = activity("Flaky")
const NotRegistered = activity("NotRegistered")
const Slow = activity("Slow")
const Upper = activity("Upper")

const signal = (name: string) => Signal.make(name, { payload: Schema.Unknown, unawaited: "lost" }).wait

// A timer of the Node binding yields null.
const timer = (duration: Duration.Input) => Effect.as(Effect.sleep(duration), null)

const join = <E, R>(branches: ReadonlyArray<Effect.Effect<unknown, E, R>>) =>
  Effect.all(branches.map((branch) => Effect.map(branch, (ok) => ({ ok }))), { concurrency: "unbounded" })

const race = <E, R, E2, R2>(first: Effect.Effect<unknown, E, R>, second: Effect.Effect<unknown, E2, R2>) =>
  Effect.raceFirst(
    Effect.map(first, (value) => ({ index: 0, value })),
    Effect.map(second, (value) => ({ index: 1, value }))
  )

/** What an error looks like that a Node orchestration throws on. */
const thrown = (message: string) => `Error: ${message}`

/** An activity as Duroxide's context offers it: on a session, with a tag, or with a payload that is not JSON. */
const call = (name: string, input: string, options: { readonly sessionId?: string; readonly tag?: string } = {}) =>
  Effect.gen(function*() {
    const { perform } = yield* engine
    const answer = yield* perform({ _tag: "CallActivity", name, input, ...options })
    return answer._tag === "ActivityCompleted" ? answer.result : yield* Effect.die("the recorded call succeeded")
  })

/** A child as Duroxide's context calls it: of any version, and failing with a text. */
const child = (name: string, input: unknown, instance: string | null = null) =>
  Effect.gen(function*() {
    const { perform } = yield* engine
    const text = JSON.stringify(input)
    const answer = yield* perform({ _tag: "StartSubOrchestration", name, version: null, instance, input: text })
    return answer._tag === "SubOrchestrationCompleted"
      ? JSON.parse(answer.result) as unknown
      : yield* Effect.fail(ErrorDetails.display(answer.details))
  })

/** A detached orchestration of any version. */
const startDetached = (name: string, instance: string, input: unknown) =>
  Effect.flatMap(
    engine,
    ({ request }) =>
      request({ _tag: "StartOrchestrationDetached", name, version: null, instance, input: JSON.stringify(input) })
  )

const continueAsNew = (input: unknown, version: string | null = null) =>
  Effect.flatMap(engine, (port) => port.continueAsNew(JSON.stringify(input), version))

const executionId = Effect.map(Orchestration.Instance, (context) => context.executionId)

const inbox = (name: string) => Signal.make(name, { payload: Schema.Unknown }).wait

/** Values that are any text. */
const set = (key: string, value: string) =>
  Effect.flatMap(engine, ({ request }) => request({ _tag: "SetKeyValue", key, value }))

const values = Effect.flatMap(engine, ({ keyValues }) => keyValues)

const get = (key: string) => Effect.map(values, (all) => all.get(key) ?? null)

const clear = (key: string) => KeyValue.make(key, Schema.String).clear

const clearAll = Effect.flatMap(engine, ({ request }) => request({ _tag: "ClearKeyValues" }))

export const SingleActivity = define("SingleActivity", (text) => Upper(text))

export const ActFailCaught = define(
  "ActFailCaught",
  (text) => Fail(text).pipe(Effect.catch((caught) => Effect.succeed({ caught })))
)

export const ActFailUncaught = define("ActFailUncaught", (text) => Effect.mapError(Fail(text), thrown))

export const FanOut5 = define("FanOut5", () => join([0, 1, 2, 3, 4].map((n) => Echo(n))))

export const Child = define("Child", (n) => Echo(n))

/** The recordings have two orchestrations of this name. */
export const UpperChild = define("Child", (text) => Upper(text))

export const Long = define("Long", () => Slow(3000))

export const UsesMissingActivity = define("UsesMissingActivity", (n) => NotRegistered(n))

// -- timers and signals --------------------------------------------------------------------------

export const Timer = define("Timer", (ms: number) => Effect.as(Effect.sleep(ms), "fired"))

export const WaitEvent = define("WaitEvent", () => signal("Go"))

export const Waiter = define("Waiter", () => signal("Go"))

export const CancelDone = define("CancelDone", () => signal("Go"))

export const TimerThenWait = define("TimerThenWait", (ms: number) => Effect.andThen(Effect.sleep(ms), signal("Go")))

export const WaitTwice = define("WaitTwice", () => Effect.all([signal("Go"), signal("Go")]))

export const Waits2 = define("Waits2", () => join([signal("A"), signal("A"), signal("B")]))

// -- races ---------------------------------------------------------------------------------------

const andAfter = <A, E, R>(first: Effect.Effect<A, E, R>) =>
  Effect.gen(function*() {
    const r = yield* first
    return { r, a: yield* Echo("after") }
  })

export const RaceTimerEvent = define("RaceTimerEvent", (ms: number) => race(timer(ms), signal("Go")))

export const RaceThenActivity = define("RaceThenActivity", (ms: number) => andAfter(race(timer(ms), signal("Go"))))

export const RaceET = define("RaceET", (ms: number) => andAfter(race(signal("Go"), timer(ms))))

export const RaceActivityTimer = define("RaceActivityTimer", (ms: number) => andAfter(race(Slow(4000), timer(ms))))

export const ETimer = define("ETimer", (ms: number) =>
  Effect.gen(function*() {
    const r = yield* race(signal("Go"), timer(ms))
    return { r, b: yield* signal("Go") }
  }))

// -- retries -------------------------------------------------------------------------------------

const linear = (base: Duration.Input) =>
  Schedule.forever.pipe(
    Schedule.addDelay(({ attempt }) => Effect.succeed(Duration.times(Duration.fromInputUnsafe(base), attempt)))
  )

export const RetryOk = define(
  "RetryOk",
  (n) => Flaky(n).pipe(Effect.retry({ times: 2, schedule: linear("100 millis") }))
)

export const RetryExhausted = define("RetryExhausted", (n) =>
  Flaky(n).pipe(
    Effect.retry({ times: 1, schedule: Schedule.exponential("100 millis") }),
    Effect.mapError(thrown)
  ))

export const RetryTimeout = define("RetryTimeout", (ms) =>
  Slow(ms).pipe(
    Effect.timeoutOrElse({ duration: "150 millis", orElse: () => Effect.fail("timeout: activity timed out") }),
    Effect.retry({ times: 2, while: (error) => !error.startsWith("timeout:") }),
    Effect.mapError(thrown)
  ))

// -- sessions, tags, system calls ----------------------------------------------------------------

export const Session = define("Session", () =>
  Effect.forEach(
    [1, 2],
    (n) => Effect.map(call("Sess", JSON.stringify(n), { sessionId: "sess-fx" }), (text) => JSON.parse(text) as unknown)
  ))

export const Tagged = define(
  "Tagged",
  () => Effect.map(call("Gpu", "1", { tag: "gpu" }), (text) => JSON.parse(text) as unknown)
)

export const Sys = define("Sys", () =>
  Effect.gen(function*() {
    const g = yield* call("__duroxide_syscall:new_guid", "")
    const t = yield* call("__duroxide_syscall:utc_now_ms", "")
    return { g, t: Number(t) }
  }))

// -- versions ------------------------------------------------------------------------------------

export const Ver1 = define("Ver", (n) => Effect.map(Echo(n), (a) => ({ v: "1.0.0", a })))

export const Ver2 = define("Ver", (n) => Effect.map(Echo(n), (b) => ({ v: "2.1.0", b })), "2.1.0")

const waitingVersion = (ran: string) =>
  define("Ver", (i) =>
    Effect.gen(function*() {
      const context = yield* Orchestration.Instance
      return { ran, i, ctx: context.orchestrationVersion, e: yield* signal("Go") }
    }), ran)

export const WaitingVer1 = waitingVersion("1.0.0")

export const WaitingVer2 = waitingVersion("2.0.0")

// -- code that changes while it runs -------------------------------------------------------------

/** Runs `first` on the first turn, and `then` whenever that turn is replayed. */
const changing =
  (name: string, first: Effect.Effect<unknown, string, Orchestration.Instance>, then: typeof first) => () => {
    let runs = 0
    return define(name, () => Effect.suspend(() => ++runs === 1 ? first : then))
  }

export const makeNdMismatch = changing("NdMismatch", Echo("first"), Echo("other"))

export const makeNdMissing = changing("NdMissing", Echo("first"), signal("Never"))

export const makeNdNone = changing("NdNone", Effect.sleep(100), Effect.succeed("returned early"))

// -- children ------------------------------------------------------------------------------------

const caught = <A, R>(effect: Effect.Effect<A, string, R>) =>
  Effect.catch(effect, (caught) => Effect.succeed({ caught }))

export const SubOk = define("SubOk", (text) => child("Child", text))

export const SubOkId = define("SubOkId", (text) => child("Child", text, "fx-explicit-child"))

export const SubNested = define("SubNested", (text) => child("SubOk", text))

export const ChildFail = define("ChildFail", () => Effect.fail(thrown("child says no")))

export const SubFailCaught = define("SubFailCaught", (text) => caught(child("ChildFail", text)))

export const SubFailUncaught = define("SubFailUncaught", (text) => Effect.mapError(child("ChildFail", text), thrown))

export const CollideSub = define("CollideSub", (id: string) => caught(child("Child", 1, id)))

export const CollideRunning = define("CollideRunning", (id: string) => caught(child("Waiter", 1, id)))

const kid = Orchestration.make("Child", { payload: Schema.Unknown, success: Schema.Unknown })

export const ReservedSub = define("ReservedSub", () =>
  kid.executeWithId({ instanceId: "sub::x", payload: 1 }).pipe(
    Effect.catchDefect((defect) => Effect.succeed({ caught: (defect as Error).message }))
  ))

export const ChildWait = define("ChildWait", () => signal("Never"))

export const SubRace = define("SubRace", (ms: number) => andAfter(race(child("ChildWait", 1), timer(ms))))

export const CancelMe = define("CancelMe", () =>
  join<string, Orchestration.Instance>([
    Slow(3000),
    timer("1 minute"),
    signal("Go"),
    inbox("inbox"),
    child("ChildWait", 7)
  ]))

export const ParentOfNd = define("ParentOfNd", () => caught(child("ChildNd", null)))

export const makeChildNd = changing("ChildNd", Echo(1), Echo(2))

// -- detached starts -----------------------------------------------------------------------------

export const Detached = define(
  "Detached",
  (text) => Effect.andThen(startDetached("Child", "fx-detached-child", text), Echo(1))
)

export const DetachedLast = define(
  "DetachedLast",
  (text) => Effect.as(startDetached("Child", "fx-detached-last-child", text), "started")
)

export const ReservedDetached = define(
  "ReservedDetached",
  () => kid.startDetached({ instanceId: "a::sub::b", payload: 1 })
)

export const CancelBatch = define("CancelBatch", () =>
  Effect.gen(function*() {
    const n = yield* signal("Go")
    yield* startDetached("Child", "fx-cancel-batch-child", n)
    return yield* Echo(n)
  }))

// -- kept signals -----------------------------------------------------------------------------------

export const Queue = define("Queue", () =>
  Effect.gen(function*() {
    const first = yield* inbox("inbox")
    yield* Effect.sleep(150)
    return [first, yield* inbox("inbox")]
  }))

export const QueueRace = define("QueueRace", (ms: number) =>
  Effect.gen(function*() {
    const r = yield* race(inbox("inbox"), timer(ms))
    return { r, b: yield* inbox("inbox") }
  }))

export const QRace = define("QRace", (ms: number) =>
  Effect.gen(function*() {
    yield* race(inbox("q"), timer(ms))
    return yield* Echo(yield* inbox("q"))
  }))

export const SameTurnDropThen = define("SameTurnDropThen", () =>
  Effect.gen(function*() {
    yield* Effect.sleep(300)
    const r = yield* race(inbox("q"), Echo(1))
    yield* Echo(2)
    return r
  }))

// -- status and values ---------------------------------------------------------------------------

export const CustomStatus = define("CustomStatus", () =>
  Effect.gen(function*() {
    yield* Orchestration.setCustomStatus("one")
    yield* Orchestration.setCustomStatus("two")
    yield* Echo(1)
    yield* Orchestration.setCustomStatus("three")
    yield* Echo(2)
    const g = yield* Orchestration.customStatus
    yield* Orchestration.setCustomStatus(null)
    yield* Echo(3)
    return { g, after: yield* Orchestration.customStatus }
  }))

export const NulStatus = define("NulStatus", () => Orchestration.setCustomStatus("a\0b"))

export const Kv = define("Kv", () =>
  Effect.gen(function*() {
    yield* set("a", "1")
    yield* set("b", "2")
    yield* set("a", "11")
    yield* Echo(1)
    yield* clear("b")
    yield* set("c", "x")
    yield* Echo(2)
    const all = yield* values
    return { g1: yield* get("a"), g2: yield* get("b"), all: Object.fromEntries(all), len: all.size }
  }))

export const KvClearAll = define("KvClearAll", () =>
  Effect.gen(function*() {
    yield* set("a", "1")
    yield* set("b", "2")
    yield* Echo(1)
    yield* clearAll
    yield* set("z", "9")
    return Object.fromEntries(yield* values)
  }))

export const KvRemote = define("KvRemote", (instanceId: string) => {
  const read = (key: string) =>
    Effect.map(
      call("__duroxide_syscall:get_kv_value", JSON.stringify({ instance_id: instanceId, key })),
      (text) => JSON.parse(text) as unknown
    )
  return Effect.gen(function*() {
    return { v: yield* read("a"), m: yield* read("missing") }
  })
})

/** Keys of one age, cleared in their order. */
export const Prune = define("Prune", (round: number) =>
  Effect.gen(function*() {
    if (round === 0) {
      for (const key of "abcdefgh") yield* set(key, key)
      return yield* continueAsNew(1)
    }
    for (const key of [...(yield* values).keys()].sort()) yield* clear(key)
    return yield* Echo(1)
  }))

// -- limits --------------------------------------------------------------------------------------

const tooLong = call("Echo", "1", { tag: "t".repeat(257) })

export const BadTag = define("BadTag", () => tooLong)

export const LimitKid = define("LimitKid", () => tooLong)

export const LimitParent = define("LimitParent", (n) => caught(child("LimitKid", n)))

// -- continue as new -----------------------------------------------------------------------------

export const Can = define("Can", (n: number) =>
  Effect.gen(function*() {
    yield* Echo(n)
    return n < 3 ? yield* continueAsNew(n + 1) : { done: n }
  }))

export const CanCarry = define("CanCarry", (round: number) =>
  Effect.gen(function*() {
    if (round === 0) {
      yield* Orchestration.setCustomStatus("gen0")
      yield* set("k", "v0")
      const first = yield* inbox("inbox")
      yield* Effect.sleep(200)
      yield* Echo(first)
      return yield* continueAsNew(1)
    }
    const st = yield* Orchestration.customStatus
    return { st, k: yield* get("k"), b: yield* inbox("inbox"), c: yield* inbox("other") }
  }))

/** Ends its first round when one of the two ends, and its second round after a while. */
const twoRounds = (name: string, first: Code<unknown, string>, last: Duration.Input) =>
  define(
    name,
    (round: number) =>
      round === 0
        ? Effect.andThen(first(round), continueAsNew(1))
        : Effect.as(Effect.sleep(last), "second")
  )

export const CanOutstanding = twoRounds("CanOutstanding", () => race(Slow(1500), timer(200)), "200 millis")

export const CanTimerLeft = twoRounds("CanTimerLeft", () => race(signal("Go"), timer(700)), "900 millis")

export const CanOrphan = twoRounds("CanOrphan", () => race(child("Waiter", 1), timer(200)), 0)

const upgrading = (name: string, version: string | null) =>
  ["1.0.0", "2.0.0"].map((v) =>
    define(name, (i: number) => i === 1 ? continueAsNew(2, version) : Effect.succeed({ v, i }), v)
  )

export const CanNoVer = upgrading("CanNoVer", null)

export const CanVer = upgrading("CanVer", "2.0.0")

export const ChildCan = define(
  "ChildCan",
  (n: number) => n < 2 ? continueAsNew(n + 1) : Effect.map(executionId, (exec) => ({ n, exec }))
)

export const ParentOfCan = define("ParentOfCan", () => child("ChildCan", 0))

export const CanThenSub = define("CanThenSub", (n: number) =>
  Effect.gen(function*() {
    const result = yield* child("Child", n)
    return n === 0 ? yield* continueAsNew(1) : result
  }))

export const DetCan = define(
  "DetCan",
  (round: number) =>
    round === 0
      ? Effect.andThen(startDetached("Child", "fx-lost-detached-child", 1), continueAsNew(1))
      : Effect.succeed("done")
)
