/**
 * Stops code that never comes to rest.
 *
 * A fiber calls its scheduler and its tracer before every operation, so both count steps. But a generator that yields
 * effects which are already done (`yield* Effect.void`) is run by Effect in a loop inside one operation. So generators
 * count their steps, too.
 *
 * A fiber that has used up the budget is parked: it waits forever, whatever its code catches or finalises, even in an
 * uninterruptible region. Interrupting it, or failing it, would run more of its code.
 */
import * as Effect from "effect/Effect"
import * as Tracer from "effect/Tracer"
import { ProgramSpan } from "./programSpans.ts"

/** The turns of a program: it must not run between them. */
export interface Turns {
  /** False between two turns. */
  readonly isInTurn: () => boolean
  /** Called when the code continues between two turns, because it awaits something that is not durable. */
  readonly onStray: () => void
  /** Called when the code ends a span. */
  readonly onSpan: (span: ProgramSpan) => void
}

/**
 * Most steps of a program before it waits: up to one second of work, and seven times the steps of 10,000 concurrent
 * branches. Counted rather than timed, so that a program fails on every machine or on none.
 */
const maxSteps = 2_000_000

/**
 * A second limit, for code whose single operations take long. By then the lock of the turn may have expired, because
 * the process cannot renew it during the turn. In processor time, so that no program fails because its machine was
 * suspended or busy.
 */
const maxCpuMs = 5_000

export class Budget {
  readonly tracer: Tracer.Tracer
  private readonly turns: Turns
  private spans = 0
  private steps = 0
  private startedAt: number | undefined
  private cpuMsThen: number | undefined
  private isUsedUp = false

  constructor(turns: Turns) {
    this.turns = turns
    this.tracer = Tracer.make({
      span: (options) => new ProgramSpan(options, ++this.spans, turns.onSpan),
      context: (primitive, fiber) => {
        if (!this.take()) return never[evaluate](fiber)
        if (isGenerator(primitive) && !(primitive.iterator instanceof Counted)) {
          primitive.iterator = new Counted(primitive.iterator, this)
        }
        return primitive[evaluate](fiber)
      }
    })
  }

  /** Once true, it stays true: the program never runs again. */
  get usedUp(): boolean {
    return this.isUsedUp
  }

  /** The program has come to rest. */
  renew(): void {
    this.steps = 0
    this.startedAt = this.cpuMsThen = undefined
  }

  /** Counts a step; false when it must not be taken. */
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
    // The processor time includes other threads of the process, so the clock is checked as well.
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
