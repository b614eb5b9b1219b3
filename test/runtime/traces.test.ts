import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Orchestration, Runtime, RuntimeConfig, Signal } from "duroxide-prisma"
import { Event } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Tracer from "effect/Tracer"
import * as tracing from "../../src/model/shared/tracing.ts"
import { Collector } from "../utils/traces.ts"

const day = 24 * 3_600_000

const secret = "4929-1234-5678-9012"

class Declined extends Schema.TaggedError<Declined>()("Declined", { card: Schema.String }) {}

const Charge = Activity.make("Charge", {
  payload: Schema.String,
  error: Declined,
  retry: { schedule: Schedule.spaced("1 hour"), times: 3 }
})
const Pack = Activity.make("Pack")
const Thank = Activity.make("Thank")
const Approved = Signal.make("Approved")
const Progress = KeyValue.make("Progress", Schema.Int)
const Ship = Orchestration.make("Ship")
const Order = Orchestration.make("Order", { payload: Schema.Int, error: Declined })

/** 30 days, with tries, a child, a signal and continue-as-new. */
const order = (round: number) =>
  Effect.gen(function*() {
    if (round === 1) {
      yield* Charge.execute(secret)
      yield* Ship.execute()
      yield* Approved.wait
      yield* Effect.sleep("10 days")
      return yield* Order.continueAsNew(2)
    }
    yield* Effect.sleep("20 days")
    yield* Thank.execute()
  })

const runtime = (process: Layer.Layer<never>, options: { readonly declined?: number } = {}) => {
  let tries = 0
  return Runtime.layer({ orchestrations: [Order, Ship], activities: [Charge, Pack, Thank] }).pipe(
    Layer.provide([
      Order.toLayer(order),
      Ship.toLayer(() => Pack.execute()),
      Charge.toLayer((card) => ++tries <= (options.declined ?? 0) ? Effect.fail(new Declined({ card })) : Effect.void),
      Pack.toLayer(() => Effect.withSpan(Effect.void, "wrap")),
      Thank.toLayer(() => Effect.void)
    ]),
    Layer.provide(process)
  )
}

/** A call of the client within an HTTP request. */
const requested = (
  collector: Collector,
  name: string,
  use: (client: Client.Client["Service"]) => Effect.Effect<unknown, unknown>,
  options?: Tracer.SpanOptions
) =>
  Effect.flatMap(Client.Client, use).pipe(
    Effect.withSpan(name, { kind: "server", ...options }),
    Effect.withTracer(collector.tracer("web"))
  )

const startOrder = (client: Client.Client["Service"]) => client.start(Order, { instanceId: "o-1", payload: 1 })

const ended = Effect.flatMap(Client.Client, (client) => client.wait(Order, "o-1"))

const histories = Effect.map(TestRuntime.history("o-1"), (events) => events.map(Event.encode).join())

