// Effect's cluster workflows with one runner: workflows and their activities run in this process, their messages and
// replies are stored. It has no slots: S1, S2 and S4 limit the activities that run at once with a semaphore.

import { PgClient } from "@effect/sql-pg"
import * as ClusterWorkflowEngine from "effect/cluster/ClusterWorkflowEngine"
import * as SingleRunner from "effect/cluster/SingleRunner"
import * as Digest from "effect/crypto/Digest"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as Redacted from "effect/Redacted"
import * as Schema from "effect/Schema"
import * as Semaphore from "effect/Semaphore"
import * as Activity from "effect/workflow/Activity"
import * as DurableClock from "effect/workflow/DurableClock"
import * as Workflow from "effect/workflow/Workflow"

export async function open({ load, url }) {
  const slots = Semaphore.makeUnsafe(load.slots ?? Number.MAX_SAFE_INTEGER)
  const Flow = Workflow.make("Flow", {
    payload: { id: Schema.String, text: Schema.String },
    success: Schema.String,
    idempotencyKey: ({ id }) => id
  })
  const FlowLive = Flow.toLayer(({ text }) => {
    const step = (i) =>
      Activity.make({
        name: `step ${i}`,
        success: Schema.String,
        execute: slots.withPermits(1)(
          Effect.as(load.activityMs > 0 ? Effect.sleep(load.activityMs) : Effect.void, text)
        )
      })
    const steps = Effect.forEach(Array.from({ length: load.activities }, (_, i) => i), step, {
      concurrency: load.inARow ? 1 : "unbounded"
    })
    return (load.timerMs > 0
      ? Effect.andThen(DurableClock.sleep({ name: "timer", duration: load.timerMs, inMemoryThreshold: 0 }), steps)
      : steps).pipe(Effect.as(text))
  })
  const runtime = ManagedRuntime.make(
    FlowLive.pipe(
      Layer.provideMerge(ClusterWorkflowEngine.layer),
      Layer.provide(SingleRunner.layer()),
      Layer.provide([PgClient.layer({ url: Redacted.make(url), maxConnections: 10 }), Digest.layerWebCrypto]),
      Layer.provide(Logger.layer([]))
    )
  )
  await runtime.runPromise(Effect.void)
  const { text } = load
  return {
    execute: (id) => runtime.runPromise(Effect.asVoid(Flow.execute({ id, text }))),
    close: () => runtime.dispose()
  }
}
