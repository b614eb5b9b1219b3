import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Event } from "duroxide-prisma/provider"
import type { ProviderError } from "duroxide-prisma/provider"
import { recordHistory, replayHistory, TestRuntime } from "duroxide-prisma/testing"
import type { History } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"

import { read } from "../recordings/programs/recording.ts"
import { scenarios } from "../recordings/programs/scenarios.ts"
import {
  all,
  Approved,
  Charge,
  Fulfil,
  Order,
  order,
  Orders,
  paid,
  recorded,
  replay,
  Reserve,
  Ship,
  Total
} from "./replaying.ts"
import type { Program } from "./replaying.ts"

describe("replayHistory: matching histories", () => {
  it.effect("an instance that has ended, in every form its history may have", () =>
    Effect.gen(function*() {
      const text = yield* recorded(paid)
      const objects = JSON.parse(text) as ReadonlyArray<object>
      const rows = objects.map((object) => JSON.stringify(object))
      const events = rows.map((row) => Event.decode(row)).flatMap((event) => "success" in event ? event.success : [])
      assert.lengthOf(events, objects.length)
      for (
        const history of [text, objects, rows, events, rows.map((event_data) => ({ event_data })), rows.toReversed()]
      ) {
        assert.deepStrictEqual(yield* replay(paid, history), {
          instanceId: "order-1",
          executions: [{ executionId: 1, version: "1.0.0", events: 10, status: "Completed" }]
        })
      }
    }))

  it.effect("one that is still waiting, at any point", () =>
    Effect.gen(function*() {
      const until = yield* Effect.forEach(
        ["0 millis", "1 hour", "24 hours", "24.5 hours", "25 hours"] as const,
        (duration) => Effect.flatMap(recorded(paid, TestRuntime.advance(duration)), (history) => replay(paid, history))
      )
      assert.deepStrictEqual(
        until.map(({ executions: [one] }) => `${one!.events} ${one!.status}`),
        ["6 Running", "6 Running", "8 Running", "8 Running", "10 Completed"]
      )
    }))

  it.effect("a program written differently that makes the same requests", () =>
    Effect.gen(function*() {
      const history = yield* recorded(paid)
      const { executions } = yield* replay(
        (order) =>
          Reserve.execute(order.sku).pipe(
            Effect.andThen(Charge.execute({ lines: [order] })),
            // The timer that is running keeps its time.
            Effect.andThen(Effect.sleep("2 days")),
            Effect.andThen(Ship.execute(order.sku))
          ),
        history
      )
      assert.deepStrictEqual(executions.map(({ status }) => status), ["Completed"])
    }))

  it.effect("several executions, with the state each passes to the next", () =>
    Effect.gen(function*() {
      const program: Program = (order) =>
        Effect.gen(function*() {
          const total = Option.getOrElse(yield* Total.get, () => 0) + (yield* Orders.wait)
          yield* Total.set(total)
          yield* Charge.execute({ lines: [order], total })
          return total < 6 ? yield* Fulfil.continueAsNew({ ...order, cents: total }) : total
        })
      const history = yield* recorded(
        program,
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* Effect.forEach([1, 2, 3, 4], (value) => client.send(Orders, "order-1", value))
        })
      )
      const { executions } = yield* replay(program, history)
      assert.deepStrictEqual(executions.map(({ status }) => status), ["ContinuedAsNew", "ContinuedAsNew", "Completed"])
    }))

  it.effect("several messages that arrived together, of which the first ended the instance", () =>
    Effect.gen(function*() {
      const program: Program = () => Effect.as(Effect.andThen(Effect.sleep("1 second"), Orders.wait), "done")
      const history = yield* recorded(
        program,
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* Effect.forEach([1, 2, 3], (value) => client.send(Orders, "order-1", value))
          yield* TestRuntime.runToEnd("order-1")
        })
      )
      const { executions } = yield* replay(program, history)
      assert.deepStrictEqual(executions.map(({ status }) => status), ["Completed"])
    }))

  it.effect("a failure that no program sees, whatever arrived with it", () =>
    Effect.gen(function*() {
      const program: Program = () =>
        Effect.all([Effect.catchDefect(Charge.execute(1), () => Effect.void), Ship.execute(2)], all)
      const objects = JSON.parse(yield* recorded(program, TestRuntime.settle)) as ReadonlyArray<Record<string, unknown>>
      const [one, two, three] = objects
      const details = { Infrastructure: { operation: "store", message: "full", retryable: false } }
      const later = (event_id: number, fields: object) => ({ ...one, event_id, source_event_id: null, ...fields })
      const { executions } = yield* replay(program, [
        one!,
        two!,
        three!,
        later(4, { type: "ActivityFailed", source_event_id: 2, details }),
        later(5, { type: "ActivityCompleted", source_event_id: 3, result: "2" }),
        later(6, { type: "OrchestrationFailed", details })
      ])
      assert.deepStrictEqual(executions.map(({ status }) => status), ["Failed"])
    }))

  it.effect("an end that the program did not cause, up to that point", () =>
    Effect.gen(function*() {
      const waits: Program = (order) => Effect.all([Approved.wait, paid(order)], all)
      const history = yield* recorded(
        waits,
        Effect.andThen(
          TestRuntime.advance("1 hour"),
          Effect.andThen(
            TestRuntime.deploy(
              Runtime.layer({ orchestrations: [Fulfil] }).pipe(
                Layer.provide(Fulfil.toLayer(() => Approved.wait))
              )
            ),
            TestRuntime.runToEnd("order-1")
          )
        )
      )
      assert.include(history, "Nondeterminism")
      const { executions } = yield* replay(waits, history)
      assert.strictEqual(executions[0]!.status, "Failed")
      assert.strictEqual((yield* Effect.flip(replay(() => Approved.wait, history)))._tag, "HistoryMismatch")
    }))

  it.effect("each execution with its own version", () =>
    Effect.gen(function*() {
      const Newer = Orchestration.make("Fulfil", {
        version: "2.0.0",
        payload: Order,
        success: Schema.Unknown,
        error: Schema.Unknown
      })
      const older: Program = (order) => Effect.andThen(Reserve.execute(1), Fulfil.continueAsNew(order))
      const newer: Program = () => Charge.execute(2)
      const history = yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Fulfil, { instanceId: "order-1", payload: order })
        return yield* recordHistory("order-1")
      }).pipe(Effect.provide(TestRuntime.layer(
        Runtime.layer({ orchestrations: [Fulfil, Newer], activities: [Reserve, Charge] }).pipe(Layer.provide([
          Fulfil.toLayer(older),
          Newer.toLayer(newer),
          Reserve.toLayer(Effect.succeed),
          Charge.toLayer(Effect.succeed)
        ]))
      )))
      const live = Layer.mergeAll(Fulfil.toLayer(older), Newer.toLayer(newer))
      const { executions } = yield* Effect.provide(replayHistory([Fulfil, Newer], history), live)
      assert.deepStrictEqual(executions.map(({ version }) => version), ["1.0.0", "2.0.0"])
      assert.strictEqual((yield* Effect.flip(replay(older, history)))._tag, "HistoryMismatch")
    }))
})

