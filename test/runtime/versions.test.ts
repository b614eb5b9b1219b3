import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Provider } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Cause from "effect/Cause"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as registry from "../../src/runtime/registry.ts"

const Go = Signal.make("Go")
const schemas = { payload: Schema.Struct({ rounds: Schema.Int }), success: Schema.String } as const

/** Waits the given number of times, continuing as new each time, and returns its version. */
const One = Orchestration.make("Loop", { ...schemas, version: "1.0.0" })
const Two = Orchestration.make("Loop", { ...schemas, version: "2.0.0" })
/** Version 2.0.0 with another payload. */
const Strict = Orchestration.make("Loop", {
  payload: Schema.Struct({ rounds: Schema.Int, shop: Schema.String }),
  success: Schema.String,
  version: "2.0.0"
})
/** Continues as itself. */
const Faithful = Orchestration.make("Loop", { ...schemas, version: "1.5.0" })
/** Definition of an orchestration that processes in Rust serve. */
const Theirs = Orchestration.make("Loop", { ...schemas, servedBy: "rust" })
const Envoy = Orchestration.make("Envoy", { success: Schema.String })
const Launcher = Orchestration.make("Launcher", { success: Schema.Array(Schema.String) })

const looping = (next: typeof One | typeof Two, name: string) =>
  Effect.fn(function*({ rounds }: { readonly rounds: number }) {
    yield* Go.wait
    return rounds === 0 ? name : yield* next.continueAsNew({ rounds: rounds - 1 })
  })

const one = One.toLayer(looping(One, "one"))
const two = Two.toLayer(looping(Two, "two"))
const strict = Strict.toLayer(({ shop }) => Effect.succeed(`two at ${shop}`))
const faithful = Faithful.toLayer(Effect.fn(function*({ rounds }) {
  yield* Go.wait
  return rounds === 0 ? "faithful" : yield* Faithful.continueAsNew({ rounds: rounds - 1 }, { version: "own" })
}))
const launcher = Launcher.toLayer(Effect.fn(function*() {
  yield* One.startDetached({ instanceId: "detached one", payload: { rounds: 0 } })
  yield* Two.startDetached({ instanceId: "detached two", payload: { rounds: 0 } })
  return yield* Effect.all([One.execute({ rounds: 0 }), Two.execute({ rounds: 0 })], { concurrency: "unbounded" })
}))

const envoy = Envoy.toLayer(Effect.fn(function*() {
  yield* Theirs.startDetached({ instanceId: "detached", payload: { rounds: 0 } })
  return yield* Theirs.executeWithId({ instanceId: "child", payload: { rounds: 0 } })
}))

const configured = Layer.provide(Logger.layer([]))

const onlyOne = Runtime.layer({ orchestrations: [One] }).pipe(Layer.provide(one), configured)
const onlyTwo = Runtime.layer({ orchestrations: [Two] }).pipe(Layer.provide(two), configured)
// The older one last: what is newest does not depend on the order.
const both = Runtime.layer({ orchestrations: [Two, One] }).pipe(Layer.provide([two, one]), configured)
const withStrict = Runtime.layer({ orchestrations: [One, Strict] }).pipe(Layer.provide([one, strict]), configured)
const three = Runtime.layer({ orchestrations: [One, Faithful, Two] }).pipe(
  Layer.provide([one, faithful, two]),
  configured
)
const withEnvoy = Runtime.layer({ orchestrations: [Two, One, Envoy] }).pipe(
  Layer.provide([two, one, envoy]),
  configured
)
const launching = Runtime.layer({ orchestrations: [One, Two, Launcher] }).pipe(
  Layer.provide([one, two, launcher]),
  configured
)

const go = (instanceId: string) => Effect.flatMap(Client.Client, (client) => client.send(Go, instanceId))

/** The versions of the executions so far. */
const versions = (instanceId: string) =>
  Effect.map(
    TestRuntime.history(instanceId),
    (events) => events.flatMap((event) => event._tag === "OrchestrationStarted" ? event.version : [])
  )

/** A start as a client of another language sends it. */
const enqueue = (instance: string, version: string | null) =>
  Effect.flatMap(Provider.Provider, (provider) =>
    provider.enqueueForOrchestrator({
      message: {
        _tag: "StartOrchestration",
        instance,
        orchestration: "Loop",
        input: `{"rounds":0}`,
        version,
        parentInstance: null,
        parentId: null,
        executionId: 1
      },
      delay: Option.none()
    }))

