/**
 * The stored form of the defect that ended a handler or a program.
 */
import * as Cause from "effect/Cause"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import { errorTypeOf } from "./errorType.ts"
import { replaceUnstorable } from "./text.ts"

export interface Described {
  readonly message: string
  /** Includes the stacks of its causes, but no frames of Effect itself. */
  readonly stack: string
}

const maxMessageLength = 4_000
const maxStackLength = 2_000

/** Never throws. Both texts can be stored, and are truncated if they are too long. */
export const describe = (defect: unknown): Described => {
  const { message, stack } = shown(defect)
  return { message: cut(message, maxMessageLength), stack: cut(stack, maxStackLength) }
}

/** Whether a `PayloadCodec` seals what defects say: then logs have their types and frames. */
export const SealsDefects = Context.Reference<boolean>("duroxide-prisma/internal/SealsDefects", {
  defaultValue: () => false
})

/** Logs what a handler or a program has died of. A logger that throws must not change what is recorded. */
export const logDeath = (line: string, defect: unknown): Effect.Effect<void> =>
  Effect.flatMap(SealsDefects, (seals) => Effect.logError(line, Cause.die(seals ? concealed(defect) : defect))).pipe(
    Effect.exit,
    Effect.asVoid
  )

// internal

const concealed = (defect: unknown): Error => {
  const error = new Error("what it says is a payload, and not logged")
  error.name = errorTypeOf(defect)
  const frames = defect instanceof Error ? defect.stack?.split("\n").filter((line) => /^ +at /.test(line)) ?? [] : []
  error.stack = [`${error.name}: ${error.message}`, ...frames].join("\n")
  return error
}

const shown = (defect: unknown): Described => {
  try {
    const error = Cause.prettyErrors(Cause.die(defect), { includeCauseInStack: true })[0]!
    const message = error.message || error.name
    return { message, stack: error.stack ?? message }
  } catch {
    const message = `a defect that cannot be shown (${typeof defect})`
    return { message, stack: message }
  }
}

const cut = (text: string, length: number) =>
  replaceUnstorable(text.length > length ? `${text.slice(0, length - 1)}…` : text)
