import { assert, describe, it } from "@effect/vitest"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Redacted from "effect/Redacted"
import { keyOf, sign } from "../../src/recipes/internal/signature.ts"
import * as Boxes from "../outbox/utils/outbox.ts"
import * as PgServer from "../utils/PgServer.ts"
import { Book, decoded, open, payments, secret } from "./utils/triggers.ts"

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

describe("the endpoint:", () => {
  it.live("answers every bad request with a status of its own", () =>
    Effect.gen(function*() {
      const { ask, keys } = yield* open
      const statusOf = (path: string, init: RequestInit) => Effect.map(ask(path, init), ({ status }) => status)
      assert.deepStrictEqual(
        yield* Effect.all({
          path: statusOf("other/payments", { method: "POST" }),
          method: statusOf("webhooks/payments", {}),
          unknown: statusOf("webhooks/unknown", { method: "POST" })
        }),
        { path: 404, method: 405, unknown: 404 }
      )
      assert.deepStrictEqual(yield* keys, [])
    }).pipe(Effect.scoped))

  it.live("says 503 while the database is unavailable, and the log does not contain the body", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const { into, lines } = Boxes.logged()
      yield* into(Effect.gen(function*() {
        const handle = yield* Trigger.handler({ webhooks: [payments] }).pipe(
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
        const handle = yield* Trigger.handler({ webhooks: [payments, decoded] })
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
    assert.throws(() => Trigger.handler({ webhooks: [payments, payments] }), RangeError, "another trigger has it")
    const named = (name: string) => () =>
      Trigger.webhook(name, { task: Book, secret: Redacted.make(secret), payload: () => ({ amount: 1 }) })
    assert.throws(named("a b"), RangeError, "name of trigger \"a b\" is refused")
    const webhook = (text: string) => () =>
      Trigger.webhook("w", { task: Book, secret: Redacted.make(text), payload: () => ({ amount: 1 }) })
    assert.throws(webhook("s3cret"), RangeError, /^((?!s3cret).)*$/)
    assert.throws(() => Trigger.webhook("w", { task: Book, secret: [], payload: () => ({ amount: 1 }) }), RangeError)
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
