/**
 * Schedules in the dashboard, through the client that its page uses.
 */
import { assert, it } from "@effect/vitest"
import { Orchestration } from "duroxide-prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { Task } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Served from "./served.ts"

const Report = Orchestration.make("Report", { payload: { day: Schema.String } })
const Sweep = Task.make("sweep", { payload: {} })

const hourMs = 3_600_000

/** One of each kind, none of which has fired. */
const Nightly = Schedules.make("nightly", {
  timing: Schedules.cron("0 4 * * *", { timeZone: "Europe/Berlin" }),
  start: Report,
  payload: ({ at }) => ({ day: at.toISOString().slice(0, 10) }),
  overlap: "queue",
  jitter: "5 minutes",
  catchUp: { within: "2 hours" }
})
const Hourly = Schedules.make("hourly", { timing: Schedules.cron("0 * * * *"), start: Sweep, payload: {} })
const hostileName = "<img src=x onerror=alert(1)>/../%2e"
const Hostile = Schedules.make(hostileName, {
  timing: Schedules.dates(["2099-01-01"]),
  start: Report,
  payload: { day: "secret payload" }
})

const opened = Effect.gen(function*() {
  const { sql, url } = yield* PgServer.database
  const served = yield* Served.open(url)
  const schedules = yield* Schedules.Schedules.pipe(
    Effect.provide(Schedules.layerClient),
    Effect.provideContext(served.services)
  )
  for (const schedule of [Nightly, Hourly, Hostile]) yield* schedules.create(schedule)
  return {
    ...served,
    sql,
    schedules,
    /** Fires what is due, without a scheduler that stays. */
    fire: Schedules.runDue([Nightly]).pipe(Effect.provideContext(served.services))
  }
})

