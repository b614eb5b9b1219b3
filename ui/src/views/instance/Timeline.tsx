import { useMemo, useRef, useState } from "preact/hooks"
import { toInstance } from "../../app/route.ts"
import { useTimed } from "../../client/clock.ts"
import type { HistoryEvent } from "../../client/models.ts"
import { Panel } from "../../parts/panel.tsx"
import { clock, dateTime, duration } from "../../parts/time.tsx"
import { byName, sparseBars } from "./byName.ts"
import { type Bar, type Row, type TickRow, timelineOf } from "./timeline.ts"
import { type Range, steps, useZoom } from "./zoom.ts"

const rowHeight = 26
const mostHeight = 390
/** With more calls than this, each name has one row at first. */
const mostCalls = 60

/** Bars to scale from each request to its answer. Only the rows in sight are rendered. */
export const Timeline = (props: {
  readonly id: string
  readonly events: ReadonlyArray<HistoryEvent>
  readonly hasEnded: boolean
  readonly execution: string | undefined
}) => {
  const { events, hasEnded } = props
  const timeline = useMemo(() => timelineOf(events), [events])
  const endMs = useTimed((nowMs) =>
    hasEnded ? timeline.toMs : Math.max(timeline.toMs, coarseNow(timeline.fromMs, nowMs))
  )
  const zoom = useZoom({ fromMs: timeline.fromMs, toMs: Math.max(endMs, timeline.fromMs + 1000) })
  const { range } = zoom
  const [top, setTop] = useState(0)
  const [grouping, setGrouping] = useState<"call" | "name" | null>(null)
  const isByName = (grouping ?? (timeline.rows.length > mostCalls ? "name" : "call")) === "name"
  const all = useMemo(() => isByName ? byName(timeline.rows) : timeline.rows, [timeline, isByName])
  const inRange = useMemo(
    () =>
      zoom.isWhole
        ? all
        : all.filter(({ bars }) =>
          bars.some((bar) => bar.fromMs <= range.toMs && (bar.toMs ?? Infinity) >= range.fromMs)
        ),
    [all, zoom.isWhole, range.fromMs, range.toMs]
  )
  const rows: ReadonlyArray<Row | TickRow> = [...timeline.ticks, ...inRange]
  const first = Math.max(0, Math.floor(top / rowHeight) - 5)
  const last = Math.min(rows.length, first + Math.ceil(mostHeight / rowHeight) + 12)
  const at = (ms: number) => ((ms - range.fromMs) / (range.toMs - range.fromMs)) * 100
  const href = (event: number) => toInstance(props.id, { execution: props.execution, event: String(event) })
  return (
    <Panel
      title="Time line"
      end={
        <>
          <span class="muted small timeline-span">{dateTime(range.fromMs)}, {duration(range.toMs - range.fromMs)}</span>
          <button
            type="button"
            class="button small"
            aria-pressed={isByName}
            title="One row for all calls of a name, instead of one for each call"
            onClick={() => setGrouping(isByName ? "call" : "name")}
          >
            By name
          </button>
          <button type="button" class="button small" aria-pressed={zoom.isWhole} onClick={zoom.whole}>Whole</button>
          {endMs - timeline.fromMs > 3_600_000 && (
            <button type="button" class="button small" onClick={zoom.lastHour}>Last hour</button>
          )}
          <button type="button" class="button small" aria-label="Zoom in" onClick={zoom.in}>+</button>
          <button type="button" class="button small" aria-label="Zoom out" disabled={zoom.isWhole} onClick={zoom.out}>
            −
          </button>
          <button
            type="button"
            class="button small"
            aria-label="Earlier"
            disabled={zoom.isWhole}
            onClick={zoom.earlier}
          >
            ←
          </button>
          <button type="button" class="button small" aria-label="Later" disabled={zoom.isWhole} onClick={zoom.later}>
            →
          </button>
        </>
      }
    >
      <div class="timeline">
        <Axis range={range} onSelect={zoom.select} />
        <div
          class="timeline-rows"
          style={{ maxHeight: `${mostHeight}px` }}
          role="group"
          aria-label={`Time line with ${rows.length} rows; the history below has the same events as text`}
          tabIndex={0}
          onScroll={(event) => setTop(event.currentTarget.scrollTop)}
        >
          <div style={{ height: `${rows.length * rowHeight}px` }}>
            {rows.slice(first, last).map((row, index) => (
              <div class="timeline-row" key={first + index} style={{ top: `${(first + index) * rowHeight}px` }}>
                <span class="timeline-label" title={row.label}>
                  {"bars" in row && <i class={`kind ${row.kind}`} aria-hidden="true" />}
                  <span>{row.label}</span>
                  {"bars" in row && row.tag !== null && <span class="chip">{row.tag}</span>}
                </span>
                <span class="timeline-track">
                  {"bars" in row
                    ? sparseBars(row.bars, range, endMs).map((bar) => (
                      <BarLink
                        key={`${bar.eventId}-${bar.tryNumber}`}
                        row={row}
                        bar={bar}
                        at={at}
                        endMs={endMs}
                        href={href(bar.eventId)}
                      />
                    ))
                    : sparse(row, range).map((tick) => (
                      <a
                        key={tick.eventId}
                        class="tick"
                        style={{ left: `${at(tick.atMs)}%` }}
                        href={href(tick.eventId)}
                        title={`${tick.label}, ${clock(tick.atMs)}`}
                        aria-label={`${tick.label}, event ${tick.eventId}, ${clock(tick.atMs)}`}
                      />
                    ))}
                </span>
              </div>
            ))}
          </div>
        </div>
        {rows.length === 0 && <p class="empty">No activities, timers, signals or children in this range.</p>}
        <p class="note kinds">
          {(["activity", "timer", "signal", "child"] as const).map((kind) => (
            <span key={kind}>
              <i class={`kind ${kind}`} aria-hidden="true" />
              {kind}
            </span>
          ))}
          <span>
            <i class="kind failed" aria-hidden="true" />failed
          </span>
          <span>
            <i class="kind open" aria-hidden="true" />open
          </span>
          <span class="grow">Drag over the times to zoom.</span>
        </p>
      </div>
    </Panel>
  )
}

