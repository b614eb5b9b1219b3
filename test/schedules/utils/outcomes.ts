/**
 * The cases of docs/outcomes.md about schedules, on any store.
 */
import { assert, describe } from "@effect/vitest"
import { ProviderError } from "duroxide-prisma/provider"
import { Schedules } from "duroxide-prisma/schedules"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import type { OpenStore } from "./stores.ts"
import { at, day, hourly, Report, Resize, testOn } from "./suite.ts"
import type { Open } from "./suite.ts"

const make = (rules: Partial<Schedules.Rules> = {}, name = "hourly") =>
  Schedules.make(name, { timing: hourly, start: Report, payload: day, ...rules })

const tagOf = (call: Effect.Effect<unknown, { readonly _tag: string }>) =>
  Effect.map(
    Effect.flip(call),
    (error) => error instanceof ProviderError.ProviderError ? error.reason._tag : error._tag
  )

type Case = (open: Open) => Effect.Effect<void, unknown>

const cases: Readonly<Record<string, Case>> = {
  "define a schedule whose name, timing or rule cannot work": () =>
    Effect.sync(() => {
      for (
        const define of [
          () => make({}, ""),
          () => make({}, "a\0b"),
          () => make({}, "n".repeat(201)),
          () => make({ timing: Schedules.cron("every day") }),
          () => make({ jitter: "2 days" }),
          () => make({ catchUp: { within: "-1 hour" as never } }),
          () => Schedules.make("task", { timing: hourly, start: Resize, payload: { size: 1 }, attributes: { a: "b" } })
        ]
      ) {
        assert.throws(define, RangeError, "is refused")
      }
    }),

  "create a schedule with the name of another one": Effect.fnUntraced(function*({ service }) {
    yield* service.create(make())
    assert.strictEqual(yield* service.create(make()), "Unchanged")
    assert.strictEqual(yield* tagOf(service.create(make({ overlap: "allow" }))), "ScheduleExists")
  }),

  "create a schedule with a payload that its Schema refuses": Effect.fnUntraced(function*({ service }) {
    const unfit = Schedules.make("hourly", { timing: hourly, start: Report, payload: { day: 5 as never } })
    assert.strictEqual(yield* tagOf(service.create(unfit)), "PayloadMismatch")
    assert.deepStrictEqual((yield* service.list()).schedules, [])
  }),

  "give `Schedules.layer` two definitions of one name": Effect.fnUntraced(function*({ run, service }) {
    const outcome = yield* Effect.result(run([make(), make({ overlap: "allow" })]))
    assert.isTrue(Result.isFailure(outcome))
    assert.deepStrictEqual((yield* service.list()).schedules, [])
  }),

  "name a schedule that does not exist": Effect.fnUntraced(function*({ service }) {
    for (const call of [service.pause("no"), service.runNow("no"), service.runs("no"), service.delete("no")]) {
      assert.strictEqual(
        yield* tagOf(Effect.asVoid<unknown, { readonly _tag: string }, never>(call)),
        "ScheduleNotFound"
      )
    }
  }),

  "name a schedule with a text that no store can hold": Effect.fnUntraced(function*({ service }) {
    const range = { from: new Date(at("08:00:00")), to: new Date(at("09:00:00")) }
    for (const name of ["a\0", "a\ud800"]) {
      const calls = [
        service.get(name),
        service.runs(name),
        service.list({ after: name }),
        service.occurrences(name, range),
        service.backfill(name, range),
        service.pause(name),
        service.resume(name),
        service.runNow(name),
        service.delete(name)
      ]
      for (const call of calls) {
        assert.strictEqual(
          yield* tagOf(Effect.asVoid<unknown, { readonly _tag: string }, never>(call)),
          "InvalidInput"
        )
      }
    }
  }),

  "pause a schedule that is paused, or resume one that is not": Effect.fnUntraced(function*({ service }) {
    yield* service.create(make())
    assert.isFalse(yield* service.resume("hourly"))
    assert.isTrue(yield* service.pause("hourly"))
    assert.isFalse(yield* service.pause("hourly"))
  }),

  "ask for a run while 100 requests wait for a scheduler": Effect.fnUntraced(function*({ service }) {
    yield* service.create(make())
    yield* Effect.forEach(Array.from({ length: 100 }), () => service.runNow("hourly"), { discard: true })
    assert.strictEqual(yield* tagOf(service.runNow("hourly")), "InvalidInput")
  }),

  "backfill more than 10,000 occurrences, or from a later time to an earlier one": Effect.fnUntraced(
    function*({ service }) {
      yield* service.create(make({ timing: Schedules.every("1 second") }))
      const now = at("08:30:00")
      const ranges = [{ from: new Date(now - 10_000_000), to: new Date(now) }, {
        from: new Date(now),
        to: new Date(now - 1)
      }]
      for (const range of ranges) assert.strictEqual(yield* tagOf(service.backfill("hourly", range)), "InvalidInput")
    }
  ),

  "start a schedule in a process whose code makes another payload": Effect.fnUntraced(
    function*({ moveTo, outcomes, run }) {
      const old = Schedules.make("hourly", { timing: hourly, start: Report, payload: () => ({ day: "old" }) })
      const renewed = Schedules.make("hourly", {
        timing: hourly,
        start: Report,
        payload: () => ({ day: "new" }),
        overlap: "allow"
      })
      yield* run([old])
      yield* run([renewed])
      yield* moveTo("09:00:00")
      assert.strictEqual(yield* run(), 0)
      assert.strictEqual(yield* run([renewed]), 1)
      assert.deepStrictEqual(yield* outcomes(), ["Started 09:00"])
    }
  ),

  "make a payload that fails or does not fit": Effect.fnUntraced(function*({ moveTo, outcomes, run }) {
    const failing = Schedules.make("hourly", {
      timing: hourly,
      start: Report,
      payload: ({ at }) => {
        if (at.getUTCHours() === 9) throw new Error("no")
        return day
      }
    })
    yield* run([failing])
    yield* moveTo("09:00:00")
    yield* run([failing])
    yield* moveTo("10:00:00")
    yield* run([failing])
    assert.deepStrictEqual(yield* outcomes(), ["Refused 09:00", "Started 10:00"])
  })
}

export const sections = { Schedules: cases }

export const outcomes = (name: string, store: OpenStore): void => {
  describe(`what happens with schedules (${name}): when you`, () => {
    for (const [title, body] of Object.entries(cases)) testOn(store)(title, body)
  })
}
