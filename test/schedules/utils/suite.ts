/**
 * What every storage of schedules promises. Time is virtual; nothing runs but what a test calls.
 */
import { assert, describe, it } from "@effect/vitest"
import { Orchestration } from "duroxide-prisma"
import { ProviderError } from "duroxide-prisma/provider"
import type { PayloadCodec } from "duroxide-prisma/provider"
import { ScheduleDriver, Schedules } from "duroxide-prisma/schedules"
import { Task } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as TestClock from "effect/testing/TestClock"
import { Topics } from "../../../src/waking/Topics.ts"
import { encrypted } from "../../payloads/utils.ts"
import { driverOf } from "./stores.ts"
import type { OpenStore, TestStore } from "./stores.ts"

type Codec = Layer.Layer<PayloadCodec.PayloadCodec>

export const Report = Orchestration.make("Report", { payload: { day: Schema.String } })
export const Resize = Task.make("Resize", { payload: Schema.Struct({ size: Schema.Int }) })

export const day = { day: "any" }

export const at = (text: string) => Date.parse(`2030-01-01T${text}Z`)

export const hourly = Schedules.cron("0 * * * *")

const hour = (n: number) => `schedule/hourly/2030-01-01T${String(n).padStart(2, "0")}:00:00.000Z`

export interface Open extends TestStore {
  readonly run: (schedules?: ReadonlyArray<Schedules.Schedule>) => Effect.Effect<number, unknown>
  readonly service: Schedules.Schedules["Service"]
  readonly ids: Effect.Effect<ReadonlyArray<string>>
  readonly moveTo: (time: string) => Effect.Effect<void>
  readonly outcomes: (name?: string) => Effect.Effect<ReadonlyArray<string>, unknown>
}

/** A test on an empty store at half past eight. */
export const testOn = (store: OpenStore) => (title: string, body: (open: Open) => Effect.Effect<void, unknown>) =>
  it.effect(title, () =>
    Effect.scoped(Effect.gen(function*() {
      yield* TestClock.setTime(at("08:30:00"))
      const opened = yield* store
      const service = yield* Effect.provide(
        Effect.provide(Schedules.Schedules, Schedules.layerClient),
        opened.services
      )
      yield* body({
        ...opened,
        service,
        run: (schedules) =>
          Effect.map(Effect.provide(Schedules.runDue(schedules), opened.services), ({ started }) => started),
        ids: Effect.map(opened.started, (all) => all.map(({ id }) => id).sort()),
        moveTo: (time) => TestClock.setTime(at(time)),
        outcomes: (name = "hourly") =>
          Effect.map(service.runs(name), (runs) =>
            runs.toReversed().map(({ kind, occurrence, outcome, since }) =>
              `${kind === "Scheduled" ? "" : `${kind} `}${outcome} ${
                since === undefined ? "" : `${since.toISOString().slice(11, 16)}-`
              }${occurrence.toISOString().slice(11, 16)}`
            ))
      })
    })).pipe(Effect.provide(Logger.layer([]))))

