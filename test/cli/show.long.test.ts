/**
 * What `show` says about waits, for one instance of each kind, after their process has ended.
 */
import { assert, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { Admin } from "../../src/provider/Admin.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Cli from "./cli.ts"

const Approved = Signal.make("Approved", { payload: Schema.String, unawaited: "lost" })
const Notes = Signal.make("Notes", { payload: Schema.String })
const Orders = Signal.make("Orders", { payload: Schema.String })
const Render = Activity.make("Render", { tag: "gpu" })
const Approval = Orchestration.make("Approval")
const Report = Orchestration.make("Report")
const Again = Orchestration.make("Again", { payload: Schema.Int })

const application = (url: string) =>
  Runtime.layer({ orchestrations: [Approval, Report, Again], activities: [Render] }).pipe(
    Layer.provide([
      Render.toLayer(() => Effect.void),
      Approval.toLayer(() =>
        Effect.gen(function*() {
          yield* Effect.timeoutOption(Approved.wait, "3 days")
          yield* Orders.wait
        })
      ),
      Again.toLayer((round) => round === 1 ? Again.continueAsNew(2) : Effect.asVoid(Orders.wait)),
      Report.toLayer(() =>
        Effect.asVoid(Effect.all([Render.execute(), Approval.executeWithId({ instanceId: "report-approval" })], {
          concurrency: "unbounded"
        }))
      )
    ]),
    Layer.provideMerge(Client.layer),
    Layer.provideMerge(PrismaProvider.layer({ url })),
    Layer.provideMerge(Logger.layer([]))
  )

class Store extends Context.Service<Store, PgServer.TestDatabase>()("test/Waits") {}

const make = Effect.gen(function*() {
  const test = yield* PgServer.database
  /** All turns that lead to this wait are stored. */
  const awaits = (instanceId: string, event: string) =>
    waitUntil(
      Effect.map(
        test.sql(
          `SELECT FROM history WHERE instance_id = $1 AND event_type = $2
           AND NOT EXISTS (SELECT FROM orchestrator_queue WHERE visible_at <= now())`,
          [instanceId, event]
        ),
        (rows) => rows.length === 1
      )
    )
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    for (const instanceId of ["undecided", "late", "decided"]) yield* client.start(Approval, { instanceId })
    yield* client.start(Report, { instanceId: "report" })
    yield* client.start(Again, { instanceId: "again", payload: 1 })
    yield* awaits("decided", "ExternalSubscribed")
    yield* client.send(Approved, "decided", "yes")
    yield* awaits("decided", "ExternalSubscribedPersistent")
    yield* client.send(Approved, "decided", "no")
    yield* client.send(Notes, "decided", "for later")
    yield* awaits("decided", "ExternalEventPersistent")
    yield* awaits("again", "ExternalSubscribedPersistent")
    for (const instanceId of ["undecided", "late", "report-approval"]) yield* awaits(instanceId, "ExternalSubscribed")
  }).pipe(Effect.provide(application(test.url)), Effect.orDie)
  // What no turn reads.
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.send(Approved, "report-approval", "yes")
    yield* client.send(Orders, "report-approval", "chair")
  }).pipe(
    Effect.provide(
      Client.layer.pipe(Layer.provide(PrismaProvider.layer({ url: test.url })), Layer.provideMerge(Logger.layer([])))
    ),
    Effect.orDie
  )
  yield* test.sql(
    `UPDATE orchestrator_queue SET visible_at = now() - interval '3 hours', attempt_count = 2 WHERE instance_id = 'late'`
  )
  return test
})

const run = (args: string) => Effect.flatMap(Store, ({ url }) => Cli.run(args, { env: { DATABASE_URL: url } }))

const json = (args: string) =>
  Effect.map(run(`${args} --json`), ({ exitCode, stderr, stdout }) => {
    assert.deepStrictEqual([exitCode, stderr], [0, ""], args)
    return JSON.parse(stdout)
  })

/** A section of the text, with one space for several, and without times and ages. */
const section = (title: string, args: string) =>
  Effect.map(run(args), ({ stdout }) => {
    const [, found = ""] = stdout.split(`\n${title}\n`)
    return found.split("\n\n")[0]!.trimEnd().split("\n").map((line) =>
      line
        .replace(/\d{4}-\d\d-\d\d \d\d:\d\d:\d\dZ/g, "TIME")
        .replace(/\d\d:\d\d:\d\dZ/g, "TIME")
        .replace(/\b\d+ (s|min|h)\b/g, "AGE")
        .replace(/ +/g, " ")
    )
  })

const titles = "KIND NAME EVENT STATE DELIVERIES"
const next = "The next turn runs as soon as one of them ends."

