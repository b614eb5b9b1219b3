import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, KeyValue, Mailbox, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Event } from "duroxide-prisma/provider"
import type { Admin, ProviderError } from "duroxide-prisma/provider"
import { recordHistory, replayHistory, TestRuntime } from "duroxide-prisma/testing"
import type { History } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { read } from "../recordings/programs/recording.ts"
import { scenarios } from "../recordings/programs/scenarios.ts"

const Order = Schema.Struct({ sku: Schema.String, cents: Schema.Int })
const activity = (name: string) =>
  Activity.make(name, { payload: Schema.Unknown, success: Schema.Unknown, error: Schema.String })
const Reserve = activity("Reserve")
const Charge = activity("Charge")
const Ship = activity("Ship")
const Approved = Signal.make("Approved")
const Orders = Mailbox.make("Orders", { payload: Schema.Int })
const Total = KeyValue.make("total", Schema.Int)

const Fulfil = Orchestration.make("Fulfil", { payload: Order, success: Schema.Unknown, error: Schema.Unknown })

type Program = (order: typeof Order.Type) => Effect.Effect<unknown, unknown, Orchestration.Instance>

/** What happens after the start. */
type Drive = Effect.Effect<unknown, unknown, Client.Client | TestRuntime.TestRuntime | Admin.Admin>

const order = { sku: "book", cents: 100 }

/** The history of an instance that ran the program, up to where `drive` brings it. */
const recorded = (program: Program, drive: Drive = TestRuntime.runToEnd("order-1")) =>
  Effect.gen(function*() {
    const client = yield* Client.Client
    yield* client.start(Fulfil, { instanceId: "order-1", payload: order })
    yield* drive
    return yield* recordHistory("order-1")
  }).pipe(
    Effect.provide(
      TestRuntime.layer(
        Runtime.layer({ orchestrations: [Fulfil], activities: [Reserve, Charge, Ship] }).pipe(Layer.provide([
          Fulfil.toLayer(program),
          Reserve.toLayer(() => Effect.succeed(true)),
          Charge.toLayer(() => Effect.succeed({ receipt: 7 })),
          Ship.toLayer(() => Effect.as(Effect.sleep("1 hour"), "shipped"))
        ]))
      ).pipe(Layer.provideMerge(Logger.layer([])))
    )
  )

const replay = (program: Program, history: History) =>
  Effect.provide(replayHistory(Fulfil, history), Fulfil.toLayer(program))

/** What `before` recorded does not fit `after`; the report without its first line. */
const report = (before: Program, after: Program, drive?: Drive) =>
  Effect.gen(function*() {
    const history = yield* recorded(before, drive)
    yield* replay(before, history)
    const error = yield* Effect.flip(replay(after, history))
    if (error._tag !== "HistoryMismatch") return assert.fail(error.message)
    const [first, , ...lines] = error.message.split("\n")
    assert.match(
      first!,
      /^"Fulfil" does not fit the history of instance order-1, execution \d, at (event \d+|its end):$/
    )
    return [`at ${error.eventId}`, ...lines.filter((line) => line !== "- is the history, + is the code.")].join("\n")
      .trim()
  })

const paid: Program = (order) =>
  Effect.gen(function*() {
    yield* Reserve.execute(order.sku)
    yield* Charge.execute({ lines: [order] })
    yield* Effect.sleep("1 day")
    return yield* Ship.execute(order.sku)
  })

const differs = (name: string, options: {
  readonly before?: Program
  readonly drive?: Drive
  readonly after: Program
  readonly says: string
}) =>
  it.effect(name, () =>
    Effect.map(
      report(options.before ?? paid, options.after, options.drive),
      (found) => assert.strictEqual(found, options.says.replace(/^ {8}/gm, "").trim())
    ))

const all = { concurrency: "unbounded" } as const

const cutLines = (mark: "-" | "+", letter: string) =>
  Array.from({ length: 6 }, (_, i) => {
    const place = mark === "+" ? "  " : String(i + 2).padStart(2)
    return `          ${mark} ${place}  activity "Charge" with "${letter.repeat(99)}…`
  }).join("\n")

