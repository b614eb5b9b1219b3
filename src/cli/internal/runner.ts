/**
 * The whole command line, for a command that runs others.
 */
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"
import type { Io } from "./io.ts"

export class Runner extends Context.Service<Runner, {
  /** The version of the package. */
  readonly version: string
  /** Runs what the arguments say, and returns the exit code. */
  readonly run: (io: Io) => Effect.Effect<number>
}>()("duroxide-prisma/cli/Runner") {}