describe("Versions", () => {
  it.effect("start: takes the definition's version, or the newest on request", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(One, { instanceId: "own", payload: { rounds: 0 } })
      yield* client.start(One, { instanceId: "newest", payload: { rounds: 0 }, version: "newest" })
      assert.deepStrictEqual(yield* versions("own"), ["1.0.0"])
      assert.deepStrictEqual(yield* versions("newest"), ["2.0.0"])
      yield* go("newest")
      assert.strictEqual(yield* client.wait(One, "newest"), "two")
    }).pipe(Effect.provide(TestRuntime.layer(both))))

  it.effect("start: a message without a version takes the newest; one with a version takes that", () =>
    Effect.gen(function*() {
      yield* enqueue("none", null)
      yield* enqueue("zero", "0.0.0")
      yield* enqueue("exact", "1.0.0")
      yield* TestRuntime.settle
      assert.deepStrictEqual(
        yield* Effect.forEach(["none", "zero", "exact"], versions),
        [["2.0.0"], ["2.0.0"], ["1.0.0"]]
      )
    }).pipe(Effect.provide(TestRuntime.layer(both))))

  it.effect("start: only Rust takes starts of a definition it serves, and chooses the version on request", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      const provider = yield* Provider.Provider
      yield* client.start(Theirs, { instanceId: "own", payload: { rounds: 0 } })
      yield* client.start(Theirs, { instanceId: "newest", payload: { rounds: 0 }, version: "newest" })
      yield* client.start(Envoy, { instanceId: "envoy" })
      yield* TestRuntime.advance("1 hour")
      assert.deepStrictEqual(yield* Effect.forEach(["own", "newest", "detached", "child"], versions), [[], [], [], []])
      assert.strictEqual((yield* client.status("own"))._tag, "Running")
      // Claims like a process of Rust, for any version.
      const [min, max] = [{ major: 0, minor: 0, patch: 0 }, { major: 0, minor: 1, patch: 30 }]
      const claimed = yield* Effect.replicateEffect(
        provider.fetchOrchestrationItem({
          lockTimeout: Duration.seconds(5),
          pollTimeout: Duration.zero,
          versions: Option.some({ min, max })
        }),
        4
      )
      assert.deepStrictEqual(
        claimed.flatMap(Option.toArray).flatMap(({ item }) => item.messages)
          .map((message) => message._tag === "StartOrchestration" && [message.instance, message.version]),
        [["own", "1.0.0"], ["newest", null], ["detached", "1.0.0"], ["child", "1.0.0"]]
      )
    }).pipe(Effect.provide(TestRuntime.layer(withEnvoy))))

  it.effect("start: an id in use does not change, whichever version is requested", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(One, { instanceId: "taken", payload: { rounds: 0 } })
      const again = { instanceId: "taken", payload: { rounds: 3 } }
      assert.instanceOf(yield* Effect.flip(client.start(Two, again)), Client.InstanceAlreadyExists)
      yield* client.start(Two, { ...again, ifExists: "ignore" })
      // A client that does not query the store, like those of Rust, cannot take over the instance either.
      yield* enqueue("taken", "2.0.0")
      yield* go("taken")
      assert.strictEqual(yield* client.wait(One, "taken"), "one")
      assert.deepStrictEqual(yield* versions("taken"), ["1.0.0"])
    }).pipe(Effect.provide(TestRuntime.layer(both))))

  it.effect("deploy: running instances keep their version, and starts of the newest take the new one", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(One, { instanceId: "old", payload: { rounds: 0 } })
      yield* TestRuntime.deploy(both)
      yield* client.start(One, { instanceId: "new", payload: { rounds: 0 }, version: "newest" })
      yield* go("old")
      yield* go("new")
      assert.strictEqual(yield* client.wait(One, "old"), "one")
      assert.strictEqual(yield* client.wait(One, "new"), "two")
    }).pipe(Effect.provide(TestRuntime.layer(onlyOne))))

  it.effect("continueAsNew: continues with the version that is then the newest", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(One, { instanceId: "loop", payload: { rounds: 2 } })
      yield* go("loop")
      yield* TestRuntime.deploy(both)
      yield* go("loop")
      yield* go("loop")
      assert.strictEqual(yield* client.wait(One, "loop"), "two")
      assert.deepStrictEqual(yield* versions("loop"), ["1.0.0", "1.0.0", "2.0.0"])
    }).pipe(Effect.provide(TestRuntime.layer(onlyOne))))

  it.effect("continueAsNew: with version own, the version stays", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Faithful, { instanceId: "loop", payload: { rounds: 1 } })
      yield* go("loop")
      yield* go("loop")
      assert.strictEqual(yield* client.wait(Faithful, "loop"), "faithful")
      assert.deepStrictEqual(yield* versions("loop"), ["1.5.0", "1.5.0"])
    }).pipe(Effect.provide(TestRuntime.layer(three))))

  it.effect("continueAsNew: a process without the newer version does not take the instance back", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      // As left by a process with 2.0.0 that dies after its turn.
      const provider = yield* Provider.Provider
      const envelope = { instanceId: "loop", executionId: 1, timestampMs: 0, duroxideVersion: "1000.1.0" }
      const [name, input] = ["Loop", `{"rounds":0}`]
      yield* client.start(Two, { instanceId: "loop", payload: { rounds: 0 } })
      const claim = { lockTimeout: Duration.seconds(5), pollTimeout: Duration.zero, versions: Option.none() }
      const { lockToken } = Option.getOrThrow(yield* provider.fetchOrchestrationItem(claim))
      yield* provider.ackOrchestrationItem(lockToken, {
        executionId: 1,
        historyDelta: [
          {
            ...envelope,
            eventId: 1,
            sourceEventId: null,
            _tag: "OrchestrationStarted",
            name,
            input,
            version: "2.0.0",
            parentInstance: null,
            parentId: null
          },
          { ...envelope, eventId: 2, sourceEventId: null, _tag: "OrchestrationContinuedAsNew", input }
        ],
        workerItems: [],
        orchestratorItems: [
          { _tag: "ContinueAsNew", instance: "loop", orchestration: name, input, version: null, carryForwardEvents: [] }
        ],
        cancelledActivities: [],
        metadata: {
          status: "ContinuedAsNew",
          output: input,
          orchestrationName: name,
          orchestrationVersion: "2.0.0",
          pinnedVersion: { major: 1000, minor: 1, patch: 0 }
        }
      })
      yield* TestRuntime.advance("5 seconds")
      assert.lengthOf(yield* provider.readWithExecution("loop", 2), 0)
      yield* TestRuntime.deploy(both)
      yield* TestRuntime.advance("1 minute")
      yield* go("loop")
      assert.strictEqual(yield* client.wait(Two, "loop"), "two")
    }).pipe(Effect.provide(TestRuntime.layer(onlyOne))))

  it.effect("continueAsNew: a payload the newer version refuses fails the instance with the reason", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(One, { instanceId: "loop", payload: { rounds: 1 } })
      yield* go("loop")
      const error = yield* Effect.flip(client.wait(One, "loop"))
      assert.include(
        String(error),
        `payload of orchestration "Loop" does not match its schema: Missing key at ["shop"]`
      )
    }).pipe(Effect.provide(TestRuntime.layer(withStrict))))

  it.effect("missing: a process without the version leaves the instance to one that has it", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Two, { instanceId: "later", payload: { rounds: 0 } })
      yield* TestRuntime.advance("20 seconds")
      assert.strictEqual((yield* client.status("later"))._tag, "Running")
      assert.deepStrictEqual(yield* TestRuntime.history("later"), [])
      yield* TestRuntime.deploy(both)
      yield* TestRuntime.advance("1 minute")
      yield* go("later")
      assert.strictEqual(yield* client.wait(Two, "later"), "two")
    }).pipe(Effect.provide(TestRuntime.layer(onlyOne))))

  it.effect("missing: an instance whose version no process serves waits, and does not fail", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Two, { instanceId: "lost", payload: { rounds: 0 } })
      yield* TestRuntime.advance("30 days")
      assert.strictEqual((yield* client.status("lost"))._tag, "Running")
      yield* TestRuntime.deploy(both)
      // Taken at once: no pause was set for it.
      yield* TestRuntime.settle
      assert.deepStrictEqual(yield* versions("lost"), ["2.0.0"])
    }).pipe(Effect.provide(TestRuntime.layer(onlyOne))))

  it.effect("missing: a running instance waits while its version is not served, and continues when it is served again", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(One, { instanceId: "stranded", payload: { rounds: 0 } })
      yield* TestRuntime.deploy(onlyTwo)
      yield* go("stranded")
      yield* TestRuntime.advance("1 minute")
      assert.strictEqual((yield* client.status("stranded"))._tag, "Running")
      yield* TestRuntime.deploy(both)
      yield* TestRuntime.advance("1 minute")
      assert.strictEqual(yield* client.wait(One, "stranded"), "one")
    }).pipe(Effect.provide(TestRuntime.layer(onlyOne))))

  it.effect("children and detached starts: take the version of their definition", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* client.start(Launcher, { instanceId: "launcher" })
      const [first, second] = ["launcher::sub::4", "launcher::sub::5"] as const
      yield* Effect.forEach(["detached one", "detached two", first, second], go)
      assert.deepStrictEqual(yield* client.wait(Launcher, "launcher"), ["one", "two"])
      assert.strictEqual(yield* client.wait(One, "detached one"), "one")
      assert.strictEqual(yield* client.wait(Two, "detached two"), "two")
    }).pipe(Effect.provide(TestRuntime.layer(launching))))
})

