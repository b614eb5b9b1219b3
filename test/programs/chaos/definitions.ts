// What the processes of a chaos run serve. Results depend only on payloads, so that the audit can compute them.
import { Activity, Orchestration, Runtime, Signal } from "duroxide-prisma"
import { Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import { appendFileSync } from "node:fs"
import { Errand, ErrandLive } from "./tasks.ts"

/** Milliseconds since the Unix epoch by a clock that `clock.ts` does not step. */
export const realNow = (): number => performance.timeOrigin + performance.now()

/** Appends lines of JSON to a file that outlives the process. A line is one write, so processes may share the file. */
export const journal = (file: string) => (line: object): void =>
  appendFileSync(file, `${JSON.stringify({ at: realNow(), pid: process.pid, ...line })}\n`)

const blockEventLoop = (ms: number): void => {
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, ms)
}

// ---------------------------------------------------------------------------------------------------------------------
// activities
// ---------------------------------------------------------------------------------------------------------------------

/** Adds 1 after the given milliseconds. */
export const Step = Activity.make("Step", {
  payload: Schema.Struct({ n: Schema.Int, ms: Schema.Int }),
  success: Schema.Int
})

/** Adds 1; its first delivery blocks the event loop for the given milliseconds. */
export const Block = Activity.make("Block", {
  payload: Schema.Struct({ n: Schema.Int, ms: Schema.Int }),
  success: Schema.Int
})

/** Kills its process at every delivery. */
export const Kill = Activity.make("Kill")

// ---------------------------------------------------------------------------------------------------------------------
// orchestrations
// ---------------------------------------------------------------------------------------------------------------------

const FlowPayload = Schema.Struct({
  n: Schema.Int,
  kind: Schema.Literals(["steps", "slow", "child", "timers", "block"])
})

/** Five steps, one after another and side by side: n + 5, whatever its kind. */
export const Flow = Orchestration.make("Flow", { payload: FlowPayload, success: Schema.Int })

/** One step: n + 1. */
export const Echo = Orchestration.make("Echo", { payload: Schema.Int, success: Schema.Int })

const BoxPayload = Schema.Struct({ read: Schema.Array(Schema.String) })

/** Letters of one box; `close` is the last. */
export const Letters = Signal.make("Letters", { payload: Schema.String })

/** Reads letters until it is closed, and returns all of them in the order it read them. */
export const Box1 = Orchestration.make("Box", {
  version: "1.0.0",
  payload: BoxPayload,
  success: Schema.Array(Schema.String)
})
export const Box2 = Orchestration.make("Box", {
  version: "2.0.0",
  payload: BoxPayload,
  success: Schema.Array(Schema.String)
})

/** Starts a box, detached, under the given id. */
export const Launcher = Orchestration.make("Launcher", { payload: Schema.String })

/** The signal an `Approval` waits for. */
export const Decision = Signal.make("Decision")

/** Waits the given milliseconds for its signal. Its status is `asking` while it waits. */
export const Approval = Orchestration.make("Approval", {
  payload: Schema.Int,
  success: Schema.Literals(["approved", "timeout"])
})

/** Calls `Kill`. */
export const Pill = Orchestration.make("Pill")

/** Kills its process in its first turn, at every delivery. */
export const TurnPill = Orchestration.make("TurnPill")

/** Asks one process, by its name, whether it still takes orchestrations and activities. */
export const Ping = (process: string) => Orchestration.make(`Ping ${process}`, { success: Schema.String })

const Pong = (process: string) => Activity.make(`Pong ${process}`, { success: Schema.String })

// ---------------------------------------------------------------------------------------------------------------------
// handlers
// ---------------------------------------------------------------------------------------------------------------------

const lettersPerExecution = 25

const box = (definition: typeof Box1 | typeof Box2, lettersPerStep: number) =>
  Effect.fnUntraced(function*({ read }: typeof BoxPayload.Type) {
    const all = [...read]
    for (let i = 0; i < lettersPerExecution; i++) {
      const letter = yield* Letters.wait
      if (letter === "close") return all
      all.push(letter)
      if (all.length % lettersPerStep === 0) yield* Step.execute({ n: all.length, ms: 5 })
    }
    return yield* definition.continueAsNew({ read: all })
  })

