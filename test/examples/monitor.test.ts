import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import { Admin } from "duroxide-prisma/provider"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { Counters, Monitor, Orders, RuntimeLive, Service } from "../../examples/monitor/monitor.ts"
import * as Printed from "./printed.ts"

const minutes = Effect.map(Clock.currentTimeMillis, (now) => (now - Date.UTC(2030, 0, 1)) / 60_000)

const day = 24 * 60

const start = (options: Partial<typeof Monitor.payload.Type> = {}) =>
  Effect.flatMap(Client.Client, (client) =>
    client.start(Monitor, {
      instanceId: "m",
      payload: { every: Duration.minutes(1), probesPerExecution: 60, state: "up", ...options }
    }))

const status = Effect.map(
  Effect.flatMap(Client.Client, (client) => client.status("m")),
  (status) => status._tag === "Running" ? Option.getOrUndefined(status.customStatus) : status._tag
)

const counters = Effect.map(
  Effect.flatMap(Client.Client, (client) => client.read(Counters, "m")),
  Option.getOrUndefined
)

/** Runs a test in virtual time, on a service that is up at the minutes for which `isUp` says so. */
const on = <A, E, R>(
  isUp: (minute: number) => Effect.Effect<boolean> | boolean,
  test: (lines: ReadonlyArray<string>) => Effect.Effect<A, E, R>
) => {
  const { layer, lines } = Printed.make()
  const service = Effect.flatMap(minutes, (minute) => {
    const answer = isUp(minute)
    return typeof answer === "boolean" ? Effect.succeed(answer) : answer
  })
  return test(lines).pipe(
    Effect.provide(
      TestRuntime.layer(RuntimeLive).pipe(Layer.provide([layer, Layer.succeed(Service, { isUp: service })]))
    )
  )
}

describe("monitor", () => {
  it.effect(
    "in 30 days it raises the alarm twice for an outage, keeps counting, and its histories stay small",
    () =>
      on(
        (minute) => minute < 10 * day || minute > 10 * day + 100,
        Effect.fnUntraced(function*(lines) {
          const admin = yield* Admin.Admin
          // A probe every minute makes the same histories, sixty times as many of them.
          yield* start({ every: Duration.hours(1), probesPerExecution: 24 })
          yield* TestRuntime.advance("30 days")
          assert.deepStrictEqual(lines, ["ALERT: the service is down", "ALERT: the service is up"])
          assert.deepStrictEqual(yield* counters, { probes: 30 * 24 + 1, failures: 2, alerts: 2 })
          assert.strictEqual(yield* status, "up")
          const executions = yield* admin.listExecutions("m")
          assert.lengthOf(executions, 31)
          for (const executionId of executions) {
            const { eventCount } = yield* admin.getExecutionInfo("m", executionId)
            assert.isAtMost(eventCount, 24 * 8 + 10, `execution ${executionId}`)
          }
        })
      )
  )

  it.effect("orders are kept until any of its executions reads them", () =>
    on(() => true, () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        yield* start({ probesPerExecution: 2 })
        yield* TestRuntime.advance("150 seconds")
        assert.strictEqual((yield* counters)?.probes, 3)
        yield* client.send(Orders, "m", "pause")
        yield* TestRuntime.advance("1 day")
        assert.strictEqual(yield* status, "paused")
        assert.strictEqual((yield* counters)?.probes, 3)
        const orders = ["resume", "pause", "resume", "resume", "pause"] as const
        yield* Effect.forEach(orders, (order) => client.send(Orders, "m", order), { concurrency: "unbounded" })
        yield* TestRuntime.advance("1 day")
        assert.strictEqual(yield* status, "paused")
        assert.strictEqual((yield* counters)?.probes, 6)
        yield* client.send(Orders, "m", "stop")
        assert.deepStrictEqual(yield* client.wait(Monitor, "m"), yield* counters)
      })))

  it.effect("a probe that hangs or dies means that the service is down", () =>
    on(
      (minute) =>
        minute < 1 ? true : minute < 2 ? Effect.as(Effect.sleep("1 hour"), true) : Effect.die(new Error("no route")),
      Effect.fnUntraced(function*(lines) {
        yield* start()
        yield* TestRuntime.advance("3 minutes")
        assert.deepStrictEqual(lines, ["ALERT: the service is down"])
        assert.deepStrictEqual(yield* counters, { probes: 3, failures: 2, alerts: 1 })
      })
    ))

  it.effect("continues after a crash without probing twice", () =>
    on(() => true, () =>
      Effect.gen(function*() {
        yield* start()
        for (let crash = 0; crash < 4; crash++) {
          yield* TestRuntime.advance("30 seconds")
          yield* TestRuntime.crash
        }
        assert.strictEqual((yield* counters)?.probes, 3)
      })))
})
