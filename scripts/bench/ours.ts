/** This package: one process that starts, serves and waits. */
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import type { Contender, Options } from "./contender.ts"

/** Slots of each kind where the load names none: more are not faster. */
const manySlots = 100

export interface Settings extends Options {
  /** Defaults to that of the database. */
  readonly schema?: string
  /** Defaults to that of `PrismaProvider`. */
  readonly maxConnections?: number
}

const Step = Activity.make("Step", { payload: Schema.String, success: Schema.String })
const Flow = Orchestration.make("Flow", { payload: Schema.String, success: Schema.String })

export const open = async ({ load, maxConnections, schema, url }: Settings): Promise<Contender> => {
  const StepLive = Step.toLayer((text) =>
    load.activityMs === 0 ? Effect.succeed(text) : Effect.as(Effect.sleep(load.activityMs), text)
  )
  const steps = Array.from({ length: load.activities })
  const FlowLive = Flow.toLayer(Effect.fn(function*(text) {
    if (load.timerMs > 0) yield* Effect.sleep(load.timerMs)
    yield* Effect.forEach(steps, () => Step.execute(text), {
      concurrency: load.inARow ? 1 : "unbounded",
      discard: true
    })
    return text
  }))
  const slots = load.slots ?? manySlots
  const runtime = ManagedRuntime.make(
    Runtime.layer({ orchestrations: [Flow], activities: [Step] }).pipe(
      Layer.provide([FlowLive, StepLive]),
      Layer.provide(RuntimeConfig.layer({ orchestrationConcurrency: slots, workerConcurrency: slots })),
      Layer.merge(Client.layer),
      Layer.provide(PrismaProvider.layer({ url, schema, maxConnections })),
      Layer.provide(Logger.layer([Logger.withConsoleError(Logger.formatLogFmt)])),
      Layer.provide(Layer.succeed(References.MinimumLogLevel, "Warn"))
    )
  )
  const client = await runtime.runPromise(Client.Client)
  for (let i = 0; i < load.waits; i++) runtime.runFork(client.wait(Flow, `never-${i}`))
  const payload = "x".repeat(load.payloadBytes)
  return {
    execute: (instanceId) => runtime.runPromise(Effect.asVoid(client.execute(Flow, { instanceId, payload }))),
    close: () => runtime.dispose()
  }
}
