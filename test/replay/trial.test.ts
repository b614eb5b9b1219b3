/**
 * Whether code can continue an execution, by its history alone.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Event from "../../src/model/Event.ts"
import * as retrySignal from "../../src/model/shared/retrySignal.ts"
import * as historyDiff from "../../src/replay/historyDiff.ts"
import { programOf } from "../../src/replay/programs.ts"
import { refusalOf } from "../../src/replay/trial.ts"
import { all, Approved, Charge, Fulfil, recorded, Reserve, Ship } from "../testing/replaying.ts"
import type { Drive, Program } from "../testing/replaying.ts"

type Events = Parameters<typeof refusalOf>[1]

/** The events of an instance that ran `program`, and has not ended. */
const historyOf = (program: Program, drive: Drive = TestRuntime.settle) =>
  Effect.map(
    recorded(program, drive),
    (text) =>
      (JSON.parse(text) as ReadonlyArray<object>).map((event) =>
        Result.getOrThrow(Event.decode(JSON.stringify(event)))
      ) as unknown as Events
  )

const tried = (program: Program, events: Events) =>
  refusalOf(programOf(Fulfil.toLayer(program))!.code, events, new Map())

/** Waits for an approval once it has reserved. */
const reserved: Program = ({ sku }) => Effect.andThen(Reserve.execute(sku), Approved.wait)

const dying: Program = ({ sku }) => Effect.andThen(Reserve.execute(sku), Effect.die(new Error("secret")))

describe("refusalOf", () => {
  it.effect("the same code fits wherever it waits", () =>
    Effect.gen(function*() {
      const approved = Effect.flatMap(Client.Client, (client) => client.send(Approved, "order-1"))
      const shipped: Program = (order) => Effect.andThen(reserved(order), Ship.execute(order.sku))
      for (const drive of [TestRuntime.settle, approved]) {
        assert.isUndefined(tried(shipped, yield* historyOf(shipped, drive)))
      }
    }))

  it.effect("a request beside those that are open is new, and fits", () =>
    Effect.gen(function*() {
      const events = yield* historyOf(() => Effect.all([Ship.execute(1), Approved.wait], all))
      assert.isUndefined(tried(() => Effect.all([Ship.execute(1), Approved.wait, Ship.execute(2)], all), events))
    }))

  it.effect("a timeout that a call had not, or has no longer, blocks once the call has ended; another length fits", () =>
    Effect.gen(function*() {
      const within = (timeout: Duration.Input): Program => ({ sku }) =>
        Effect.andThen(Effect.orDie(Reserve.with({ timeout }).execute(sku)), Approved.wait)
      const limited = yield* historyOf(within("1 minute"))
      assert.isUndefined(tried(within("1 hour"), limited))
      assert.deepInclude(tried(reserved, limited), { outcome: "block", reason: "HistoryDiffers" })
      assert.deepInclude(tried(within("1 minute"), yield* historyOf(reserved)), {
        outcome: "block",
        reason: "HistoryDiffers"
      })
    }))

  it.effect("another request blocks; the difference shows both sides", () =>
    Effect.gen(function*() {
      const events = yield* historyOf(reserved)
      const refusal = tried(({ sku }) => Effect.andThen(Reserve.execute(sku), Charge.execute(1)), events)
      assert.deepInclude(refusal, {
        outcome: "block",
        reason: "HistoryDiffers",
        problem: "event 4: history has wait for signal \"Approved\", the code asks for activity \"Charge\"",
        eventId: 4
      })
      assert.deepStrictEqual(historyDiff.lines(refusal!.difference, { payloads: false }), [
        "  1  start of \"Fulfil\" 1.0.0",
        "  2  activity \"Reserve\"",
        "  3  answer to 2",
        "- 4  wait for signal \"Approved\"",
        "+    activity \"Charge\""
      ])
    }))

  it.effect("code that ends where the history waits blocks", () =>
    Effect.gen(function*() {
      const refusal = tried(({ sku }) => Reserve.execute(sku), yield* historyOf(reserved))
      assert.deepInclude(refusal, { reason: "HistoryDiffers", eventId: 4 })
      assert.include(refusal!.problem, "the code has already ended")
      assert.include(historyDiff.lines(refusal!.difference, { payloads: false }), "+    the end: completed")
    }))

  it.effect("code that dies where the history continues blocks, and says of what apart from the problem", () =>
    Effect.gen(function*() {
      const refusal = tried(dying, yield* historyOf(reserved))
      assert.deepInclude(refusal, {
        outcome: "block",
        reason: "HistoryDiffers",
        problem: "event 4: history has wait for signal \"Approved\", the code has died",
        eventId: 4
      })
      assert.include(refusal!.defect, "secret")
    }))

  it.effect("code that dies where the history continues blocks a retried or forked execution, too", () =>
    Effect.gen(function*() {
      const events = yield* historyOf(reserved)
      const retried = {
        ...events.at(-1)!,
        _tag: "ExternalEventPersistent",
        eventId: 5,
        name: retrySignal.name,
        data: retrySignal.encodeFork([])
      }
      const refusal = tried(dying, [...events, retried] as unknown as Events)
      assert.deepInclude(refusal, {
        outcome: "block",
        problem: "event 4: history has wait for signal \"Approved\", the code has died"
      })
      const shown = historyDiff.lines(refusal!.difference, { payloads: true }).join("\n")
      assert.include(shown, "fork")
      assert.notInclude(shown, retrySignal.name)
    }))

  it.effect("code that dies would fail an execution that Duroxide began: the event that it dies of, and of what", () =>
    Effect.gen(function*() {
      const events = (yield* historyOf(reserved)).map((event) => ({ ...event, duroxideVersion: "0.1.29" }))
      const refusal = tried(dying, events as unknown as Events)
      assert.deepInclude(refusal, { outcome: "fail", reason: "Dies", eventId: 3 })
      assert.notInclude(refusal!.problem, "secret")
      assert.include(refusal!.defect, "secret")
      const lines = historyDiff.lines(refusal!.difference, { payloads: false })
      assert.deepStrictEqual(lines.slice(0, 3).at(-1), "  3  answer to 2")
    }))

  it.effect("an execution that Duroxide began would fail, not block", () =>
    Effect.gen(function*() {
      const events = (yield* historyOf(reserved)).map((event) => ({ ...event, duroxideVersion: "0.1.29" }))
      const refusal = tried(({ sku }) => Charge.execute(sku), events as unknown as Events)
      assert.deepInclude(refusal, { outcome: "fail", reason: "HistoryDiffers", eventId: 2 })
    }))
})
