/** This package: one process that starts, serves and waits. */
import { Activity, Client, Limits, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as ManagedRuntime from "effect/ManagedRuntime"
import * as References from "effect/References"
import * as Schema from "effect/Schema"
import { openCalls } from "./calls.ts"
import type { Contender, Load, Options, Timing } from "./contender.ts"
import { openElsewhere } from "./elsewhere.ts"
import { openJobs } from "./jobs.ts"
import { openNeighbour } from "./neighbour.ts"
import * as observed from "./observed.ts"
import { storeOf } from "./store.ts"

/**
 * Slots of each kind where the load names none: as many as there are activities at once, up to those whose state one
 * handover reads (`dx_store_turns`). Beyond that activities are claimed, and more slots are not faster.
 */
const slotsFor = ({ activities, inARow, inFlight }: Load) => {
  const atOnce = inFlight * (inARow ? 1 : activities)
  return atOnce > 1000 ? 100 : Math.max(100, atOnce)
}

export interface Settings extends Options {
  /** Defaults to that of the database. */
  readonly schema?: string
  /** Defaults to that of `PrismaProvider`. */
  readonly maxConnections?: number
}

const Step = Activity.make("Step", { payload: Schema.String, success: Schema.String })
/** A step with limits by four keys in turn. */
let calls = 0
const LimitedStep = Activity.make("LimitedStep", {
  payload: Schema.String,
  success: Schema.String,
  limitKey: () => `key ${calls++ % 4}`
})
const Flow = Orchestration.make("Flow", { payload: Schema.String, success: Schema.String })
/** One whose steps are timed: the text of each is its id. */
const LongFlow = Orchestration.make("LongFlow", {
  payload: Schema.Struct({ id: Schema.String, executions: Schema.Number }),
  success: Schema.String
})

export const open = async (settings: Settings): Promise<Contender> => {
  const { load, maxConnections, schema, url } = settings
  if (load.call !== undefined) return openCalls({ url, call: load.call })
  if (load.jobs > 0) return openJobs(settings)
  if (load.neighbour) return openNeighbour({ url, load })
  if (load.noticed !== undefined) return openElsewhere({ url, load, noticed: load.noticed })
  const moments = new Map<string, Array<number>>()
  const step = (text: string) => {
    moments.get(text)?.push(performance.now())
    return load.activityMs === 0 ? Effect.succeed(text) : Effect.as(Effect.sleep(load.activityMs), text)
  }
  const StepLive = Layer.merge(Step.toLayer(step), LimitedStep.toLayer(step))
  const Called = load.eachKey === undefined ? Step : LimitedStep
  const steps = Array.from({ length: load.activities })
  const FlowLive = Flow.toLayer(Effect.fn(function*(text) {
    if (load.timerMs > 0) yield* Effect.sleep(load.timerMs)
    yield* Effect.forEach(steps, () => Called.execute(text), {
      concurrency: load.inARow ? 1 : "unbounded",
      discard: true
    })
    return text
  }))
  const LongFlowLive = LongFlow.toLayer(Effect.fn(function*({ executions, id }) {
    for (const _ of steps) yield* Step.execute(id)
    return executions > 1 ? yield* LongFlow.continueAsNew({ executions: executions - 1, id }) : id
  }))
  const slots = load.slots ?? slotsFor(load)
  const runtime = ManagedRuntime.make(
    Runtime.layer({ orchestrations: [Flow, LongFlow], activities: [Step, LimitedStep] }).pipe(
      Layer.provide([FlowLive, LongFlowLive, StepLive]),
      Layer.provide(RuntimeConfig.layer({
        orchestrationConcurrency: slots,
        workerConcurrency: slots,
        ...(!load.warm && { warmInstances: 0 })
      })),
      Layer.merge(Client.layer),
      Layer.merge(
        load.eachKey === undefined
          ? Layer.empty
          : Limits.layer(Limits.of(LimitedStep, { eachKey: { concurrency: load.eachKey } }), { replaces: true })
      ),
      Layer.provide(storeOf({ url, schema, maxConnections, pollMs: load.pollMs })),
      Layer.provide(Logger.layer([Logger.withConsoleError(Logger.formatLogFmt)])),
      Layer.provide(Layer.succeed(References.MinimumLogLevel, "Warn")),
      Layer.provideMerge(load.observed === undefined ? Layer.empty : observed.layer(load.observed))
    )
  )
  const client = await runtime.runPromise(Client.Client)
  for (let i = 0; i < load.waits; i++) runtime.runFork(client.wait(Flow, `never-${i}`))
  const executeLong = async (id: string): Promise<Timing> => {
    moments.set(id, [])
    const { executions } = load
    await runtime.runPromise(client.execute(LongFlow, { instanceId: id, payload: { id, executions } }))
    const lastToFirst = lastTenthToSecond(moments.get(id)!)
    moments.delete(id)
    return { lastToFirst }
  }
  return {
    execute: (instanceId) =>
      isLong(load)
        ? executeLong(instanceId)
        : runtime.runPromise(Effect.asVoid(client.execute(Flow, { instanceId, payload: load.text }))),
    close: () => runtime.dispose()
  }
}

// internal

const isLong = ({ activities, executions }: Load) => activities * executions >= 1000

/** Time of the last tenth by that of the second. In the first, other orchestrations start as well. */
const lastTenthToSecond = (moments: ReadonlyArray<number>): number => {
  const tenth = Math.floor((moments.length - 1) / 10)
  const took = (end: number) => moments[end]! - moments[end - tenth]!
  return took(moments.length - 1) / took(2 * tenth)
}
