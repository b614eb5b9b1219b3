import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Provider } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Docs from "../utils/docs.ts"

// -----------------------------------------------------------------------------
// definitions
// -----------------------------------------------------------------------------

const Answer = Signal.make("Answer", { payload: Schema.String })

const Hurry = Signal.make("Hurry", { payload: Schema.String, unawaited: "lost" })

const Orders = Signal.make("Orders", {
  payload: Schema.Union([
    Schema.TaggedStruct("Deposit", { id: Schema.String, cents: Schema.Int }),
    Schema.TaggedStruct("Close", {})
  ])
})

const Ask = Activity.make("Ask", { payload: Schema.String })

const Deposit = Activity.make("Deposit", {
  payload: Schema.Struct({ account: Schema.String, id: Schema.String, cents: Schema.Int })
})

// -----------------------------------------------------------------------------
// programs
// -----------------------------------------------------------------------------

const question = Effect.gen(function*() {
  yield* Ask.execute("Shall we?")
  return yield* Answer.wait // also an answer that came before Ask has ended
})

const account = Effect.gen(function*() {
  let cents = 0
  const seen = new Set<string>() // a deposit that was sent twice counts once
  while (true) {
    const order = yield* Orders.wait
    if (order._tag === "Close") return cents
    if (seen.has(order.id)) continue
    seen.add(order.id)
    cents += order.cents
  }
})

const DepositLive = Deposit.toLayer(Effect.fn(function*({ account, ...deposit }) {
  const client = yield* Client.Client
  yield* Effect.orDie(client.send(Orders, account, { _tag: "Deposit", ...deposit }))
}))

const Close = Activity.make("Close", { payload: Schema.String })

const CloseLive = Close.toLayer(Effect.fn(function*(account) {
  const client = yield* Client.Client
  yield* Effect.orDie(client.send(Orders, account, { _tag: "Close" }))
}))

const Account = Orchestration.make("Account", { success: Schema.Int })

const parent = Effect.gen(function*() {
  const { instanceId } = yield* Orchestration.Instance
  const account = `${instanceId}/account`
  const cents = yield* Effect.forkChild(Account.executeWithId({ instanceId: account }))
  yield* Deposit.execute({ account, id: "first", cents: 300 })
  yield* Close.execute(account) // an activity as well: it sends Close
  return yield* Fiber.join(cents)
})

const giver = Deposit.execute({ account: "account-1", id: "gift", cents: 500 })

const twoHurries = Effect.all([Hurry.wait, Effect.timeoutOption(Hurry.wait, "1 hour")])

const twoOrders = Effect.all([Orders.wait, Effect.timeoutOption(Orders.wait, "1 hour")])

// -----------------------------------------------------------------------------
// tests
// -----------------------------------------------------------------------------

const Program = Orchestration.make("Program", { success: Schema.Unknown })

const runtimeOf = (program: Effect.Effect<unknown, never, Orchestration.Instance>, asked: Array<string> = []) =>
  Runtime.layer({ orchestrations: [Program, Account], activities: [Ask, Deposit, Close] }).pipe(Layer.provide([
    Account.toLayer(() => account),
    CloseLive,
    Program.toLayer(() => Effect.map(program, (value) => JSON.parse(JSON.stringify(value ?? null)))),
    Ask.toLayer((text) => Effect.sync(() => void asked.push(text))),
    DepositLive
  ]))

const on = (program: Effect.Effect<unknown, never, Orchestration.Instance>) =>
  Effect.provide(TestRuntime.layer(runtimeOf(program)))

/** The contents of the store before a process reads it. */
const onNothing = Effect.provide(TestRuntime.layer(Runtime.layer({})))

const start = (instanceId = "account-1") =>
  Effect.flatMap(Client.Client, (client) => client.start(Program, { instanceId }))

const wait = Effect.flatMap(Client.Client, (client) => client.wait(Program, "account-1"))

const answer = (text: string) => Effect.flatMap(Client.Client, (client) => client.send(Answer, "account-1", text))

