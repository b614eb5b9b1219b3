/** The rows of the time line, computed from events. */
import type { HistoryEvent } from "../../client/models.ts"

export type BarKind = "activity" | "timer" | "signal" | "child"

export interface Bar {
  readonly eventId: number
  readonly fromMs: number
  /** Null while it is open. */
  toMs: number | null
  endEventId: number | null
  outcome: "open" | "done" | "failed" | "given up"
  readonly tryNumber: number
  /** It was carried out again under its old event. */
  readonly isAfterRetry: boolean
  problem: string | null
}

export interface Row {
  readonly kind: BarKind
  readonly label: string
  readonly tag: string | null
  readonly bars: Array<Bar>
}

export interface Tick {
  readonly eventId: number
  readonly atMs: number
  readonly label: string
}

export interface TickRow {
  readonly label: string
  readonly ticks: Array<Tick>
}

export interface Timeline {
  readonly ticks: ReadonlyArray<TickRow>
  readonly rows: ReadonlyArray<Row>
  readonly fromMs: number
  readonly toMs: number
}

const kinds: Readonly<Record<string, BarKind>> = {
  "activity scheduled": "activity",
  "timer set": "timer",
  "signal awaited": "signal",
  "lossy signal awaited": "signal",
  "child started": "child"
}

const tickRows: Readonly<Record<string, string>> = {
  "signal": "Signals",
  "lossy signal": "Signals",
  "lossy signal lost": "Signals",
  "signal set aside": "Signals",
  "custom status": "Custom status",
  "key-value set": "Key-values",
  "key-value cleared": "Key-values",
  "key-values cleared": "Key-values",
  "attributes changed": "Attributes",
  "detached start": "Detached starts"
}

const otherTicks = new Set(["interrupted", "terminated", "retried", "forked", "change recorded"])

export const timelineOf = (events: ReadonlyArray<HistoryEvent>): Timeline => {
  const rows: Array<Row> = []
  const open = new Map<number, Bar>()
  const ticks = new Map<string, TickRow>()
  const failed = new Map<string, Array<Row>>()
  const keys = new Map<Bar, { readonly key: string; readonly row: Row }>()
  const rowOf = new Map<Bar, Row>()
  const signals = new Signals()
  /** Removed answers are not known: before a retry, this is how long a call has lasted at least. */
  let beforeRetryMs = 0

  const end = (bar: Bar, event: HistoryEvent, outcome: Bar["outcome"]) => {
    bar.toMs = event.atMs
    bar.endEventId = event.eventId
    bar.outcome = outcome
    bar.problem = event.problem
    open.delete(bar.eventId)
    const of = keys.get(bar)
    if (outcome === "failed" && of !== undefined) failed.set(of.key, [...failed.get(of.key) ?? [], of.row])
  }

  /** The call continues as its next try; the answer of the one before was removed. */
  const again = (eventId: number, retried: HistoryEvent) => {
    const bar = open.get(eventId)
    const row = bar === undefined ? undefined : rowOf.get(bar)
    if (bar === undefined || row === undefined) return
    const of = keys.get(bar)
    bar.toMs = Math.max(bar.fromMs, beforeRetryMs)
    bar.endEventId = retried.eventId
    bar.outcome = "failed"
    bar.problem = "Its answer was removed by a retry."
    const next: Bar = {
      eventId,
      fromMs: retried.atMs,
      toMs: null,
      endEventId: null,
      outcome: "open",
      tryNumber: bar.tryNumber + 1,
      isAfterRetry: true,
      problem: null
    }
    row.bars.push(next)
    rowOf.set(next, row)
    open.set(eventId, next)
    if (of !== undefined) keys.set(next, of)
  }

  for (const event of events) {
    if (event.kind !== "retried") beforeRetryMs = event.atMs
    else for (const eventId of againOf(event)) again(eventId, event)
    const kind = kinds[event.kind]
    if (kind !== undefined) {
      // A call that begins after the same one has failed is its next try.
      const key = `${event.name ?? ""}\n${event.tag ?? ""}\n${event.payload ?? ""}`
      const before = kind === "activity" ? failed.get(key)?.shift() : undefined
      const bar: Bar = {
        eventId: event.eventId,
        fromMs: event.atMs,
        toMs: null,
        endEventId: null,
        outcome: "open",
        tryNumber: (before?.bars.length ?? 0) + 1,
        isAfterRetry: false,
        problem: null
      }
      const row = before ?? { kind, label: labelOf(kind, event), tag: event.tag, bars: [] }
      row.bars.push(bar)
      rowOf.set(bar, row)
      if (before === undefined) rows.push(row)
      open.set(event.eventId, bar)
      if (kind === "activity") keys.set(bar, { key, row })
      if (kind === "signal") {
        const early = signals.wait(event.name, bar)
        if (early !== undefined) end(bar, { ...early, atMs: event.atMs }, "done")
      }
      continue
    }
    const answered = event.answers === null ? undefined : open.get(event.answers)
    if (answered !== undefined) {
      end(answered, event, outcomeOf(event))
      signals.drop(answered)
    } else if (event.kind === "signal" || event.kind === "lossy signal") {
      const waiting = signals.arrive(event)
      if (waiting !== undefined) end(waiting, event, "done")
    }
    const label = tickRows[event.kind] ?? (otherTicks.has(event.kind) ? "Instance" : undefined)
    if (label === undefined) continue
    const row = ticks.get(label) ?? { label, ticks: [] }
    ticks.set(label, row)
    row.ticks.push({ eventId: event.eventId, atMs: event.atMs, label: `${event.kind} ${event.name ?? ""}`.trim() })
  }
  const fromMs = events[0]?.atMs ?? 0
  return { ticks: [...ticks.values()], rows, fromMs, toMs: Math.max(fromMs, events.at(-1)?.atMs ?? 0) }
}

/** The requests that a retry carries out again: the event lists them as `done again: #12 #15`. */
const againOf = ({ problem }: HistoryEvent): ReadonlyArray<number> =>
  problem?.startsWith("done again:") === true
    ? [...problem.matchAll(/#(\d+)/g)].map(([, eventId]) => Number(eventId))
    : []

const outcomeOf = ({ isFailure, kind }: HistoryEvent): Bar["outcome"] =>
  kind.endsWith("given up") || kind.endsWith("cancelled") ? "given up" : isFailure ? "failed" : "done"

const labelOf = (kind: BarKind, event: HistoryEvent): string =>
  kind === "timer"
    ? "timer"
    : kind === "child"
    ? `${event.name ?? "child"} ${event.instanceId ?? ""}`
    : event.name ?? kind

/** Signals and waits of a name meet in order; the history does not say which wait took which. */
class Signals {
  readonly #arrived = new Map<string, Array<HistoryEvent>>()
  readonly #waits = new Map<string, Array<Bar>>()

  wait(name: string | null, bar: Bar): HistoryEvent | undefined {
    const early = this.#arrived.get(name ?? "")?.shift()
    if (early === undefined) this.#waits.set(name ?? "", [...this.#waits.get(name ?? "") ?? [], bar])
    return early
  }

  /** The wait that it ends. A lossy signal does not wait for one. */
  arrive(event: HistoryEvent): Bar | undefined {
    const name = event.name ?? ""
    const bar = this.#waits.get(name)?.shift()
    if (bar === undefined && event.kind === "signal") this.#arrived.set(name, [...this.#arrived.get(name) ?? [], event])
    return bar
  }

  drop(bar: Bar) {
    for (const [name, bars] of this.#waits) {
      if (bars.includes(bar)) this.#waits.set(name, bars.filter((one) => one !== bar))
    }
  }
}
