import { useEffect, useRef } from "preact/hooks"
import UPlot from "uplot"
import { theme } from "../app/settings.ts"
import { useSignal } from "../client/signal.ts"

export interface Line {
  readonly name: string
  /** A variable of the style sheet. */
  readonly color: string
  readonly values: ReadonlyArray<number>
}

const height = 172

const minutes = [1, 2, 5, 10, 15, 30, 60].map((n) => n * 60)

/** Lines over time. It is a picture only: whoever uses it gives the numbers as text, too. */
export const Chart = (props: {
  readonly atMs: ReadonlyArray<number>
  readonly lines: ReadonlyArray<Line>
  /** The point below the mouse. */
  readonly onPoint: (index: number | null) => void
}) => {
  const ref = useRef<HTMLDivElement>(null)
  const plot = useRef<UPlot | null>(null)
  const onPoint = useRef(props.onPoint)
  onPoint.current = props.onPoint
  const chosen = useSignal(theme)
  const data: UPlot.AlignedData = [props.atMs.map((ms) => ms / 1000), ...props.lines.map(({ values }) => [...values])]
  const latest = useRef(data)
  latest.current = data
  const names = props.lines.map(({ name }) => name).join()

  useEffect(() => {
    const place = ref.current
    if (place === null) return
    const draw = () => {
      plot.current?.destroy()
      plot.current = new UPlot(optionsOf(place, props.lines, onPoint), latest.current, place)
    }
    draw()
    const resized = new ResizeObserver(() => plot.current?.setSize({ width: place.clientWidth, height }))
    resized.observe(place)
    // Canvas colours do not follow the style sheet by themselves.
    const scheme = matchMedia("(prefers-color-scheme: dark)")
    scheme.addEventListener("change", draw)
    return () => {
      scheme.removeEventListener("change", draw)
      resized.disconnect()
      plot.current?.destroy()
      plot.current = null
    }
  }, [names, chosen])

  useEffect(() => plot.current?.setData(latest.current), [data])
  return (
    <div class="chart">
      <div ref={ref} aria-hidden="true" />
    </div>
  )
}

const optionsOf = (
  place: HTMLElement,
  lines: ReadonlyArray<Line>,
  onPoint: { readonly current: (index: number | null) => void }
): UPlot.Options => {
  const style = getComputedStyle(place)
  const color = (name: string) => style.getPropertyValue(name)
  const axis = {
    stroke: color("--muted"),
    font: `11px ${color("--sans")}`,
    grid: { stroke: color("--line"), width: 1 },
    ticks: { show: false }
  }
  return {
    width: place.clientWidth,
    height,
    legend: { show: false },
    cursor: { y: false, drag: { x: false, y: false }, points: { size: 7 } },
    scales: { y: { range: (_, __, max) => [0, Math.max(4, max * 1.1)] } },
    // At least a minute apart: closer ones would have the same label.
    axes: [{ ...axis, values: "{HH}:{mm}", incrs: minutes, space: 70, size: 26, gap: 6 }, {
      ...axis,
      size: 44,
      space: 34
    }],
    series: [
      {},
      ...lines.map((line) => ({ label: line.name, stroke: color(line.color), width: 1.6, points: { show: false } }))
    ],
    hooks: { setCursor: [(chart) => onPoint.current(chart.cursor.idx ?? null)] }
  }
}