const hurry = (text: string) => Effect.flatMap(Client.Client, (client) => client.send(Hurry, "account-1", text))

const send = (id: string, cents: number) =>
  Effect.flatMap(Client.Client, (client) => client.send(Orders, "account-1", { _tag: "Deposit", id, cents }))

const open = (id: string, cents: number) =>
  Effect.flatMap(
    Client.Client,
    (client) =>
      client.send(Orders, "account-1", { _tag: "Deposit", id, cents }, { orStart: { orchestration: Account } })
  )

/** Both arrive before the next turn of the instance. */
const atOnce = (send: (client: Client.Sender) => ReadonlyArray<Effect.Effect<void, unknown>>) =>
  Effect.flatMap(
    Provider.Provider,
    (provider) => Effect.all(send(Client.within(provider)), { concurrency: "unbounded", discard: true })
  )

const deposit = (id: string, cents: number) => ({ _tag: "Deposit" as const, id, cents })
const some = (value: unknown) => ({ _id: "Option", _tag: "Some", value })
const none = { _id: "Option", _tag: "None" }

describe("docs/signals.md, Signals", () => {
  it("its examples are those tested here", () => {
    const here = Docs.withoutIndentation(Docs.read("test/docs/signals.test.ts"))
    const examples = Docs.blocks(Docs.section("docs/signals.md", "Signals"), "ts")
    assert.lengthOf(examples, 8)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.effect("a signal starts its instance, and the next one finds it", () =>
    Effect.gen(function*() {
      const client = yield* Client.Client
      yield* open("first", 300)
      yield* open("second", 200)
      yield* client.send(Orders, "account-1", { _tag: "Close" })
      assert.strictEqual(yield* client.wait(Account, "account-1"), 500)
    }).pipe(on(question)))

  it.effect("a wait that begins after the answer has come finds it", () => {
    const asked: Array<string> = []
    return Effect.gen(function*() {
      yield* answer("yes")
      yield* start()
      assert.deepStrictEqual(asked, ["Shall we?"])
      assert.strictEqual(yield* wait, "yes")
    }).pipe(Effect.provide(TestRuntime.layer(runtimeOf(question, asked))))
  })

  it.effect("signals are kept in order while no wait is open", () =>
    Effect.gen(function*() {
      yield* start()
      yield* send("a", 100)
      yield* send("b", 50)
      yield* send("a", 100)
      yield* Effect.flatMap(Client.Client, (client) => client.send(Orders, "account-1", { _tag: "Close" }))
      assert.strictEqual(yield* wait, 150)
    }).pipe(on(account)))

  it.effect("another orchestration sends with an activity", () =>
    Effect.gen(function*() {
      yield* start()
      yield* start("giver")
      assert.deepStrictEqual(yield* wait, [deposit("gift", 500), none])
    }).pipe(on(Effect.flatMap(
      Orchestration.Instance,
      ({ instanceId }) => instanceId === "giver" ? giver : twoOrders
    ))))

  it.effect("a parent sends to a child that it started under an id of its choice", () =>
    Effect.gen(function*() {
      yield* start()
      assert.strictEqual(yield* wait, 300)
    }).pipe(on(parent)))

  it.effect("a lossy signal without an open wait is lost; others are kept", () =>
    Effect.gen(function*() {
      yield* start()
      yield* hurry("too early")
      yield* send("early", 1)
      yield* TestRuntime.advance("1 hour")
      yield* hurry("in time")
      assert.deepStrictEqual(yield* wait, ["in time", deposit("early", 1)])
    }).pipe(on(Effect.andThen(Effect.sleep("1 hour"), Effect.all([Hurry.wait, Orders.wait])))))

  it.effect("of two lossy signals at once, the second is lost if one wait follows the other; others are kept", () =>
    Effect.gen(function*() {
      yield* start()
      yield* atOnce((client) => [client.send(Hurry, "account-1", "a"), client.send(Hurry, "account-1", "b")])
      assert.deepStrictEqual(yield* wait, ["a", none])
    }).pipe(
      on(twoHurries),
      Effect.andThen(
        Effect.gen(function*() {
          const [a, b] = [deposit("a", 1), deposit("b", 2)]
          yield* start()
          yield* atOnce((client) => [client.send(Orders, "account-1", a), client.send(Orders, "account-1", b)])
          assert.deepStrictEqual(yield* wait, [a, some(b)])
        }).pipe(on(twoOrders))
      )
    ))

  it.effect("one signal ends one wait, the oldest", () =>
    Effect.gen(function*() {
      yield* start()
      yield* answer("a")
      yield* answer("b")
      assert.deepStrictEqual(yield* wait, ["a", "b"])
    }).pipe(on(Effect.all([Answer.wait, Answer.wait], { concurrency: "unbounded" }))))

  it.effect("after a start and before the first turn: a lossy signal is lost, others are kept", () =>
    Effect.gen(function*() {
      yield* start()
      yield* hurry("too early")
      yield* send("early", 1)
      yield* TestRuntime.deploy(runtimeOf(
        Effect.all([Effect.timeoutOption(Hurry.wait, "1 hour"), Orders.wait], { concurrency: "unbounded" })
      ))
      assert.deepStrictEqual(yield* wait, [none, deposit("early", 1)])
    }).pipe(onNothing))

  it.effect("before the start a signal is kept for it", () =>
    Effect.gen(function*() {
      yield* send("early", 1)
      yield* TestRuntime.advance("6 days")
      yield* start()
      assert.deepStrictEqual(yield* wait, some(deposit("early", 1)))
    }).pipe(on(Effect.timeoutOption(Orders.wait, "1 hour"))))

  it.effect("after the end signals are lost", () =>
    Effect.gen(function*() {
      yield* start()
      assert.deepStrictEqual(yield* wait, none)
      yield* send("too late", 1)
      yield* hurry("too late")
      assert.deepStrictEqual(yield* wait, none)
    }).pipe(on(Effect.timeoutOption(Orders.wait, "1 hour"))))

  /** The outcome of an answer with this delay, for a program that waits an hour. */
  const answeredAfter = (
    minutes: number,
    { outage, program }: {
      readonly outage: boolean
      readonly program: Effect.Effect<unknown, never, Orchestration.Instance>
    }
  ) =>
    Effect.gen(function*() {
      yield* start()
      if (outage) yield* TestRuntime.deploy(Runtime.layer({}))
      yield* TestRuntime.advance(Duration.minutes(minutes))
      yield* answer("yes")
      yield* hurry("yes")
      yield* send("yes", 1)
      yield* TestRuntime.advance("2 hours")
      if (outage) yield* TestRuntime.deploy(runtimeOf(program))
      return yield* wait
    }).pipe(on(program))

  it.effect("a signal before the timeout wins, and one after it loses", () =>
    Effect.gen(function*() {
      const program = Effect.timeoutOption(Answer.wait, "1 hour")
      assert.deepStrictEqual(yield* answeredAfter(59, { outage: false, program }), some("yes"))
      assert.deepStrictEqual(yield* answeredAfter(61, { outage: false, program }), none)
    }))

  it.effect("after an outage the order of arrival counts, not the order of the claims", () =>
    Effect.gen(function*() {
      const signal = Effect.timeoutOption(Answer.wait, "1 hour")
      assert.deepStrictEqual(yield* answeredAfter(59, { outage: true, program: signal }), some("yes"))
      assert.deepStrictEqual(yield* answeredAfter(61, { outage: true, program: signal }), none)
      const message = Effect.timeoutOption(Orders.wait, "1 hour")
      assert.deepStrictEqual(yield* answeredAfter(59, { outage: true, program: message }), some(deposit("yes", 1)))
      // Set later, due earlier.
      const timers = Effect.race(
        Effect.as(Effect.sleep("59 minutes"), "long"),
        Effect.as(Effect.sleep("30 minutes"), "short")
      )
      assert.deepStrictEqual(yield* answeredAfter(61, { outage: true, program: timers }), "short")
    }))
})
