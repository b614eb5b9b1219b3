/**
 * What the dashboard reads and does, through the client that its page uses, on a store with something of everything.
 */
import { assert, it } from "@effect/vitest"
import { Orchestration, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Stream from "effect/Stream"
import * as Shop from "../cli/shop.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Served from "./served.ts"

const opened = (options: Parameters<typeof Served.open>[1] = {}) =>
  Effect.flatMap(Shop.Shop, ({ url }) => Served.open(url, options))

const known = {
  orchestrations: [
    Shop.Order,
    Orchestration.make("Parcel", { payload: { of: Schema.String }, instanceId: ({ of }) => `parcel of ${of}` })
  ],
  signals: [Signal.make("Approved", { payload: { by: Schema.String } })]
}

it.layer(Shop.layer, { excludeTestServices: true })("Dashboard", (it) => {
  it.effect("says who looks, at what, and which forms it can make", () =>
    Effect.gen(function*() {
      const { as } = yield* opened(known)
      const page = yield* as("read")
      const session = yield* page.read.session({})
      assert.deepInclude(session, {
        actor: "ben",
        role: "read",
        seesPayloads: true,
        schema: "public",
        metricsUrl: null
      })
      assert.deepStrictEqual(session.signals.map(({ name }) => name), ["Approved"])
      const [order] = session.orchestrations
      assert.deepInclude(order!.payload!.schema as object, { type: "object", required: ["item", "amount"] })
      assert.isFalse((yield* (yield* as("blind")).read.session({})).seesPayloads)
    }))

  it.effect("the overview counts, says what waits, and what needs a person", () =>
    Effect.gen(function*() {
      yield* Shop.refresh
      const { as } = yield* opened()
      const page = yield* as("read")
      const overview = yield* page.read.overview({})
      const count = (status: string) =>
        overview.counts.filter((one) => one.status === status).reduce((sum, { instances }) => sum + instances, 0)
      assert.deepStrictEqual([count("Running"), count("Completed"), count("Failed"), count("Cancelled")], [4, 1, 1, 2])
      assert.strictEqual(overview.processes.length, 2)
      assert.deepStrictEqual(overview.tasks, {
        pending: 2,
        running: 1,
        dead: 1,
        oldestAgeMs: overview.tasks!.oldestAgeMs
      })
      const kinds = overview.attention.map(({ kind }) => kind)
      for (const kind of ["unserved", "failed", "deadTasks", "deadLetters", "deadProcesses"]) {
        assert.include(kinds, kind)
      }
      const unserved = overview.attention.find(({ kind }) => kind === "unserved")!
      assert.match(
        unserved.text,
        /^no living process serves activity Render with tag gpu: 1 waits, the oldest for \d+ s$/
      )
      assert.deepInclude(overview.due.find(({ name }) => name === "Render")!, {
        waiting: 1,
        servedBy: 0,
        isPaused: false
      })
      // The live one is the same, again and again.
      const { value: [first, second] } = yield* Effect.map(
        page.read.live({}).pipe(Stream.unwrap, Stream.take(2), Stream.runCollect),
        (value) => ({ value })
      )
      assert.isAbove(second!.nowMs, first!.nowMs)
    }))

  it.effect("lists pages of instances by every filter of the command line", () =>
    Effect.gen(function*() {
      const { as } = yield* opened()
      const page = yield* as("read")
      const ids = Effect.fnUntraced(function*(query: Parameters<typeof page.read.instances>[0]["query"]) {
        return (yield* page.read.instances({ query })).instances.map(({ instanceId }) => instanceId)
      })
      assert.deepStrictEqual(yield* ids({ status: "Failed" }), ["order-2"])
      assert.sameMembers([...yield* ids({ name: "Order" })], ["order-1", "order-2", "order-3", "order-4"])
      assert.deepStrictEqual(yield* ids({ idPrefix: "table" }), ["table-delivery", "table-return"])
      assert.deepStrictEqual(yield* ids({ parent: "order-4" }), ["table-return"])
      assert.deepStrictEqual(yield* ids({ error: "DECLINED" }), ["order-2"])
      assert.deepStrictEqual(yield* ids({ customStatus: "on its", status: "Running" }), ["order-4"])
      assert.notInclude(yield* ids({ roots: "true" }), "table-return")
      const first = yield* page.read.instances({ query: { limit: 3, orderBy: "id" } })
      const rest = yield* page.read.instances({ query: { orderBy: "id", cursor: first.next! } })
      assert.strictEqual(first.instances.length + rest.instances.length, 8)
      const refused = yield* Effect.flip(page.read.instances({ query: { attributes: "amount:>5" } }))
      assert.deepInclude(refused, { _tag: "Refused", code: "InvalidInput" })
      assert.match((refused as { message: string }).message, /^attributes: "amount:>5": there is no :>/)
    }))

  it.effect("shows an instance: why it waits, for what, its parents and its events", () =>
    Effect.gen(function*() {
      const { as } = yield* opened()
      const page = yield* as("read")
      const detail = yield* page.read.instance({ query: { id: "order-4" } })
      assert.deepInclude(detail.instance, { orchestration: "Order", status: "Running", customStatus: "on its way" })
      assert.match(detail.explanation.sentence, /Collected|child/)
      assert.sameMembers(detail.waits.map(({ kind }) => kind), ["signal", "child"])
      assert.deepStrictEqual(detail.keyValues, [{ key: "label", value: "\"table, 300 euros\"" }])
      assert.isTrue(detail.hasChildren)
      const child = yield* page.read.instance({ query: { id: "table-return" } })
      assert.deepStrictEqual(child.ancestors, ["order-4"])
      const history = yield* page.read.history({ query: { id: "order-2" } })
      assert.strictEqual(history.total, history.events.length)
      const failure = history.events.find(({ kind }) => kind === "activity failed")!
      assert.isTrue(failure.isFailure)
      assert.include(failure.problem!, "card declined")
      const call = history.events.find(({ eventId }) => eventId === failure.answers)!
      assert.deepInclude(call, { kind: "activity scheduled", name: "Charge", payload: "{\"amount\":2500}" })
      const rest = yield* page.read.history({ query: { id: "order-2", after: 2, limit: 1 } })
      assert.deepStrictEqual(rest.events.map(({ eventId }) => eventId), [3])
      const unknown = yield* Effect.flip(page.read.instance({ query: { id: "unknown" } }))
      assert.deepInclude(unknown, { _tag: "Refused", code: "InstanceNotFound" })
      const reasons = yield* page.read.reasons({ query: {} })
      assert.isTrue(reasons.groups.some(({ cause }) => cause === "Signal" || cause === "Child"))
    }))

  it.effect("shows definitions, queues, dead letters, tasks", () =>
    Effect.gen(function*() {
      const { as } = yield* opened()
      const page = yield* as("read")
      const definitions = yield* page.read.definitions({})
      const order = definitions.find(({ name }) => name === "Order")!
      assert.deepInclude(order.versions[0]!, {
        version: "1.0.0",
        completed: 1,
        failed: 1,
        servedBy: 1,
        builds: ["3f9c2d1"]
      })
      const { queues, tasks } = yield* page.read.queues({})
      assert.deepInclude(queues.find(({ queue }) => queue === "mails")!, { waiting: 1, running: 1, later: 1, dead: 1 })
      assert.deepInclude(tasks[0]!, { task: "resize", pending: 2, dead: 1 })
      const letters = yield* page.read.deadLetters({ query: { queue: "mails" } })
      assert.deepInclude(letters.messages[0]!, { id: "1000", kind: "mail", deliveries: 20 })
      assert.deepStrictEqual(
        (yield* page.read.tasks({ query: { status: "Dead" } })).tasks.map(({ name }) => name),
        ["resize"]
      )
    }))

  it.effect("what is blocked is counted by definition and found by its text; what is tried again is named", () =>
    Effect.gen(function*() {
      const { sql } = yield* Shop.Shop
      const { as } = yield* opened()
      const page = yield* as("read")
      yield* sql(
        `INSERT INTO blocked_instances
           (instance_id, execution_id, last_event_id, reason, problem, event_id, build, since, tried_at, tries)
         VALUES ('order-4', 1, 1000, 'HistoryDiffers', 'the code asks for Insure', 2, 'b7', now(), now(), 1);
         INSERT INTO worker_queue (work_item, visible_at, created_at, instance_id, execution_id, activity_id, attempt_count)
         VALUES ('{"ActivityExecute":{"name":"Charge"}}', now() + interval '1 hour', now(), 'order-4', 1, 2, 2)`
      )
      yield* Effect.gen(function*() {
        const order = (yield* page.read.definitions({})).find(({ name }) => name === "Order")!
        assert.deepInclude(order.versions[0]!, { version: "1.0.0", running: 1, blocked: 1 })
        const found = yield* page.read.instances({ query: { error: "insure" } })
        assert.deepStrictEqual(found.instances.map(({ instanceId, retry }) => [instanceId, retry]), [["order-4", null]])
        const { instances: [tries] } = yield* page.read.instances({ query: { retrying: "true" } })
        assert.deepInclude(tries!.retry, { activity: "Charge", error: null, isRunning: false })
      }).pipe(
        Effect.ensuring(sql(
          "DELETE FROM blocked_instances; DELETE FROM worker_queue WHERE instance_id = 'order-4'"
        ))
      )
    }))

  it.effect("the overview shows an action at once", () =>
    Effect.gen(function*() {
      const { as } = yield* opened()
      const page = yield* as("operate")
      const target = { kind: "orchestration", name: "Nothing", version: null } as const
      // The first one may be of before: the second one has just been read.
      const items = yield* (yield* page.read.live({})).pipe(
        Stream.mapEffect((item, at) =>
          Effect.as(at === 1 ? page.operate.pause({ payload: { target } }) : Effect.void, item)
        ),
        Stream.take(4),
        Stream.runCollect
      )
      yield* page.operate.resume({ payload: { target } })
      assert.deepStrictEqual(items.map(({ pauses }) => pauses.length), [0, 0, 1, 1])
      const pause = (at: number) => items[at]!.nowMs - items[at - 1]!.nowMs
      assert.isBelow(pause(2), 0.75 * pause(3), "a reading without an action comes after two seconds")
    }))

  it.effect("acts, and leaves a row for each action, refused ones included", () =>
    Effect.gen(function*() {
      const { as, client } = yield* opened(known)
      const page = yield* as("operate")
      const [last] = (yield* page.read.actions({ query: {} })).actions
      const started = yield* page.operate.start({
        payload: { orchestration: "Order", instanceId: "order-9", payload: { item: "sofa", amount: 7 } }
      })
      assert.deepStrictEqual(started, { instanceId: "order-9", message: "started order-9" })
      const unknown = yield* page.operate.start({ payload: { orchestration: "Nope", payload: null } })
      assert.include(unknown.message, "no living process serves Nope: it waits until one does")
      const twice = yield* Effect.flip(
        page.operate.start({
          payload: { orchestration: "Order", instanceId: "order-9", payload: { item: "a", amount: 1 } }
        })
      )
      assert.deepInclude(twice, { _tag: "Refused", code: "InstanceAlreadyExists" })
      const unfit = yield* Effect.flip(
        page.operate.start({ payload: { orchestration: "Order", payload: { item: 5 } } })
      )
      assert.deepInclude(unfit, { _tag: "Refused", code: "PayloadMismatch" })
      // As a start by code does, it makes the id of the payload.
      const made = yield* page.operate.start({ payload: { orchestration: "Parcel", payload: { of: "order-9" } } })
      assert.strictEqual(made.instanceId, "parcel of order-9")
      yield* page.operate.signal({ payload: { instanceId: "order-4", name: "Approved", payload: { by: "Ada" } } })
      const paused = yield* page.operate.pause({
        payload: { target: { kind: "orchestration", name: "Order", version: null }, reason: "incident" }
      })
      assert.strictEqual(paused.message, "paused orchestration Order")
      assert.isTrue(Option.isSome(
        yield* Effect.map(
          client.status("order-9"),
          (status) => status._tag === "Running" ? status.pause : Option.none()
        )
      ))
      yield* page.operate.resume({ payload: { target: { kind: "orchestration", name: "Order", version: null } } })
      const none = yield* Effect.flip(
        page.operate.resume({ payload: { target: { kind: "everything", name: null, version: null } } })
      )
      assert.deepInclude(none, { _tag: "Refused", code: "NotPaused" })
      const plan = yield* page.operate.retry({ payload: { instanceId: "order-2", dryRun: true } })
      assert.deepStrictEqual(
        plan.instances.map(({ again }) => again.map(({ name }) => name)),
        [["Charge"]]
      )
      assert.deepStrictEqual(plan.warnings, [])
      const planOfMany = yield* page.operate.bulk({
        payload: { action: "retry", dryRun: true, search: { idPrefix: "order-2", status: "Failed" } }
      }).pipe(Stream.unwrap, Stream.runLast, Effect.map(Option.getOrThrow))
      assert.deepInclude(planOfMany, {
        done: 1,
        retry: { looked: 1, refused: 0, again: [{ name: "Charge", calls: 1 }], forgotten: [], warnings: [] }
      })
      yield* page.operate.fork({ payload: { instanceId: "order-2", atEvent: 1, newId: "order-2-again" } })
      yield* page.operate.terminate({ payload: { instanceId: "order-9", reason: "test" } })
      const dead = (yield* page.read.tasks({ query: { status: "Dead" } })).tasks.map(({ taskId }) => taskId)
      assert.strictEqual(
        (yield* page.operate.redriveTasks({ payload: { taskIds: dead } })).message,
        "redriven 1 task"
      )
      assert.strictEqual(
        (yield* page.operate.redriveMessages({ payload: { queue: "mails" } })).message,
        "redriven 1 message of mails"
      )
      const deleted = yield* page.operate.delete({ payload: { instanceId: "order-1", force: false } })
      assert.match(deleted.message, /^deleted order-1: 1 instance, \d+ events$/)
      const actions = (yield* page.read.actions({ query: {} })).actions.filter(({ id }) =>
        Number(id) > Number(last?.id ?? 0)
      )
      assert.deepStrictEqual(
        actions.map(({ action, actor, outcome, target }) => [action, target, outcome, actor]).toReversed(),
        [
          ["start", "order-9", "done", "ada"],
          ["start", unknown.instanceId, "done", "ada"],
          ["start", "order-9", "refused", "ada"],
          ["start", actions.at(-4)!.target, "refused", "ada"], // a random id
          ["start", "parcel of order-9", "done", "ada"],
          ["signal", "order-4", "done", "ada"],
          ["pause", "orchestration Order", "done", "ada"],
          ["resume", "orchestration Order", "done", "ada"],
          ["resume", "everything", "refused", "ada"],
          ["fork", "order-2", "done", "ada"],
          ["terminate", "order-9", "done", "ada"],
          ["redrive tasks", dead[0], "done", "ada"],
          ["redrive messages", "mails", "done", "ada"],
          ["delete", "order-1", "done", "ada"]
        ]
      )
      assert.isFalse(/sofa|item/.test(JSON.stringify(actions)), "no payloads, nor their keys")
      const wrong = [
        { kind: "tag", name: null, version: null },
        { kind: "everything", name: "Order", version: null },
        { kind: "everything", name: "", version: null },
        { kind: "everything", name: null, version: "1.0.0" },
        { kind: "instance", name: "order-1", version: "1.0.0" },
        { kind: "activity", name: "Charge", version: "1.0.0" },
        { kind: "tag", name: "gpu", version: "1.0.0" }
      ] as const
      for (const target of wrong) {
        for (const action of [page.operate.pause, page.operate.resume]) {
          const refused = yield* Effect.flip(action({ payload: { target } }))
          assert.deepInclude(refused, { _tag: "Refused", code: "InvalidInput" }, JSON.stringify(target))
        }
      }
    }))

  it.effect("acts on all that a search finds: first counted, then done, with refusals and one row", () =>
    Effect.gen(function*() {
      const { as, client, send } = yield* opened()
      const page = yield* as("operate")
      const Bulk = Orchestration.make("Bulk", { payload: Schema.Int })
      yield* Effect.forEach(
        Array.from({ length: 40 }, (_, n) => n),
        (n) => client.start(Bulk, { instanceId: `bulk-${n}`, payload: n }),
        { concurrency: "unbounded" }
      )
      const run = (dryRun: boolean, action: "pause" | "terminate" | "retry") =>
        page.operate.bulk({ payload: { action, dryRun, search: { name: "Bulk" }, reason: "clean up" } }).pipe(
          Stream.unwrap,
          Stream.runLast,
          Effect.map(Option.getOrThrow)
        )
      const before = (yield* page.read.actions({ query: {} })).actions
      const counted = yield* run(true, "terminate")
      assert.deepInclude(counted, { _tag: "Done", done: 40, refused: 0, isMore: false, stopped: null })
      assert.lengthOf(counted.first, 5)
      assert.strictEqual((yield* client.status("bulk-0"))._tag, "Running")
      const done = yield* run(false, "pause")
      assert.deepInclude(done, { _tag: "Done", done: 40, refused: 0 })
      assert.strictEqual(
        (yield* page.read.instances({ query: { status: "Paused", name: "Bulk" } })).instances.length,
        40
      )
      const { actions } = yield* page.read.actions({ query: {} })
      assert.deepInclude(actions[1]!, { action: "pause", target: "name Bulk", details: "begun; clean up" })
      assert.deepStrictEqual(actions.slice(2), before.slice(0, 48))
      assert.deepInclude(actions[0]!, {
        action: "pause",
        target: "name Bulk",
        details: "40 done, 0 refused; clean up",
        outcome: "done"
      })
      // A misspelt field must not select everything.
      const misspelt = yield* Effect.promise(() =>
        send("/api/bulk", {
          method: "POST",
          headers: {
            authorization: `Bearer ${Served.tokens.operate}`,
            "content-type": "application/json",
            "x-duroxide-dashboard": "1"
          },
          body: JSON.stringify({ action: "pause", dryRun: false, search: { idprefix: "none" } })
        })
      )
      assert.strictEqual(misspelt.status, 400)
      const refused = yield* Effect.flip(
        page.operate.bulk({ payload: { action: "retry", dryRun: true, search: { status: "Running" } } })
      )
      assert.deepInclude(refused, { _tag: "Refused", code: "InvalidInput" })
      assert.deepInclude((yield* page.read.actions({ query: {} })).actions[0]!, { action: "retry", outcome: "refused" })
    }))

  it.effect("follows an instance while it runs, until it is deleted", () =>
    Effect.gen(function*() {
      const { admin, as, client } = yield* opened()
      const page = yield* as("read")
      const Followed = Orchestration.make("Followed")
      yield* client.start(Followed, { instanceId: "followed" })
      const seen: Array<string> = []
      yield* Effect.forkScoped(
        page.read.instanceLive({ query: { id: "followed" } }).pipe(
          Stream.unwrap,
          Stream.runForEach((state) =>
            Effect.sync(() => seen.push(state === null ? "deleted" : state.pause === null ? "runs" : "paused"))
          )
        )
      )
      yield* waitUntil(Effect.sync(() => seen.includes("runs")))
      yield* admin.pause({ _tag: "Instance", instanceId: "followed" })
      yield* waitUntil(Effect.sync(() => seen.includes("paused")))
      yield* admin.deleteInstance("followed", { force: true })
      yield* waitUntil(Effect.sync(() => seen.includes("deleted")))
      assert.deepStrictEqual([...new Set(seen)], ["runs", "paused", "deleted"])
    }).pipe(Effect.scoped))
})
