/**
 * Collects the spans of several processes, as a backend for traces does.
 */
import type * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Tracer from "effect/Tracer"

export interface Collected {
  readonly process: string
  readonly name: string
  readonly kind: Tracer.SpanKind
  readonly traceId: string
  readonly spanId: string
  readonly parentId: string | undefined
  readonly startMs: number
  readonly endMs: number
  readonly sampled: boolean
  readonly attributes: Readonly<Record<string, unknown>>
  /** Ids of the linked spans. */
  readonly links: ReadonlyArray<string>
  readonly events: ReadonlyArray<readonly [name: string, attributes: Readonly<Record<string, unknown>>]>
  readonly exit: Exit.Exit<unknown, unknown>
}

export class Collector {
  /** In the order of their ends. */
  readonly spans: Array<Collected> = []
  /** Those that are not sampled: they are not exported. */
  readonly unsampled: Array<Tracer.NativeSpan> = []
  /** Names of spans that have begun and not ended. */
  readonly open = new Map<Tracer.Span, string>()

  /** A process that exports to this collector. */
  tracer(process: string): Tracer.Tracer {
    const { open, spans, unsampled } = this
    class Span extends Tracer.NativeSpan {
      override end(endTime: bigint, exit: Exit.Exit<unknown, unknown>) {
        if (this.status._tag === "Ended") return
        super.end(endTime, exit)
        open.delete(this)
        if (!this.sampled) return void unsampled.push(this)
        spans.push({
          process,
          name: this.name,
          kind: this.kind,
          traceId: this.traceId,
          spanId: this.spanId,
          parentId: Option.getOrUndefined(this.parent)?.spanId,
          startMs: Number(this.startTime) / 1_000_000,
          endMs: Number(endTime) / 1_000_000,
          sampled: this.sampled,
          attributes: Object.fromEntries(this.attributes),
          links: this.links.map(({ span }) => span.spanId),
          events: this.events.map(([name, , attributes]) => [name, attributes ?? {}]),
          exit
        })
      }
    }
    return Tracer.make({
      span: (options) => {
        const span = new Span(options)
        open.set(span, span.name)
        return span
      }
    })
  }

  layer(process: string): Layer.Layer<never> {
    return Layer.succeed(Tracer.Tracer, this.tracer(process))
  }

  named(name: string): ReadonlyArray<Collected> {
    return this.spans.filter((span) => span.name === name)
  }

  /** Spans whose parent was not collected. */
  roots(): ReadonlyArray<Collected> {
    const ids = new Set(this.spans.map(({ spanId }) => spanId))
    return this.spans.filter(({ parentId }) => parentId === undefined || !ids.has(parentId))
  }

  /** One line for each span, indented below its parent, in the order of their begins. */
  outline(line: (span: Collected) => string = ({ name }) => name): ReadonlyArray<string> {
    const below = (parents: ReadonlyArray<Collected>, indent: string): ReadonlyArray<string> =>
      [...parents].sort((a, b) => a.startMs - b.startMs).flatMap((span) => [
        `${indent}${line(span)}`,
        ...below(this.spans.filter(({ parentId }) => parentId === span.spanId), `${indent}  `)
      ])
    return below(this.roots(), "")
  }
}
