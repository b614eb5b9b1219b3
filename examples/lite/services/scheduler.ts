/**
 * Calls the dispatcher at each instant of a cron expression. It has no database, and any number may run, since an instant
 * creates one task. On AWS, EventBridge Scheduler takes its place.
 */
import { Trigger } from "duroxide-prisma/recipes/triggers"
import { Effect, Layer } from "effect"
import { ready } from "../shared/process.ts"
import * as Settings from "../shared/settings.ts"
import { censusByCron } from "../shared/triggers.ts"

export const main = Effect.gen(function*() {
  const url = `${yield* Settings.dispatcherUrl}/triggers`
  const token = yield* Settings.triggerToken
  yield* Layer.build(Trigger.scheduler({ url, token, crons: [yield* censusByCron] }))
  return yield* ready()
})