describe("Traces", () => {
  const collector = new Collector()
  it.effect("an instance of 30 days is one tree, from the request that started it to its last activity", () =>
    Effect.gen(function*() {
      yield* requested(collector, "POST /orders", startOrder)
      yield* TestRuntime.advance("5 hours")
      yield* TestRuntime.deploy(runtime(collector.layer("worker 2")))
      yield* requested(collector, "POST /approvals", (client) => client.send(Approved, "o-1"))
      yield* TestRuntime.advance("1 day")
      yield* TestRuntime.restart
      yield* TestRuntime.deploy(runtime(collector.layer("worker 3")))
      yield* ended

      const [request] = collector.named("POST /orders")
      const [approval] = collector.named("POST /approvals")
      assert.deepStrictEqual(collector.roots(), [request!, approval!])
      assert.deepStrictEqual(collector.outline(({ name, process }) => `${name} (${process})`), [
        "POST /orders (web)",
        "  Client.start (web)",
        "    turn Order (worker 1)",
        "      activity Charge (worker 1)",
        "    turn Order (worker 1)",
        "    turn Order (worker 1)",
        "      activity Charge (worker 1)",
        "    turn Order (worker 1)",
        "    turn Order (worker 1)",
        "      activity Charge (worker 1)",
        "    turn Order (worker 1)",
        "      turn Ship (worker 1)",
        "        activity Pack (worker 1)",
        "          wrap (worker 1)",
        "      turn Ship (worker 1)",
        "    turn Order (worker 1)",
        "    turn Order (worker 2)",
        "    turn Order (worker 3)",
        "    turn Order (worker 3)",
        "    turn Order (worker 3)",
        "      activity Thank (worker 3)",
        "    turn Order (worker 3)",
        "POST /approvals (web)",
        "  Client.send (web)"
      ])

      const ofOrder = collector.spans.filter(({ traceId }) => traceId === request!.traceId)
      const [first, last] = [request!, ofOrder.at(-1)!]
      assert.isAtLeast(last.endMs - first.startMs, 30 * day)
      // None stays open while the instance waits.
      assert.deepStrictEqual([...collector.open.values()], [])
      assert.isBelow(Math.max(...ofOrder.map(({ endMs, startMs }) => endMs - startMs)), 1_000)
    }).pipe(
      Effect.provide(TestRuntime.layer(runtime(collector.layer("worker 1"), { declined: 2 })))
    ))

  it("a turn is linked with the span that sent its signal", () => {
    const [raise] = collector.named("Client.send")
    const linked = collector.named("turn Order").filter(({ links }) => links.includes(raise!.spanId))
    assert.deepStrictEqual(linked.map(({ process }) => process), ["worker 2"])
  })

  it("spans have OpenTelemetry's attributes for messages, and the ids of the instance", () => {
    const [start] = collector.named("Client.start")
    assert.strictEqual(start!.kind, "producer")
    assert.deepStrictEqual(start!.attributes, {
      "messaging.system": "duroxide",
      "messaging.operation.name": "start",
      "messaging.operation.type": "send",
      "messaging.message.conversation_id": "o-1",
      "messaging.destination.name": "Order",
      "duroxide.instance_id": "o-1"
    })
    const turn = collector.named("turn Order").at(-1)
    assert.strictEqual(turn!.kind, "consumer")
    assert.deepStrictEqual(turn!.attributes, {
      "messaging.system": "duroxide",
      "messaging.operation.name": "turn",
      "messaging.operation.type": "process",
      "messaging.message.conversation_id": "o-1",
      "messaging.destination.name": "Order",
      "messaging.batch.message_count": 1,
      "duroxide.instance_id": "o-1",
      "duroxide.execution_id": 2,
      "duroxide.turn.outcome": "Completed",
      "duroxide.turn.events": 2
    })
    const charge = collector.named("activity Charge").at(-1)
    assert.deepInclude(charge!.attributes, {
      "messaging.destination.name": "Charge",
      "messaging.operation.name": "activity",
      "duroxide.execution_id": 1,
      "duroxide.activity.try": 3,
      "duroxide.activity.delivery": 1
    })
  })

  it("a failure shows its type, and no payload", () => {
    const [failed, , succeeded] = collector.named("activity Charge")
    assert.isTrue(Exit.isFailure(failed!.exit))
    assert.strictEqual(failed!.attributes["error.type"], "ActivityFailed")
    assert.isTrue(Exit.isSuccess(succeeded!.exit))
    const shown = JSON.stringify(collector.spans, (_, value) => value instanceof Error ? String(value.stack) : value)
    assert.notInclude(shown, secret)
  })

  it.effect("an instance that fails is an error, and shows no payload either", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      yield* Effect.gen(function*() {
        yield* requested(collector, "POST /orders", startOrder)
        yield* requested(collector, "GET /orders", (client) => Effect.ignore(client.wait(Order, "o-1")))
      }).pipe(
        Effect.provide(TestRuntime.layer(runtime(collector.layer("worker"), { declined: Infinity })))
      )
      const last = collector.named("turn Order").at(-1)!
      assert.deepInclude(last.attributes, { "duroxide.turn.outcome": "Failed", "error.type": "OrchestrationFailed" })
      assert.isTrue(Exit.isFailure(last.exit))
      assert.isTrue(Exit.isFailure(collector.named("Client.wait")[0]!.exit))
      const shown = JSON.stringify(collector.spans, (_, value) => value instanceof Error ? String(value.stack) : value)
      assert.notInclude(shown, secret)
    }))

  it.effect("that an instance has ended is an answer to a wait, and no error of its span", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.execute(Ship, { instanceId: "s-1" })
        yield* requested(collector, "GET /status", (client) => Effect.flip(client.waitForStatus("s-1")))
        yield* requested(collector, "GET /value", (client) => Effect.flip(client.waitForValue(Progress, "s-1")))
        yield* requested(
          collector,
          "GET /none",
          (client) => Effect.flip(client.waitForStatus("s-2", { timeout: "1 second" }))
        )
      }).pipe(Effect.provide(TestRuntime.layer(runtime(Layer.empty))))
      const failed = (name: string) => collector.named(name).map(({ exit }) => Exit.isFailure(exit))
      assert.deepStrictEqual(failed("Client.waitForStatus"), [false, true])
      assert.deepStrictEqual(failed("Client.waitForValue"), [false])
    }))

  it.effect("the delivery after a crash says that one was lost, as the span of that one was", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      let deliveries = 0
      const worker = Runtime.layer({ orchestrations: [Ship], activities: [Pack] }).pipe(
        Layer.provide([
          Ship.toLayer(() => Pack.execute()),
          Pack.toLayer(() => ++deliveries === 1 ? Effect.sleep("1 day") : Effect.void)
        ]),
        Layer.provide(collector.layer("worker"))
      )
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* requested(collector, "POST /ship", (client) => client.start(Ship, { instanceId: "s-1" }))
        yield* TestRuntime.advance("1 second")
        yield* TestRuntime.crash
        yield* client.wait(Ship, "s-1")
      }).pipe(Effect.provide(TestRuntime.layer(worker)))
      const [, again] = collector.named("activity Pack")
      assert.deepStrictEqual(again!.events, [["duroxide.redelivery", { "duroxide.unsettled_deliveries": 1 }]])
      assert.deepStrictEqual(collector.named("turn Ship").flatMap(({ events }) => events), [])
    }))

  it.effect("spans of an instance have its address in the dashboard, those of a client where it knows of one", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      const dashboard = RuntimeConfig.layer({ dashboardUrl: "https://shop.example/duroxide" })
      const worker = runtime(collector.layer("worker")).pipe(Layer.provide(dashboard))
      yield* Effect.gen(function*() {
        yield* requested(collector, "POST /orders", startOrder)
        yield* Effect.provide(requested(collector, "GET /status", (client) => client.status("o-1")), dashboard)
        yield* TestRuntime.advance("1 minute")
      }).pipe(Effect.provide(TestRuntime.layer(worker)))
      const urlsOf = (name: string) => [
        ...new Set(collector.named(name).map(({ attributes }) => attributes["duroxide.url"]))
      ]
      const url = "https://shop.example/duroxide/#/instances/o-1"
      for (const name of ["turn Order", "activity Charge", "Client.status"]) assert.deepStrictEqual(urlsOf(name), [url])
      const [child] = collector.named("turn Ship")
      const id = child!.attributes["duroxide.instance_id"] as string
      assert.deepStrictEqual(urlsOf("activity Pack"), [
        `https://shop.example/duroxide/#/instances/${encodeURIComponent(id)}`
      ])
      assert.deepStrictEqual(urlsOf("Client.start"), [undefined])
      assert.deepStrictEqual(urlsOf("wrap"), [undefined])
    }))

  it.effect("without a tracer nothing is stored, although Effect makes spans", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* Effect.withSpan(startOrder(client), "POST /orders")
      yield* Effect.withSpan(client.send(Approved, "o-1"), "POST /approvals")
      assert.notInclude(yield* histories, "traceparent")
      yield* ended
      assert.notInclude(yield* histories, "traceparent")
    }).pipe(Effect.provide(TestRuntime.layer(runtime(Layer.empty)))))

  it.effect("with a tracer its context is stored: that of the start, in every execution", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      yield* requested(collector, "POST /orders", startOrder)
      yield* TestRuntime.advance("1 minute")
      yield* Effect.flatMap(Client.Client, (client) => client.send(Approved, "o-1"))
      yield* ended
      const [start] = collector.named("Client.start")
      const started = (yield* TestRuntime.history("o-1")).filter((event) => event._tag === "OrchestrationStarted")
      const context = `00-${start!.traceId}-${start!.spanId}-01`
      assert.deepStrictEqual(started.map(({ traceparent }) => traceparent), [context, context])
    }).pipe(Effect.provide(TestRuntime.layer(runtime(Layer.empty)))))

  it.effect("a process without a tracer hands the context on", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      yield* requested(collector, "POST /orders", startOrder)
      yield* TestRuntime.advance("1 minute")
      yield* Effect.flatMap(Client.Client, (client) => client.send(Approved, "o-1"))
      yield* TestRuntime.advance("15 days")
      yield* TestRuntime.deploy(runtime(collector.layer("worker")))
      yield* ended
      assert.deepStrictEqual(collector.outline(), [
        "POST /orders",
        "  Client.start",
        "    turn Order",
        "      activity Thank",
        "    turn Order"
      ])
    }).pipe(Effect.provide(TestRuntime.layer(runtime(Layer.empty)))))

  it.effect("a request that is not sampled leads to no span, in no process", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      yield* Effect.gen(function*() {
        yield* requested(collector, "POST /orders", startOrder, { sampled: false })
        yield* requested(collector, "POST /approvals", (client) => client.send(Approved, "o-1"), { sampled: false })
        yield* ended
        assert.match(yield* histories, /"traceparent":"00-\w+-\w+-00"/)
      }).pipe(Effect.provide(TestRuntime.layer(runtime(collector.layer("worker")))))
      assert.deepStrictEqual(collector.spans, [])
      assert.deepStrictEqual([...collector.open.values()], [])
    }))

  it.effect("a trace that is not sampled reaches no tracer of a worker, but its handlers are in spans", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      const seen: Array<Tracer.Span> = []
      const Look = Activity.make("Look")
      const See = Orchestration.make("See")
      const process = Runtime.layer({ orchestrations: [See], activities: [Look] }).pipe(
        Layer.provide([
          See.toLayer(() =>
            Effect.gen(function*() {
              yield* Effect.withSpan(Effect.void, "of the program")
              yield* Approved.wait
              yield* Look.execute()
            })
          ),
          Look.toLayer(() =>
            Effect.orDie(Effect.currentSpan).pipe(
              Effect.map((span) => void seen.push(span)),
              Effect.andThen(Effect.withSpan(Effect.void, "of the handler"))
            )
          )
        ]),
        Layer.provide(collector.layer("worker"))
      )
      yield* Effect.gen(function*() {
        const see = (client: Client.Client["Service"]) =>
          Effect.andThen(client.start(See, { instanceId: "s" }), client.send(Approved, "s"))
        yield* requested(collector, "POST /sights", see, { sampled: false })
        yield* Effect.flatMap(Client.Client, (client) => client.wait(See, "s"))
      }).pipe(Effect.provide(TestRuntime.layer(process)))
      assert.deepStrictEqual(seen.map(({ name, sampled }) => ({ name, sampled })), [
        { name: "activity Look", sampled: false }
      ])
      const [request] = collector.unsampled.filter(({ name }) => name === "POST /sights")
      assert.deepStrictEqual(seen.map(({ traceId }) => traceId), [request!.traceId])
      // Those of the worker are not made with its tracer.
      assert.sameMembers(collector.unsampled.map(({ name }) => name), [
        "POST /sights",
        "Client.start",
        "Client.send",
        "of the handler"
      ])
      for (const { attributes, links, name } of collector.unsampled) {
        assert.deepStrictEqual({ name, attributes: [...attributes], links }, { name, attributes: [], links: [] })
      }
    }))

  it.effect("turns and activities do not belong to the span in which their process was started", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* Effect.withTracer(startOrder(client), Tracer.nativeTracer)
        yield* Effect.withTracer(client.start(Ship, { instanceId: "s-1" }), Tracer.nativeTracer)
        yield* TestRuntime.advance("1 minute")
      }).pipe(
        Effect.provide(TestRuntime.layer(runtime(collector.layer("worker")))),
        Effect.withSpan("main"),
        Effect.withTracer(collector.tracer("worker"))
      )
      assert.isAbove(collector.named("turn Order").length, 0)
      assert.isTrue(collector.named("turn Order").every(({ parentId }) => parentId === undefined))
      // Also the spans that a handler makes itself.
      assert.sameMembers(
        collector.named("wrap").map(({ parentId }) => parentId),
        collector.named("activity Pack").map(({ spanId }) => spanId)
      )
    }))
})