it.layer(Layer.effect(Store, make), { excludeTestServices: true })("show", (it) => {
  it.effect("a signal with a timeout: the signal, until the time of the timer", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* section("Waits for", "show undecided"), [
        titles,
        "signal Approved #2 for AGE -",
        "timer - #3 until TIME 0",
        next
      ])
      assert.deepStrictEqual(yield* section("Messages", "show undecided"), [""])
      const { messages, waitsFor } = yield* json("show undecided")
      assert.deepStrictEqual([waitsFor.length, messages], [2, []])
      assert.deepInclude(waitsFor[0], { kind: "signal", name: "Approved", eventId: 2, visibleAt: null })
      assert.deepInclude(waitsFor[1], { kind: "timer", name: null, eventId: 3, heldUntil: null, deliveries: 0 })
      assert.closeTo(Date.parse(waitsFor[1].visibleAt) - Date.parse(waitsFor[1].since), 3 * 86_400_000, 60_000)
    }))

  it.effect("a timer that is due: for how long, and how often it was delivered", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual((yield* section("Waits for", "show late"))[2], "timer - #3 waiting for AGE 2")
    }))

  it.effect("a signal, without the timer that the program gave up before", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* section("Waits for", "show decided"), [titles, "signal Orders #5 for AGE -"])
      const { waitsFor } = yield* json("show decided")
      assert.strictEqual(waitsFor.length, 1)
      assert.deepInclude(waitsFor[0], { kind: "signal", name: "Orders", instanceId: null, eventId: 5 })
    }))

  it.effect("signals that were not taken", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* section("Signals and questions not taken", "show decided"), [
        "NAME EVENT SINCE",
        "Notes #7 TIME, AGE ago"
      ])
      const { untaken } = yield* json("show decided")
      assert.deepInclude(untaken[0], { name: "Notes", eventId: 7 })
    }))

  it.effect("an activity and a child, by name and id", () =>
    Effect.gen(function*() {
      const [, activity, ...others] = yield* section("Waits for", "show report")
      assert.match(activity!, /^activity Render #2 waiting for AGE \d+$/)
      assert.deepStrictEqual(others, ["child Approval report-approval #3 for AGE -", next])
      const { waitsFor } = yield* json("show report")
      assert.deepInclude(waitsFor[1], { kind: "child", name: "Approval", instanceId: "report-approval", eventId: 3 })
    }))

  it.effect("messages that no turn has read, beside the wait they may end", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* section("Messages", "show report-approval"), [
        titles,
        "signal Approved - waiting for AGE 0",
        "signal Orders - waiting for AGE 0"
      ])
      const { messages, waitsFor } = yield* json("show report-approval")
      assert.deepInclude(messages[0], { kind: "signal", name: "Approved", answers: null, heldUntil: null })
      assert.strictEqual(waitsFor.length, 2)
    }))

  it.effect("the history in the words of the guides; with --json, the types that are stored", () =>
    Effect.gen(function*() {
      assert.deepStrictEqual(yield* section("History of execution 1", "show decided"), [
        "1 TIME started Approval 1.0.0 null",
        "2 TIME lossy signal awaited Approved",
        "3 TIME timer set due TIME",
        "4 TIME lossy signal Approved \"yes\"",
        "5 TIME signal awaited Orders",
        "6 TIME lossy signal lost Approved \"no\"",
        "7 TIME signal Notes \"for later\""
      ])
      const { history } = yield* json("show decided")
      assert.deepStrictEqual(history.shown.map(({ event }: { readonly event: string }) => event), [
        "OrchestrationStarted",
        "ExternalSubscribed",
        "TimerCreated",
        "ExternalEvent",
        "ExternalSubscribedPersistent",
        "ExternalEvent",
        "ExternalEventPersistent"
      ])
      assert.deepStrictEqual(
        history.shown.flatMap(({ eventId, lost }: { eventId: number; lost?: boolean }) => lost ? eventId : []),
        [6]
      )
    }))

  it.effect("the history of an earlier execution, and what the current one waits for", () =>
    Effect.gen(function*() {
      const args = "show again --execution 1"
      assert.deepStrictEqual(yield* section("Waits for", args), [titles, "signal Orders #2 for AGE -"])
      assert.deepStrictEqual(yield* section("History of execution 1", args), [
        "1 TIME started Again 1.0.0 1",
        "2 TIME continued as new 2"
      ])
    }))

  it.effect("messages of the other kinds: outcomes with the event that they answer, large ones without their name", () =>
    Effect.gen(function*() {
      const { sql } = yield* Store
      const items = [
        { ActivityCompleted: { instance: "again", execution_id: 1, id: 2, result: "1" } },
        { ActivityCompleted: { instance: "again", execution_id: 2, id: 7, result: "1" } },
        { SubOrchCompleted: { parent_instance: "again", parent_execution_id: 2, parent_id: 8, result: "1" } },
        { QueueMessage: { instance: "again", name: "Orders", data: "x".repeat(65_536) } },
        { CancelInstance: { instance: "again", reason: "late" } },
        { Later: {} }
      ]
      for (const item of items) {
        yield* sql(
          "INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at) VALUES ('again', $1, now(), now())",
          [JSON.stringify(item)]
        )
      }
      assert.deepStrictEqual(yield* section("Messages", "show again"), [
        titles,
        "activity - - waiting for AGE 0",
        "activity - #7 waiting for AGE 0",
        "child - #8 waiting for AGE 0",
        "signal - - waiting for AGE 0",
        "termination - - waiting for AGE 0",
        "unknown - - waiting for AGE 0"
      ])
    }))

  it.effect("explain names a signal that has come and that the instance does not wait for", () =>
    Effect.gen(function*() {
      const { stdout } = yield* run("explain decided")
      assert.match(
        stdout,
        /^decided waits for signal Orders for \d+ s \(since \d{4}-\d\d-\d\d \S+Z\), .*; 1 signal "Notes" has come and was not taken; no living process serves \S+ \S+\.\n$/
      )
      const { untaken } = yield* json("explain decided")
      assert.lengthOf(untaken, 1)
      assert.deepInclude(untaken[0], { name: "Notes" })
    }))

  // The last one: it deletes rows of the others.
  it.effect("an id with control characters: they reach no terminal", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* Store
      const id = "line\n\u001b[2Jend\u202e"
      const missing = yield* Cli.run(["show", id, "--url", url])
      assert.include(missing.stderr, "instance line [2Jend  not found")
      yield* sql(
        `INSERT INTO instances (instance_id, orchestration_name, current_execution_id, created_at, updated_at)
         VALUES ($1, 'A', 1, now(), now())`,
        [id]
      )
      yield* sql(
        `INSERT INTO executions (instance_id, execution_id, status, started_at) VALUES ($1, 1, 'Running', now())`,
        [id]
      )
      const shown = yield* Cli.run(["show", id, "--url", url])
      assert.strictEqual(shown.stdout.split("\n")[0], "line [2Jend ")
    }))

  it.effect("rows that are missing: an activity without its row, an instance without any wait", () =>
    Effect.gen(function*() {
      const { sql } = yield* Store
      yield* sql("DELETE FROM worker_queue WHERE instance_id = 'report'")
      assert.strictEqual((yield* section("Waits for", "show report"))[1], "activity Render #2 not in the queue -")
      const item = { ActivityCompleted: { instance: "report", execution_id: 1, id: 2, result: "1" } }
      yield* sql(
        "INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at) VALUES ('report', $1, now(), now())",
        [JSON.stringify(item)]
      )
      assert.strictEqual(
        (yield* section("Waits for", "show report"))[1],
        "activity Render #2 has ended, see the messages -"
      )
      yield* sql("DELETE FROM history WHERE instance_id = 'decided' AND event_id = 5")
      assert.deepStrictEqual(yield* section("Waits for", "show decided"), [
        "nothing that is stored: the history has no open wait, and the queue has no message for it"
      ])
    }))
})

