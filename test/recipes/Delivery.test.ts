import { assert, describe, it, layer } from "@effect/vitest"
import { Metrics } from "duroxide-prisma"
import { Transaction } from "duroxide-prisma/prisma"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Metric from "effect/Metric"
import * as Redacted from "effect/Redacted"
import { TestClock } from "effect/testing"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import {
  attempted,
  Deliveries,
  endpoint,
  fetched,
  hurry,
  logs,
  never,
  secret,
  status,
  task
} from "./utils/deliveries.ts"

const event = (name: string) => ({ endpoint: name, event: "dataset.activated", data: { version: 7, "naïve": ["✓"] } })

const hour = 3_600_000

layer(Deliveries, { excludeTestServices: true })((it) => {
  const failureOf = (id: string) =>
    Effect.map(task(id), ({ failure }) => {
      const { error } = JSON.parse(failure!) as { readonly error: string }
      return JSON.parse(error) as { readonly status: number | null; readonly problem: string }
    })

  describe("an endpoint that accepts", () => {
    it.effect("receives the event once, signed", () =>
      Effect.gen(function*() {
        const { name, received, url } = yield* endpoint([status(204)])
        const id = yield* Delivery.create(event(name))
        assert.deepStrictEqual(yield* Effect.flatMap(Tasks.Tasks, (tasks) => tasks.wait(Delivery.Webhook, id)), {
          status: 204
        })
        assert.lengthOf(received, 1)
        assert.lengthOf(fetched.filter((to) => to === url), 1)
        const { body, headers } = received[0]!
        const { timestamp, ...sent } = JSON.parse(body) as Record<string, unknown>
        assert.deepStrictEqual(sent, { type: "dataset.activated", data: { version: 7, "naïve": ["✓"] } })
        assert.isBelow(Math.abs(Date.parse(String(timestamp)) - Date.now()), 60_000)
        assert.strictEqual(headers["content-type"], "application/json")
        assert.strictEqual((yield* Delivery.verify(headers, body, secret)).id, id)
      }))

    it.effect("is not asked again, however many wake-ups there are", () =>
      Effect.gen(function*() {
        const { name, received } = yield* endpoint([(response) => setTimeout(() => status(200)(response), 200)])
        const { sql } = yield* PgServer.PgServer
        const id = yield* Delivery.create(event(name))
        for (let i = 0; i < 5; i++) yield* hurry(id)
        yield* waitUntil(Effect.map(task(id), (row) => row.status === "Completed"))
        yield* hurry(id)
        yield* waitUntil(Effect.map(
          sql("SELECT FROM queue_outbox WHERE sent_at IS NULL UNION ALL SELECT FROM queue_messages"),
          (rows) => rows.length === 0
        ))
        assert.lengthOf(received, 1)
      }))

    it.effect("may send an endless body", () =>
      Effect.gen(function*() {
        const { name } = yield* endpoint([(response) => {
          response.writeHead(200).write("x".repeat(100_000))
        }])
        const id = yield* Delivery.create(event(name))
        assert.deepStrictEqual(yield* Effect.flatMap(Tasks.Tasks, (tasks) => tasks.wait(Delivery.Webhook, id)), {
          status: 200
        })
      }))
  })

  describe("an endpoint that fails", () => {
    it.effect("gets the event again, with the same id and a new signature: errors, a hang, a redirect", () =>
      Effect.gen(function*() {
        const { change, name, received, url } = yield* endpoint([
          status(500),
          never,
          status(302, { location: "/elsewhere" }),
          status(200)
        ])
        const id = yield* Delivery.create(event(name))
        yield* attempted(id, 1)
        assert.include(yield* failureOf(id), { status: 500 })
        yield* hurry(id)
        yield* attempted(id, 2)
        assert.include(yield* failureOf(id), { status: null, problem: "no response within 2s" })
        yield* hurry(id)
        yield* attempted(id, 3)
        assert.include(yield* failureOf(id), { status: 302 })
        change({ url: "http://127.0.0.1:1/", secret })
        yield* hurry(id)
        yield* attempted(id, 4)
        assert.include(yield* failureOf(id), { status: null, problem: "the endpoint was not reached" })
        change({ url, secret })
        yield* hurry(id)
        assert.deepStrictEqual(yield* Effect.flatMap(Tasks.Tasks, (tasks) => tasks.wait(Delivery.Webhook, id)), {
          status: 200
        })
        assert.deepStrictEqual(received.map(({ headers, path }) => [headers["webhook-id"], path]), [
          [id, "/hook"],
          [id, "/hook"],
          [id, "/hook"],
          [id, "/hook"]
        ])
        for (const { body, headers } of received) yield* Delivery.verify(headers, body, secret)
        assert.strictEqual(new Set(received.map(({ body }) => body)).size, 1)
        const attempts = yield* Effect.flatMap(Tasks.Tasks, (tasks) => tasks.attempts(id))
        assert.deepStrictEqual(attempts.map(({ outcome }) => outcome), [
          "Failed",
          "Failed",
          "Failed",
          "Failed",
          "Completed"
        ])
      }))

    it.effect("gets it after growing pauses, and not before the time it asks for, up to six hours", () =>
      Effect.gen(function*() {
        const { name } = yield* endpoint([
          status(503),
          status(503),
          status(429, { "retry-after": "3600" }),
          status(503, { "retry-after": new Date(Date.now() + 2 * hour).toUTCString() }),
          status(429, { "retry-after": "99999999999999999999" }),
          status(429, { "retry-after": "soon" })
        ])
        const id = yield* Delivery.create(event(name))
        const pauses: Array<number> = []
        for (let attempt = 1; attempt <= 6; attempt++) {
          pauses.push((yield* attempted(id, attempt)).pause)
          yield* hurry(id)
        }
        const between = (ms: number, least: number, most: number) => {
          assert.isAtLeast(ms, least)
          assert.isAtMost(ms, most)
        }
        between(pauses[0]!, 4_000, 6_000)
        between(pauses[1]!, 8_000, 12_000)
        between(pauses[2]!, hour, hour)
        between(pauses[3]!, 1.9 * hour, 2 * hour)
        between(pauses[4]!, 6 * hour, 6 * hour)
        between(pauses[5]!, 128_000, 192_000)
      }))
  })

  describe("an endpoint that refuses", () => {
    for (const code of [410, 400, 401, 404, 422]) {
      it.effect(`is not asked again after ${code}, and the delivery shows it`, () =>
        Effect.gen(function*() {
          const { name, received } = yield* endpoint([status(code)])
          const id = yield* Delivery.create(event(name))
          assert.include(yield* attempted(id, 1), { status: "Dead", attempt: 1 })
          assert.include(yield* failureOf(id), { status: code })
          assert.lengthOf(received, 1)
        }))
    }

    for (const code of [408, 425, 429]) {
      it.effect(`is asked again after ${code}`, () =>
        Effect.gen(function*() {
          const { name } = yield* endpoint([status(code)])
          const id = yield* Delivery.create(event(name))
          assert.include(yield* attempted(id, 1), { status: "Pending", attempt: 1 })
        }))
    }
  })

  describe("no request leaves", () => {
    const refused: Readonly<Record<string, (url: string) => string>> = {
      "to another protocol": () => "file:///etc/passwd",
      "to a text that is not a URL": () => "endpoint",
      "with credentials in the URL": (url) => url.replace("://", "://user:password@"),
      "to an address that is not allowed": (url) => url.replace("/hook", "/forbidden")
    }
    for (const [name, change] of Object.entries(refused)) {
      it.effect(name, () =>
        Effect.gen(function*() {
          const target = yield* endpoint([status(200)])
          target.change({ url: change(target.url), secret })
          const id = yield* Delivery.create(event(target.name))
          assert.include(yield* attempted(id, 1), { status: "Dead", attempt: 1 })
          const { problem, status: code } = yield* failureOf(id)
          assert.isNull(code)
          assert.notInclude(problem, "password")
          assert.lengthOf(target.received, 0)
          assert.notInclude(fetched, change(target.url))
        }))
    }

    it.effect("to an unknown endpoint", () =>
      Effect.gen(function*() {
        const id = yield* Delivery.create(event("unknown"))
        assert.include(yield* attempted(id, 1), { status: "Dead" })
      }))

    it.effect("without a valid secret; it is tried again", () =>
      Effect.gen(function*() {
        const target = yield* endpoint([status(200)])
        target.change({ url: target.url, secret: [secret, Redacted.make("whsec_short")] })
        const id = yield* Delivery.create(event(target.name))
        assert.include(yield* attempted(id, 1), { status: "Pending" })
        assert.lengthOf(target.received, 0)
      }))
  })

  it.effect("two secrets: requests are signed with both, so that either is enough", () =>
    Effect.gen(function*() {
      const other = Redacted.make(`whsec_${Buffer.alloc(24, 2).toString("base64")}`)
      const target = yield* endpoint([status(200)])
      target.change({ url: target.url, secret: [other, secret] })
      const id = yield* Delivery.create(event(target.name))
      yield* waitUntil(Effect.map(task(id), (row) => row.status === "Completed"))
      const { body, headers } = target.received[0]!
      for (const one of [secret, other]) assert.strictEqual((yield* Delivery.verify(headers, body, one)).id, id)
    }))

  it.effect("a delivery is created once for a key, and with the transaction of the application or not at all", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.PgServer
      const { name, received } = yield* endpoint([status(200)])
      const key = `activated-${name}`
      const client = yield* PgServer.connect(url.replace(/\?.*$/, ""))
      const within = Delivery.within(Transaction.make(client, { schema: "public" }))
      yield* Effect.promise(() => client.query("BEGIN"))
      const lost = yield* within.create(event(name), { key })
      yield* Effect.promise(() => client.query("ROLLBACK"))
      yield* Effect.promise(() => client.query("BEGIN"))
      const id = yield* within.create(event(name), { key })
      assert.strictEqual(yield* within.create(event(name), { key }), id)
      yield* Effect.promise(() => client.query("COMMIT"))
      assert.strictEqual(yield* Delivery.create(event(name), { key }), id)
      yield* waitUntil(Effect.map(task(id), (row) => row.status === "Completed"))
      assert.deepStrictEqual(received.map(({ headers }) => headers["webhook-id"]), [id])
      assert.deepStrictEqual(yield* sql("SELECT FROM queue_tasks WHERE id = $1", [lost]), [])
    }))

  it.effect("its wake-up is a message of kind `delivery`", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.PgServer
      const id = yield* Delivery.create(event("unknown"), { delay: "1 day" })
      assert.deepStrictEqual(
        yield* sql("SELECT queue, payload FROM queue_outbox WHERE payload::text LIKE $1", [`%${id}%`]),
        [
          { queue: "deliveries", payload: { kind: "delivery", task_id: id } }
        ]
      )
    }))

  it.effect("bad input has a typed error", () =>
    Effect.gen(function*() {
      const bad = [
        event(""),
        event("x".repeat(257)),
        { ...event("a"), event: "" },
        { ...event("a"), data: { at: NaN } }
      ]
      for (const one of bad) {
        assert.strictEqual((yield* Effect.flip(Delivery.create(one)))._tag, "PayloadMismatch")
      }
      const error = yield* Effect.flip(Delivery.create(event("a"), { delay: "20000 days" }))
      assert.strictEqual(error._tag === "ProviderError" && error.reason._tag, "InvalidInput")
    }))

  it.effect("secrets, and the bodies of responses, are neither stored nor logged", () =>
    Effect.gen(function*() {
      const { sql } = yield* PgServer.PgServer
      const stored = yield* sql<{ text: string }>(
        `SELECT string_agg(t::text, ' ') || (SELECT string_agg(a::text, ' ') FROM queue_task_attempts a) AS text
         FROM queue_tasks t`
      )
      assert.include(stored[0]!.text, "dataset.activated")
      const texts = [stored[0]!.text, ...logs]
      for (const hidden of ["a body that is not read", Redacted.value(secret).slice(6)]) {
        assert.isFalse(texts.some((text) => text.includes(hidden)), hidden)
      }
    }))

  it.effect("attempts are counted by outcome and status, and timed", () =>
    Effect.gen(function*() {
      const counts = Effect.map(Metric.snapshot, (all) => (outcome: string, code: string) => {
        const found = all.find(({ attributes, id }) =>
          id === Metrics.deliveryAttempts.id && attributes?.["outcome"] === outcome && attributes["status"] === code
        )
        return found === undefined ? 0 : (found.state as { readonly count: number }).count
      })
      const before = yield* counts
      for (const [answer, ends] of [[200, "Completed"], [500, "Pending"], [410, "Dead"]] as const) {
        const { name } = yield* endpoint([status(answer)])
        const id = yield* Delivery.create(event(name))
        yield* waitUntil(Effect.map(task(id), (row) => row.attempt === 1 && row.status === ends))
      }
      const after = yield* counts
      for (const [outcome, code] of [["delivered", "2xx"], ["failed", "5xx"], ["refused", "4xx"]] as const) {
        assert.strictEqual(after(outcome, code) - before(outcome, code), 1, outcome)
      }
      const timed = (yield* Metric.snapshot).filter(({ id }) => id === Metrics.deliveryDuration.id)
      assert.deepStrictEqual(
        new Set(timed.map(({ attributes }) => attributes?.["outcome"])),
        new Set(["delivered", "failed", "refused"])
      )
    }))
})