/** In steps that are too small to see, so that a long time line is not drawn each second. */
const coarseNow = (fromMs: number, nowMs: number): number => {
  const stepMs = 1000 * 2 ** Math.max(0, Math.floor(Math.log2(Math.max(1, (nowMs - fromMs) / 500_000))))
  return fromMs + Math.ceil((nowMs - fromMs) / stepMs) * stepMs
}

const BarLink = (props: {
  readonly row: Row
  readonly bar: Bar
  readonly at: (ms: number) => number
  readonly endMs: number
  readonly href: string
}) => {
  const { at, bar, endMs, row } = props
  const toMs = bar.toMs ?? endMs
  const left = Math.max(0, at(bar.fromMs))
  const right = Math.min(100, at(toMs))
  if (right < 0 || left > 100) return null
  const short = `${bar.tryNumber > 1 ? `try ${bar.tryNumber}, ` : ""}${bar.isAfterRetry ? "after a retry, " : ""}${
    duration(toMs - bar.fromMs)
  }`
  const text = `${
    row.kind === "timer" ? "timer" : `${row.kind} ${row.label}`
  }, ${short}, ${bar.outcome}, event ${bar.eventId}`
  return (
    <a
      class={`bar-link ${row.kind} ${bar.outcome === "given up" ? "given-up" : bar.outcome}`}
      // One that begins at the right edge is moved in by its least width.
      style={{ left: `min(${left}%, 100% - 3px)`, width: `max(3px, ${right - left}%)` }}
      href={props.href}
      title={bar.problem === null ? text : `${text}\n${bar.problem}`}
      aria-label={text}
    >
      {right - left > 5 && <span>{short}</span>}
    </a>
  )
}

/** At most one tick for each quarter of a percent: more would lie upon each other. */
const sparse = ({ ticks }: TickRow, range: Range) => {
  const seen = new Set<number>()
  return ticks.filter(({ atMs }) => {
    const place = Math.round(((atMs - range.fromMs) / (range.toMs - range.fromMs)) * 400)
    if (place < 0 || place > 400 || seen.has(place)) return false
    seen.add(place)
    return true
  })
}

const Axis = (
  { onSelect, range }: { readonly range: Range; readonly onSelect: (from: number, to: number) => void }
) => {
  const ref = useRef<HTMLDivElement>(null)
  const [drag, setDrag] = useState<readonly [number, number] | null>(null)
  const place = (event: PointerEvent) => {
    const box = ref.current?.getBoundingClientRect()
    return box === undefined ? 0 : Math.min(1, Math.max(0, (event.clientX - box.left) / box.width))
  }
  const spanMs = range.toMs - range.fromMs
  return (
    <div class="timeline-row axis">
      <span class="timeline-label" />
      <div
        class="timeline-track"
        ref={ref}
        onPointerDown={(event) => {
          event.currentTarget.setPointerCapture(event.pointerId)
          setDrag([place(event), place(event)])
        }}
        onPointerMove={(event) => drag !== null && setDrag([drag[0], place(event)])}
        onPointerUp={() => {
          if (drag !== null && Math.abs(drag[1] - drag[0]) > 0.01) {
            onSelect(range.fromMs + Math.min(...drag) * spanMs, range.fromMs + Math.max(...drag) * spanMs)
          }
          setDrag(null)
        }}
      >
        {steps(range).map(({ atMs, text }) => (
          <span key={atMs} class="axis-step" style={{ left: `${((atMs - range.fromMs) / spanMs) * 100}%` }}>
            {text}
          </span>
        ))}
        {drag !== null && (
          <span
            class="selection"
            style={{ left: `${Math.min(...drag) * 100}%`, width: `${Math.abs(drag[1] - drag[0]) * 100}%` }}
          />
        )}
      </div>
    </div>
  )
}
