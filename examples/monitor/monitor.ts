/**
 * Watches a service indefinitely: probes it every minute, raises an alarm when it goes down and when it recovers, counts,
 * and takes commands. It continues as new each hour, so that its history stays small.
 */
import { Activity, KeyValue, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Console, Context, Effect, Layer, Option, Schema } from "effect"

export const State = Schema.Literals(["up", "down"])

/** What the monitor looks at. */
export class Service extends Context.Service<Service, {
  readonly isUp: Effect.Effect<boolean>
}>()("examples/monitor/Service") {}

export const Probe = Activity.make("Probe", { success: State })

export const Alert = Activity.make("Alert", { payload: State })

/** Kept until the monitor reads them, unlike signals. */
export const Orders = Signal.make("Orders", { payload: Schema.Literals(["pause", "resume", "stop"]) })

/** Readable from outside, and the same in all executions. */
export const Counters = KeyValue.make(
  "counters",
  Schema.Struct({ probes: Schema.Int, failures: Schema.Int, alerts: Schema.Int })
)

export const Monitor = Orchestration.make("Monitor", {
  payload: Schema.Struct({
    every: Schema.DurationFromString,
    /** After so many probes the next execution begins. */
    probesPerExecution: Schema.Int,
    /** What one execution passes to the next. */
    state: State
  }),
  success: Counters.value
})

const MonitorLive = Monitor.toLayer(Effect.fn(function*(options) {
  let { state } = options
  for (let probe = 1; probe <= options.probesPerExecution; probe++) {
    const before = state
    // A bug in the probe must not end the monitor: a handler that died arrives as a defect.
    state = yield* Probe.execute().pipe(Effect.catchDefect(() => Effect.succeed("down" as const)))
    if (state !== before) yield* Alert.execute(state)
    const counters = yield* count({ failures: state === "down" ? 1 : 0, alerts: state === before ? 0 : 1 })
    yield* Orchestration.setCustomStatus(state)

    // The take that loses against the clock takes no message.
    let order = yield* Effect.timeoutOption(Orders.wait, options.every)
    if (Option.contains(order, "pause")) {
      yield* Orchestration.setCustomStatus("paused")
      while (Option.contains(order, "pause")) order = Option.some(yield* Orders.wait)
    }
    if (Option.contains(order, "stop")) return counters
  }
  return yield* Monitor.continueAsNew({ ...options, state })
}))

const count = Effect.fnUntraced(
  function*({ alerts, failures }: { readonly alerts: number; readonly failures: number }) {
    const before = Option.getOrElse(yield* Counters.get, () => ({ probes: 0, failures: 0, alerts: 0 }))
    const after = {
      probes: before.probes + 1,
      failures: before.failures + failures,
      alerts: before.alerts + alerts
    }
    yield* Counters.set(after)
    return after
  }
)

const ProbeLive = Probe.toLayer(() =>
  Effect.flatMap(Service, ({ isUp }) => isUp).pipe(
    // Here it costs nothing; around `Probe.execute` it would be one more durable timer for every probe.
    Effect.timeoutOrElse({ duration: "10 seconds", orElse: () => Effect.succeed(false) }),
    Effect.map((isUp) => isUp ? "up" : "down")
  )
)

const AlertLive = Alert.toLayer((state) => Console.log(`  ALERT: the service is ${state}`))

export const RuntimeLive = Runtime.layer({ orchestrations: [Monitor], activities: [Probe, Alert] }).pipe(
  Layer.provide([MonitorLive, ProbeLive, AlertLive])
)
