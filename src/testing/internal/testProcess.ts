/**
 * What a `TestRuntime` offers to other parts of the process that it simulates.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Activity from "../../Activity.ts"
import { InBackground } from "../../model/shared/inBackground.ts"

export interface TestProcess {
  /** Stores that outlive the process, by name. */
  readonly stores: Map<string, unknown>
  /** Handlers that run, by key, with a text that names them. Time waits for those that do not sleep. */
  readonly handlers: Map<string, string>
  /** What waits because no handler serves it: names for the message of `Stuck`. */
  readonly unserved: Set<string>
  /** Whether the process has crashed: it no longer stores anything. */
  readonly isDead: () => boolean
  readonly rest: Effect.Effect<void>
  /** Lets time pass until `isDone`. Dies of `problem` when nothing is due. */
  readonly until: (isDone: () => boolean, problem: () => string) => Effect.Effect<void>
}

/** Without a `TestRuntime` time passes by itself, and a process has no successor. */
export const TestProcess = Context.Reference<TestProcess>("duroxide-prisma/testing/TestProcess", {
  defaultValue: () => ({
    stores: new Map(),
    handlers: new Map(),
    unserved: new Set(),
    isDead: () => false,
    rest: Effect.void,
    until: () => Effect.never
  })
})

/** The key of the handler that a fiber runs in. */
export const RunningHandler = Context.Reference<string | undefined>("duroxide-prisma/testing/RunningHandler", {
  defaultValue: () => undefined
})

/** Whether a fiber is of the process, not of the test that looks at it. */
export const isInside: Effect.Effect<boolean> = Effect.contextWith((context: Context.Context<never>) =>
  Effect.succeed(
    Context.get(context, InBackground) || Context.get(context, RunningHandler) !== undefined ||
      Option.isSome(Context.getOption(context, Activity.Call))
  )
)
