/** One row for all calls of a name: thousands of rows say less than a few. */
import type { Bar, Row } from "./timeline.ts"
import type { Range } from "./zoom.ts"

export const byName = (rows: ReadonlyArray<Row>): ReadonlyArray<Row> => {
  const named = new Map<string, Row & { bars: Array<Bar> }>()
  for (const row of rows) {
    // Each child has an id of its own in its label.
    const name = row.kind === "child" ? row.label.split(" ")[0] ?? row.label : row.label
    const key = `${row.kind}\n${name}\n${row.tag ?? ""}`
    const before = named.get(key)
    if (before === undefined) named.set(key, { kind: row.kind, label: name, tag: row.tag, bars: [...row.bars] })
    else before.bars.push(...row.bars)
  }
  return [...named.values()]
}

const places = 500

/** At most one short bar for each five hundredth of the range; a failed one wins over others. */
export const sparseBars = (bars: ReadonlyArray<Bar>, range: Range, endMs: number): ReadonlyArray<Bar> => {
  if (bars.length < places / 4) return bars
  const scale = places / (range.toMs - range.fromMs)
  const short = new Map<number, Bar>()
  const long: Array<Bar> = []
  for (const bar of bars) {
    const from = Math.floor((bar.fromMs - range.fromMs) * scale)
    const to = Math.floor(((bar.toMs ?? endMs) - range.fromMs) * scale)
    if (to < 0 || from > places) continue
    if (to - from > 1) long.push(bar)
    else if (bar.outcome === "failed" || !short.has(from)) short.set(from, bar)
  }
  return [...long, ...short.values()]
}