const flow = Effect.fnUntraced(function*({ n, kind }: typeof FlowPayload.Type) {
  const first = kind === "child"
    ? (yield* Flow.execute({ n: n - 4, kind: "steps" }))
    : kind === "block"
    ? yield* Block.execute({ n, ms: 4_500 })
    : yield* Step.execute({ n, ms: kind === "slow" ? 3_000 : 10 })
  if (kind === "timers") yield* Effect.sleep(100 + (n % 10) * 100)
  const three = yield* Effect.all(
    [0, 1, 2].map((i) => Step.execute({ n: first + i, ms: 5 + ((n + i) % 5) * 10 })),
    { concurrency: "unbounded" }
  )
  return yield* Step.execute({ n: three[2]!, ms: 10 })
})

export interface Served {
  /** Names the process, for `Ping`. */
  readonly name: string
  /** Versions of `Box`. A process without any serves only its `Ping`, and none of the work of the others. */
  readonly versions: ReadonlyArray<string>
  /** Where handlers note that they ran. */
  readonly effects: string
}

const pingable = (name: string) => {
  const ping = Ping(name)
  const pong = Pong(name)
  return {
    definitions: { orchestrations: [ping], activities: [pong] },
    layer: Layer.merge(ping.toLayer(() => pong.execute()), pong.toLayer(() => Effect.succeed(name)))
  } as const
}

/** Runtime and handlers of one process. */
export const runtime = ({ effects, name, versions }: Served) => {
  const note = journal(effects)
  const ping = pingable(name)
  if (versions.length === 0) return Runtime.layer(ping.definitions).pipe(Layer.provide(ping.layer))

  /** Notes begin and end of a handler. */
  const noted = <A>(payload: unknown, work: Effect.Effect<A, never, Activity.Call>) =>
    Effect.gen(function*() {
      const { activityName, deliveryNumber, idempotencyKey, instanceId } = yield* Activity.Call
      const call = {
        key: idempotencyKey,
        activity: activityName,
        instance: instanceId,
        delivery: deliveryNumber,
        payload
      }
      note({ event: "begin", ...call })
      const result = yield* work
      note({ event: "end", ...call })
      return result
    })

  const handlers = Layer.mergeAll(
    ping.layer,
    Step.toLayer((payload) => noted(payload, Effect.as(Effect.sleep(payload.ms), payload.n + 1))),
    Block.toLayer((payload) =>
      noted(
        payload,
        Effect.gen(function*() {
          const { deliveryNumber } = yield* Activity.Call
          if (deliveryNumber === 1) {
            note({ event: "block", ms: payload.ms })
            blockEventLoop(payload.ms)
          }
          return payload.n + 1
        })
      )
    ),
    Kill.toLayer(() => noted(null, Effect.sync(() => void process.kill(process.pid, "SIGKILL")))),
    Flow.toLayer(flow),
    Echo.toLayer((n) => Step.execute({ n, ms: 0 })),
    Launcher.toLayer((id) => Box1.startDetached({ instanceId: id, payload: { read: [] } })),
    Approval.toLayer(Effect.fn(function*(ms) {
      yield* Orchestration.setCustomStatus("asking")
      return yield* Effect.raceFirst(
        Effect.as(Decision.wait, "approved" as const),
        Effect.as(Effect.sleep(ms), "timeout" as const)
      )
    })),
    Pill.toLayer(() => Kill.execute()),
    TurnPill.toLayer(Effect.fn(function*() {
      const { instanceId } = yield* Orchestration.Instance
      note({ event: "begin", key: instanceId, activity: "TurnPill", instance: instanceId, delivery: 0, payload: null })
      process.kill(process.pid, "SIGKILL")
    })),
    Box1.toLayer(box(Box1, 7)),
    Box2.toLayer(box(Box2, 5)),
    ErrandLive,
    Tasks.layerActivities
  )
  const boxes = [Box1, Box2].filter(({ version }) => versions.includes(version))
  return Runtime.layer({
    orchestrations: [
      Flow,
      Echo,
      Launcher,
      Approval,
      Errand,
      Pill,
      TurnPill,
      ...ping.definitions.orchestrations,
      ...boxes
    ],
    activities: [Step, Block, Kill, ...Tasks.activities, ...ping.definitions.activities]
  }).pipe(Layer.provide(handlers))
}
