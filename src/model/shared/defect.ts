/**
 * The stored form of the defect that ended a handler or a program.
 */
import * as Cause from "effect/Cause"
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

// internal

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
