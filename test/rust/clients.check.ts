import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin, Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Ours from "./ours.ts"
import * as Rust from "./Rust.ts"

// Work that both sides may take goes to the first claim. Where that matters, one side polls rarely; Rust never when
// the pauses of 1, 2, 4, … seconds end with which it abandoned a start.
const weLookSeldom = { longPolling: { aggressivePollInterval: "1700 millis" } } as const
const theyLookSeldom = { settings: { orchestrationConcurrency: 1, dispatcherPollIntervalMs: 1700 } } as const

const heard = { name: "anna", answer: "yes", letter: "dear" }

/** Leaves each message its last delivery. */
const wearOut = ({ sql }: Rust.Shared) => sql("UPDATE orchestrator_queue SET attempt_count = 10, visible_at = now()")

const enqueued = (shared: Rust.Shared, condition: string) =>
  waitUntil(
    Effect.map(shared.sql(`SELECT FROM orchestrator_queue WHERE ${condition}`), (rows) => rows.length === 1)
  )

describe("our client", () => {
  it.live("starts, queries, signals, writes to, waits for and deletes an instance of Rust", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const start = client.start(Ours.RustErrand, { instanceId: "errand", payload: "anna" })
        yield* start
        assert.strictEqual((yield* client.status("errand"))._tag, "Running")
        yield* Rust.asking(shared, "errand")
        assert.strictEqual((yield* Effect.flip(start))._tag, "InstanceAlreadyExists")
        assert.deepInclude(yield* client.status("errand"), { _tag: "Running", customStatus: Option.some("asking") })
        yield* client.send(Ours.Answer, "errand", heard.answer)
        yield* client.send(Ours.Letters, "errand", heard.letter)
        assert.deepStrictEqual(yield* client.wait(Ours.RustErrand, "errand"), heard)
        assert.deepStrictEqual(yield* client.read(Ours.Heard, "errand"), Option.some(heard.answer))
        assert.deepStrictEqual(yield* client.status("errand"), {
          _tag: "Completed",
          output: JSON.stringify(heard),
          customStatus: Option.some("asking")
        })
        assert.deepStrictEqual(
          yield* shared.sql(
            "SELECT concat_ws('.', duroxide_version_major, duroxide_version_minor) AS v FROM executions"
          ),
          [{ v: "0.1" }]
        )
        yield* (yield* Admin.Admin).deleteInstance("errand")
        assert.deepInclude(yield* Rust.ask(shared, (client) => client.getStatus("errand")), { status: "NotFound" })
      }).pipe(Effect.provide(Ours.app(shared)))
    }))

  it.live("receives failures of Rust, as JSON or plain text, and cancels", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const failure = (instanceId: string) => Effect.flip(client.wait(Ours.RustFailure, instanceId))
        yield* client.start(Ours.RustFailure, { instanceId: "json", payload: "\"bang\"" })
        assert.strictEqual(yield* failure("json"), "bang")
        yield* client.start(Ours.RustFailure, { instanceId: "text", payload: "bang" })
        assert.strictEqual(yield* failure("text"), "bang")
        yield* client.start(Ours.RustErrand, { instanceId: "errand", payload: "anna" })
        yield* Rust.asking(shared, "errand")
        yield* client.terminate("errand", "no more")
        assert.include(
          String(yield* Effect.flip(client.wait(Ours.RustErrand, "errand"))),
          "was cancelled: no more"
        )
      }).pipe(Effect.provide(Ours.store(shared)))
    }))

  it.live("a start that is only enqueued is not pinned: TypeScript ignores it, as it does not serve the name", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Effect.gen(function*() {
        const provider = yield* Provider.Provider
        yield* provider.enqueueForOrchestrator({
          message: {
            _tag: "StartOrchestration",
            instance: "steps",
            orchestration: "RustSteps",
            input: "1",
            version: null,
            parentInstance: null,
            parentId: null,
            executionId: 1
          },
          delay: Option.none()
        })
        assert.deepInclude(yield* Rust.ended(shared, "steps"), { status: "Completed", output: "6" })
      }).pipe(Effect.provide(Ours.app(shared)))
    }))
})

