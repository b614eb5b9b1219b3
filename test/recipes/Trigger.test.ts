import { assert, describe, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Tasks } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { keyOf, sign } from "../../src/recipes/internal/signature.ts"
import { Topic, Topics } from "../../src/waking/Topics.ts"
import * as Boxes from "../outbox/utils/outbox.ts"
import * as PgServer from "../utils/PgServer.ts"
import { Book, cronCall, decoded, hour, hourly, open, payments, Report, secret, token } from "./utils/triggers.ts"

const webhookCall = (
  id: string,
  body: string,
  { at = Math.floor(Date.now() / 1000), by = secret }: { readonly at?: number; readonly by?: string } = {}
): RequestInit => ({
  method: "POST",
  headers: {
    "webhook-id": id,
    "webhook-timestamp": String(at),
    "webhook-signature": sign(keyOf(Redacted.make(by))!, { id, timestamp: at, body })
  },
  body
})

describe("a cron trigger:", () => {
  it.live("fires an instant once, however often and by however many it is called", () =>
    Effect.gen(function*() {
      const { ask, keys, services, tasks, wakeups } = yield* open
      yield* Effect.provide(hourly.fire(new Date(hour(8))), services)
      yield* Effect.forEach(
        Array.from({ length: 10 }),
        () => Effect.provide(hourly.fire(new Date(hour(8))), services),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(yield* tasks, [
        { name: "Report", key: `cron/hourly/${hour(8)}`, payload: `{"at":"${hour(8)}"}` }
      ])
      assert.strictEqual(yield* wakeups, 1, "the task and its wake-up are written together, once")
      const calls = yield* Effect.forEach(
        Array.from({ length: 10 }),
        () => ask("cron/hourly", cronCall("2026-01-01T09:00:20.000Z")),
        { concurrency: "unbounded" }
      )
      assert.isTrue(calls.every(({ status }) => status === 200))
      assert.deepStrictEqual(yield* keys, [`cron/hourly/${hour(8)}`, `cron/hourly/${hour(9)}`])
      assert.strictEqual(yield* wakeups, 2)
    }).pipe(Effect.scoped))

  it.live("remembers what has fired: the last instant that was missed fires with the next call", () =>
    Effect.gen(function*() {
      const { ask } = yield* open
      const instants = (until: string) => Effect.map(ask("cron/hourly", cronCall(until)), ({ body }) => body.instants)
      assert.deepStrictEqual(yield* instants("2026-01-01T05:10:00Z"), [], "it begins with this run")
      assert.deepStrictEqual(yield* instants("2026-01-01T06:00:00Z"), [hour(6)])
      assert.deepStrictEqual(yield* instants("2026-01-01T06:00:01Z"), [])
      assert.deepStrictEqual(yield* instants("2026-01-01T09:30:00Z"), [hour(9)])
      assert.deepStrictEqual(
        yield* instants("2026-01-01T07:00:00Z"),
        [],
        "a call that arrives late fires nothing again"
      )
    }).pipe(Effect.scoped))

  it.live("an instant fires once, even if its task was deleted: the tasks and the time are one statement", () =>
    Effect.gen(function*() {
      const { ask, keys, sql, wakeups } = yield* open
      const call = ask("cron/hourly", cronCall("2026-01-01T09:00:20.000Z"))
      yield* ask("cron/hourly", cronCall("2026-01-01T08:30:00.000Z"))
      // The time cannot be stored: as if the process died before.
      yield* sql(`CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no'; END $$`)
      yield* sql("CREATE TRIGGER refuse BEFORE UPDATE ON queue_triggers FOR EACH ROW EXECUTE FUNCTION refuse()")
      assert.strictEqual((yield* call).status, 503)
      assert.deepStrictEqual([yield* keys, yield* wakeups], [[], 0])
      yield* sql("DROP TRIGGER refuse ON queue_triggers")
      // Each of the calls has read the time before the others fire; the tasks end and are deleted at once.
      const calls = yield* Effect.forEach(
        Array.from({ length: 10 }),
        () => Effect.tap(call, () => sql("DELETE FROM queue_tasks")),
        { concurrency: "unbounded" }
      )
      assert.deepStrictEqual(calls.map(({ status }) => status), calls.map(() => 200))
      assert.deepStrictEqual(calls.flatMap(({ body }) => body.instants), [hour(9)])
      assert.strictEqual(yield* wakeups, 1)
    }).pipe(Effect.scoped))

  it.live("its tasks wake the publisher of this process, also if it polls", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const services = yield* Layer.build(
        PrismaProvider.layerDatabase({ url, migrate: "none", longPolling: { enabled: false } })
      )
      let signals = 0
      yield* Context.get(services, Topics).subscribe(Topic.outbox, { received: () => void signals++ })
      const run = (until: string) => Effect.provide(Trigger.run(hourly, { until: new Date(until) }), services)
      yield* run("2026-01-01T05:10:00Z")
      assert.strictEqual(signals, 0)
      yield* run("2026-01-01T06:00:00Z")
      assert.strictEqual(signals, 1)
    }).pipe(Effect.scoped))

  it.live("a new one begins with its first run, and fires all that were missed later in parts", () =>
    Effect.gen(function*() {
      const { ask, keys } = yield* open
      yield* ask("cron/every-second", cronCall("2026-01-01T00:00:00Z"))
      assert.deepStrictEqual(yield* keys, ["cron/every-second/2026-01-01T00:00:00.000Z"])
      const first = yield* ask("cron/every-second", cronCall("2026-01-01T00:20:00Z"))
      assert.isTrue(first.body.hasMore)
      const second = yield* ask("cron/every-second", cronCall("2026-01-01T00:20:00Z"))
      assert.isFalse(second.body.hasMore)
      assert.strictEqual((yield* keys).length, 1201)
    }).pipe(Effect.scoped))

  it.live("a time that is not one of its instants is refused", () =>
    Effect.gen(function*() {
      const { keys, services } = yield* open
      const error = yield* Effect.flip(Effect.provide(hourly.fire(new Date("2026-01-01T08:00:01Z")), services))
      assert.strictEqual(error._tag === "ProviderError" && error.reason._tag, "InvalidInput")
      assert.deepStrictEqual(yield* keys, [])
    }).pipe(Effect.scoped))

  it("a definition that cannot work throws a RangeError", () => {
    const make = (name: string, cron: string, timeZone?: string) => () =>
      Trigger.cron(name, { cron, timeZone, task: Report, payload: () => ({ at: "" }) })
    assert.throws(make("a b", "* * * * *"), RangeError, "name of trigger \"a b\" is refused")
    assert.throws(make("a", "every day"), RangeError)
    assert.throws(make("a", "0 0 30 2 *"), RangeError, "no date fits it")
    assert.throws(make("a", "* * * * *", "Europe/Atlantis"), RangeError)
    assert.doesNotThrow(make("a", "0 0 29 2 *", "Europe/Berlin"))
  })
})

