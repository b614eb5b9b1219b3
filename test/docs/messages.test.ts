import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Mailbox, Orchestration, Runtime, Signal } from "duroxide-prisma"
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

const Orders = Mailbox.make("Orders", {
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
  const [answer] = yield* Effect.all([Answer.wait, Ask.execute("Shall we?")], { concurrency: "unbounded" })
  return answer
})

const account = Effect.gen(function*() {
  let cents = 0
  const seen = new Set<string>() // a deposit that was sent twice counts once
  while (true) {
    const order = yield* Orders.take
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

const twoSignals = Effect.all([Answer.wait, Effect.timeoutOption(Answer.wait, "1 hour")])

const twoOrders = Effect.all([Orders.take, Effect.timeoutOption(Orders.take, "1 hour")])

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

const raise = (answer: string) => Effect.flatMap(Client.Client, (client) => client.raise(Answer, "account-1", answer))

const send = (id: string, cents: number) =>
  Effect.flatMap(Client.Client, (client) => client.send(Orders, "account-1", { _tag: "Deposit", id, cents }))

/** Both arrive before the next turn of the instance. */
const atOnce = (send: (client: Client.Sender) => ReadonlyArray<Effect.Effect<void, unknown>>) =>
  Effect.flatMap(
    Provider.Provider,
    (provider) => Effect.all(send(Client.within(provider)), { concurrency: "unbounded", discard: true })
  )

const deposit = (id: string, cents: number) => ({ _tag: "Deposit" as const, id, cents })
const some = (value: unknown) => ({ _id: "Option", _tag: "Some", value })
const none = { _id: "Option", _tag: "None" }

describe("docs/signals.md, Signals and mailboxes", () => {
  it("its examples are those tested here", () => {
    const files = ["test/docs/messages.test.ts", "examples/approval/approval.ts"]
    const here = Docs.withoutIndentation(files.map(Docs.read).join("\n"))
    const examples = Docs.blocks(Docs.section("docs/signals.md", "Signals and mailboxes"), "ts")
    assert.lengthOf(examples, 7)
    for (const { code } of examples) assert.include(here, Docs.withoutIndentation(code))
  })

  it.effect("a wait that begins together with the question misses no answer", () => {
    const asked: Array<string> = []
    return Effect.gen(function*() {
      yield* start()
      assert.deepStrictEqual(asked, ["Shall we?"])
      yield* raise("yes")
      assert.strictEqual(yield* wait, "yes")
    }).pipe(Effect.provide(TestRuntime.layer(runtimeOf(question, asked))))
  })

  it.effect("a mailbox keeps messages in order while no take is open", () =>
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

  it.effect("a signal without an open wait is lost; a message is not", () =>
    Effect.gen(function*() {
      yield* start()
      yield* raise("too early")
      yield* send("early", 1)
      yield* TestRuntime.advance("1 hour")
      yield* raise("in time")
      assert.deepStrictEqual(yield* wait, ["in time", deposit("early", 1)])
    }).pipe(on(Effect.andThen(Effect.sleep("1 hour"), Effect.all([Answer.wait, Orders.take])))))

  it.effect("of two signals at once, the second is lost if one wait follows the other; messages are not lost", () =>
    Effect.gen(function*() {
      yield* start()
      yield* atOnce((client) => [client.raise(Answer, "account-1", "a"), client.raise(Answer, "account-1", "b")])
      assert.deepStrictEqual(yield* wait, ["a", none])
    }).pipe(
      on(twoSignals),
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
      yield* raise("a")
      yield* raise("b")
      assert.deepStrictEqual(yield* wait, ["a", "b"])
    }).pipe(on(Effect.all([Answer.wait, Answer.wait], { concurrency: "unbounded" }))))

  it.effect("after a start and before the first turn: a signal is lost, a message is kept", () =>
    Effect.gen(function*() {
      yield* start()
      yield* raise("too early")
      yield* send("early", 1)
      yield* TestRuntime.deploy(runtimeOf(
        Effect.all([Effect.timeoutOption(Answer.wait, "1 hour"), Orders.take], { concurrency: "unbounded" })
      ))
      assert.deepStrictEqual(yield* wait, [none, deposit("early", 1)])
    }).pipe(onNothing))

  it.effect("before the start a message is kept for it", () =>
    Effect.gen(function*() {
      yield* send("early", 1)
      yield* TestRuntime.advance("6 days")
      yield* start()
      assert.deepStrictEqual(yield* wait, some(deposit("early", 1)))
    }).pipe(on(Effect.timeoutOption(Orders.take, "1 hour"))))

  it.effect("after the end messages are lost", () =>
    Effect.gen(function*() {
      yield* start()
      assert.deepStrictEqual(yield* wait, none)
      yield* send("too late", 1)
      yield* raise("too late")
      assert.deepStrictEqual(yield* wait, none)
    }).pipe(on(Effect.timeoutOption(Orders.take, "1 hour"))))

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
      yield* raise("yes")
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
      const message = Effect.timeoutOption(Orders.take, "1 hour")
      assert.deepStrictEqual(yield* answeredAfter(59, { outage: true, program: message }), some(deposit("yes", 1)))
      // Set later, due earlier.
      const timers = Effect.race(
        Effect.as(Effect.sleep("59 minutes"), "long"),
        Effect.as(Effect.sleep("30 minutes"), "short")
      )
      assert.deepStrictEqual(yield* answeredAfter(61, { outage: true, program: timers }), "short")
    }))
})
