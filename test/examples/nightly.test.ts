import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as DateTime from "effect/DateTime"
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import { InvalidCron, Nightly, Nights, Reports, RuntimeLive } from "../../examples/nightly/nightly.ts"

const start = (cron = "30 2 * * *", zone = "Europe/Berlin") =>
  Effect.flatMap(
    Client.Client,
    (client) => client.start(Nightly, { instanceId: "n", payload: { cron, zone: DateTime.zoneMakeNamedUnsafe(zone) } })
  )

const nights = Effect.map(
  Effect.flatMap(Client.Client, (client) => client.read(Nights, "n")),
  Option.getOrUndefined
)

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
      TestRuntime.layer(RuntimeLive, { startAt }).pipe(Layer.provide([ReportsLive, Logger.layer([])]))
    )
  )
}

describe("nightly", () => {
  it.effect("one report in each night, even if the hour does not exist", () =>
    on({ startAt: "2030-03-29T12:00:00Z" }, (begun) =>
      Effect.gen(function*() {
        yield* start()
        yield* TestRuntime.advance("3 days")
        assert.deepStrictEqual(begun, [
          "2030-03-30T02:30:00.000+01:00[Europe/Berlin] at 2030-03-30T01:30:00.000Z",
          "2030-03-31T03:30:00.000+02:00[Europe/Berlin] at 2030-03-31T01:30:00.000Z",
          "2030-04-01T02:30:00.000+02:00[Europe/Berlin] at 2030-04-01T00:30:00.000Z"
        ])
        assert.deepStrictEqual(yield* nights, { started: 3, skipped: 0 })
      })))

  it.effect("one report in each night, even if the hour occurs twice", () =>
    on({ startAt: "2030-10-25T12:00:00Z" }, (begun) =>
      Effect.gen(function*() {
        yield* start()
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
        yield* start()
        yield* TestRuntime.advance("6 days")
        assert.deepStrictEqual(begun.map((line) => line.slice(8, 10)), ["02", "03", "06", "07"])
        assert.deepStrictEqual(yield* nights, { started: 4, skipped: 2 })
      })
    ))

  it.effect("a crash in the night costs no night and repeats none; an execution is one night", () =>
    on({ startAt: "2030-06-01T12:00:00Z" }, (begun) =>
      Effect.gen(function*() {
        const admin = yield* Admin.Admin
        yield* start()
        for (let crash = 0; crash < 8; crash++) {
          yield* TestRuntime.advance("6 hours")
          yield* TestRuntime.crash
        }
        yield* TestRuntime.advance("6 hours")
        assert.deepStrictEqual(begun.map((line) => line.slice(8, 10)), ["02", "03"])
        const executions = yield* admin.listExecutions("n")
        assert.lengthOf(executions, 3)
        for (const executionId of executions) {
          assert.isAtMost((yield* admin.getExecutionInfo("n", executionId)).eventCount, 9)
        }
      })))

  it.effect("reports continue when the schedule is cancelled", () =>
    on({ startAt: "2030-06-01T12:00:00Z" }, () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* start()
        yield* TestRuntime.advance("13 hours")
        yield* client.terminate("n", "enough")
        assert.strictEqual((yield* client.status("n"))._tag, "Cancelled")
        const report = yield* TestRuntime.runToEnd("n/2030-06-02T02:30:00.000+02:00[Europe/Berlin]")
        assert.strictEqual(report._tag, "Completed")
      })))

  it.effect("an invalid cron expression is a typed failure", () =>
    on({ startAt: "2030-06-01T12:00:00Z" }, () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* start("every night")
        assert.instanceOf(yield* Effect.flip(client.wait(Nightly, "n")), InvalidCron)
      })))
})