describe("replayHistory: an invalid history", () => {
  const cases: ReadonlyArray<readonly [name: string, change: (objects: Array<any>) => History, problem: string]> = [
    ["no JSON", () => "[", "it is not JSON"],
    ["not an array", () => "{}", "it is not an array of events, or it is empty"],
    ["empty", () => [], "it is not an array of events, or it is empty"],
    ["an unknown event", (all) => [all[0], { ...all[1], type: "Later" }], `its item 1: unknown Event variant "Later"`],
    ["an item that is not an event", (all) => [...all, 7 as never], "its item 10: Event is not a JSON object"],
    ["a gap", (all) => all.toSpliced(3, 1), "execution 1 has no event 4, or two of them"],
    ["without its start", (all) => all.slice(1), "execution 1 does not begin with OrchestrationStarted"],
    ["of another program", (all) => all.with(0, { ...all[0], name: "Other" }), `it is of "Other", not of "Fulfil"`],
    [
      "of several instances",
      (all) => all.with(4, { ...all[4], instance_id: "order-2" }),
      "it is of several instances: order-1, order-2"
    ]
  ]
  for (const [name, change, problem] of cases) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const objects = JSON.parse(yield* recorded(paid))
        const error = yield* Effect.flip(replay(paid, change(objects)))
        assert.strictEqual(error.message, `the history cannot be replayed: ${problem}`)
      }))
  }

  it.effect("an unknown instance has no history to record", () =>
    Effect.map(
      Effect.flip(recorded(paid, recordHistory("other"))),
      (error) => assert.strictEqual((error as ProviderError.ProviderError).reason._tag, "InstanceNotFound")
    ))
})

describe("replayHistory: histories of a Rust runtime", () => {
  const folder = new URL("../recordings/duroxide/", import.meta.url)

  /** Recordings whose programs differ from ours, or in which Rust did what we would not. */
  const notOurs = new Map([
    ["nondeterminism-returned-early", "the program changes with every run"],
    ["poison-bad-history", "an event was made unreadable"],
    ["unregistered-orchestration", "there is no program"],
    ["detached-start-reserved-id", "the refusal has other words"],
    ["sub-orchestration-reserved-id", "the refusal has other words"],
    ["defect-duplicate-start-hijack", "another version ran than was started"],
    ["defect-event-race-replay", "the program waits although it has its answer"],
    ["defect-continue-as-new-orphans-child", "a child is left alone"],
    ["defect-nul-in-custom-status", "nothing was stored"],
    ["message-before-start", "nothing was stored"]
  ])

  for (const [name, scenario] of Object.entries(scenarios)) {
    if (notOurs.has(name)) continue
    it.effect(name, () =>
      Effect.gen(function*() {
        const { history } = read(new URL(`${name}.json`, folder))
        const instances = new Set(history.map((row) => row.instance_id))
        assert.isAbove(instances.size, 0)
        for (const instanceId of instances) {
          const rows = history.filter((row) => row.instance_id === instanceId)
          const started = JSON.parse(rows[0]!.event_data)
          const versions = scenario.definitions().filter(({ definition }) => definition.name === started.name)
          const [first, ...others] = versions.map(({ definition }) => definition)
          if (first === undefined) return assert.fail(`there is no program ${started.name}`)
          const layers = versions.map(({ layer }) => layer)
          const { executions } = yield* replayHistory([first, ...others], rows).pipe(
            Effect.provide(Layer.mergeAll(layers[0]!, ...layers.slice(1)))
          )
          assert.strictEqual(executions.reduce((sum, { events }) => sum + events, 0), rows.length)
        }
      }))
  }

  it("the excluded ones exist, and no others", () => {
    assert.isEmpty([...notOurs.keys()].filter((name) => !(name in scenarios)))
  })
})