describe("verify:", () => {
  // From the tests of the Standard Webhooks specification.
  const vector = {
    secret: Redacted.make("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"),
    headers: {
      "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
      "webhook-timestamp": "1614265330",
      "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    },
    body: "{\"test\": 2432232314}",
    atMs: 1_614_265_330_000
  } as const
  const { body, headers } = vector

  it.effect("accepts the example of the specification, and `sign` makes it", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(vector.atMs)
      const id = headers["webhook-id"]
      const accepted = { id, signedMs: vector.atMs }
      assert.deepStrictEqual(yield* Delivery.sign({ id, body, secret: vector.secret }), headers)
      assert.deepStrictEqual(yield* Delivery.verify(headers, body, vector.secret), accepted)
      assert.deepStrictEqual(yield* Delivery.verify(new Headers(headers), body, [secret, vector.secret]), accepted)
      const node = Object.fromEntries(Object.entries(headers).map(([name, value]) => [name.toUpperCase(), [value]]))
      assert.deepStrictEqual(yield* Delivery.verify(node, Buffer.from(body), vector.secret), accepted)
    }))

  it.effect("refuses what is older or newer than five minutes", () =>
    Effect.gen(function*() {
      for (const [offsetMs, problem] of [[301_000, "TimestampTooOld"], [-301_000, "TimestampTooNew"]] as const) {
        yield* TestClock.setTime(vector.atMs + offsetMs)
        assert.include(yield* Effect.flip(Delivery.verify(headers, body, vector.secret)), { problem })
        yield* TestClock.setTime(vector.atMs + offsetMs - Math.sign(offsetMs) * 2000)
        assert.isTrue(Exit.isSuccess(yield* Effect.exit(Delivery.verify(headers, body, vector.secret))))
      }
    }))

  it.effect("refuses everything else, with a reason", () =>
    Effect.gen(function*() {
      yield* TestClock.setTime(vector.atMs)
      const changed = (name: string, value: string | undefined) => ({ ...headers, [name]: value })
      const refused = [
        [changed("webhook-id", undefined), body, "HeadersMissing"],
        [changed("webhook-timestamp", undefined), body, "HeadersMissing"],
        [changed("webhook-signature", undefined), body, "HeadersMissing"],
        [changed("webhook-timestamp", "now"), body, "TimestampInvalid"],
        [changed("webhook-timestamp", "1614265331"), body, "SignatureWrong"],
        [changed("webhook-id", "msg_other"), body, "SignatureWrong"],
        [changed("webhook-signature", headers["webhook-signature"].replace("v1,", "v2,")), body, "SignatureWrong"],
        [changed("webhook-signature", ""), body, "SignatureWrong"],
        [headers, `${body} `, "SignatureWrong"]
      ] as const
      for (const [given, text, problem] of refused) {
        assert.include(yield* Effect.flip(Delivery.verify(given, text, vector.secret)), { problem })
      }
      assert.include(yield* Effect.flip(Delivery.verify(headers, body, secret)), { problem: "SignatureWrong" })
      for (const invalid of [[], Redacted.make("secret"), Redacted.make("whsec_c2hvcnQ=")]) {
        assert.strictEqual((yield* Effect.flip(Delivery.verify(headers, body, invalid)))._tag, "SecretInvalid")
      }
    }))
})