describe("Definitions", () => {
  it.effect("two programs of one name and version, or two activities of one name, do not start", () =>
    Effect.gen(function*() {
      const A = Activity.make("A")
      const messages = yield* Effect.forEach([
        Runtime.layer({ orchestrations: [One, One] }).pipe(Layer.provide(one)),
        Runtime.layer({ activities: [A, A] }).pipe(Layer.provide(A.toLayer(() => Effect.void)))
      ], (runtime) => {
        return Effect.map(
          Effect.exit(Effect.scoped(Layer.build(TestRuntime.layer(runtime)))),
          (exit) => Exit.isFailure(exit) ? String(Cause.squash(exit.cause)) : "started"
        )
      })
      assert.deepStrictEqual(messages, [
        `Error: orchestration "Loop" 1.0.0 is registered twice`,
        `Error: activity "A" is registered twice`
      ])
    }))

  for (
    const [whose, name, problem] of [
      ["of Duroxide's own", "__duroxide_syscall:new_guid", "has a name of Duroxide's own"],
      [
        "under which histories record changes",
        "duroxide-prisma/changed",
        "has a reserved name: histories record decisions of programs under it"
      ],
      [
        "under which histories record signals that were set aside",
        "duroxide-prisma/set-aside",
        "has a reserved name: histories record decisions of programs under it"
      ]
    ] as const
  ) {
    it.effect(`an activity with a name ${whose} is not served`, () =>
      Effect.gen(function*() {
        const Taken = Activity.make(name, { success: Schema.String })
        const handler = Taken.toLayer(() => Effect.succeed(""))
        const runtime = Runtime.layer({ activities: [Taken] }).pipe(Layer.provide(handler))
        const exit = yield* Effect.exit(Effect.scoped(Layer.build(TestRuntime.layer(runtime))))
        assert.isTrue(Exit.isFailure(exit))
        if (Exit.isFailure(exit)) assert.include(String(Cause.squash(exit.cause)), problem)
      }))
  }

  for (
    const [what, define, problem] of [
      [
        "an invalid version",
        () => Orchestration.make("X", { version: "1" }),
        "it is not a semantic version like 1.0.0"
      ],
      ["an empty name", () => Orchestration.make(""), "it is empty"],
      ["a name with NUL", () => Signal.make("a\0b"), "it holds a NUL character"],
      ["a name with half a surrogate pair", () => Orchestration.make("\ud800"), "half of a surrogate pair"]
    ] as const
  ) it(`${what} is refused by make`, () => assert.throws(define, RangeError, problem))

  it("newest: follows semantic versioning, whatever the order", () => {
    const order = ["1.9.0", "1.10.0-rc.1", "1.10.0", "2.0.0-alpha", "2.0.0-beta.2", "2.0.0-beta.11"]
    for (let end = 1; end <= order.length; end++) {
      const known = order.slice(0, end)
      for (const versions of [known, known.toReversed()]) {
        const { resolve } = registry.makeUnsafe(
          versions.map((version) => ({ name: "X", version, code: () => Effect.succeed("") }))
        )
        assert.strictEqual(resolve("X", null)?.version, order[end - 1])
        assert.strictEqual(resolve("X", { atLeast: order[end - 1]! })?.version, order[end - 1])
        assert.strictEqual(resolve("X", { atLeast: "2.0.0" }), undefined)
        assert.strictEqual(resolve("X", { atLeast: "no version" })?.version, order[end - 1])
      }
    }
  })
})