describe("their client", () => {
  it.live("starts, queries, signals, writes to and waits for an instance of TypeScript", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run(theyLookSeldom)
      yield* Effect.gen(function*() {
        yield* Rust.ask(shared, (client) => client.startOrchestration("errand", "OurErrand", "\"anna\""))
        yield* Rust.asking(shared, "errand")
        assert.deepInclude(yield* Rust.ask(shared, (client) => client.getStatus("errand")), { status: "Running" })
        yield* Rust.ask(shared, (client) => client.raiseEvent("errand", "Answer", "\"yes\""))
        yield* Rust.ask(shared, (client) => client.enqueueEvent("errand", "Letters", "\"dear\""))
        const { output, status } = yield* Rust.ended(shared, "errand")
        assert.deepStrictEqual([status, JSON.parse(output!)], ["Completed", heard])
        assert.deepStrictEqual(yield* Rust.ask(shared, (client) => client.getKvAllValues("errand")), {
          answer: "\"yes\""
        })
      }).pipe(Effect.provide(Ours.app(shared)))
      assert.deepStrictEqual(yield* shared.sql("SELECT duroxide_version_major AS major FROM executions"), [
        { major: 1000 }
      ])
    }))

  it.live("receives failures of TypeScript, and cancels", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurFailure, { instanceId: "failure", payload: "bang" })
        assert.deepInclude(yield* Rust.ended(shared, "failure"), { status: "Failed", error: "\"bang\"" })
        yield* client.start(Ours.OurErrand, { instanceId: "errand", payload: "anna" })
        yield* Rust.asking(shared, "errand")
        yield* Rust.ask(shared, (client) => client.cancelInstance("errand", "no more"))
        assert.deepInclude(yield* Rust.ended(shared, "errand"), { status: "Failed", error: "canceled: no more" })
      }).pipe(Effect.provide(Ours.app(shared)))
    }))

  it.live("reads every kind of event TypeScript writes, whatever its version, and deletes ended instances", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurEverything, { instanceId: "all", payload: 0 })
        assert.strictEqual(yield* client.wait(Ours.OurEverything, "all"), 2)
        yield* client.start(Ours.OurErrand, { instanceId: "errand", payload: "anna" })
        yield* Rust.asking(shared, "errand")
        yield* client.send(Ours.Answer, "errand", heard.answer)
        yield* client.send(Ours.Letters, "errand", heard.letter)
        yield* client.wait(Ours.OurErrand, "errand")
        yield* client.wait(Ours.OurSteps, "detached")
        yield* waitUntil(
          Effect.map(
            shared.sql("SELECT FROM executions WHERE status = 'Running'"),
            (running) => running.length === 0
          )
        )
      }).pipe(Effect.provide(Ours.app(shared)))

      const stored = yield* shared.sql<{ instance: string; execution: number; ids: ReadonlyArray<number> }>(
        `SELECT instance_id AS instance, execution_id::int AS execution, array_agg(event_id::int ORDER BY event_id) AS ids
         FROM history GROUP BY 1, 2`
      )
      for (const { execution, ids, instance } of stored) {
        const events = yield* Rust.ask(shared, (client) => client.readExecutionHistory(instance, execution))
        assert.deepStrictEqual(events.map(({ eventId }) => eventId), [...ids])
      }
      const types = yield* shared.sql<{ type: string; stamp: string }>(
        `SELECT DISTINCT event_data::json ->> 'type' AS type, event_data::json ->> 'duroxide_version' AS stamp
         FROM history ORDER BY 1`
      )
      assert.deepStrictEqual(
        types.map(({ stamp, type }) => `${type} ${stamp}`),
        kinds.map((kind) => `${kind} 1000.1.0`)
      )

      yield* Rust.ask(shared, (client) => client.deleteInstance("all", true))
      assert.deepStrictEqual(yield* shared.sql("SELECT FROM history WHERE instance_id LIKE 'all%'"), [])
    }))

  it.live("a start of TypeScript while no TypeScript process runs: Rust fails it after ten deliveries", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Rust.ask(shared, (client) => client.startOrchestration("errand", "OurErrand", "\"anna\""))
      yield* enqueued(shared, "attempt_count = 1 AND lock_token IS NULL")
      yield* wearOut(shared)
      assert.deepInclude(yield* Rust.ended(shared, "errand"), {
        status: "Failed",
        error: "poison: orchestration errand exceeded 11 attempts (max 10)"
      })
    }))
})