describe("the endpoint:", () => {
  it.live("refuses wrong tokens", () =>
    Effect.gen(function*() {
      const { ask, keys } = yield* open
      const refused = { status: 401, body: { error: "the bearer token is wrong" } }
      for (const given of ["", "x", `${token}x`, token.slice(1), token.toUpperCase()]) {
        assert.deepStrictEqual(yield* ask("cron/hourly", cronCall(hour(8), given)), refused, given)
      }
      assert.deepStrictEqual(yield* ask("cron/hourly", { method: "POST" }), refused)
      assert.deepStrictEqual(yield* ask("cron/unknown", { method: "POST" }), refused, "names are not given away")
      assert.deepStrictEqual(yield* keys, [])
    }).pipe(Effect.scoped))

  it.live("answers every bad request with a status of its own", () =>
    Effect.gen(function*() {
      const { ask, keys } = yield* open
      const statusOf = (path: string, init: RequestInit) => Effect.map(ask(path, init), ({ status }) => status)
      const cron = (body: string) => statusOf("cron/hourly", { ...cronCall(undefined), body })
      assert.deepStrictEqual(
        yield* Effect.all({
          path: statusOf("other/hourly", cronCall(hour(8))),
          method: statusOf("cron/hourly", { headers: { authorization: `Bearer ${token}` } }),
          unknown: statusOf("cron/unknown", cronCall(hour(8))),
          notJson: cron("{"),
          notObject: cron("[]"),
          notTime: cron("{\"until\":\"tomorrow\"}"),
          notDay: cron("{\"until\":\"2026-02-30T00:00:00Z\"}"),
          number: cron("{\"until\":5}"),
          future: statusOf("cron/hourly", cronCall(new Date(Date.now() + 120_000))),
          tooLarge: cron(`{"until":"${"x".repeat(2000)}"}`),
          soon: statusOf("cron/hourly", cronCall(new Date(Date.now() + 5000))),
          none: statusOf("cron/hourly", cronCall(undefined))
        }),
        {
          path: 404,
          method: 405,
          unknown: 404,
          notJson: 400,
          notObject: 400,
          notTime: 400,
          notDay: 400,
          number: 400,
          future: 400,
          tooLarge: 413,
          soon: 200,
          none: 200
        }
      )
      assert.isAtMost((yield* keys).length, 1)
    }).pipe(Effect.scoped))

  it.live("says 503 while the database is unavailable, and the log does not contain the body", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const { into, lines } = Boxes.logged()
      yield* into(Effect.gen(function*() {
        const handle = yield* Trigger.handler({ token: Redacted.make(token), webhooks: [payments] }).pipe(
          Effect.provide(Layer.provideMerge(Tasks.layer, PrismaProvider.layerDatabase({ url, migrate: "none" })))
        )
        // The layer is closed, as at the end of a process.
        const response = yield* Effect.promise(() =>
          handle(new Request("https://d/webhooks/payments", webhookCall("e-1", "{\"amount\":5,\"note\":\"s3cret\"}")))
        )
        assert.strictEqual(response.status, 503)
        assert.strictEqual(response.headers.get("retry-after"), "5")
      }))
      assert.isTrue(lines.some(({ level, text }) => level === "Error" && text === "Trigger: the request failed"))
      assert.notInclude(JSON.stringify(lines), "s3cret")
      assert.deepStrictEqual(yield* sql("SELECT FROM queue_tasks"), [])
    }).pipe(Effect.scoped))

  it.live("answer and log name the field that does not fit and what was expected, not its value", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const { into, lines } = Boxes.logged()
      const ofBook = "payload of task \"Book\" does not match its schema: "
      const ofDecoded = "body of webhook \"decoded\" does not match its schema: "
      const refused = [
        ["payments", `{"amount":"s3cret"}`, `${ofBook}Expected number at ["amount"]`],
        [
          "payments",
          `{"amount":13}`,
          "fireTrigger: invalid body: the webhook \"payments\" does not accept it"
        ],
        ["decoded", `{"amount":"s3cret"}`, `${ofDecoded}Expected number at ["amount"]`],
        ["decoded", `{"amount":777.5}`, `${ofDecoded}Expected an integer at ["amount"]`],
        ["decoded", `{"note":"s3cret"}`, `${ofDecoded}Missing key at ["amount"]`],
        ["decoded", `"s3cret"`, `${ofDecoded}Expected object`],
        ["decoded", `amount=s3cret`, "the body is not JSON in UTF-8"]
      ] as const
      yield* into(Effect.gen(function*() {
        const handle = yield* Trigger.handler({ token: Redacted.make(token), webhooks: [payments, decoded] })
        for (const [name, body, error] of refused) {
          const response = yield* Effect.promise(() =>
            handle(new Request(`https://d/webhooks/${name}`, webhookCall("e-1", body)))
          )
          assert.deepStrictEqual([response.status, yield* Effect.promise(() => response.json())], [400, { error }])
        }
      })).pipe(Effect.provide(Layer.provideMerge(Tasks.layer, PrismaProvider.layerDatabase({ url, migrate: "none" }))))
      assert.deepStrictEqual(
        lines.filter(({ text }) => text === "Trigger: a request does not fit its task and is refused")
          .map(({ annotations, level }) => [level, annotations.path, annotations.error]),
        refused.map(([name, , error]) => ["Warn", `/webhooks/${name}`, error])
      )
      assert.notInclude(JSON.stringify(lines), "s3cret")
      assert.deepStrictEqual(yield* sql("SELECT FROM queue_tasks"), [])
    }).pipe(Effect.scoped))

  it("options that cannot work throw a RangeError", () => {
    const make = (given: string, crons = [hourly]) => () => Trigger.handler({ token: Redacted.make(given), crons })
    assert.throws(make(""), RangeError, "token of the triggers is refused")
    assert.throws(make("short"), RangeError)
    assert.throws(make(`with a space ${token}`), RangeError, "at least 16 visible ASCII characters and no spaces")
    assert.throws(make(token, [hourly, hourly]), RangeError, "another trigger has it")
    assert.throws(() => Trigger.handler({ token: [] }), RangeError)
    assert.throws(() => Trigger.handler({ crons: [hourly] }), RangeError, "token of the triggers is refused")
    const webhook = (text: string) => () =>
      Trigger.webhook("w", { task: Book, secret: Redacted.make(text), payload: () => ({ amount: 1 }) })
    assert.throws(webhook("s3cret"), RangeError, /^((?!s3cret).)*$/)
    assert.throws(() => Trigger.webhook("w", { task: Book, secret: [], payload: () => ({ amount: 1 }) }), RangeError)
    for (const url of ["", "dispatcher", "ftp://dispatcher"]) {
      assert.throws(() => Trigger.scheduler({ url, token: Redacted.make(token), crons: [] }), RangeError)
    }
  })
})

