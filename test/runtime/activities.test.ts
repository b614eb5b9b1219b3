import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { ErrorDetails, Provider } from "duroxide-prisma/provider"
import * as Data from "effect/Data"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as App from "../utils/app.ts"
import * as LocalProcess from "../utils/localProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

class Busy extends Schema.TaggedError<Busy>()("Busy", { tries: Schema.Int }) {}

/** Fails, dies or succeeds, as the payload says for each try; counts its tries by instance. */
const Behaviour = Schema.Array(Schema.Literals(["fail", "die", "throw", "nonsense", "stop", "succeed"]))
const tries = new Map<string, number>()
const keys = new Map<string, ReadonlyArray<string>>()
const Flaky = Activity.make("Flaky", { payload: Behaviour, success: Schema.Int, error: Busy })

const flaky = Flaky.toLayer((behaviour) => {
  // Not an Effect yet: what a handler throws before it returns one counts as well.
  if (behaviour[0] === "throw") throw new Error("thrown")
  return Effect.gen(function*() {
    const { idempotencyKey, instanceId } = yield* Activity.Call
    keys.set(instanceId, [...keys.get(instanceId) ?? [], idempotencyKey])
    const n = (tries.get(instanceId) ?? 0) + 1
    tries.set(instanceId, n)
    switch (behaviour[n - 1]) {
      case "fail":
        return yield* new Busy({ tries: n })
      case "die":
        return yield* Effect.die(new Error(`defect ${n}`))
      case "nonsense":
        return "not a number" as unknown as number
      case "stop":
        return yield* Effect.interrupt
      default:
        return n
    }
  })
})

const quick = Schedule.spaced("10 millis")
const Once = Orchestration.make("Once", { payload: Behaviour, success: Schema.Int, error: Busy })
const Stubborn = Orchestration.make("Stubborn", { payload: Behaviour, success: Schema.Int, error: Busy })
const Choosy = Orchestration.make("Choosy", { payload: Behaviour, success: Schema.Int, error: Busy })
const Survivor = Orchestration.make("Survivor", { payload: Behaviour, success: Schema.String })
const Misled = Orchestration.make("Misled", { payload: Schema.String, success: Schema.String })
const Lost = Orchestration.make("Lost")
const Where = Orchestration.make("Where", { success: Schema.Array(Schema.String) })

const Unserved = Activity.make("Unserved")
const Who = Activity.make("Who", { success: Schema.String })

const orchestrations = [Once, Stubborn, Choosy, Survivor, Misled, Lost, Where] as const
const programs = Layer.mergeAll(
  Once.toLayer(Flaky.execute),
  Stubborn.toLayer(Flaky.with({ retry: { schedule: quick, times: 2 } }).execute),
  Choosy.toLayer(
    Flaky.with({ retry: { schedule: quick, while: (outcome) => outcome._tag === "Busy" } }).execute
  ),
  Survivor.toLayer((behaviour) =>
    Flaky.execute(behaviour).pipe(
      Effect.map(String),
      Effect.catch((error) => Effect.succeed(error.message)),
      Effect.catchDefect((defect) => Effect.succeed((defect as Activity.ActivityDied).message))
    )
  ),
  Misled.toLayer((tag) => Who.with({ tag }).execute()),
  Lost.toLayer(() => Unserved.execute()),
  Where.toLayer(Effect.fn(function*() {
    const { instanceId } = yield* Orchestration.Instance
    return yield* Effect.all([
      Who.execute(),
      Who.with({ tag: "gpu" }).execute(),
      Who.with({ tag: "disk" }).execute(),
      Who.with({ tag: "gpu", sessionId: `session of ${instanceId}` }).execute()
    ], { concurrency: "unbounded" })
  }))
)

const runtime = Runtime.layer({ orchestrations, activities: [Flaky] }).pipe(Layer.provide([flaky, programs]))

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

const options = { runtime: { maxAttempts: 2 } } as const

const run = Effect.fnUntraced(function*(
  orchestration: typeof Once | typeof Stubborn,
  instanceId: string,
  payload: (typeof Behaviour)["Type"]
) {
  const client = yield* Client.Client
  const exit = yield* Effect.exit(client.execute(orchestration as typeof Once, { instanceId, payload }))
  const history = yield* (yield* Provider.Provider).read(instanceId)
  return { exit, history: history.map(({ _tag }) => _tag) }
})

