/**
 * Limits by a random model, on the driver in memory.
 */
import { assert, it } from "@effect/vitest"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as TestClock from "effect/testing/TestClock"
import * as fc from "fast-check"
import { AdminDriver } from "../../src/provider/AdminDriver.ts"
import * as MemoryDriver from "../../src/provider/MemoryDriver.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import * as model from "../utils/limitsModel.ts"
import { times } from "../utils/times.ts"

it.effect("limits: none is exceeded, keys take turns, and all slots come back, in random sequences", () =>
  Effect.gen(function*() {
    yield* TestClock.setTime(Date.UTC(2030, 0, 1))
    const run = Effect.runPromiseWith(yield* Effect.context<never>())
    const result = yield* Effect.promise(() =>
      fc.check(
        fc.asyncProperty(model.steps, (steps) =>
          run(Effect.scoped(Effect.gen(function*() {
            const context = yield* Layer.build(Layer.fresh(MemoryDriver.layer))
            yield* model.play(
              { driver: Context.get(context, ProviderDriver), admin: Context.get(context, AdminDriver) },
              steps
            )
          })))),
        {
          numRuns: times(100),
          ...(process.env["LIMITS_SEED"] !== undefined && { seed: Number(process.env["LIMITS_SEED"]) })
        }
      )
    )
    if (result.failed) {
      assert.fail(`${String(result.errorInstance)}\nseed ${result.seed}\n${JSON.stringify(result.counterexample?.[0])}`)
    }
  }))
