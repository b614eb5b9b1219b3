/**
 * Ids and texts that name things in the store.
 */
import * as Effect from "effect/Effect"
import { problemOf } from "./text.ts"

const maxInstanceIdBytes = 1024

/** A text that cannot be what it is for. */
export interface Unfit {
  readonly _tag: "Unfit"
  readonly field: string
  readonly problem: string
}

const unfit = (field: string, problem: string): Effect.Effect<never, Unfit> =>
  Effect.fail({ _tag: "Unfit", field, problem })

/** Text that is stored as it is. */
export const checkText = (field: string, text: string): Effect.Effect<void, Unfit> => {
  const problem = problemOf(text)
  return problem === undefined ? Effect.void : unfit(field, problem)
}

/** Any id an instance may have. */
export const checkId = (instanceId: string): Effect.Effect<void, Unfit> => {
  if (instanceId === "") return unfit("instanceId", "it is empty")
  const bytes = new TextEncoder().encode(instanceId).length
  return bytes > maxInstanceIdBytes
    ? unfit("instanceId", `it has ${bytes} bytes, the limit is ${maxInstanceIdBytes}`)
    : checkText("instanceId", instanceId)
}

/** The id of an instance nobody is the parent of. */
export const checkRootId = (instanceId: string): Effect.Effect<void, Unfit> =>
  instanceId.startsWith("sub::") || instanceId.includes("::sub::")
    ? unfit("instanceId", "'sub::' is reserved for child orchestrations")
    : checkId(instanceId)

/** The id a program gives to a child. */
export const checkChildId = (instanceId: string): Effect.Effect<void, Unfit> =>
  instanceId.startsWith("sub::")
    ? unfit("instanceId", "'sub::' at the beginning marks ids the runtime gives")
    : checkId(instanceId)
