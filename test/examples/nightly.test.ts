import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Schedules } from "duroxide-prisma/schedules"
import { TestRuntime } from "duroxide-prisma/testing"
import { TestSchedules } from "duroxide-prisma/testing/schedules"
import * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { layer, nightly, Reports } from "../../examples/nightly/nightly.ts"

/** Runs a test in virtual time with reports of the given length; provides the reports that began, and when. */
const on = <A, E, R>(
  { length = () => "1 hour", startAt }: {
    readonly startAt: string
    readonly length?: (night: string) => Duration.Input
  },
  test: (begun: ReadonlyArray<string>) => Effect.Effect<A, E, R>
) => {
  const begun: Array<string> = []
  const ReportsLive = Layer.succeed(Reports, {
    make: Effect.fnUntraced(function*(night) {
      begun.push(`${night} at ${DateTime.formatIso(yield* DateTime.now)}`)
      yield* Effect.sleep(length(night))
    })
  })
  return test(begun).pipe(
    Effect.provide(
      TestRuntime.layer(layer(nightly()).pipe(Layer.provide(TestSchedules.layer)), { startAt }).pipe(
        Layer.provide([ReportsLive, Logger.layer([])])
      )
    )
  )
}

const days = (begun: ReadonlyArray<string>) => begun.map((line) => line.slice(8, 10))

describe("nightly", () => {
  it.effect("one report in each night, even if the hour does not exist", () =>
    on({ startAt: "2030-03-29T12:00:00Z" }, (begun) =>
      Effect.gen(function*() {
        yield* TestRuntime.advance("3 days")
        assert.deepStrictEqual(begun, [
          "2030-03-30T02:30:00.000+01:00[Europe/Berlin] at 2030-03-30T01:30:00.000Z",
          "2030-03-31T03:30:00.000+02:00[Europe/Berlin] at 2030-03-31T01:30:00.000Z",
          "2030-04-01T02:30:00.000+02:00[Europe/Berlin] at 2030-04-01T00:30:00.000Z"
        ])
      })))

  it.effect("one report in each night, even if the hour occurs twice", () =>
    on({ startAt: "2030-10-25T12:00:00Z" }, (begun) =>
      Effect.gen(function*() {
        yield* TestRuntime.advance("3 days")
        assert.deepStrictEqual(begun, [
          "2030-10-26T02:30:00.000+02:00[Europe/Berlin] at 2030-10-26T00:30:00.000Z",
          "2030-10-27T02:30:00.000+02:00[Europe/Berlin] at 2030-10-27T00:30:00.000Z",
          "2030-10-28T02:30:00.000+01:00[Europe/Berlin] at 2030-10-28T01:30:00.000Z"
        ])
      })))

  it.effect("skips nights while a report still runs", () =>
    on(
      { startAt: "2030-06-01T12:00:00Z", length: (night) => night.startsWith("2030-06-03") ? "50 hours" : "1 hour" },
      Effect.fnUntraced(function*(begun) {
        const schedules = yield* Schedules.Schedules
        yield* TestRuntime.advance("6 days")
        assert.deepStrictEqual(days(begun), ["02", "03", "06", "07"])
        const outcomes = (yield* schedules.runs("nightly")).map(({ outcome }) => outcome)
        assert.deepStrictEqual(outcomes, ["Started", "Started", "Skipped", "Skipped", "Started", "Started"])
      })
    ))

  it.effect("a crash in the night costs no night and repeats none", () =>
    on({ startAt: "2030-06-01T12:00:00Z" }, (begun) =>
      Effect.gen(function*() {
        for (let crash = 0; crash < 8; crash++) {
          yield* TestRuntime.advance("6 hours")
          yield* TestRuntime.crash
        }
        yield* TestRuntime.advance("6 hours")
        assert.deepStrictEqual(days(begun), ["02", "03"])
      })))

  it.effect("reports continue when the schedule is deleted", () =>
    on({ startAt: "2030-06-01T12:00:00Z" }, (begun) =>
      Effect.gen(function*() {
        const schedules = yield* Schedules.Schedules
        yield* TestRuntime.advance("13 hours")
        const [run] = yield* schedules.runs("nightly")
        yield* schedules.delete("nightly")
        const report = yield* TestRuntime.runToEnd(run!.instanceId!)
        assert.strictEqual(report._tag, "Completed")
        yield* TestRuntime.advance("3 days")
        assert.deepStrictEqual(days(begun), ["02"])
        const client = yield* Client.Client
        assert.strictEqual((yield* client.status("schedule/nightly/2030-06-02T00:30:00.000Z"))._tag, "Completed")
      })))
})
