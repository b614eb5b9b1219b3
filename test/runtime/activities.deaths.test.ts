import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime } from "duroxide-prisma"
import { TestRuntime } from "duroxide-prisma/testing"
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Schema from "effect/Schema"

const Charge = Activity.make("Charge", { payload: { card: Schema.String }, success: Schema.Int })
/** `Charge` as a caller with another version of the code defines it. */
const OtherCharge = Activity.make("Charge", { payload: Schema.Int, success: Schema.Int })
const Checkout = Orchestration.make("Checkout", { success: Schema.Int })

interface Logged {
  readonly level: string
  readonly message: unknown
  readonly cause: string
  readonly annotations: object
}

/** One instance with an activity that dies; returns its log lines and the stored failure. */
const died = Effect.fnUntraced(function*(
  handler: () => Effect.Effect<number>,
  program: Effect.Effect<number, never, Orchestration.Instance> = Charge.execute({ card: "4711 0000" }),
  log: (logged: Logged) => void = () => {}
) {
  const logs: Array<Logged> = []
  const logger = Logger.make((options) => {
    const logged = {
      level: options.logLevel,
      message: options.message,
      cause: Cause.pretty(options.cause),
      annotations: options.fiber.getRef(References.CurrentLogAnnotations)
    }
    logs.push(logged)
    log(logged)
  })
  const runtime = Runtime.layer({ orchestrations: [Checkout], activities: [Charge] }).pipe(
    Layer.provide([Checkout.toLayer(() => program), Charge.toLayer(handler)])
  )
  const { error, failed } = yield* Effect.gen(function*() {
    const client = yield* Client.Client
    const error = yield* Effect.flip(client.execute(Checkout, { instanceId: "order-1" }))
    const failed = (yield* TestRuntime.history("order-1")).find(({ _tag }) => _tag === "ActivityFailed")
    return { error, failed }
  }).pipe(Effect.provide(TestRuntime.layer(runtime).pipe(Layer.provideMerge(Logger.layer([logger])))))
  if (failed?._tag !== "ActivityFailed" || failed.details._tag !== "Application") return assert.fail("it did not die")
  return {
    details: failed.details,
    error,
    deaths: logs.filter(({ message }) => String(message).includes("activity died"))
  }
})

describe("a handler that dies", () => {
  it.effect("is logged once with stack and cause, names and ids; message and stack are stored", () =>
    Effect.gen(function*() {
      const { deaths, details, error } = yield* died(() => {
        throw new Error("no connection", { cause: new Error("socket closed") })
      })
      assert.lengthOf(deaths, 1)
      const [{ annotations, cause, level }] = deaths as [Logged]
      assert.strictEqual(level, "Error")
      assert.deepInclude(annotations, {
        activity_name: "Charge",
        instance_id: "order-1",
        execution_id: 1,
        activity_id: 2
      })
      for (const text of [cause, details.stack ?? ""]) {
        assert.include(text, "no connection")
        assert.include(text, "socket closed")
        assert.include(text, "activities.deaths.test.ts")
      }
      assert.deepInclude(details, { kind: "Panicked", message: "no connection" })
      assert.isAtMost(details.stack!.length, 2_000)
      assert.include((error as Error).message, `activity "Charge" died: no connection`)
      assert.notInclude(cause, "4711")
    }))

  it.effect("a defect that is not an Error is kept as well", () =>
    Effect.gen(function*() {
      const { deaths, details } = yield* died(() => Effect.die({ code: 7 }))
      assert.lengthOf(deaths, 1)
      assert.include(details.message, "7")
    }))

  it.effect("an answer or a payload that does not match is logged and stored without the value", () =>
    Effect.gen(function*() {
      const answered = yield* died(() => Effect.succeed("secret" as unknown as number))
      const called = yield* died(() => Effect.succeed(1), OtherCharge.execute(4711))
      for (const { deaths, details } of [answered, called]) {
        assert.lengthOf(deaths, 1)
        assert.include(details.message, "does not match its schema")
        assert.notMatch(deaths[0]!.cause + details.message + (details.stack ?? ""), /secret|4711/)
      }
    }))

  it.effect("a logger that throws does not change the outcome", () =>
    Effect.gen(function*() {
      const { details } = yield* died(() => Effect.die(new Error("no connection")), undefined, ({ message }) => {
        if (String(message).includes("died")) throw new Error("the log is full")
      })
      assert.strictEqual(details.message, "no connection")
    }))
})
