// Deliberate mistakes that tsc must find.
// @effect-diagnostics missingLayerContext:off
/**
 * Which handlers a runtime asks for: checked by `tsc`, never run.
 */
import { expectTypeOf } from "@effect/vitest"
import { Activity, Orchestration, Runtime } from "duroxide-prisma"
import type { Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"

const Fulfil1 = Orchestration.make("Fulfil", { version: "1.0.0", payload: Schema.String })
const Fulfil2 = Orchestration.make("Fulfil", { version: "2.0.0", payload: Schema.Int })
const Plain = Orchestration.make("Plain")
const Charge = Activity.make("Charge")

const program1 = Fulfil1.toLayer((text) => Effect.sleep(text.length))
const program2 = Fulfil2.toLayer((n) => Effect.sleep(n))
const plain = Plain.toLayer(() => Effect.void)
const charge = Charge.toLayer(() => Effect.void)

expectTypeOf(Plain.version).toEqualTypeOf<"1.0.0">()
expectTypeOf(Fulfil2.version).toEqualTypeOf<"2.0.0">()
expectTypeOf(program2).toEqualTypeOf<Layer.Layer<Orchestration.Handler<"Fulfil", "2.0.0">>>()

const runtime = Runtime.layer({ orchestrations: [Fulfil1, Fulfil2, Plain], activities: [Charge] })
expectTypeOf(runtime).toEqualTypeOf<
  Layer.Layer<
    Runtime.Runtime,
    never,
    | Provider.Provider
    | Orchestration.Handler<"Fulfil", "1.0.0">
    | Orchestration.Handler<"Fulfil", "2.0.0">
    | Orchestration.Handler<"Plain", "1.0.0">
    | Activity.Handler<"Charge">
  >
>()

/** Accepts what an application would run: a runtime that lacks only its store. */
const serve = (layer: Layer.Layer<Runtime.Runtime, never, Provider.Provider>) => layer

serve(runtime.pipe(Layer.provide([program1, program2, plain, charge])))
// @ts-expect-error the program of version 1.0.0 is missing
serve(runtime.pipe(Layer.provide([program2, plain, charge])))
// @ts-expect-error the program of version 2.0.0 is missing
serve(runtime.pipe(Layer.provide([program1, plain, charge])))
// @ts-expect-error the program of another orchestration is missing
serve(runtime.pipe(Layer.provide([program1, program2, charge])))
// @ts-expect-error the handler of an activity is missing
serve(runtime.pipe(Layer.provide([program1, program2, plain])))

// A version known at run time only cannot be distinguished from others of its name.
const fromEnvironment = Orchestration.make("Fulfil", { version: String(process.env.VERSION) })
expectTypeOf(fromEnvironment.version).toEqualTypeOf<string>()
serve(Runtime.layer({ orchestrations: [fromEnvironment] }).pipe(Layer.provide(fromEnvironment.toLayer(Effect.succeed))))

// What Rust serves can be started and called, and has no program or handler here.
const Errand = Orchestration.make("Errand", { payload: Schema.String, success: Schema.Int, servedBy: "rust" })
const Step = Activity.make("Step", { payload: Schema.String, timeout: "1 second", servedBy: "rust" })

expectTypeOf(Errand.execute).toEqualTypeOf<(payload: string) => Effect.Effect<number, never, Orchestration.Instance>>()
expectTypeOf(Step.with({ tag: "gpu" }).execute)
  .toEqualTypeOf<(payload: string) => Effect.Effect<void, Activity.ActivityTimedOut, Orchestration.Instance>>()
// @ts-expect-error processes of Rust run it
Errand.toLayer(() => Effect.succeed(1))
// @ts-expect-error it continues in its own program
Errand.continueAsNew("again")
// @ts-expect-error processes of Rust run it
Step.toLayer(() => Effect.void)
// @ts-expect-error processes of Rust run it
Runtime.layer({ orchestrations: [Errand] })
// @ts-expect-error processes of Rust run it
Runtime.layer({ activities: [Step] })
// @ts-expect-error no third side
Orchestration.make("Errand", { servedBy: "go" })