const Hang = Activity.make("Hang")
const Import = Orchestration.make("Import", { payload: Schema.String, limitKey: (tenant) => tenant })

it.live("says in its first lines which slot of a limit the instance waits for", () =>
  Effect.gen(function*() {
    const { url } = yield* PgServer.database
    const runtime = Runtime.layer({ orchestrations: [Import], activities: [Hang] }).pipe(
      Layer.provide([Hang.toLayer(() => Effect.never), Import.toLayer(() => Hang.execute())]),
      Layer.provideMerge(Client.layer),
      Layer.provideMerge(PrismaProvider.layer({ url })),
      Layer.provideMerge(Logger.layer([]))
    )
    yield* Effect.gen(function*() {
      const admin = yield* Admin
      const client = yield* Client.Client
      yield* admin.setLimit("orchestration", "Import", { eachKey: { concurrency: 1 } })
      yield* admin.setLimit("activity", "Hang", { total: { concurrency: 1 } })
      const start = Effect.fnUntraced(function*(instanceId: string, tenant: string, waiting: number) {
        yield* client.start(Import, { instanceId, payload: tenant })
        yield* waitUntil(Effect.map(
          admin.getLimits,
          (limits) => limits.reduce((sum, one) => sum + one.waiting, 0) === waiting && limits[0]!.inUse === 1
        ))
      })
      yield* start("runs", "a", 0)
      yield* start("waits", "a", 1)
      yield* start("calls", "b", 2)
      const lines = (id: string) =>
        Effect.map(
          Cli.run(`show ${id}`, { env: { DATABASE_URL: url } }),
          ({ stdout }) => stdout.split("\n").map((line) => line.replace(/ +/g, " ").replace(/\d+ s\b/, "AGE").trimEnd())
        )
      const limited = "limited waits for a slot of limit Import/a (1 at once): 1 in use, 0 before it, for AGE."
      assert.deepStrictEqual((yield* lines("waits")).slice(0, 3), ["waits", "status Running", limited])
      const ofCall = yield* lines("calls")
      assert.include(
        ofCall[2],
        "limited waits for activity Hang, which waits for a slot of limit Hang (1 at once): 1 in use, 0 before it, for AGE"
      )
      assert.include(ofCall, "activity Hang #2 waits for a slot for AGE 0")
      assert.isUndefined((yield* lines("runs")).find((line) => line.startsWith("limited")))
    }).pipe(Effect.provide(runtime))
  }).pipe(Effect.scoped))
