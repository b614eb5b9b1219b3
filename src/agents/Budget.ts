/**
 * Budgets limit the calls, the tokens and the cost of the models of an instance.
 *
 * What is spent is a value of the instance, so it survives restarts and continue-as-new, and clients can read it.
 *
 * @since 0.3.0
 */
import { AiError } from "effect/ai"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as KeyValue from "../KeyValue.ts"
import type * as Orchestration from "../Orchestration.ts"
import { type Ledger, Ledgers } from "./internal/ledgers.ts"

/**
 * What the calls of models have used.
 *
 * @category models
 * @since 0.3.0
 */
export const Spent = Schema.Struct({
  /** Calls that have begun, with any outcome; all tries of a call count once. */
  calls: Schema.Int,
  /** Tokens of prompts and answers, as the provider counts them. A failed call reports none. */
  tokens: Schema.Int,
  /** In the unit of the model's `price`; 0 without one. */
  cost: Schema.Number
})

/**
 * What the calls of models have used.
 *
 * @category models
 * @since 0.3.0
 */
export type Spent = typeof Spent.Type

/**
 * Limits of a budget: at least one, each 0 or more.
 *
 * @category models
 * @since 0.3.0
 */
export interface Limits {
  readonly calls?: number | undefined
  readonly tokens?: number | undefined
  /** In the unit of the model's `price`. */
  readonly cost?: number | undefined
}

/**
 * The budget is used up: the model was not called.
 *
 * @category errors
 * @since 0.3.0
 */
export class BudgetExceeded
  extends Schema.TaggedError<BudgetExceeded>("duroxide-prisma/agents/BudgetExceeded")("BudgetExceeded", {
    budget: Schema.String,
    /** The limit that is reached. */
    limit: Schema.Literals(["calls", "tokens", "cost"]),
    most: Schema.Number,
    spent: Schema.Number
  })
{
  override get message() {
    return `budget "${this.budget}" is used up: ${this.spent} of ${this.most} ${this.limit}`
  }
}

/**
 * A budget of an instance.
 *
 * @category models
 * @since 0.3.0
 */
export interface Budget {
  readonly name: string
  /** The spent amounts, for `client.read` and `client.waitForValue`. */
  readonly spent: KeyValue.KeyValue<typeof Spent>
  /**
   * Runs an effect of an orchestration within the budget. All its calls of durable models count, together with those of
   * other effects of this instance within the same budget. Budgets can be nested.
   *
   * **Details**
   *
   * A call begins if no limit is reached. So the last call may exceed a limit of tokens or cost; if several calls run
   * at once, each of them may. The next call fails with `BudgetExceeded`, which `limit` adds to the errors of the
   * effect.
   *
   * **Gotchas**
   *
   * Within the effect, the failure is an `AiError` with the reason `QuotaExhaustedError`. If the effect catches it,
   * `limit` does not fail.
   */
  readonly limit: <A, E, R>(
    program: Effect.Effect<A, E, R>
  ) => Effect.Effect<A, E | BudgetExceeded, R | Orchestration.Instance>
}

/**
 * Defines a budget. The instance keeps what is spent under the key `budget/<name>`. Throws a `RangeError` if no
 * limit is given, or if a limit is not a number of at least 0.
 *
 * **Example** (At most 20 calls and 100,000 tokens)
 *
 * ```ts
 * const Allowance = Budget.make("chat", { calls: 20, tokens: 100_000 })
 *
 * const answer = yield* Allowance.limit(LanguageModel.generateText({ prompt }))
 * ```
 *
 * @category constructors
 * @since 0.3.0
 */
export const make = (name: string, limits: Limits): Budget => {
  const all = (["calls", "tokens", "cost"] as const).flatMap((limit) => {
    const most = limits[limit]
    if (most === undefined) return []
    if (!(most >= 0)) throw new RangeError(`budget "${name}": ${limit} is ${most}, but must be a number of at least 0`)
    return [{ limit, most }]
  })
  if (all.length === 0) throw new RangeError(`budget "${name}" has no limit: give it calls, tokens or cost`)
  const spent = KeyValue.make(`budget/${name}`, Spent)
  const current = Effect.map(spent.get, Option.getOrElse((): Spent => ({ calls: 0, tokens: 0, cost: 0 })))
  const ledger: Ledger = {
    budget: name,
    check: Effect.gen(function*() {
      const now = yield* current
      const over = all.find(({ limit, most }) => now[limit] >= most)
      if (over === undefined) return
      return yield* exceeded(new BudgetExceeded({ budget: name, ...over, spent: now[over.limit] }))
    }) as Effect.Effect<void, AiError.AiError>,
    begin: Effect.flatMap(current, (now) => spent.set({ ...now, calls: now.calls + 1 })) as Effect.Effect<void>,
    end: (usage, cost) =>
      Effect.gen(function*() {
        const now = yield* current
        const tokens = (usage?.inputTokens.total ?? 0) + (usage?.outputTokens.total ?? 0)
        if (tokens > 0 || cost > 0) yield* spent.set({ ...now, tokens: now.tokens + tokens, cost: now.cost + cost })
      }) as Effect.Effect<void>
  }
  return {
    name,
    spent,
    limit: (program) =>
      Effect.flatMap(Ledgers, (outer) =>
        program.pipe(
          Effect.provideService(Ledgers, [...outer.filter(({ budget }) => budget !== name), ledger]),
          Effect.catch((error) => {
            const known = typeof error === "object" && error !== null ? reasons.get(error) : undefined
            return Effect.fail(known?.budget === name ? known : error)
          })
        )) as never
  }
}

// internal

/** What failures of models mean, which only `AiError` can say to a program. */
const reasons = new WeakMap<object, BudgetExceeded>()

const exceeded = (reason: BudgetExceeded): Effect.Effect<never, AiError.AiError> =>
  Effect.suspend(() => {
    const error = AiError.make({
      module: "Budget",
      method: reason.budget,
      reason: new AiError.QuotaExhaustedError({
        metadata: { duroxide: { budget: reason.budget, limit: reason.limit } }
      })
    })
    reasons.set(error, reason)
    return Effect.fail(error)
  })
