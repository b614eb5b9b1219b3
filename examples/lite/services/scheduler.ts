/**
 * Fires the schedules. Any number may run; an occurrence starts one task. On AWS, a Lambda function takes its place.
 */
import { Schedules } from "duroxide-prisma/schedules"
import { Effect, Layer } from "effect"
import * as Platform from "../shared/platform.ts"
import { ready } from "../shared/process.ts"
import { census } from "../shared/triggers.ts"

export const main = Effect.gen(function*() {
  yield* Layer.build(Schedules.layer([yield* census]))
  return yield* ready()
}).pipe(Effect.provide(Platform.stateStore("verify")))