describe("children", () => {
  const parents = ({ sql }: Rust.Shared) =>
    sql(
      `SELECT i.parent_instance_id AS parent, e.duroxide_version_major AS major
       FROM instances AS i JOIN executions AS e USING (instance_id) WHERE i.parent_instance_id IS NOT NULL`
    )

  it.live("of Rust run and answer TypeScript parents, and detached starts run, even if TypeScript has the name", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurParent, { instanceId: "ours", payload: 1 })
        assert.strictEqual(yield* client.wait(Ours.OurParent, "ours"), 6)
        assert.deepStrictEqual(yield* parents(shared), [{ parent: "ours", major: 0 }])
        yield* client.start(Ours.OurDetached, { instanceId: "ours-too", payload: 1 })
        assert.strictEqual(yield* client.wait(Ours.RustSteps, "ours-too-detached"), 6)
      }).pipe(Effect.provide(Ours.app(shared, [], { trap: true })))
    }))

  it.live("and detached starts of TypeScript never run in Rust, even if Rust has the name and claims first", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run({ orchestrations: ["OurSteps"] })
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurEverything, { instanceId: "all", payload: 1 })
        assert.strictEqual(yield* client.wait(Ours.OurEverything, "all"), 2)
        assert.strictEqual(yield* client.wait(Ours.OurSteps, "detached"), 6)
      }).pipe(Effect.provide(Ours.app(shared, [], weLookSeldom)))
    }))

  it.live("of TypeScript run and answer Rust parents", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run(theyLookSeldom)
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        const payload = { child: "OurSteps", input: 1 }
        yield* client.start(Ours.RustParent, { instanceId: "theirs", payload })
        assert.strictEqual(yield* client.wait(Ours.RustParent, "theirs"), 6)
        assert.deepStrictEqual(yield* parents(shared), [{ parent: "theirs", major: 1000 }])
      }).pipe(Effect.provide(Ours.app(shared)))
    }))

  it.live("of TypeScript under an id that is taken: their Rust parent is notified", () =>
    Effect.gen(function*() {
      const shared = yield* Rust.open
      yield* shared.run(theyLookSeldom)
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Ours.OurSteps, { instanceId: "taken", payload: 1 })
        yield* client.wait(Ours.OurSteps, "taken")
        const payload = { child: "OurSteps", input: 1, id: "taken" }
        yield* client.start(Ours.RustParent, { instanceId: "theirs", payload })
        assert.include(
          yield* Effect.flip(client.wait(Ours.RustParent, "theirs")),
          "sub-orchestration instance id 'taken' already exists and is terminal"
        )
      }).pipe(Effect.provide(Ours.app(shared)))
    }))
})

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

/** All there are. */
const kinds = [
  "ActivityCancelRequested",
  "ActivityCompleted",
  "ActivityFailed",
  "ActivityScheduled",
  "CustomStatusUpdated",
  "ExternalEvent",
  "ExternalEventPersistent",
  "ExternalSubscribed",
  "ExternalSubscribedCancelled",
  "ExternalSubscribedPersistent",
  "ExternalSubscribedPersistentCancelled",
  "KeyValueCleared",
  "KeyValueSet",
  "KeyValuesCleared",
  "OrchestrationCancelRequested",
  "OrchestrationChained",
  "OrchestrationCompleted",
  "OrchestrationContinuedAsNew",
  "OrchestrationFailed",
  "OrchestrationStarted",
  "SubOrchestrationCancelRequested",
  "SubOrchestrationCompleted",
  "SubOrchestrationFailed",
  "SubOrchestrationScheduled",
  "TimerCreated",
  "TimerFired"
]
