/**
 * Stops code that never comes to rest.
 *
 * A fiber asks its scheduler and its tracer before every operation, so both count. They do not see a generator that
 * yields values which are there already (`yield* Effect.void`): Effect goes on with it inside one operation, in a loop
 * that asks for nothing but the next value. So the generator counts, too.
 *
 * A fiber that has used up the budget is parked: it waits for something that never comes, whatever its code catches or
 * finalises, and where it cannot be interrupted as well. To interrupt it, or to fail it, would run more of its code.
 */
import * as Effect from "effect/Effect"
import * as Tracer from "effect/Tracer"

/** A program runs in turns only. */
export interface Turns {
  /** False between two turns. */
  readonly isInTurn: () => boolean
  /** Called when the code goes on between two turns, because it awaits something that is not durable. */
  readonly onStray: () => void
}

/**
 * How much a program may do until it waits: up to a second of work, and seven times what 10,000 branches at once take.
 * Counted, not timed, so that a program fails on every machine or on none.
 */
const maxSteps = 2_000_000

/**
 * The second line, for code whose single operations take long: such a step could not be stored anyway, because the
 * process cannot renew its lock meanwhile. Processor time, so that a machine that stood still or was busy elsewhere
 * fails nothing.
 */
const maxCpuMs = 5_000

export class Budget {
  /** Spans under replay go nowhere. */
  readonly tracer: Tracer.Tracer
  private readonly turns: Turns
  private steps = 0
  private startedAt: number | undefined
  private cpuMsThen: number | undefined
  private isUsedUp = false

  constructor(turns: Turns) {
    this.turns = turns
    this.tracer = Tracer.make({
      span: (options) => new Tracer.NativeSpan(options),
      context: (primitive, fiber) => {
        if (!this.take()) return never[evaluate](fiber)
        if (isGenerator(primitive) && !(primitive.iterator instanceof Counted)) {
          primitive.iterator = new Counted(primitive.iterator, this)
        }
        return primitive[evaluate](fiber)
      }
    })
  }

  /** Once it is used up it stays so: the program is abandoned. */
  get usedUp(): boolean {
    return this.isUsedUp
  }

  /** The program has come to rest. */
  renew(): void {
    this.steps = 0
    this.startedAt = this.cpuMsThen = undefined
  }

  /** Asks for a step; false when it must not be taken. */
  take(): boolean {
    if (!this.turns.isInTurn()) {
      this.turns.onStray()
      return false
    }
    if (++this.steps > maxSteps || (this.steps % 64 === 0 && this.takesTooLong())) this.isUsedUp = true
    return !this.isUsedUp
  }

  private takesTooLong(): boolean {
    const now = performance.now()
    this.startedAt ??= now
    const elapsedMs = now - this.startedAt
    if (elapsedMs < 1_000) return false
    const { system, user } = process.cpuUsage()
    const cpuMs = (system + user) / 1_000
    this.cpuMsThen ??= cpuMs
    // Other threads of the process use its processor time as well, hence the clock.
    return elapsedMs > maxCpuMs && cpuMs - this.cpuMsThen > maxCpuMs - 1_000
  }
}

// internal

const evaluate = "~effect/Effect/evaluate"

const never = Effect.never as unknown as Tracer.EffectPrimitive<never>

/** What `Effect.gen` and `Effect.fn` become when they run. */
interface Generator {
  iterator: Iterator<unknown>
}

const isGenerator = (primitive: object): primitive is Generator =>
  (primitive as Partial<Generator>).iterator !== undefined

class Counted implements Iterator<unknown> {
  private readonly inner: Iterator<unknown>
  private readonly budget: Budget
  constructor(inner: Iterator<unknown>, budget: Budget) {
    this.inner = inner
    this.budget = budget
  }
  next(value: unknown) {
    // The fiber that catches this is parked at its next operation.
    if (!this.budget.take()) throw new Error("the program does not come to rest")
    return this.inner.next(value)
  }
}
