/**
 * What logs never say, at any level: payloads, whole lock tokens, passwords and connection strings. And what they
 * always say: the ids of what they are about.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Redacted from "effect/Redacted"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

/** Each stands in one kind of payload. */
const payloads = {
  input: "payload-of-a-start",
  activityInput: "payload-of-an-activity",
  result: "result-of-an-activity",
  output: "output-of-an-instance",
  typedError: "typed-error-of-an-activity",
  signal: "payload-of-a-signal",
  mail: "payload-of-a-message",
  status: "custom-status-text",
  value: "value-of-a-key",
  unreadable: "payload-that-cannot-be-read"
}

class Refused extends Schema.TaggedError<Refused>()("Refused", { reason: Schema.String }) {}

const Charge = Activity.make("Charge", { payload: Schema.String, success: Schema.String })
const Refuse = Activity.make("Refuse", { error: Refused })
const Slow = Activity.make("Slow", { payload: Schema.String })
const Approved = Signal.make("Approved", { payload: Schema.String })
const Words = Signal.make("Words", { payload: Schema.String })
const Total = KeyValue.make("total", Schema.String)
const Child = Orchestration.make("Child", { payload: Schema.String, success: Schema.String })
const Order = Orchestration.make("Order", { payload: Schema.String, success: Schema.String, error: Refused })

const runtime = Runtime.layer({ orchestrations: [Order, Child], activities: [Charge, Refuse, Slow] }).pipe(
  Layer.provide([
    Charge.toLayer(() => Effect.succeed(payloads.result)),
    Refuse.toLayer(() => new Refused({ reason: payloads.typedError })),
    Slow.toLayer(() => Effect.sleep("1 hour")),
    Child.toLayer((input) => Effect.succeed(input)),
    Order.toLayer(Effect.fnUntraced(function*(input) {
      yield* Orchestration.setCustomStatus(payloads.status)
      yield* Total.set(payloads.value)
      yield* Charge.execute(payloads.activityInput)
      yield* Child.execute(input)
      yield* Effect.timeoutOption(Slow.execute(payloads.activityInput), "10 millis")
      yield* Approved.wait
      yield* Words.wait
      yield* Effect.exit(Refuse.execute())
      if (input.endsWith("fails")) return yield* new Refused({ reason: payloads.typedError })
      return payloads.output
    }))
  ])
)

interface Line {
  readonly text: string
  readonly message: string
  readonly annotations: Readonly<Record<string, unknown>>
}

const everything = () => {
  const lines: Array<Line> = []
  const logger = Logger.make((options) => {
    const annotations = options.fiber.getRef(References.CurrentLogAnnotations)
    const { cause, logLevel, message } = options
    lines.push({
      text: [logLevel, String(message), Cause.pretty(cause), JSON.stringify(annotations)].join(" "),
      message: String(message),
      annotations
    })
  })
  return {
    lines,
    layer: Layer.merge(Logger.layer([logger]), Layer.succeed(References.MinimumLogLevel, "All" as const))
  }
}

const secret = "password-that-no-one-may-read"

describe("Logs at every level", () => {
  it.live("contain no payload, token, password or connection string, and the ids of what they are about", () =>
    Effect.gen(function*() {
      const { layer, lines } = everything()
      const { sql, url } = yield* PgServer.database
      const withPassword = new URL(url)
      // A server that trusts its clients does not look at it.
      if (withPassword.password === "") withPassword.password = secret
      const app = runtime.pipe(
        Layer.provideMerge(Client.layer),
        Layer.provideMerge(PrismaProvider.layer({ url: Redacted.make(withPassword.toString()) })),
        Layer.provideMerge(layer),
        Layer.provide(RuntimeConfig.layer({ dashboardUrl: "https://shop.example/duroxide" }))
      )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        for (const instanceId of ["order-1", "order-2"]) {
          const payload = payloads.input + (instanceId === "order-2" ? " fails" : "")
          yield* client.start(Order, { instanceId, payload })
          yield* client.send(Words, instanceId, payloads.mail)
        }
        // Connections are lost, and a message arrives that no version can read.
        const cut = sql(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity
          WHERE datname = current_database() AND pid <> pg_backend_pid()`)
        yield* waitUntil(
          Effect.all([Effect.exit(client.status("order-1")), cut], { concurrency: "unbounded" }).pipe(
            Effect.as(lines),
            Effect.map((lines) => lines.some(({ message }) => message.includes("statement failed")))
          )
        )
        yield* sql(`INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at)
          VALUES ('order-1', '{"Unknown":{"data":"${payloads.unreadable}"}}', now(), now())`)
        for (const instanceId of ["order-1", "order-2"]) {
          yield* waitUntil(Effect.map(
            sql("SELECT FROM history WHERE instance_id = $1 AND event_type = 'ExternalSubscribedPersistent'", [
              instanceId
            ]),
            (rows) => rows.length > 0
          ))
          yield* client.send(Approved, instanceId, payloads.signal)
          yield* Effect.exit(client.wait(Order, instanceId))
        }
        yield* waitUntil(Effect.sync(() => lines.some(({ text }) => text.includes("cannot be read"))))
      }).pipe(Effect.provide(app))

      assert.isAbove(lines.length, 30)
      const secrets = {
        ...payloads,
        password: withPassword.password,
        url: withPassword.toString(),
        "connection string": "postgresql://",
        // Tokens contain one.
        uuid: /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/
      }
      for (const [what, pattern] of Object.entries(secrets)) {
        const leak = lines.find(({ text }) => typeof pattern === "string" ? text.includes(pattern) : pattern.test(text))
        assert.isUndefined(leak?.text, what)
      }

      for (const { annotations, message } of lines) {
        assert.strictEqual(annotations["package"], "duroxide-prisma", message)
        for (const name of Object.keys(annotations)) assert.match(name, /^[a-z]+(_[a-z]+)*$/, message)
        const id = annotations["instance_id"]
        const page = typeof id === "string"
          ? `https://shop.example/duroxide/#/instances/${encodeURIComponent(id)}`
          : undefined
        assert.strictEqual(annotations["url"], page, message)
        if (!/: (turn|instance|outcome|activity) /.test(message)) continue
        assert.include(["order-1", "order-2"], String(id).split("::")[0], message)
        assert.strictEqual(annotations["execution_id"], 1, message)
      }
      const has = (text: string, ...fields: ReadonlyArray<string>) => {
        const line = lines.find(({ message }) => message.includes(text))
        assert.isDefined(line, text)
        for (const field of fields) assert.property(line.annotations, field, text)
      }
      has("statement answered", "operation", "duration_ms")
      has("statement failed", "operation", "duration_ms", "error_type", "error")
      has("turn stored", "orchestration_name", "new_events")
      has("outcome stored", "activity_name", "activity_id", "duration_ms", "outcome")
      has("cannot be read", "instance_id", "error", "url")
    }).pipe(Effect.scoped))
})