describe("replayHistory: matching histories", () => {
  it.effect("an instance that has ended, in every form its history may have", () =>
    Effect.gen(function*() {
      const text = yield* recorded(paid)
      const objects = JSON.parse(text) as ReadonlyArray<object>
      const rows = objects.map((object) => JSON.stringify(object))
      const events = rows.map((row) => Event.decode(row)).flatMap((event) => "success" in event ? event.success : [])
      assert.lengthOf(events, objects.length)
      for (
        const history of [text, objects, rows, events, rows.map((event_data) => ({ event_data })), rows.toReversed()]
      ) {
        assert.deepStrictEqual(yield* replay(paid, history), {
          instanceId: "order-1",
          executions: [{ executionId: 1, version: "1.0.0", events: 10, status: "Completed" }]
        })
      }
    }))

  it.effect("one that is still waiting, at any point", () =>
    Effect.gen(function*() {
      const until = yield* Effect.forEach(
        ["0 millis", "1 hour", "24 hours", "24.5 hours", "25 hours"] as const,
        (duration) => Effect.flatMap(recorded(paid, TestRuntime.advance(duration)), (history) => replay(paid, history))
      )
      assert.deepStrictEqual(
        until.map(({ executions: [one] }) => `${one!.events} ${one!.status}`),
        ["6 Running", "6 Running", "8 Running", "8 Running", "10 Completed"]
      )
    }))

  it.effect("a program written differently that makes the same requests", () =>
    Effect.gen(function*() {
      const history = yield* recorded(paid)
      const { executions } = yield* replay(
        (order) =>
          Reserve.execute(order.sku).pipe(
            Effect.andThen(Charge.execute({ lines: [order] })),
            // The timer that is running keeps its time.
            Effect.andThen(Effect.sleep("2 days")),
            Effect.andThen(Ship.execute(order.sku))
          ),
        history
      )
      assert.deepStrictEqual(executions.map(({ status }) => status), ["Completed"])
    }))

  it.effect("several executions, with the state each passes to the next", () =>
    Effect.gen(function*() {
      const program: Program = (order) =>
        Effect.gen(function*() {
          const total = Option.getOrElse(yield* Total.get, () => 0) + (yield* Orders.take)
          yield* Total.set(total)
          yield* Charge.execute({ lines: [order], total })
          return total < 6 ? yield* Fulfil.continueAsNew({ ...order, cents: total }) : total
        })
      const history = yield* recorded(
        program,
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* Effect.forEach([1, 2, 3, 4], (value) => client.send(Orders, "order-1", value))
        })
      )
      const { executions } = yield* replay(program, history)
      assert.deepStrictEqual(executions.map(({ status }) => status), ["ContinuedAsNew", "ContinuedAsNew", "Completed"])
    }))

  it.effect("several messages that arrived together, of which the first ended the instance", () =>
    Effect.gen(function*() {
      const program: Program = () => Effect.as(Effect.andThen(Effect.sleep("1 second"), Orders.take), "done")
      const history = yield* recorded(
        program,
        Effect.gen(function*() {
          const client = yield* Client.Client
          yield* Effect.forEach([1, 2, 3], (value) => client.send(Orders, "order-1", value))
          yield* TestRuntime.runToEnd("order-1")
        })
      )
      const { executions } = yield* replay(program, history)
      assert.deepStrictEqual(executions.map(({ status }) => status), ["Completed"])
    }))

  it.effect("a failure that no program sees, whatever arrived with it", () =>
    Effect.gen(function*() {
      const program: Program = () =>
        Effect.all([Effect.catchDefect(Charge.execute(1), () => Effect.void), Ship.execute(2)], all)
      const objects = JSON.parse(yield* recorded(program, TestRuntime.settle)) as ReadonlyArray<Record<string, unknown>>
      const [one, two, three] = objects
      const details = { Infrastructure: { operation: "store", message: "full", retryable: false } }
      const later = (event_id: number, fields: object) => ({ ...one, event_id, source_event_id: null, ...fields })
      const { executions } = yield* replay(program, [
        one!,
        two!,
        three!,
        later(4, { type: "ActivityFailed", source_event_id: 2, details }),
        later(5, { type: "ActivityCompleted", source_event_id: 3, result: "2" }),
        later(6, { type: "OrchestrationFailed", details })
      ])
      assert.deepStrictEqual(executions.map(({ status }) => status), ["Failed"])
    }))

  it.effect("an end that the program did not cause, up to that point", () =>
    Effect.gen(function*() {
      const waits: Program = (order) => Effect.all([Approved.wait, paid(order)], all)
      const history = yield* recorded(
        waits,
        Effect.andThen(
          TestRuntime.advance("1 hour"),
          Effect.andThen(
            TestRuntime.deploy(
              Runtime.layer({ orchestrations: [Fulfil] }).pipe(
                Layer.provide(Fulfil.toLayer(() => Approved.wait))
              )
            ),
            TestRuntime.runToEnd("order-1")
          )
        )
      )
      assert.include(history, "Nondeterminism")
      const { executions } = yield* replay(waits, history)
      assert.strictEqual(executions[0]!.status, "Failed")
      assert.strictEqual((yield* Effect.flip(replay(() => Approved.wait, history)))._tag, "HistoryMismatch")
    }))

  it.effect("each execution with its own version", () =>
    Effect.gen(function*() {
      const Newer = Orchestration.make("Fulfil", {
        version: "2.0.0",
        payload: Order,
        success: Schema.Unknown,
        error: Schema.Unknown
      })
      const older: Program = (order) => Effect.andThen(Reserve.execute(1), Fulfil.continueAsNew(order))
      const newer: Program = () => Charge.execute(2)
      const history = yield* Effect.gen(function*() {
        const client = yield* Client.Client
        yield* client.start(Fulfil, { instanceId: "order-1", payload: order })
        return yield* recordHistory("order-1")
      }).pipe(Effect.provide(TestRuntime.layer(
        Runtime.layer({ orchestrations: [Fulfil, Newer], activities: [Reserve, Charge] }).pipe(Layer.provide([
          Fulfil.toLayer(older),
          Newer.toLayer(newer),
          Reserve.toLayer(Effect.succeed),
          Charge.toLayer(Effect.succeed)
        ]))
      )))
      const live = Layer.mergeAll(Fulfil.toLayer(older), Newer.toLayer(newer))
      const { executions } = yield* Effect.provide(replayHistory([Fulfil, Newer], history), live)
      assert.deepStrictEqual(executions.map(({ version }) => version), ["1.0.0", "2.0.0"])
      assert.strictEqual((yield* Effect.flip(replay(older, history)))._tag, "HistoryMismatch")
    }))
})

