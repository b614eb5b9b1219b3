import { useState } from "preact/hooks"
import type { Pace } from "../../client/models.ts"
import { Chart } from "../../parts/Chart.tsx"
import { Empty, Panel } from "../../parts/panel.tsx"
import { clock, rate } from "../../parts/time.tsx"

const series = [
  { key: "started", name: "Started", color: "--accent" },
  { key: "completed", name: "Completed", color: "--green" },
  { key: "failed", name: "Failed", color: "--red" },
  { key: "cancelled", name: "Cancelled", color: "--muted" },
  { key: "blocked", name: "Blocked now", color: "--bar-signal" }
] as const

/** Instances per minute over time; the same numbers as a table for those who cannot see the chart. */
export const PacesPanel = ({ paces }: { readonly paces: ReadonlyArray<Pace> }) => {
  const [hidden, setHidden] = useState<ReadonlySet<string>>(new Set())
  const [at, setAt] = useState<number | null>(null)
  const shown = (at === null ? undefined : paces[at]) ?? paces.at(-1)
  const toggle = (key: string) => {
    const next = new Set(hidden)
    if (!next.delete(key)) next.add(key)
    setHidden(next)
  }
  return (
    <Panel
      title="Instances per minute"
      end={<span class="muted small">{shown === undefined ? "" : at === null ? "now" : clock(shown.atMs)}</span>}
    >
      {paces.length < 2
        ? <Empty>The chart starts when the dashboard is opened, and covers the last hour at most.</Empty>
        : (
          <div>
            <Chart
              atMs={paces.map(({ atMs }) => atMs)}
              lines={series.filter(({ key }) => !hidden.has(key)).map(({ color, key, name }) => ({
                name,
                color,
                values: paces.map((pace) => pace[key])
              }))}
              onPoint={setAt}
            />
            <div class="legend">
              {series.map(({ color, key, name }) => (
                <button
                  type="button"
                  key={key}
                  aria-pressed={!hidden.has(key)}
                  onClick={() => toggle(key)}
                >
                  <i style={{ background: `var(${color})` }} aria-hidden="true" />
                  {name} <b>{rate(shown?.[key])}</b>
                </button>
              ))}
            </div>
            <div class="hidden-visually">
              <table>
                <caption>Instances per minute, the newest first</caption>
                <thead>
                  <tr>
                    <th scope="col">Time</th>
                    {series.map(({ key, name }) => <th scope="col" key={key}>{name}</th>)}
                  </tr>
                </thead>
                <tbody>
                  {everyNth(paces, 12).map((pace) => (
                    <tr key={pace.atMs}>
                      <th scope="row">{clock(pace.atMs)}</th>
                      {series.map(({ key }) => <td key={key}>{rate(pace[key])}</td>)}
                    </tr>
                  ))}
                </tbody>
              </table>
            </div>
          </div>
        )}
    </Panel>
  )
}

const everyNth = (items: ReadonlyArray<Pace>, most: number): ReadonlyArray<Pace> => {
  const step = Math.max(1, Math.ceil(items.length / most))
  return items.toReversed().filter((_, at) => at % step === 0)
}
