import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { readdirSync } from "node:fs"
import { differences } from "./programs/compare.ts"
import * as programs from "./programs/duroxide.ts"
import { read } from "./programs/recording.ts"
import type { Batch, Step } from "./programs/recording.ts"
import { check, plan, play, replay, scenarios } from "./programs/scenarios.ts"
import type { Scenario } from "./programs/scenarios.ts"

const folder = new URL("./duroxide/", import.meta.url)

const recorded = readdirSync(folder).filter((name) => name.endsWith(".json") && !name.startsWith("_"))
  .map((name) => name.slice(0, -".json".length))

const recording = (name: string) => read(new URL(`${name}.json`, folder))

const planned = (name: string) => plan(recording(name), scenarios[name]!)

type Turn = Extract<Step, { readonly _tag: "Turn" }>

const isTurn = (step: Step): step is Turn => step._tag === "Turn"

/** The steps up to a turn, with that turn's batch changed. */
const withBatch = (steps: ReadonlyArray<Step>, turn: Turn, change: Partial<Batch>): ReadonlyArray<Step> => [
  ...steps.slice(0, steps.indexOf(turn)),
  { ...turn, batch: { ...turn.batch, ...change } }
]

/** Fails if the steps go as recorded although they should not. */
const mustDiffer = (what: string, scenario: Scenario, steps: ReadonlyArray<Step>) =>
  Effect.map(check(steps, scenario), (found) => assert.isNotEmpty(found, `${what} goes unnoticed`))

