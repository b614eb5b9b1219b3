import { useState } from "preact/hooks"
import { clock, dateTime } from "../../parts/time.tsx"

export interface Range {
  readonly fromMs: number
  readonly toMs: number
}

const narrowestMs = 20

/** Which part of the time line is shown. Null: the whole, which grows while the instance runs. */
export const useZoom = (whole: Range) => {
  const [chosen, setChosen] = useState<Range | null>(null)
  const range = chosen ?? whole
  const spanMs = range.toMs - range.fromMs
  const middleMs = range.fromMs + spanMs / 2
  const set = (fromMs: number, toMs: number) => {
    const from = Math.max(whole.fromMs, fromMs)
    const to = Math.min(whole.toMs, toMs)
    if (from <= whole.fromMs && to >= whole.toMs) setChosen(null)
    else if (to - from >= narrowestMs) setChosen({ fromMs: from, toMs: to })
  }
  const move = (ms: number) => {
    const by = Math.max(whole.fromMs - range.fromMs, Math.min(whole.toMs - range.toMs, ms))
    setChosen({ fromMs: range.fromMs + by, toMs: range.toMs + by })
  }
  return {
    range,
    isWhole: chosen === null,
    select: set,
    whole: () => setChosen(null),
    lastHour: () => set(whole.toMs - 3_600_000, whole.toMs),
    in: () => set(middleMs - spanMs / 4, middleMs + spanMs / 4),
    out: () => set(middleMs - spanMs, middleMs + spanMs),
    earlier: () => move(-spanMs / 2),
    later: () => move(spanMs / 2)
  }
}

const sizes = ([
  [1, [1, 2, 5, 10, 20, 50, 100, 200, 500]],
  [1000, [1, 2, 5, 10, 15, 30]],
  [60_000, [1, 2, 5, 10, 15, 30]],
  [3_600_000, [1, 2, 3, 6, 12]],
  [86_400_000, [1, 2, 7, 14, 30, 90, 365]]
] as const).flatMap(([unit, counts]) => counts.map((count) => count * unit))

/** Four to six round times. */
export const steps = ({ fromMs, toMs }: Range): ReadonlyArray<{ readonly atMs: number; readonly text: string }> => {
  const size = sizes.find((one) => (toMs - fromMs) / one <= 6) ?? 365 * 86_400_000
  // Days begin at midnight here, not in UTC.
  const zoneMs = new Date(fromMs).getTimezoneOffset() * 60_000
  const steps = []
  for (let atMs = Math.ceil((fromMs - zoneMs) / size) * size + zoneMs; atMs < toMs; atMs += size) {
    const text = size >= 86_400_000
      ? dateTime(atMs).slice(0, 10)
      : size >= 60_000
      ? clock(atMs).slice(0, 5)
      : size >= 1000
      ? clock(atMs)
      : `${clock(atMs)}.${String(atMs % 1000).padStart(3, "0")}`
    steps.push({ atMs, text })
  }
  return steps
}