it.layer(PgServer.layer, { excludeTestServices: true })("schedules in the dashboard", (it) => {
  it.effect("lists them by name: when in words, what, what is next", () =>
    Effect.gen(function*() {
      const { as } = yield* opened
      const page = yield* as("read")
      const { next, schedules } = yield* page.read.schedules({ query: {} })
      assert.isNull(next)
      assert.deepStrictEqual(schedules.map(({ name }) => name), [hostileName, "hourly", "nightly"])
      assert.deepInclude(schedules[2]!, {
        state: "Active",
        timing: { words: "at 04:00 every day", expression: "0 4 * * *", timeZone: "Europe/Berlin" },
        target: { kind: "orchestration", name: "Report", version: "1.0.0" },
        pause: null,
        lastRun: null,
        isRunning: false
      })
      assert.deepStrictEqual(schedules[1]!.target, { kind: "task", name: "sweep", version: null })
      const [first, second] = schedules[1]!.nextMs
      assert.strictEqual(second! - first!, hourMs)
      assert.deepStrictEqual((yield* page.read.schedules({ query: { cursor: "hourly" } })).schedules.length, 1)
    }))

  it.effect("shows the rules of one, and its next 20 occurrences, and not its payload", () =>
    Effect.gen(function*() {
      const { as } = yield* opened
      const page = yield* as("read")
      const nightly = yield* page.read.schedule({ query: { name: "nightly" } })
      assert.strictEqual(nightly.schedule.nextMs.length, 20)
      assert.isTrue(nightly.isCode)
      assert.deepStrictEqual(nightly.rules, {
        overlap: "queue",
        jitterMs: 300_000,
        catchUp: "within",
        withinMs: 2 * hourMs,
        datesMs: []
      })
      const dated = yield* page.read.schedule({ query: { name: hostileName } })
      assert.deepStrictEqual(dated.rules!.datesMs, [Date.parse("2099-01-01")])
      assert.isFalse(dated.isCode)
      assert.notInclude(JSON.stringify(dated), "secret")
      const unknown = yield* Effect.flip(page.read.schedule({ query: { name: "none" } }))
      assert.deepInclude(unknown, { _tag: "Refused", code: "ScheduleNotFound" })
    }))

  it.effect("a run by hand is asked for, then listed with what it has started and how far that is", () =>
    Effect.gen(function*() {
      const { as, fire, sql } = yield* opened
      const { operate, read } = yield* as("operate")
      for (const name of ["nightly", "hourly"]) yield* operate.runSchedule({ payload: { name } })
      assert.strictEqual((yield* read.schedule({ query: { name: "nightly" } })).schedule.requests, 1)
      yield* fire
      const { runs, schedule } = yield* read.schedule({ query: { name: "nightly" } })
      assert.strictEqual(schedule.requests, 0)
      assert.deepInclude(runs[0]!, { number: 1, kind: "Manual", outcome: "Started", note: null, taskId: null })
      assert.match(runs[0]!.instanceId!, /^schedule\/nightly\/now\//)
      const [sweep] = (yield* read.schedule({ query: { name: "hourly" } })).runs
      assert.deepInclude(sweep!, { outcome: "Started", status: "Pending" })
      // The link of the run leads to its task, whatever its status.
      yield* sql("UPDATE queue_tasks SET status = 'Completed', look_at = NULL, ended_at = now()")
      const { tasks } = yield* read.tasks({ query: { id: sweep!.taskId! } })
      assert.deepStrictEqual(tasks.map(({ name, status }) => [name, status]), [["sweep", "Completed"]])
      assert.isEmpty((yield* read.tasks({ query: { id: "no uuid" } })).tasks)
      yield* waitUntil(Effect.map(
        read.schedule({ query: { name: "hourly" } }),
        ({ runs }) => runs[0]!.status === "Completed"
      ))
      // A list says it as well.
      const { schedules } = yield* read.schedules({ query: {} })
      assert.strictEqual(schedules.find(({ name }) => name === "hourly")!.lastRun!.status, "Completed")
    }))

  it.effect("acts, and leaves a row for each action, refused ones included", () =>
    Effect.gen(function*() {
      const { as, schedules } = yield* opened
      const { operate, read } = yield* as("operate")
      const payload = { name: "hourly" }
      assert.strictEqual(
        (yield* operate.pauseSchedule({ payload: { ...payload, reason: "a fire drill" } })).message,
        "paused schedule hourly"
      )
      const [, paused] = (yield* read.schedules({ query: {} })).schedules
      assert.deepInclude(paused!, { state: "Paused", nextMs: [] })
      assert.strictEqual(paused!.pause!.reason, "a fire drill")
      assert.deepInclude(yield* Effect.flip(operate.pauseSchedule({ payload })), { code: "Paused" })
      yield* operate.resumeSchedule({ payload })
      assert.deepInclude(yield* Effect.flip(operate.resumeSchedule({ payload })), { code: "NotPaused" })
      yield* operate.deleteSchedule({ payload })
      assert.deepInclude(yield* Effect.flip(operate.deleteSchedule({ payload })), { code: "ScheduleNotFound" })
      assert.strictEqual((yield* schedules.list()).schedules.length, 2)
      const { actions } = yield* read.actions({ query: {} })
      assert.deepStrictEqual(
        actions.map(({ action, actor, details, outcome, target }) => [actor, action, target, details, outcome])
          .toReversed(),
        [
          ["ada", "pause schedule", "hourly", "a fire drill", "done"],
          ["ada", "pause schedule", "hourly", "schedule hourly is paused already", "refused"],
          ["ada", "resume schedule", "hourly", "", "done"],
          ["ada", "resume schedule", "hourly", "schedule hourly is not paused", "refused"],
          ["ada", "delete schedule", "hourly", "", "done"],
          ["ada", "delete schedule", "hourly", "schedule hourly not found", "refused"]
        ]
      )
      const reader = yield* as("read")
      assert.strictEqual(
        (yield* Effect.flip(reader.operate.runSchedule({ payload: { name: "nightly" } })))._tag,
        "Forbidden"
      )
    }))

  it.effect("a backfill is counted first, and starts no occurrence that starts by itself", () =>
    Effect.gen(function*() {
      const { as, fire, sql } = yield* opened
      const { operate, read } = yield* as("operate")
      const hour = Math.floor(Date.now() / hourMs) * hourMs
      const range = { name: "hourly", fromMs: hour - 11 * hourMs, toMs: hour + 5 * hourMs }
      const counted = yield* operate.backfillSchedule({ payload: { ...range, dryRun: true } })
      assert.deepInclude(counted, { occurrences: 12, isMore: false })
      assert.strictEqual(counted.firstMs[0], hour - 11 * hourMs)
      assert.isEmpty((yield* read.actions({ query: {} })).actions)
      const asked = yield* operate.backfillSchedule({ payload: { ...range, dryRun: false } })
      assert.strictEqual(asked.message, "asked for 12 occurrences of hourly")
      yield* fire
      assert.deepStrictEqual(yield* sql("SELECT count(*)::int AS count FROM queue_tasks"), [{ count: 12 }])
      const [action] = (yield* read.actions({ query: {} })).actions
      assert.deepInclude(action!, {
        action: "backfill schedule",
        details: `from ${new Date(range.fromMs).toISOString()} to ${new Date(range.toMs).toISOString()}`
      })
      const none = { ...range, fromMs: hour + hourMs, dryRun: false }
      assert.deepInclude(yield* Effect.flip(operate.backfillSchedule({ payload: none })), { code: "NothingToDo" })
      const reversed = { ...range, toMs: range.fromMs - 1, dryRun: true }
      assert.deepInclude(yield* Effect.flip(operate.backfillSchedule({ payload: reversed })), { code: "InvalidInput" })
    }))

  it.effect("pages that look at one see each change, and its end", () =>
    Effect.gen(function*() {
      const { as, schedules } = yield* opened
      const page = yield* as("read")
      const states: Array<string> = []
      yield* page.read.scheduleLive({ query: { name: "hourly" } }).pipe(
        Stream.unwrap,
        Stream.tap((detail) => {
          states.push(detail?.schedule.state ?? "gone")
          return states.length === 1
            ? schedules.pause("hourly")
            : states.length === 2
            ? schedules.delete("hourly")
            : Effect.void
        }),
        Stream.take(3),
        Stream.runDrain
      )
      assert.deepStrictEqual(states, ["Active", "Paused", "gone"])
    }))

  it.effect("one that no process fires needs a person", () =>
    Effect.gen(function*() {
      const { as, sql } = yield* opened
      yield* sql("UPDATE schedules SET look_at = now() - interval '5 minutes' WHERE name = 'nightly'")
      const page = yield* as("read")
      const { schedules } = yield* page.read.schedules({ query: {} })
      const nightly = schedules.find(({ name }) => name === "nightly")!
      assert.strictEqual(nightly.state, "Overdue")
      assert.match(nightly.problem!, /its payload is made by code/)
      assert.deepInclude(
        (yield* page.read.overview({})).attention.find(({ kind }) => kind === "overdueSchedules")!,
        { name: "nightly", text: "schedule nightly is overdue", count: 1 }
      )
    }))
})