describe("recordings of Duroxide", () => {
  it("every recording has a scenario, and every scenario its recording", () => {
    assert.deepStrictEqual(Object.keys(scenarios).toSorted(), recorded.toSorted())
  })

  for (const [name, scenario] of Object.entries(scenarios)) {
    it.live(`replay: ${name} goes as recorded`, () =>
      Effect.map(replay(recording(name), scenario), (found) => assert.deepStrictEqual(found, [])))
  }

  it.live("replay: a message that is missing is noticed, whichever it is", () =>
    Effect.gen(function*() {
      let removed = 0
      for (const [name, scenario] of Object.entries(scenarios)) {
        const steps = planned(name)
        for (const turn of steps.filter(isTurn)) {
          for (const [index, message] of turn.batch.messages.entries()) {
            // A second start and a second cancellation change nothing, and must not.
            if (message.includes(`"second`)) continue
            const messages = turn.batch.messages.toSpliced(index, 1)
            const stored = check(withBatch(steps, turn, { messages }), scenario)
            // Without any message nothing is claimed.
            if (messages.length > 0) assert.isNotEmpty(yield* stored, `${name}: ${message}`)
            removed++
          }
        }
      }
      assert.isAbove(removed, 80)
    }))

  it.live("replay: two arrivals that change places are noticed, wherever they do", () =>
    Effect.gen(function*() {
      let swapped = 0
      for (const [name, scenario] of Object.entries(scenarios)) {
        const steps = planned(name)
        for (const turn of steps.filter(isTurn)) {
          for (const index of turn.batch.messages.keys()) {
            const messages = [...turn.batch.messages]
            const [one, two] = [messages[index]!, messages[index + 1]]
            if (two === undefined || one.includes("StartOrchestration") || two.includes(`"second`)) continue
            messages[index] = two
            messages[index + 1] = one
            yield* mustDiffer(`${name}: ${one}`, scenario, withBatch(steps, turn, { messages }))
            swapped++
          }
        }
      }
      assert.isAbove(swapped, 8)
    }))

  it.live("replay: another payload in any message is noticed", () =>
    Effect.gen(function*() {
      let changed = 0
      for (const [name, scenario] of Object.entries(scenarios)) {
        const steps = planned(name)
        for (const turn of steps.filter(isTurn)) {
          for (const [index, message] of turn.batch.messages.entries()) {
            const altered = message.replace(/"(input|result|data|reason)":\s?"(?!second)/, "$&7")
            if (altered === message || message.includes(`"second`)) continue
            // The contents of a refused start are not examined.
            if (turn.stored.events.length === 0) continue
            // Messages for an unreadable history are not examined.
            if (name === "poison-bad-history" && turn.turn === 2) continue
            const messages = turn.batch.messages.with(index, altered)
            yield* mustDiffer(`${name}: ${altered}`, scenario, withBatch(steps, turn, { messages }))
            changed++
          }
        }
      }
      assert.isAbove(changed, 50)
    }))

  it.live("replay: any change of what was stored is noticed", () =>
    Effect.gen(function*() {
      let changed = 0
      for (const [name, scenario] of Object.entries(scenarios)) {
        const steps = planned(name)
        for (const [turn, reaction] of yield* play(steps, scenario)) {
          if (!isTurn(turn)) continue
          const { stored } = turn
          const stores = (change: Partial<Turn["stored"]>) => {
            changed++
            assert.isNotEmpty(
              differences({ ...turn, stored: { ...stored, ...change } }, reaction),
              `${name} turn ${turn.turn}: ${JSON.stringify(change)} goes unnoticed`
            )
          }
          for (const [index, event] of stored.events.entries()) {
            stores({ events: stored.events.toSpliced(index, 1) })
            const altered = [
              event.replace(/"event_id":/, "$&9"),
              event.replace(/"source_event_id":\d/, "$&9"),
              event.replace(/"source_event_id":null/, `"source_event_id":2`),
              event.replace(/"(name|input|result|data|output|reason|version|instance|key|status)":"/, "$&x"),
              event.replace(/"value":"/, "$&x"),
              event.replace(/"initial_custom_status":"/, "$&x"),
              event.replace(/"carry_forward_events":\[/, `$&["x","y"],`),
              event.replace(`"status":null`, `"status":"x"`),
              event.replace(/"fire_at_ms":(\d+)/, (_, at: string) => `"fire_at_ms":${Number(at) + 1}`),
              event.replace(/"kind":"\w+"/, otherKind),
              event.replace(/"attempt_count":/, "$&1"),
              event.replace(/"type":"/, "$&Not"),
              event.replace(/"parent_id":null/, `"parent_id":1`)
            ]
            for (const other of altered) {
              if (other !== event) stores({ events: stored.events.with(index, other) })
            }
          }
          for (const index of stored.activities.keys()) {
            stores({ activities: stored.activities.toSpliced(index, 1) })
          }
          for (const [index, message] of stored.messages.entries()) {
            stores({ messages: stored.messages.toSpliced(index, 1) })
            for (
              const other of [
                message.work_item.replace(/"(input|result|reason|version|orchestration)": ?"/, "$&x"),
                message.work_item.replace(/"(id|parent_id|parent_execution_id)": ?(?=\d)/, "$&7"),
                message.work_item.replace(/"kind": ?"\w+"/, otherKind),
                message.work_item.replace(/"carry_forward_events": \[(?=\[)/, `$&["x", "y"], `),
                message.work_item.replace(`"carry_forward_events": []`, `"carry_forward_events": [["x", "y"]]`)
              ]
            ) {
              if (other !== message.work_item) {
                stores({ messages: stored.messages.with(index, { ...message, work_item: other }) })
              }
            }
          }
          stores({ cancelled: [...stored.cancelled, 2] })
          stores({ end: stored.end === undefined ? { status: "Completed", output: "1" } : undefined })
          if (stored.identity !== undefined) {
            stores({ identity: { ...stored.identity, version: "9.9.9" } })
            stores({ identity: { ...stored.identity, pinned: !stored.identity.pinned } })
          }
        }
      }
      assert.isAbove(changed, 1_500)
    }))

  it.live("replay: other code is noticed", () =>
    Effect.gen(function*() {
      for (
        const [name, other] of [
          ["race-both-in-one-batch", programs.define("RaceET", programs.RaceThenActivity.code)],
          ["retry-success", programs.define("RetryOk", programs.RetryExhausted.code)],
          ["events-join", programs.define("Waits2", programs.WaitTwice.code)],
          ["fan-out-5", programs.define("FanOut5", programs.Child.code)],
          ["timer", programs.define("Timer", (ms: number) => programs.Timer.code(ms + 1))],
          ["activity-failure-caught", programs.define("ActFailCaught", programs.ActFailUncaught.code)]
        ] as const
      ) {
        yield* mustDiffer(name, { ...scenarios[name]!, definitions: () => [other] }, planned(name))
      }
    }))

  it.live("poison: a parent is notified of a child that cannot start, and ended instances do not change", () =>
    Effect.gen(function*() {
      const deliveredTooOften = (name: string, isOne: (step: Step) => boolean) => {
        const step = planned(name).find(isOne)
        if (step === undefined || !("batch" in step)) return assert.fail(`${name} has no such step`)
        const poisoned = { ...step, batch: { ...step.batch, attemptCount: 11 } }
        return Effect.map(play([poisoned], scenarios[name]!), ([first]) => first![1])
      }
      const running = yield* deliveredTooOften(
        "defect-collision-with-running-hangs-parent",
        (step) => isTurn(step) && step.stored.events.length === 0
      )
      if (running._tag !== "Stored") return assert.fail(running._tag)
      assert.strictEqual(running.ack.status, "Failed")
      assert.deepStrictEqual(running.ack.orchestratorItems.map(({ instanceId }) => instanceId), ["p3-coll"])
      const ended = yield* deliveredTooOften("sub-orchestration-id-collision", ({ _tag }) => _tag === "Dropped")
      if (ended._tag !== "Dropped") return assert.fail(ended._tag)
      assert.strictEqual(ended.enqueued.length, 1)
    }))

  it.live("replay: what is refused, dropped or given back otherwise is noticed", () =>
    Effect.gen(function*() {
      const [nothing] = planned("duplicate-start").filter(({ _tag }) => _tag === "Nothing") as [
        Extract<Step, { _tag: "Nothing" }>
      ]
      yield* mustDiffer("a drop", scenarios["duplicate-start"]!, [{
        _tag: "Dropped",
        batch: nothing.batch,
        messages: []
      }])
      const given = planned("unregistered-orchestration").find((step) => step._tag === "GivenBack")
      if (given?._tag !== "GivenBack") return assert.fail("the plan gives nothing back")
      for (const change of [{ delayMs: 999 }, { counted: true }]) {
        yield* mustDiffer("another pause", scenarios["unregistered-orchestration"]!, [{ ...given, ...change }])
      }
      yield* mustDiffer("a turn instead", scenarios["single-activity"]!, [
        { _tag: "Nothing", batch: planned("single-activity").find(isTurn)!.batch }
      ])
      yield* mustDiffer("a claim of our own version", scenarios["timer"]!, [
        ...planned("timer"),
        { _tag: "NotAskedFor", version: [1000, 0, 0] }
      ])
    }))
})

/** Another kind than the recorded one and than ours. */
const otherKind = (kind: string) => `"kind":"${kind.includes("ActivityFailed") ? "Panicked" : "ActivityFailed"}"`