describe("a webhook trigger:", () => {
  it.live("creates one task for an event, however often it is sent", () =>
    Effect.gen(function*() {
      const { ask, tasks, wakeups } = yield* open
      const first = yield* ask("webhooks/payments", webhookCall("e-1", "{\"amount\":5}"))
      assert.strictEqual(first.status, 200)
      const again = yield* Effect.forEach(
        Array.from({ length: 5 }),
        () => ask("webhooks/payments", webhookCall("e-1", "{\"amount\":5}")),
        { concurrency: "unbounded" }
      )
      assert.isTrue(again.every(({ body }) => body.taskId === first.body.taskId))
      assert.deepStrictEqual(yield* tasks, [{ name: "Book", key: "webhook/payments/e-1", payload: "{\"amount\":5}" }])
      assert.strictEqual(yield* wakeups, 1)
    }).pipe(Effect.scoped))

  it.live("refuses what is not signed, or not its kind of event; nothing is written", () =>
    Effect.gen(function*() {
      const { ask, keys } = yield* open
      const answer = (init: RequestInit) => ask("webhooks/payments", init)
      const statusOf = (init: RequestInit) => Effect.map(answer(init), ({ status }) => status)
      const other = `whsec_${Buffer.alloc(32, 7).toString("base64")}`
      const now = Math.floor(Date.now() / 1000)
      const signed = webhookCall("e-1", "{\"amount\":5}")
      assert.deepStrictEqual(
        yield* Effect.all({
          unsigned: statusOf({ method: "POST", body: "{\"amount\":5}" }),
          byAnother: statusOf(webhookCall("e-1", "{\"amount\":5}", { by: other })),
          changed: statusOf({ ...signed, body: "{\"amount\":6}" }),
          old: statusOf(webhookCall("e-1", "{\"amount\":5}", { at: now - 400 })),
          early: statusOf(webhookCall("e-1", "{\"amount\":5}", { at: now + 400 })),
          notJson: statusOf(webhookCall("e-1", "{")),
          unfit: statusOf(webhookCall("e-1", "{\"amount\":\"s3cret\"}")),
          thrown: statusOf(webhookCall("e-1", "{\"amount\":13}")),
          longId: statusOf(webhookCall("e".repeat(600), "{\"amount\":5}")),
          tooLarge: statusOf(webhookCall("e-1", `{"amount":5,"note":"${"x".repeat(1024 * 1024)}"}`)),
          unknown: Effect.map(ask("webhooks/unknown", signed), ({ status }) => status)
        }),
        {
          unsigned: 401,
          byAnother: 401,
          changed: 401,
          old: 401,
          early: 401,
          notJson: 400,
          unfit: 400,
          thrown: 400,
          longId: 400,
          tooLarge: 413,
          unknown: 404
        }
      )
      const answers = yield* Effect.forEach(
        [webhookCall("e-1", "{\"amount\":\"s3cret\"}"), webhookCall("e-1", "{\"amount\":13}")],
        answer
      )
      assert.notInclude(JSON.stringify(answers), "s3cret")
      assert.deepStrictEqual(yield* keys, [])
    }).pipe(Effect.scoped))
})
