/**
 * The budgets in which calls of models count.
 */
import type { AiError, Response } from "effect/ai"
import * as Context from "effect/Context"
import type * as Effect from "effect/Effect"

/** Counts the calls of an orchestration. */
export interface Ledger {
  readonly budget: string
  /** Refuses a call if a limit is reached. */
  readonly check: Effect.Effect<void, AiError.AiError>
  readonly begin: Effect.Effect<void>
  readonly end: (usage: Response.Usage | undefined, cost: number) => Effect.Effect<void>
}

/** What the calling fiber counts in, outermost first. */
export const Ledgers = Context.Reference<ReadonlyArray<Ledger>>("duroxide-prisma/agents/Ledgers", {
  defaultValue: () => []
})