describe("replayHistory: mismatches", () => {
  differs("another payload, and where", {
    after: (order) =>
      Effect.gen(function*() {
        yield* Reserve.execute(order.sku)
        yield* Charge.execute({ lines: [{ ...order, cents: 200 }] })
        yield* Effect.sleep("1 day")
        return yield* Ship.execute(order.sku)
      }),
    says: `
        at 4
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
             2  activity "Reserve" with "book"
             3  answer to 2: true
          -  4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
          +     activity "Charge" with {"lines":[{"sku":"book","cents":200}]}
             5  answer to 4: {"receipt":7}
             6  timer of 2030-01-02T00:00:00.000Z

        They differ in input.lines[0].cents: 100 in the history, 200 in the code.`
  })

  differs("calls that changed places", {
    before: () => Effect.all([Reserve.execute(1), Charge.execute(2), Ship.execute(3)], { concurrency: "unbounded" }),
    after: () => Effect.all([Charge.execute(2), Reserve.execute(1), Ship.execute(3)], { concurrency: "unbounded" }),
    says: `
        at 2
            1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
          - 2  activity "Reserve" with 1
            3  activity "Charge" with 2
          +    activity "Reserve" with 1
            4  activity "Ship" with 3
            5  answer to 2: true
            6  answer to 3: {"receipt":7}`
  })

  differs("a call that was renamed", {
    after: (order) => Effect.andThen(Reserve.execute(order.sku), Ship.execute({ lines: [order] })),
    says: `
        at 4
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
             2  activity "Reserve" with "book"
             3  answer to 2: true
          -  4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
          +     activity "Ship" with {"lines":[{"sku":"book","cents":100}]}
             5  answer to 4: {"receipt":7}
             6  timer of 2030-01-02T00:00:00.000Z`
  })

  differs("a call that was taken out", {
    after: (order) =>
      Reserve.execute(order.sku).pipe(Effect.andThen(Effect.sleep("1 day")), Effect.andThen(Ship.execute(order.sku))),
    says: `
        at 4
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
             2  activity "Reserve" with "book"
             3  answer to 2: true
          -  4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
          +     timer of 2030-01-02T00:00:00.000Z
             5  answer to 4: {"receipt":7}
             6  timer of 2030-01-02T00:00:00.000Z`
  })

  differs("a call that was taken out of several", {
    before: () => Effect.all([Reserve.execute(1), Charge.execute(2), Ship.execute(3)], { concurrency: "unbounded" }),
    after: () => Effect.all([Reserve.execute(1), Ship.execute(3)], { concurrency: "unbounded" }),
    says: `
        at 3
            1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
            2  activity "Reserve" with 1
          - 3  activity "Charge" with 2
            4  activity "Ship" with 3
            5  answer to 2: true
            6  answer to 3: {"receipt":7}

        The code does not do what history has there.`
  })

  differs("a call that was added", {
    after: (order) =>
      Effect.gen(function*() {
        yield* Reserve.execute(order.sku)
        yield* Orchestration.setCustomStatus("reserved")
        yield* Charge.execute({ lines: [order] })
        yield* Effect.sleep("1 day")
        return yield* Ship.execute(order.sku)
      }),
    says: `
        at 4
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
             2  activity "Reserve" with "book"
             3  answer to 2: true
          +     status text "reserved"
             4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
             5  answer to 4: {"receipt":7}
             6  timer of 2030-01-02T00:00:00.000Z

        The code does something that history does not have.`
  })

  differs("a timer that became an activity", {
    after: (order) =>
      Effect.gen(function*() {
        yield* Reserve.execute(order.sku)
        yield* Charge.execute({ lines: [order] })
        yield* Reserve.execute("a day")
        return yield* Ship.execute(order.sku)
      }),
    says: `
        at 6
             3  answer to 2: true
             4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
             5  answer to 4: {"receipt":7}
          -  6  timer of 2030-01-02T00:00:00.000Z
          +     activity "Reserve" with "a day"
             7  timer 6 fires
             8  activity "Ship" with "book"`
  })

  differs("an end that comes too early", {
    after: (order) => Reserve.execute(order.sku),
    says: `
        at 4
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
             2  activity "Reserve" with "book"
             3  answer to 2: true
          -  4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
          +     the end: completed with true
             5  answer to 4: {"receipt":7}
             6  timer of 2030-01-02T00:00:00.000Z`
  })

  differs("an end that comes too late", {
    after: (order) => Effect.andThen(paid(order), Charge.execute("a tip")),
    says: `
        at 10
             7  timer 6 fires
             8  activity "Ship" with "book"
             9  answer to 8: "shipped"
          - 10  the end: completed with "shipped"
          +     activity "Charge" with "a tip"`
  })

  differs("another output", {
    after: (order) => Effect.map(paid(order), (parcel) => [parcel]),
    says: `
        at 10
             7  timer 6 fires
             8  activity "Ship" with "book"
             9  answer to 8: "shipped"
          - 10  the end: completed with "shipped"
          +     the end: completed with ["shipped"]

        They differ in output: "shipped" in the history, ["shipped"] in the code.`
  })

  differs("a failure instead of a result", {
    after: (order) => Effect.flatMap(paid(order), () => Effect.fail({ lost: true })),
    says: `
        at 10
             7  timer 6 fires
             8  activity "Ship" with "book"
             9  answer to 8: "shipped"
          - 10  the end: completed with "shipped"
          +     the end: failed with {"lost":true}`
  })

  differs("a program that dies", {
    after: (order) => Effect.andThen(Reserve.execute(order.sku), Effect.die(new Error("not yet written"))),
    says: `
        at 4
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
             2  activity "Reserve" with "book"
             3  answer to 2: true
          -  4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
          +     the end: failed with orchestration panicked: not yet written
             5  answer to 4: {"receipt":7}
             6  timer of 2030-01-02T00:00:00.000Z`
  })

  differs("while it waits: a call that was added at the end of the history", {
    drive: TestRuntime.advance("1 hour"),
    after: (order) =>
      Effect.gen(function*() {
        yield* Reserve.execute(order.sku)
        yield* Charge.execute({ lines: [order] })
        yield* Effect.raceFirst(Effect.sleep("1 day"), Approved.wait)
        return yield* Ship.execute(order.sku)
      }),
    says: `
        at 7
            4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
            5  answer to 4: {"receipt":7}
            6  timer of 2030-01-02T00:00:00.000Z
          +    wait for signal "Approved"

        The code does something that history does not have.`
  })

  differs("while it waits: a program that has ended by then", {
    drive: TestRuntime.advance("1 hour"),
    after: (order) => Effect.andThen(Reserve.execute(order.sku), Effect.as(Charge.execute({ lines: [order] }), "paid")),
    says: `
        at 6
            3  answer to 2: true
            4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
            5  answer to 4: {"receipt":7}
          - 6  timer of 2030-01-02T00:00:00.000Z
          +    the end: completed with "paid"`
  })

  differs("while it waits: a call that vanished", {
    drive: TestRuntime.advance("1 hour"),
    before: () => Effect.all([Approved.wait, Effect.sleep("1 day")], { concurrency: "unbounded" }),
    after: () => Approved.wait,
    says: `
        at 3
            1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
            2  wait for signal "Approved"
          - 3  timer of 2030-01-02T00:00:00.000Z

        The code does not do what history has there.`
  })

  differs("a loser of a race that is kept", {
    before: () => Effect.andThen(Effect.raceFirst(Ship.execute(1), Effect.sleep("1 minute")), Approved.wait),
    drive: TestRuntime.advance("2 minutes"),
    after: () =>
      Effect.gen(function*() {
        yield* Effect.forkChild(Ship.execute(1), { startImmediately: true })
        yield* Effect.sleep("1 minute")
        yield* Approved.wait
      }),
    says: `
        at 6
            3  timer of 2030-01-01T00:01:00.000Z
            4  timer 3 fires
            5  wait for signal "Approved"
          - 6  2 is given up: dropped_future

        event 6: history says the code gave up event 2, now it did not.`
  })

  differs("something that is not durable", {
    after: (order) => Effect.andThen(Reserve.execute(order.sku), Effect.promise(() => Promise.resolve("late"))),
    says: `
        at 4
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
             2  activity "Reserve" with "book"
             3  answer to 2: true
          -  4  activity "Charge" with {"lines":[{"sku":"book","cents":100}]}
             5  answer to 4: {"receipt":7}
             6  timer of 2030-01-02T00:00:00.000Z

        orchestration "Fulfil" awaits something that is not durable (a promise, a callback, a real timer): nothing recorded can ever wake it. Put it in an activity. Instead of an endless sleep, wait for a signal.`
  })

  differs("another value, another child, another detached start, in one turn", {
    before: () =>
      Effect.gen(function*() {
        yield* Total.set(1)
        yield* Fulfil.startDetached({ instanceId: "order-2", payload: order })
        yield* Effect.raceFirst(Fulfil.executeWithId({ instanceId: "order-3", payload: order }), Effect.void)
        return 0
      }),
    after: () =>
      Effect.gen(function*() {
        yield* Total.set(2)
        yield* Fulfil.startDetached({ instanceId: "order-4", payload: order })
        yield* Effect.raceFirst(
          Fulfil.executeWithId({ instanceId: "order-3", payload: { ...order, cents: 5 } }),
          Effect.void
        )
        return 0
      }),
    drive: Effect.void,
    says: `
        at 2
            1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
          - 2  value of "total": 1
          - 3  detached start of "Fulfil" as order-2 with {"sku":"book","cents":100}
          - 4  child orchestration "Fulfil" as order-3 with {"sku":"book","cents":100}
          +    value of "total": 2
          +    detached start of "Fulfil" as order-4 with {"sku":"book","cents":100}
          +    child orchestration "Fulfil" as order-3 with {"sku":"book","cents":5}
            5  4 is given up: dropped_future
            6  the end: completed with 0`
  })

  differs("long payloads and many calls, cut", {
    before: () => Effect.forEach(Array.from({ length: 9 }, () => "a".repeat(200)), (text) => Charge.execute(text), all),
    after: () => Effect.forEach(Array.from({ length: 9 }, () => "b".repeat(200)), (text) => Charge.execute(text), all),
    says: `
        at 2
             1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":100}
${cutLines("-", "a")}
${cutLines("+", "b")}
            …
            11  answer to 2: {"receipt":7}
            12  answer to 3: {"receipt":7}`
  })

  differs("the second execution", {
    before: (order) =>
      Effect.gen(function*() {
        if (order.cents > 100) return yield* Charge.execute(order.cents)
        yield* Total.set(order.cents)
        return yield* Fulfil.continueAsNew({ ...order, cents: 200 })
      }),
    after: (order) =>
      Effect.gen(function*() {
        if (order.cents > 100) return yield* Charge.execute(yield* Total.get)
        yield* Total.set(order.cents)
        return yield* Fulfil.continueAsNew({ ...order, cents: 200 })
      }),
    says: `
        at 2
            1  start of "Fulfil" 1.0.0 with {"sku":"book","cents":200}
          - 2  activity "Charge" with 200
          +    the end: failed with orchestration panicked: payload of activity "Charge" does not match its schema: Expected JSON value
            3  answer to 2: {"receipt":7}
            4  the end: completed with {"receipt":7}`
  })
})