export const suite = (name: string, store: OpenStore): void => {
  const test = testOn(store)

  describe(`schedules (${name}):`, () => {
    test("an occurrence starts at its time and not before, once, with its payload", ({ ids, moveTo, outcomes, run, started }) =>
      Effect.gen(function*() {
        const schedules = [Schedules.make("hourly", { timing: hourly, start: Report, payload: { day: "today" } })]
        assert.strictEqual(yield* run(schedules), 0, "it begins with its creation")
        yield* moveTo("08:59:59")
        assert.strictEqual(yield* run(schedules), 0)
        yield* moveTo("09:00:00")
        assert.strictEqual(yield* run(), 1, "any process fires a schedule with a payload")
        assert.strictEqual(yield* run(), 0)
        assert.deepStrictEqual(yield* started, [{ id: hour(9), payload: `{"day":"today"}` }])
        assert.deepStrictEqual(yield* ids, [hour(9)])
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00"])
      }))

    test("a task starts with its occurrence as the key", ({ moveTo, outcomes, run, service, started }) =>
      Effect.gen(function*() {
        const schedule = Schedules.make("hourly", {
          timing: hourly,
          start: Resize,
          payload: ({ at }) => ({ size: at.getUTCHours() })
        })
        yield* run([schedule])
        yield* moveTo("09:00:10")
        yield* run([schedule])
        assert.deepStrictEqual(yield* started, [{ id: hour(9), payload: `{"size":9}` }])
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00"])
        const [last] = yield* service.runs("hourly")
        assert.match(last!.taskId!, /^[\da-f-]{36}$/)
      }))

    test("many schedulers at once fire an occurrence once", ({ ids, moveTo, outcomes, run }) =>
      Effect.gen(function*() {
        const schedules = [
          Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "allow" }),
          Schedules.make("often", {
            timing: Schedules.every("5 minutes"),
            start: Report,
            payload: day,
            overlap: "allow"
          })
        ]
        yield* run(schedules)
        yield* moveTo("09:00:00")
        yield* Effect.all(Array.from({ length: 8 }, () => run()), { concurrency: "unbounded" })
        const all = yield* ids
        assert.deepStrictEqual(all, [...new Set(all)])
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00"])
        assert.strictEqual((yield* outcomes("often")).length, 3, "Missed, the last that is late, and the present one")
      }))

    test("what a claim of a process that died holds is fired after the hold", (open) =>
      Effect.gen(function*() {
        const { ids, moveTo, run } = open
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day })])
        yield* moveTo("09:00:00")
        const claimed = yield* driverOf(open).claim({ codes: [], limit: 10, holdMs: 5000 })
        assert.deepStrictEqual(claimed.schedules.map(({ name }) => name), ["hourly"])
        assert.strictEqual(yield* run(), 0)
        yield* moveTo("09:00:05")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* ids, [hour(9)])
      }))

    test("what was decided before a change starts nothing", (open) =>
      Effect.gen(function*() {
        const { ids, moveTo, run, service } = open
        const driver = driverOf(open)
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day })])
        yield* moveTo("09:00:00")
        const { schedules: [claimed] } = yield* driver.claim({ codes: [], limit: 10, holdMs: 5000 })
        yield* service.pause("hourly")
        const settled = yield* driver.fire([{
          name: "hourly",
          revision: claimed!.revision,
          firedUntilMs: at("09:00:00"),
          nextMs: null,
          lookMs: null,
          queued: null,
          requests: [],
          runCount: 1,
          runs: [{
            number: 1,
            kind: "Scheduled",
            occurrenceMs: at("09:00:00"),
            missedSinceMs: null,
            outcome: "Started",
            note: null,
            start: {
              _tag: "Orchestration",
              start: {
                _tag: "StartOrchestration",
                instance: "late",
                orchestration: "Report",
                input: "{}",
                version: null,
                parentInstance: null,
                parentId: null,
                executionId: 1
              },
              pinnedVersion: { major: 1000, minor: 1, patch: 0 }
            }
          }],
          last: 1,
          interrupts: null
        }])
        assert.deepStrictEqual(settled, [false])
        assert.deepStrictEqual(yield* ids, [])
        assert.deepStrictEqual(yield* service.runs("hourly"), [])
      }))

    for (
      const [catchUp, expected] of [
        ["last", ["Missed 09:00-10:00", "Started 11:00", "Started 12:00"]],
        ["none", ["Missed 09:00-11:00", "Started 12:00"]],
        [{ within: "150 minutes" }, ["Missed 09:00-09:00", "Started 10:00", "Started 11:00", "Started 12:00"]]
      ] as const
    ) {
      test(`after an outage: catchUp ${JSON.stringify(catchUp)}`, ({ moveTo, outcomes, run }) =>
        Effect.gen(function*() {
          yield* run([
            Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "allow", catchUp })
          ])
          yield* moveTo("12:00:30")
          yield* run()
          assert.deepStrictEqual(yield* outcomes(), expected)
          yield* run()
          assert.deepStrictEqual(yield* outcomes(), expected)
        }))
    }

    test("more than a hundred that are due all start, a hundred in each statement", ({ ids, moveTo, run, service }) =>
      Effect.gen(function*() {
        yield* run([
          Schedules.make("seconds", {
            timing: Schedules.every("1 second"),
            start: Report,
            payload: day,
            overlap: "allow",
            catchUp: { within: "1 hour" }
          })
        ])
        yield* moveTo("08:35:00")
        assert.strictEqual(yield* run(), 300)
        assert.strictEqual(new Set(yield* ids).size, 300)
        assert.strictEqual((yield* service.runs("seconds")).length, 100, "the last hundred runs are kept")
      }))

    test("overlap skip: an occurrence is left out while the last run continues", ({ end, moveTo, outcomes, run }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day })])
        for (const time of ["09:00:00", "10:00:00"]) {
          yield* moveTo(time)
          yield* run()
        }
        yield* end()
        yield* moveTo("11:00:00")
        yield* run()
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Skipped 10:00", "Started 11:00"])
      }))

    for (const start of [Report, Resize]) {
      const payload = { day: "any", size: 1 }
      test(`overlap queue: one waits for the end of the last run, then starts (${start.name})`, ({ end, ids, moveTo, outcomes, run, service }) =>
        Effect.gen(function*() {
          yield* run([
            Schedules.make("hourly", { timing: hourly, start: start as typeof Report, payload, overlap: "queue" })
          ])
          for (const time of ["09:00:00", "10:00:00", "11:00:00"]) {
            yield* moveTo(time)
            yield* run()
          }
          assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Queued 10:00", "Skipped 11:00"])
          assert.deepStrictEqual(Option.getOrThrow(yield* service.get("hourly")).queued, new Date(at("10:00:00")))
          yield* end()
          assert.strictEqual(yield* run(), 1)
          assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Started 10:00", "Skipped 11:00"])
          assert.deepStrictEqual(yield* ids, [hour(9), hour(10)])
        }))

      test(`overlap interrupt: the last run is asked to end once, and the newest starts then (${start.name})`, ({ end, ids, interrupted, moveTo, outcomes, run }) =>
        Effect.gen(function*() {
          yield* run([
            Schedules.make("hourly", { timing: hourly, start: start as typeof Report, payload, overlap: "interrupt" })
          ])
          yield* moveTo("09:00:00")
          yield* run()
          assert.deepStrictEqual(yield* interrupted, [])
          yield* moveTo("10:00:00")
          yield* run()
          assert.deepStrictEqual(yield* interrupted, [hour(9)])
          if (start === Report) {
            yield* moveTo("11:00:00")
            yield* run()
            assert.deepStrictEqual(yield* interrupted, [hour(9)])
            yield* end()
            yield* run()
            assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Skipped 10:00", "Started 11:00"])
            assert.deepStrictEqual(yield* ids, [hour(9), hour(11)])
          } else {
            // A task ends at once when it is cancelled.
            yield* run()
            assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Started 10:00"])
          }
        }))
    }

    test("overlap interrupt: of two that are due at once, the first is interrupted for the second", ({ interrupted, moveTo, outcomes, run }) =>
      Effect.gen(function*() {
        yield* run([
          Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "interrupt" })
        ])
        yield* moveTo("10:00:30")
        yield* run()
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Queued 10:00"])
        assert.deepStrictEqual(yield* interrupted, [hour(9)])
      }))

    test("overlap interrupt: of many that are due at once, the newest takes the place of those before it", ({ end, ids, interrupted, moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        yield* run([
          Schedules.make("hourly", {
            timing: hourly,
            start: Report,
            payload: day,
            overlap: "interrupt",
            catchUp: { within: "6 hours" }
          })
        ])
        yield* moveTo("12:00:30")
        yield* run()
        const skipped = ["Started 09:00", "Skipped 10:00", "Skipped 11:00"]
        assert.deepStrictEqual(yield* outcomes(), [...skipped, "Queued 12:00"])
        assert.deepStrictEqual(yield* interrupted, [hour(9)])
        // Also while one waits, and by hand.
        yield* service.runNow("hourly")
        yield* service.runNow("hourly")
        yield* moveTo("14:00:30")
        yield* run()
        yield* end()
        yield* run()
        assert.deepStrictEqual(yield* ids, [hour(9), hour(14)])
        assert.deepStrictEqual(yield* outcomes(), [
          ...skipped,
          "Skipped 12:00",
          "Manual Skipped 12:00",
          "Manual Skipped 12:00",
          "Skipped 13:00",
          "Started 14:00"
        ])
      }))

    test("a pause leaves out what comes meanwhile, for good; a run by hand still starts", ({ ids, moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "allow" })])
        assert.isTrue(yield* service.pause("hourly", { reason: "no data" }))
        assert.isFalse(yield* service.pause("hourly"))
        yield* moveTo("10:10:00")
        assert.strictEqual(yield* run(), 0)
        const paused = Option.getOrThrow(yield* service.get("hourly"))
        assert.strictEqual(paused.state, "Paused")
        assert.deepStrictEqual(paused.pause, { since: new Date(at("08:30:00")), reason: "no data" })
        assert.deepStrictEqual(paused.next, [])
        const id = yield* service.runNow("hourly")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* ids, [id])
        assert.isTrue(yield* service.resume("hourly"))
        assert.isFalse(yield* service.resume("hourly"))
        assert.strictEqual(yield* run(), 0)
        yield* moveTo("11:00:00")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* outcomes(), ["Manual Started 10:10", "Started 11:00"])
      }))

    for (const overlap of ["queue", "interrupt"] as const) {
      test(`during a pause, a run by hand that waits for the last run starts when that has ended (overlap ${overlap})`, ({ end, ids, interrupted, moveTo, outcomes, run, service }) =>
        Effect.gen(function*() {
          yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap })])
          yield* moveTo("09:00:00")
          yield* run()
          yield* service.pause("hourly")
          const id = yield* service.runNow("hourly")
          yield* run()
          assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Manual Queued 09:00"])
          assert.deepStrictEqual(yield* interrupted, overlap === "interrupt" ? [hour(9)] : [])
          yield* end()
          assert.strictEqual(yield* run(), 1)
          assert.deepStrictEqual(yield* ids, [hour(9), id])
          assert.strictEqual(Option.getOrThrow(yield* service.get("hourly")).state, "Paused")
        }))
    }

    test("an occurrence that waits for the last run when a pause begins starts after the pause", ({ end, moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "queue" })])
        for (const time of ["09:00:00", "10:00:00"]) {
          yield* moveTo(time)
          yield* run()
        }
        yield* service.pause("hourly")
        yield* end()
        assert.strictEqual(yield* run(), 0)
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Queued 10:00"])
        // It does not hold up a run by hand, which starts at once.
        yield* service.runNow("hourly")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Queued 10:00", "Manual Started 10:00"])
        yield* end()
        yield* service.resume("hourly")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Started 10:00", "Manual Started 10:00"])
      }))

    test("overlap interrupt: during a pause, one run by hand asks another one to end", ({ end, ids, interrupted, moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "interrupt" })])
        for (const time of ["09:00:00", "10:00:00"]) {
          yield* moveTo(time)
          yield* run()
        }
        yield* service.pause("hourly")
        yield* end()
        const first = yield* service.runNow("hourly")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* interrupted, [hour(9)])
        const second = yield* service.runNow("hourly")
        yield* run()
        assert.deepStrictEqual(yield* interrupted, [hour(9), first], "for the one by hand that follows")
        yield* end()
        assert.strictEqual(yield* run(), 1)
        yield* service.resume("hourly")
        yield* moveTo("11:00:00")
        yield* run()
        assert.deepStrictEqual(yield* interrupted, [hour(9), first, second])
        yield* end()
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* ids, [hour(9), hour(11), first, second].sort())
        assert.deepStrictEqual(yield* outcomes(), [
          "Started 09:00",
          "Skipped 10:00",
          "Manual Started 10:00",
          "Manual Started 10:00",
          "Started 11:00"
        ])
      }))

    test("overlap interrupt: after a pause, what waits since before it asks a run by hand to end", ({ end, ids, interrupted, moveTo, run, service }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "interrupt" })])
        for (const time of ["09:00:00", "10:00:00"]) {
          yield* moveTo(time)
          yield* run()
        }
        yield* service.pause("hourly")
        yield* end()
        const id = yield* service.runNow("hourly")
        yield* run()
        yield* service.resume("hourly")
        yield* run()
        assert.deepStrictEqual(yield* interrupted, [hour(9), id])
        yield* end()
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* ids, [hour(9), hour(10), id])
      }))

    test("overlap interrupt: for an occurrence without a payload nothing is interrupted", ({ interrupted, moveTo, outcomes, run }) =>
      Effect.gen(function*() {
        const schedules = [Schedules.make("hourly", {
          timing: hourly,
          start: Report,
          overlap: "interrupt",
          payload: ({ at }) => {
            if (at.getUTCHours() > 9) throw new Error("no data")
            return day
          }
        })]
        yield* run(schedules)
        for (const time of ["09:00:00", "10:00:00"]) {
          yield* moveTo(time)
          yield* run(schedules)
        }
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Refused 10:00"])
        assert.deepStrictEqual(yield* interrupted, [])
      }))

    test("a run by hand follows the rule for overlaps", ({ end, ids, moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "queue" })])
        yield* moveTo("09:00:00")
        yield* run()
        const id = yield* service.runNow("hourly")
        yield* run()
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Manual Queued 09:00"])
        yield* end()
        yield* run()
        assert.deepStrictEqual(yield* ids, [hour(9), id])
      }))

    test("a backfill starts earlier occurrences once, whatever runs, and none that are not due", ({ ids, moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day })])
        yield* moveTo("09:00:00")
        yield* run()
        const range = { from: new Date(at("06:00:00")), to: new Date(at("23:00:00")) }
        assert.strictEqual(yield* service.backfill("hourly", range), 4)
        assert.strictEqual(yield* service.backfill("hourly", { from: new Date(at("22:00:00")), to: range.to }), 0)
        yield* run()
        assert.deepStrictEqual(yield* ids, [6, 7, 8, 9].map(hour))
        assert.strictEqual(Option.getOrThrow(yield* service.get("hourly")).requests, 0)
        yield* service.backfill("hourly", range)
        yield* run()
        assert.deepStrictEqual(yield* ids, [6, 7, 8, 9].map(hour), "what exists starts nothing")
        assert.strictEqual((yield* outcomes()).filter((outcome) => outcome.startsWith("Backfill")).length, 8)
      }))

    test("a long backfill continues where it was", ({ ids, moveTo, run, service }) =>
      Effect.gen(function*() {
        yield* run([
          Schedules.make("minutes", {
            timing: Schedules.cron("* * * * *"),
            start: Report,
            payload: day,
            catchUp: "none"
          })
        ])
        yield* moveTo("12:00:00")
        yield* service.backfill("minutes", { from: new Date(at("08:31:00")), to: new Date(at("11:50:00")) })
        yield* run()
        const all = (yield* ids).map((id) => id.slice(-13, -8))
        assert.includeMembers(all, ["08:31", "10:10", "11:50"])
        assert.strictEqual(all.filter((time) => time >= "08:31" && time <= "11:50").length, 200)
      }))

    test("another definition replaces it: a new timing counts from now on, and all else stays", ({ moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        const of = (timing: Schedules.Timing, overlap: Schedules.Overlap = "allow") =>
          Schedules.make("hourly", { timing, start: Report, payload: day, overlap })
        assert.strictEqual(yield* service.create(of(hourly)), "Created")
        assert.strictEqual(yield* service.create(of(hourly)), "Unchanged")
        const refused = yield* Effect.flip(service.create(of(hourly, "skip")))
        assert.strictEqual(refused._tag, "ScheduleExists")
        yield* run()
        yield* moveTo("09:00:00")
        assert.strictEqual(yield* service.create(of(hourly, "queue"), { ifExists: "replace" }), "Replaced")
        assert.strictEqual(yield* run(), 1, "the timing is the same: what is due fires")
        yield* moveTo("10:00:20")
        yield* service.create(of(Schedules.cron("30 * * * *")), { ifExists: "replace" })
        assert.strictEqual(yield* run(), 0, "what the former timing had due does not fire")
        yield* moveTo("10:30:00")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00", "Started 10:30"])
        yield* service.pause("hourly")
        yield* service.create(of(hourly), { ifExists: "replace" })
        assert.strictEqual(Option.getOrThrow(yield* service.get("hourly")).state, "Paused")
        yield* moveTo("11:00:00")
        assert.strictEqual(yield* run(), 0)
      }))

    test("a payload that code makes: only a process that has this code fires it, and the list says so", ({ moveTo, run, service, started }) =>
      Effect.gen(function*() {
        const schedule = (timing: Schedules.Timing) =>
          Schedules.make("hourly", {
            timing,
            start: Report,
            payload: ({ at }) => ({ day: at.toISOString().slice(0, 10) })
          })
        yield* run([schedule(hourly)])
        yield* moveTo("09:00:00")
        assert.strictEqual(yield* run(), 0)
        assert.strictEqual(Option.getOrThrow(yield* service.get("hourly")).state, "Active")
        yield* moveTo("09:01:01")
        const overdue = Option.getOrThrow(yield* service.get("hourly"))
        assert.strictEqual(overdue.state, "Overdue")
        assert.include(overdue.problem, "has that code in Schedules.layer")
        assert.strictEqual(yield* run([schedule(hourly)]), 1)
        assert.deepStrictEqual(yield* started, [{ id: hour(9), payload: `{"day":"2030-01-01"}` }])
      }))

    test("a schedule that schedulers claim and cannot fire is overdue by when it was due", (open) =>
      Effect.gen(function*() {
        const { moveTo, run, service } = open
        yield* run([
          Schedules.make("hourly", { timing: hourly, start: Report, payload: day, jitter: "1 minute" }),
          Schedules.make("paused", { timing: hourly, start: Report, payload: day })
        ])
        yield* service.pause("paused")
        const state = Effect.map(service.get("hourly"), (found) => Option.getOrThrow(found).state)
        for (const [time, expected] of [["09:01:00", "Active"], ["09:02:01", "Overdue"]] as const) {
          yield* moveTo(time)
          const { schedules } = yield* driverOf(open).claim({ codes: [], limit: 10, holdMs: 5000 })
          assert.deepStrictEqual(schedules.map(({ name }) => name), ["hourly"])
          assert.strictEqual(yield* state, expected)
        }
        assert.strictEqual(Option.getOrThrow(yield* service.get("paused")).state, "Paused")
        yield* moveTo("09:02:06")
        yield* run()
        assert.strictEqual(yield* state, "Active")
      }))

    test("a payload that cannot be made is refused, with the reason and without the value, and the next one starts", ({ moveTo, outcomes, run, service }) =>
      Effect.gen(function*() {
        const schedules = [Schedules.make("hourly", {
          timing: hourly,
          start: Resize,
          payload: ({ at }) => {
            if (at.getUTCHours() === 9) throw new Error("s3cret")
            return { size: at.getUTCHours() === 10 ? 1.5 : 1 }
          },
          catchUp: { within: "1 day" }
        })]
        yield* run(schedules)
        yield* moveTo("11:00:00")
        yield* run(schedules)
        assert.deepStrictEqual(yield* outcomes(), ["Refused 09:00", "Refused 10:00", "Started 11:00"])
        const notes = (yield* service.runs("hourly")).map(({ note }) => note ?? "")
        assert.include(notes[2], "has thrown")
        assert.include(notes[1], "does not match its schema")
        assert.notInclude(notes.join(), "s3cret")
      }))

    test("a clock that is set back fires nothing again, and nothing early", ({ ids, moveTo, run }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "allow" })])
        yield* moveTo("09:00:00")
        yield* run()
        yield* moveTo("07:30:00")
        yield* run()
        for (const time of ["08:00:00", "09:00:00", "09:30:00"]) {
          yield* moveTo(time)
          yield* run()
        }
        assert.deepStrictEqual(yield* ids, [hour(9)])
        yield* moveTo("10:00:00")
        yield* run()
        assert.deepStrictEqual(yield* ids, [hour(9), hour(10)])
      }))

    test("jitter delays an occurrence by the same time everywhere", ({ ids, moveTo, run }) =>
      Effect.gen(function*() {
        const schedule = Schedules.make("hourly", { timing: hourly, start: Report, payload: day, jitter: "30 minutes" })
        yield* run([schedule])
        yield* moveTo("09:00:00")
        assert.strictEqual(yield* run(), 0)
        yield* moveTo("09:30:00")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* ids, [hour(9)])
      }))

    test("dates: each once, and after the last it has ended", ({ ids, moveTo, run, service }) =>
      Effect.gen(function*() {
        const timing = Schedules.dates(["2030-01-01T10:00", "2030-01-01T12:00:00+01:00"], { timeZone: "Europe/Berlin" })
        yield* run([Schedules.make("hourly", { timing, start: Report, payload: day, overlap: "allow" })])
        for (const time of ["09:00:00", "11:00:00"]) {
          yield* moveTo(time)
          yield* run()
        }
        assert.deepStrictEqual(yield* ids, [hour(9), hour(11)])
        assert.strictEqual(Option.getOrThrow(yield* service.get("hourly")).state, "Ended")
      }))

    test("list: pages by name, with the next occurrences", ({ run, service }) =>
      Effect.gen(function*() {
        yield* run(["a", "b", "c"].map((name) => Schedules.make(name, { timing: hourly, start: Report, payload: day })))
        const first = yield* service.list({ limit: 2, next: 2 })
        assert.deepStrictEqual(first.schedules.map(({ name }) => name), ["a", "b"])
        assert.deepStrictEqual(first.schedules[0]!.next, [new Date(at("09:00:00")), new Date(at("10:00:00"))])
        assert.strictEqual(first.schedules[0]!.state, "Active")
        const second = yield* service.list({ limit: 2, after: first.next })
        assert.deepStrictEqual(second.schedules.map(({ name }) => name), ["c"])
        assert.isUndefined(second.next)
      }))

    test("an unknown name: one clear error", ({ run, service }) =>
      Effect.gen(function*() {
        yield* run()
        const range = { from: new Date(0), to: new Date(1) }
        const calls = [
          service.pause("no"),
          service.resume("no"),
          service.runNow("no"),
          service.backfill("no", range),
          service.runs("no"),
          service.delete("no")
        ]
        for (const call of calls) {
          const error = yield* Effect.flip(
            Effect.asVoid<unknown, Schedules.ScheduleNotFound | ProviderError.ProviderError, never>(call)
          )
          assert.deepStrictEqual([error._tag, error.message], ["ScheduleNotFound", "schedule no not found"])
        }
        assert.isTrue(Option.isNone(yield* service.get("no")))
      }))

    test("what was decided about a schedule that was deleted leaves its successor of the same name as it is", (open) =>
      Effect.gen(function*() {
        const { ids, moveTo, outcomes, run, service } = open
        const driver = driverOf(open)
        const far = Date.parse("2031-01-01T00:00:00Z")
        yield* service.create(
          Schedules.make("hourly", { timing: Schedules.dates([new Date(far)]), start: Report, payload: day })
        )
        const { nowMs, schedules: [claimed] } = yield* driver.claim({ codes: [], limit: 10, holdMs: 5000 })
        yield* service.delete("hourly")
        yield* service.create(Schedules.make("hourly", { timing: hourly, start: Report, payload: day }))
        const settled = yield* driver.fire([{
          name: "hourly",
          revision: claimed!.revision,
          firedUntilMs: nowMs,
          nextMs: far,
          lookMs: far,
          queued: null,
          requests: [],
          runCount: 0,
          runs: [],
          last: null,
          interrupts: null
        }])
        assert.deepStrictEqual(settled, [false])
        yield* moveTo("09:00:00")
        assert.strictEqual(yield* run(), 1)
        assert.deepStrictEqual(yield* ids, [hour(9)])
        assert.deepStrictEqual(yield* outcomes(), ["Started 09:00"])
      }))

    for (const start of [Report, Resize]) {
      const payload = { day: "any", size: 1 }
      test(`a run by hand that is asked for again starts once (${start.name})`, (open) =>
        Effect.gen(function*() {
          const { end, ids, moveTo, outcomes, run } = open
          yield* run([
            Schedules.make("hourly", { timing: hourly, start: start as typeof Report, payload, overlap: "queue" })
          ])
          yield* moveTo("09:00:00")
          const ask = (id: string) => driverOf(open).request("hourly", { kind: "Manual", id })
          for (const id of ["a", "a", "b", "b", "a"]) assert.strictEqual(yield* ask(id), "Done")
          assert.strictEqual(yield* run(), 1)
          assert.strictEqual(yield* ask("a"), "Done", "the last run")
          assert.strictEqual(yield* ask("b"), "Done", "it waits")
          yield* run()
          assert.deepStrictEqual(yield* outcomes(), ["Manual Started 09:00", "Manual Queued 09:00", "Skipped 09:00"])
          yield* end()
          assert.strictEqual(yield* run(), 1)
          assert.strictEqual(yield* ask("a"), "Done", "an earlier run")
          yield* end()
          yield* run()
          assert.deepStrictEqual(yield* ids, ["a", "b"])
          assert.lengthOf(yield* outcomes(), 3)
        }))
    }

    test("an encrypted payload stays as it is while it says the same", (open) =>
      Effect.gen(function*() {
        /** Each has its own codec, as processes have. */
        const created = (schedule: Schedules.Schedule, codec: Codec) =>
          Effect.flatMap(Schedules.Schedules, ({ create }) => create(schedule)).pipe(
            Effect.provide(Layer.provide(Schedules.layerClient, codec)),
            Effect.provide(open.services)
          )
        const run = (schedule: Schedules.Schedule, codec: Codec) =>
          Schedules.runDue([schedule]).pipe(Effect.provide(codec), Effect.provide(open.services))
        const stored = Effect.map(
          driverOf(open).list({ name: "hourly", after: null, limit: 1 }),
          ({ schedules: [found] }) => found!.payload!
        )
        const schedule = Schedules.make("hourly", { timing: hourly, start: Report, payload: day })
        const other = Schedules.make("hourly", { timing: hourly, start: Report, payload: { day: "other" } })
        assert.strictEqual(yield* created(schedule, encrypted("k1")), "Created")
        const first = yield* stored
        assert.include(first, ":k1")
        assert.strictEqual(yield* created(schedule, encrypted("k1")), "Unchanged")
        assert.strictEqual((yield* Effect.flip(created(other, encrypted("k1"))))._tag, "ScheduleExists")
        yield* run(schedule, encrypted("k1"))
        assert.strictEqual(yield* created(schedule, encrypted("k2", "k1")), "Unchanged")
        assert.strictEqual(yield* stored, first)
        yield* run(schedule, encrypted("k2", "k1"))
        assert.include(yield* stored, ":k2", "one that the code defines gets the new key")
        yield* run(other, encrypted("k2"))
        assert.strictEqual(yield* created(other, encrypted("k2")), "Unchanged")
      }))

    test("a change whose answer was lost succeeds, and is announced", (open) =>
      Effect.gen(function*() {
        const driver = driverOf(open)
        const lost = new ProviderError.ProviderError({
          operation: "test",
          reason: new ProviderError.ConnectionLost({ problem: "reset" })
        })
        let isLost = true
        const once = <A>(call: Effect.Effect<A, ProviderError.ProviderError>) =>
          Effect.flatMap(call, (answer) => {
            const isFirst = isLost
            isLost = false
            return isFirst ? Effect.fail(lost) : Effect.succeed(answer)
          })
        let announced = 0
        const topics = Context.get(open.services, Topics)
        const service = yield* Effect.provide(Effect.provide(Schedules.Schedules, Schedules.layerClient), [
          Layer.succeed(ScheduleDriver.ScheduleDriver, {
            ...driver,
            store: (...args) => once(driver.store(...args)),
            pause: (...args) => once(driver.pause(...args)),
            delete: (name) => once(driver.delete(name))
          }),
          Layer.succeed(Topics, { ...topics, announce: () => Effect.sync(() => void announced++) })
        ])
        for (
          const change of [
            service.create(Schedules.make("hourly", { timing: hourly, start: Report, payload: day })),
            service.pause("hourly"),
            service.resume("hourly"),
            service.delete("hourly")
          ]
        ) {
          isLost = true
          announced = 0
          yield* TestClock.withLive(Effect.asVoid(change as Effect.Effect<unknown, { readonly message: string }>))
          assert.strictEqual(announced, 1)
        }
        assert.strictEqual((yield* Effect.flip(service.delete("hourly")))._tag, "ScheduleNotFound")
      }))

    test("delete: nothing fires, and what it has started stays", ({ ids, moveTo, run, service }) =>
      Effect.gen(function*() {
        yield* run([Schedules.make("hourly", { timing: hourly, start: Report, payload: day, overlap: "allow" })])
        yield* moveTo("09:00:00")
        yield* run()
        yield* service.delete("hourly")
        yield* moveTo("10:00:00")
        assert.strictEqual(yield* run(), 0)
        assert.deepStrictEqual(yield* ids, [hour(9)])
        assert.deepStrictEqual((yield* service.list()).schedules, [])
      }))
  })
}