it.layer(layer, { excludeTestServices: true })("Activity", (it) => {
  describe("retry", () => {
    it.effect("each try is a recorded call with the same key, each pause a timer; the last outcome counts", () =>
      Effect.gen(function*() {
        yield* LocalProcess.start(runtime, options)
        const { exit, history } = yield* run(Stubborn, "retried", ["fail", "die", "succeed"])
        assert.deepStrictEqual(exit, yield* Effect.exit(Effect.succeed(3)))
        assert.deepStrictEqual(history, [
          "OrchestrationStarted",
          "ActivityScheduled",
          "ActivityFailed",
          "TimerCreated",
          "TimerFired",
          "ActivityScheduled",
          "ActivityFailed",
          "TimerCreated",
          "TimerFired",
          "ActivityScheduled",
          "ActivityCompleted",
          "OrchestrationCompleted"
        ])
        assert.strictEqual(keys.get("retried")?.length, 3)
        assert.strictEqual(new Set(keys.get("retried")).size, 1)
      }))

    it.effect("ends with the last typed failure or the last defect", () =>
      Effect.gen(function*() {
        yield* LocalProcess.start(runtime, options)
        const client = yield* Client.Client
        const failed = yield* Effect.flip(
          client.execute(Stubborn, { instanceId: "gives-up", payload: ["die", "die", "fail"] })
        )
        assert.deepStrictEqual(failed, new Busy({ tries: 3 }))
        const died = yield* Effect.flip(
          client.execute(Stubborn, { instanceId: "gives-in", payload: ["fail", "fail", "die", "succeed"] })
        )
        assert.include((died as Client.InstanceFailed).message, `activity "Flaky" died: defect 3`)
        assert.strictEqual(tries.get("gives-in"), 3)
      }))

    it.effect("while: returning false ends the retries", () =>
      Effect.gen(function*() {
        yield* LocalProcess.start(runtime, options)
        const client = yield* Client.Client
        const died = yield* Effect.flip(
          client.execute(Choosy, { instanceId: "choosy", payload: ["fail", "die", "succeed"] })
        )
        assert.include((died as Client.InstanceFailed).message, `activity "Flaky" died: defect 2`)
      }))

    it.effect("without the option neither a failure nor a defect is retried", () =>
      Effect.gen(function*() {
        yield* LocalProcess.start(runtime, options)
        yield* run(Once, "fails-once", ["fail", "succeed"])
        yield* run(Once, "dies-once", ["die", "succeed"])
        assert.deepStrictEqual([tries.get("fails-once"), tries.get("dies-once")], [1, 1])
      }))
  })

  describe("bad outcomes", () => {
    const outcome = (instanceId: string, behaviour: (typeof Behaviour)["Type"]) =>
      Effect.gen(function*() {
        yield* LocalProcess.start(runtime, options)
        const client = yield* Client.Client
        return yield* client.execute(Survivor, { instanceId, payload: behaviour })
      })

    it.effect("a handler that throws before it returns an Effect died", () =>
      Effect.map(
        outcome("throws", ["throw"]),
        (text) => assert.strictEqual(text, `activity "Flaky" died: thrown`)
      ))

    it.effect("a result its Schema refuses is a defect that names the path, not the value", () =>
      Effect.map(outcome("nonsense", ["nonsense"]), (text) => {
        assert.include(text, `activity "Flaky" died: result of activity "Flaky" does not match its schema`)
        assert.notInclude(text, "not a number")
      }))

    it.effect("an error its Schema refuses is a defect that names the error, not what it holds", () =>
      Effect.gen(function*() {
        class Refused extends Data.TaggedError("Refused")<{ readonly card: string; readonly on: () => void }> {}
        const refused = () => Effect.fail(new Refused({ card: "4242", on: () => {} }))
        const Fails = Activity.make("Fails", { error: Schema.Unknown })
        const Died = Orchestration.make("Died", { error: Schema.Unknown })
        const Own = Orchestration.make("Own", { error: Schema.Unknown })
        const failing = Runtime.layer({ orchestrations: [Died, Own], activities: [Fails] })
        yield* LocalProcess.start(failing.pipe(
          Layer.provide([Fails.toLayer(refused), Died.toLayer(() => Fails.execute()), Own.toLayer(refused)])
        ))
        const client = yield* Client.Client
        for (const [definition, of] of [[Died, `activity "Fails"`], [Own, `orchestration "Own"`]] as const) {
          const error = yield* Effect.flip(client.execute(definition, { instanceId: definition.name }))
          assert.instanceOf(error, Client.InstanceFailed)
          assert.include(error.message, `error of ${of} does not match its schema: in the error "Refused": `)
          assert.notInclude(error.message, "4242")
        }
      }))

    it.effect("a handler that interrupts itself has no outcome: it is delivered again, and counts", () =>
      Effect.map(outcome("stops", ["stop", "succeed"]), (text) => assert.strictEqual(text, "2")))

    it.effect("more deliveries than maxAttempts make it poison, and fail the instance", () =>
      Effect.gen(function*() {
        yield* LocalProcess.start(runtime, options)
        const client = yield* Client.Client
        const error = yield* Effect.flip(
          client.execute(Survivor, { instanceId: "poisoned", payload: ["stop", "stop", "stop"] })
        )
        assert.instanceOf(error, Client.InstanceFailed)
        assert.strictEqual(
          ErrorDetails.display(error.details),
          "poison: activity Flaky#2 was delivered 2 times and never ended (maxAttempts 2)"
        )
        assert.strictEqual(tries.get("poisoned"), 2)
      }))
  })

  describe("tag", () => {
    const who = (name: string) =>
      Who.toLayer(() =>
        Effect.map(
          Activity.Call,
          ({ sessionId, tag, workerId }) =>
            `${name} ${workerId} ${Option.getOrElse(tag, () => "-")} ${Option.getOrElse(sessionId, () => "-")}`
        )
      )
    const worker = (name: string, settings: App.Options["runtime"]) =>
      LocalProcess.start(
        Runtime.layer({ orchestrations, activities: [Who] }).pipe(Layer.provide([who(name), programs])),
        {
          runtime: { workerId: `node of ${name}`, ...settings }
        }
      )

    it.effect("routes to the workers that take it; the handler sees it", () =>
      Effect.gen(function*() {
        yield* worker("plain", {})
        yield* worker("gpu", { tags: { _tag: "Tags", tags: ["gpu"] } })
        yield* worker("disk", { tags: { _tag: "Tags", tags: ["tape", "disk"] } })
        const client = yield* Client.Client
        assert.deepStrictEqual(yield* client.execute(Where, { instanceId: "where" }), [
          "plain node of plain - -",
          "gpu node of gpu gpu -",
          "disk node of disk disk -",
          "gpu node of gpu gpu session of where"
        ])
        const scheduled = (yield* (yield* Provider.Provider).read("where")).filter((event) =>
          event._tag === "ActivityScheduled"
        )
        assert.deepStrictEqual(scheduled.map(({ sessionId, tag }) => [tag, sessionId]), [
          [undefined, undefined],
          ["gpu", undefined],
          ["disk", undefined],
          ["gpu", "session of where"]
        ])
      }))

    it.effect("DefaultAnd, Any and None: both, everything, nothing", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const answers = (instanceId: string) =>
          client.execute(Where, { instanceId }).pipe(
            Effect.map((texts) => texts.map((text) => text.split(" ")[0]))
          )
        yield* worker("idle", { tags: { _tag: "None" } })
        const any = yield* worker("any", { tags: { _tag: "Any" } })
        assert.deepStrictEqual(yield* answers("any"), ["any", "any", "any", "any"])
        yield* any.stop
        yield* worker("both", { tags: { _tag: "DefaultAnd", tags: ["gpu"] } })
        yield* worker("disk", { tags: { _tag: "Tags", tags: ["disk"] } })
        assert.deepStrictEqual(yield* answers("and"), ["both", "both", "disk", "both"])
      }))

    it.effect("no worker takes it: it waits for one that does", () =>
      Effect.gen(function*() {
        const { sql } = yield* PgServer.PgServer
        const client = yield* Client.Client
        yield* worker("plain", {})
        yield* client.start(Misled, { instanceId: "waits", payload: "rare" })
        const queued = sql(`SELECT attempt_count FROM worker_queue WHERE instance_id = 'waits'`)
        yield* waitUntil(Effect.map(queued, (rows) => rows.length === 1))
        yield* worker("rare", { tags: { _tag: "Tags", tags: ["rare"] } })
        assert.strictEqual(yield* client.wait(Misled, "waits"), "rare node of rare rare -")
      }))

    it.effect("an invalid tag fails the instance that uses it with the reason", () =>
      Effect.gen(function*() {
        yield* worker("plain", {})
        const client = yield* Client.Client
        const error = yield* Effect.flip(client.execute(Misled, { instanceId: "misled", payload: "" }))
        assert.include((error as Client.InstanceFailed).message, `activity "Who": tag is refused: it is empty`)
      }))
  })

  describe("cancellation", () => {
    it.effect("from another process interrupts the handler long before its lock would be renewed", () =>
      Effect.gen(function*() {
        const running = yield* Deferred.make<void>()
        const interrupted = yield* Deferred.make<void>()
        const endless = Who.toLayer(() =>
          Deferred.succeed(running, undefined).pipe(
            Effect.andThen(Effect.never),
            Effect.onInterrupt(() => Deferred.succeed(interrupted, undefined))
          )
        )
        yield* LocalProcess.start(Runtime.layer({ activities: [Who] }).pipe(Layer.provide(endless)), {
          runtime: { workerLockTimeout: "1 hour", tags: { _tag: "Any" }, cancellationCheckInterval: "50 millis" }
        })
        const { client } = yield* LocalProcess.start(Runtime.layer({ orchestrations }).pipe(Layer.provide(programs)))
        yield* client.start(Misled, { instanceId: "cancelled", payload: "far away" })
        yield* Deferred.await(running)
        yield* client.terminate("cancelled", "not wanted")
        yield* Deferred.await(interrupted)
        const { sql } = yield* PgServer.PgServer
        assert.deepStrictEqual(yield* sql(`SELECT FROM worker_queue WHERE instance_id = 'cancelled'`), [])
      }))
  })
})