describe("replayHistory: an invalid history", () => {
  const cases: ReadonlyArray<readonly [name: string, change: (objects: Array<any>) => History, problem: string]> = [
    ["no JSON", () => "[", "it is not JSON"],
    ["not an array", () => "{}", "it is not an array of events, or it is empty"],
    ["empty", () => [], "it is not an array of events, or it is empty"],
    ["an unknown event", (all) => [all[0], { ...all[1], type: "Later" }], `its item 1: unknown Event variant "Later"`],
    ["an item that is not an event", (all) => [...all, 7 as never], "its item 10: Event is not a JSON object"],
    ["a gap", (all) => all.toSpliced(3, 1), "execution 1 has no event 4, or two of them"],
    ["without its start", (all) => all.slice(1), "execution 1 does not begin with OrchestrationStarted"],
    ["of another program", (all) => all.with(0, { ...all[0], name: "Other" }), `it is of "Other", not of "Fulfil"`],
    [
      "of several instances",
      (all) => all.with(4, { ...all[4], instance_id: "order-2" }),
      "it is of several instances: order-1, order-2"
    ]
  ]
  for (const [name, change, problem] of cases) {
    it.effect(name, () =>
      Effect.gen(function*() {
        const objects = JSON.parse(yield* recorded(paid))
        const error = yield* Effect.flip(replay(paid, change(objects)))
        assert.strictEqual(error.message, `the history cannot be replayed: ${problem}`)
      }))
  }

  it.effect("an unknown instance has no history to record", () =>
    Effect.map(
      Effect.flip(recorded(paid, recordHistory("other"))),
      (error) => assert.strictEqual((error as ProviderError.ProviderError).reason._tag, "InstanceNotFound")
    ))
})

