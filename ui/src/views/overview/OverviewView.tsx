import { useOverview, useSession } from "../../app/contexts.ts"
import { link } from "../../app/route.ts"
import type { Overview } from "../../client/models.ts"
import { Answer, Panel } from "../../parts/panel.tsx"
import { Ago, duration, number, rate } from "../../parts/time.tsx"
import { AttentionPanel } from "./AttentionPanel.tsx"
import { DuePanel } from "./DuePanel.tsx"
import { PacesPanel } from "./PacesPanel.tsx"
import { PausesPanel } from "./PausesPanel.tsx"
import { ProcessesPanel } from "./ProcessesPanel.tsx"
import { ReasonsPanel } from "./ReasonsPanel.tsx"

export const OverviewView = () => {
  const overview = useOverview()
  const { metricsUrl } = useSession()
  return (
    <>
      <div class="view-head">
        <h1>Overview</h1>
        {metricsUrl !== null && /^https?:/i.test(metricsUrl) && (
          <div class="end">
            <a class="button" href={metricsUrl} rel="noreferrer">Metrics</a>
          </div>
        )}
      </div>
      <Answer
        query={{
          data: overview.data,
          problem: overview.data === null && overview.problem !== "connecting" ? overview.problem : null
        }}
      >
        {(data) => (
          <>
            {data.problem !== null && (
              <p class="notice" role="status">
                The store does not answer: {data.problem} These numbers are from <Ago atMs={data.nowMs} />.
              </p>
            )}
            <Tiles overview={data} />
            <PacesPanel paces={data.paces} />
            <div class="columns wide-first">
              <div class="stack">
                <AttentionPanel overview={data} />
                <ReasonsPanel />
                <DuePanel due={data.due} />
              </div>
              <div class="stack">
                <PausesPanel pauses={data.pauses} pausedInstances={data.pausedInstances} />
                <ProcessesPanel processes={data.processes} />
                <WorkPanel tasks={data.tasks} outbox={data.outbox} />
              </div>
            </div>
          </>
        )}
      </Answer>
    </>
  )
}

const WorkPanel = ({ outbox, tasks }: Pick<Overview, "tasks" | "outbox">) => (
  <Panel title="Tasks and outbox">
    <ul class="list">
      <li>
        <a class="grow" href="#/tasks">Tasks</a>
        <span class="muted">
          {tasks === null ? "did not answer" : `${number(tasks.pending)} pending, ${number(tasks.running)} running`}
        </span>
        {tasks !== null && tasks.dead > 0 && <span class="badge red">{number(tasks.dead)} dead</span>}
      </li>
      <li>
        <a class="grow" href="#/queues">Outbox</a>
        <span class="muted">{outbox === null ? "did not answer" : `${number(outbox.waiting)} to send`}</span>
        {outbox !== null && outbox.failing > 0 && <span class="badge red">{number(outbox.failing)} failing</span>}
      </li>
    </ul>
  </Panel>
)

const Tiles = ({ overview }: { readonly overview: Overview }) => {
  const pace = overview.paces.at(-1)
  const running = overview.counts.filter(({ status }) => status === "Running")
  const isEstimate = running.some((count) => count.isEstimate)
  const oldest = overview.due.reduce<number | null>(
    (max, { oldestAgeMs }) => oldestAgeMs === null ? max : Math.max(max ?? 0, oldestAgeMs),
    null
  )
  return (
    <div class="tiles">
      <Tile
        label="Running"
        value={`${isEstimate ? "about " : ""}${number(running.reduce((sum, { instances }) => sum + instances, 0))}`}
        href={link(["instances"], { status: "Running" })}
      />
      <Tile
        label="Blocked"
        value={number(overview.blocked)}
        tone={overview.blocked > 0 ? "red" : ""}
        href={link(["instances"], { status: "Blocked" })}
      />
      <Tile
        label="Failed"
        value={rate(pace?.failed)}
        unit="/ min"
        tone={(pace?.failed ?? 0) >= 0.05 ? "amber" : ""}
        href={link(["instances"], { status: "Failed", updatedFromMs: "1m" })}
      />
      <Tile label="Started" value={rate(pace?.started)} unit="/ min" />
      <Tile label="Ended" value={rate(pace && pace.completed + pace.failed + pace.cancelled)} unit="/ min" />
      <Tile
        label="Oldest due work"
        value={oldest === null ? "none" : duration(oldest)}
        tone={(oldest ?? 0) > 60_000 ? "amber" : ""}
        href="#/queues"
      />
    </div>
  )
}

const Tile = (props: {
  readonly label: string
  readonly value: string
  readonly unit?: string
  readonly tone?: string
  readonly href?: string
}) => {
  const inner = (
    <>
      <span class="label">{props.label}</span>
      <span class="value">{props.value} {props.unit !== undefined && <small>{props.unit}</small>}</span>
    </>
  )
  const name = `panel tile ${props.tone ?? ""}`
  return props.href === undefined ? <div class={name}>{inner}</div> : <a class={name} href={props.href}>{inner}</a>
}