describe("Spans of programs", () => {
  const Steps = Orchestration.make("Steps")
  const code = Effect.gen(function*() {
    yield* Effect.withSpan(Effect.withSpan(Effect.void, "inner"), "quick", { attributes: { answer: 42 } })
    yield* Effect.withSpan(Effect.andThen(Effect.sleep("1 day"), Effect.withSpan(Effect.void, "last")), "long")
    yield* Effect.sleep("1 day")
  })
  const steps = (process: Layer.Layer<never>) =>
    Runtime.layer({ orchestrations: [Steps] }).pipe(Layer.provide(Steps.toLayer(() => code)), Layer.provide(process))

  it.effect("are exported once, below the turn in which they end, however often it is replayed", () =>
    Effect.gen(function*() {
      const collector = new Collector()
      yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Steps, { instanceId: "s" })
        yield* TestRuntime.advance("2 hours")
        // The next process replays the history.
        yield* TestRuntime.restart
        yield* client.wait(Steps, "s")
      }).pipe(Effect.provide(TestRuntime.layer(steps(collector.layer("worker")))))

      assert.deepStrictEqual(collector.outline(), [
        "turn Steps",
        "  quick",
        "    inner",
        "turn Steps",
        "  long",
        "    last",
        "turn Steps"
      ])
      assert.deepInclude(collector.named("quick")[0]!.attributes, { answer: 42 })
      const [long] = collector.named("long")
      assert.strictEqual(long!.endMs - long!.startMs, day)
      assert.deepStrictEqual([...collector.open.values()], [])
    }))
})

describe("The stored context", () => {
  const context = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
  it("is read in the form of W3C Trace Context", () => {
    assert.deepInclude(tracing.spanOf(context), {
      traceId: "0af7651916cd43dd8448eb211c80319c",
      spanId: "b7ad6b7169203331",
      sampled: true
    })
    assert.strictEqual(tracing.traceparentOf(tracing.spanOf(context)!), context)
    assert.strictEqual(tracing.spanOf(context.replace(/1$/, "2"))!.sampled, false)
    assert.isDefined(tracing.spanOf(`cc${context.slice(2)}-what-the-future-brings`))
  })

  for (
    const [problem, text] of [
      ["empty", ""],
      ["cut", context.slice(0, -3)],
      ["of a forbidden version", `ff${context.slice(2)}`],
      ["without a trace", `00-${"0".repeat(32)}-b7ad6b7169203331-01`],
      ["without a span", `00-0af7651916cd43dd8448eb211c80319c-${"0".repeat(16)}-01`],
      ["in capitals", context.toUpperCase()],
      ["longer than its version", `${context}x`]
    ] as const
  ) {
    it(`is ignored when it is ${problem}`, () => assert.isUndefined(tracing.spanOf(text)))
  }
})
