import { assert, describe, it } from "@effect/vitest"
import { Orchestration } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import type { History } from "duroxide-prisma/testing"
import * as Effect from "effect/Effect"

import { all, Approved, Charge, Fulfil, order, paid, recorded, replay, Reserve, Ship, Total } from "./replaying.ts"
import type { Drive, Program } from "./replaying.ts"

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

const fits = (program: Program, history: History) =>
  Effect.map(Effect.result(replay(program, history)), (result) => result._tag === "Success")

const cutLines = (mark: "-" | "+", letter: string) =>
  Array.from({ length: 6 }, (_, i) => {
    const place = mark === "+" ? "  " : String(i + 2).padStart(2)
    return `          ${mark} ${place}  activity "Charge" with "${letter.repeat(99)}…`
  }).join("\n")

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
          +     custom status "reserved"
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
          +     the end: failed with not yet written
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
          +    the end: failed with payload of activity "Charge" does not match its schema: Expected JSON value
            3  answer to 2: {"receipt":7}
            4  the end: completed with {"receipt":7}`
  })
})

describe("replayHistory: a change that the program asks for", () => {
  const insured: Program = (order) =>
    Effect.gen(function*() {
      yield* Reserve.execute(order.sku)
      yield* Charge.execute({ lines: [order] })
      yield* Effect.sleep("1 day")
      if (yield* Orchestration.changed("insure")) yield* Reserve.execute("insurance")
      const parcel = yield* Ship.execute(order.sku)
      if (yield* Orchestration.changed("notify")) yield* Reserve.execute("notice")
      return parcel
    })

  it.effect("histories of the code before fit, at any point", () =>
    Effect.gen(function*() {
      const lines = JSON.parse(yield* recorded(paid)) as ReadonlyArray<object>
      for (let count = 1; count <= lines.length; count++) {
        if (yield* fits(paid, lines.slice(0, count))) {
          assert.isTrue(yield* fits(insured, lines.slice(0, count)), `${count} events`)
        }
      }
    }))

  it.effect("histories of the code after fit, also when it is asked no longer", () =>
    Effect.gen(function*() {
      const always: Program = (order) =>
        Effect.gen(function*() {
          yield* Reserve.execute(order.sku)
          yield* Charge.execute({ lines: [order] })
          yield* Effect.sleep("1 day")
          yield* Reserve.execute("insurance")
          const parcel = yield* Ship.execute(order.sku)
          yield* Reserve.execute("notice")
          return parcel
        })
      const history = yield* recorded(insured)
      for (const program of [insured, always]) {
        assert.isTrue(yield* fits(program, history))
        for (const count of [2, 4, 6, 10, 12, 16]) {
          assert.isTrue(yield* fits(program, (JSON.parse(history) as ReadonlyArray<object>).slice(0, count)))
        }
      }
      assert.isFalse(yield* fits(paid, history))
    }))

  differs("the report names it", {
    before: insured,
    after: paid,
    says: `
        at 10
             7  timer 6 fires
             8  change "insure"
             9  answer to 8: true
          - 10  activity "Reserve" with "insurance"
          +     activity "Ship" with "book"
            11  answer to 10: true
            12  activity "Ship" with "book"`
  })
})
