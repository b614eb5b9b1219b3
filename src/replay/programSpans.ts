/**
 * Spans that the code of an orchestration makes, with `Effect.withSpan` or `Effect.fn`.
 *
 * Every replay makes them again. So a span is kept back until the turn in which it ends is stored, and is exported
 * then: once, by the process that stores the turn. Its times are those of the orchestration's clock, so it may be as
 * long as the instance lives, and has no length within a turn. A span that is open when its execution ends is not
 * exported.
 */
import type * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import * as Tracer from "effect/Tracer"

type Options = ConstructorParameters<typeof Tracer.NativeSpan>[0]

/** Its ids are the same in every replay, because the code can read them. */
export class ProgramSpan extends Tracer.NativeSpan {
  readonly options: Options
  private readonly onEnd: (span: ProgramSpan) => void

  /** `number` counts the spans of the execution, from 1. */
  constructor(options: Options, number: number, onEnd: (span: ProgramSpan) => void) {
    super(options)
    this.options = options
    this.onEnd = onEnd
    this._spanId = number.toString(16).padStart(16, "0")
    this._traceId = Option.getOrUndefined(options.parent)?.traceId ?? "0".repeat(31) + "1"
  }

  override end(endTime: bigint, exit: Exit.Exit<unknown, unknown>): void {
    if (this.status._tag === "Ended") return
    super.end(endTime, exit)
    this.onEnd(this)
  }
}

/**
 * Makes the spans again with the tracer of the host: those that ended in one turn, in the order of their ends. The
 * parent is the enclosing one if it ended in the turn as well, otherwise the span of the turn.
 */
export const exportTo = (tracer: Tracer.Tracer, turn: Tracer.AnySpan, spans: ReadonlyArray<ProgramSpan>): void => {
  const exported = new Map<Tracer.AnySpan, Tracer.Span>()
  const isEnded = new Set<Tracer.AnySpan>(spans)
  const make = (span: ProgramSpan): Tracer.Span => {
    const known = exported.get(span)
    if (known !== undefined) return known
    const enclosing = Option.getOrUndefined(span.parent)
    const parent = enclosing instanceof ProgramSpan && isEnded.has(enclosing) ? make(enclosing) : turn
    const { annotations, kind, links, name, sampled, startTime } = span.options
    const made = tracer.span({
      name,
      annotations,
      kind,
      links: [...links],
      startTime,
      parent: Option.some(parent),
      root: false,
      sampled: sampled && parent.sampled
    })
    for (const [key, value] of span.attributes) made.attribute(key, value)
    for (const [name, time, attributes] of span.events) made.event(name, time, attributes)
    exported.set(span, made)
    return made
  }
  for (const span of spans) {
    const { status } = span
    if (status._tag === "Ended") make(span).end(status.endTime, status.exit)
  }
}
