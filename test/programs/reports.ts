// A program whose status, value and end another process waits for, and one whose activity another process runs.
import { Activity, KeyValue, Orchestration, Signal } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

export const Next = Signal.make("Next")

export const Stage = KeyValue.make("stage", Schema.Int)

/** Runs until it is interrupted. */
export const Endless = Activity.make("Endless")

/** After each `Next` it goes one step: a status, a value, the end. */
export const Report = Orchestration.make("Report", { success: Schema.String })

export const Calls = Orchestration.make("Calls")

export const ReportsLive = Layer.mergeAll(
  Report.toLayer(Effect.fn(function*() {
    yield* Next.wait
    yield* Orchestration.setCustomStatus("first")
    yield* Next.wait
    yield* Stage.set(1)
    yield* Next.wait
    return "done"
  })),
  Calls.toLayer(() => Endless.execute())
)
