/**
 * Programs by the layers that provide them. A tool that looks for programs builds no layer: one of an application may
 * open connections, or start a runtime.
 */
import * as Effect from "effect/Effect"
import * as Predicate from "effect/Predicate"
import type { Code } from "./interpreter.ts"

/** One version of an orchestration. */
export interface Program {
  readonly name: string
  readonly version: string
  readonly code: Code
}

/** Marks the layer as one that provides the program. */
export const mark = <Layer extends object>(layer: Layer, program: Program): Layer =>
  Object.assign(layer, { [key]: program })

/** The program that a layer was marked with; undefined for any other value. */
export const programOf = (value: unknown): Program | undefined =>
  Predicate.hasProperty(value, key) ? value[key] as Program : undefined

/** Lets no runtime start in this process while the effect runs: a module that it imports may start one. */
export const withoutRuntimes = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    tools++
    return Effect.ensuring(effect, Effect.sync(() => void tools--))
  })

/** Dies while no runtime may start. */
export const checkRuntimes: Effect.Effect<void> = Effect.suspend(() =>
  tools === 0 ? Effect.void : Effect.die(
    new Error("no runtime starts while preflight looks at programs: give it a module that starts none when imported")
  )
)

// internal

let tools = 0

/** A text, so that a second copy of this package finds it as well. */
const key = "~duroxide-prisma/program"