describe("replayHistory: histories of a Rust runtime", () => {
  const folder = new URL("../recordings/duroxide/", import.meta.url)

  /** Recordings whose programs differ from ours, or in which Rust did what we would not. */
  const notOurs = new Map([
    ["nondeterminism-returned-early", "the program changes with every run"],
    ["poison-bad-history", "an event was made unreadable"],
    ["unregistered-orchestration", "there is no program"],
    ["detached-start-reserved-id", "the refusal has other words"],
    ["sub-orchestration-reserved-id", "the refusal has other words"],
    ["defect-duplicate-start-hijack", "another version ran than was started"],
    ["defect-event-race-replay", "the program waits although it has its answer"],
    ["defect-continue-as-new-orphans-child", "a child is left alone"],
    ["defect-nul-in-custom-status", "nothing was stored"],
    ["message-before-start", "nothing was stored"]
  ])

  for (const [name, scenario] of Object.entries(scenarios)) {
    if (notOurs.has(name)) continue
    it.effect(name, () =>
      Effect.gen(function*() {
        const { history } = read(new URL(`${name}.json`, folder))
        const instances = new Set(history.map((row) => row.instance_id))
        assert.isAbove(instances.size, 0)
        for (const instanceId of instances) {
          const rows = history.filter((row) => row.instance_id === instanceId)
          const started = JSON.parse(rows[0]!.event_data)
          const versions = scenario.definitions().filter(({ definition }) => definition.name === started.name)
          const [first, ...others] = versions.map(({ definition }) => definition)
          if (first === undefined) return assert.fail(`there is no program ${started.name}`)
          const layers = versions.map(({ layer }) => layer)
          const { executions } = yield* replayHistory([first, ...others], rows).pipe(
            Effect.provide(Layer.mergeAll(layers[0]!, ...layers.slice(1)))
          )
          assert.strictEqual(executions.reduce((sum, { events }) => sum + events, 0), rows.length)
        }
      }))
  }

  it("the excluded ones exist, and no others", () => {
    assert.isEmpty([...notOurs.keys()].filter((name) => !(name in scenarios)))
  })
})
