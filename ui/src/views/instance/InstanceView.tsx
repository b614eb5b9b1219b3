import * as Effect from "effect/Effect"
import { useEffect, useRef, useState } from "preact/hooks"
import { useOverview } from "../../app/contexts.ts"
import type { Query } from "../../app/route.ts"
import { link, toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import { tellTime } from "../../client/clock.ts"
import { useLive } from "../../client/live.ts"
import type { InstanceDetail } from "../../client/models.ts"
import { useQuery, useThrottled } from "../../client/query.ts"
import { Loading, Problem } from "../../parts/panel.tsx"
import { Children } from "./Children.tsx"
import { type Doing, InstanceDialog } from "./dialogs.tsx"
import { ExplanationPanel } from "./ExplanationPanel.tsx"
import { HistoryPanel } from "./HistoryPanel.tsx"
import { InstanceHeader } from "./InstanceHeader.tsx"
import { RequestsPanel } from "./RequestsPanel.tsx"
import { StatePanels } from "./StatePanels.tsx"
import { StreamsPanel } from "./StreamsPanel.tsx"
import { Timeline } from "./Timeline.tsx"
import { useHistory } from "./useHistory.ts"

const refreshMs = 15_000

const tabs = [["", "History"], ["children", "Children"], ["state", "State"], ["streams", "Streams"], [
  "requests",
  "Requests"
]] as const

export const InstanceView = ({ id, query }: { readonly id: string; readonly query: Query }) => {
  const execution = /^\d+$/.test(query["execution"] ?? "") ? Number(query["execution"]) : undefined
  const [isDeleted, setDeleted] = useState(false)
  // The sentence has ages, which grow although nothing changes.
  const detail = useQuery(
    () => api.read.instance({ query: { id } }).pipe(Effect.tap(({ nowMs }) => Effect.sync(() => tellTime(nowMs)))),
    [id],
    { everyMs: isDeleted ? null : refreshMs }
  )
  const history = useHistory(id, execution)
  const [doing, setDoing] = useState<Doing | null>(null)
  const tabsRef = useRef<HTMLElement>(null)
  useEffect(() => {
    // A narrow window scrolls the parts sideways.
    const open = tabsRef.current?.querySelector<HTMLElement>("[aria-current]")
    if (open !== null && open !== undefined) tabsRef.current?.scrollTo({ left: open.offsetLeft - 48 })
  }, [query["tab"], detail.data === null])
  const reload = () => {
    detail.reload()
    history.refresh()
  }
  const overview = useOverview()
  const reloadSoon = useThrottled(reload, 400)
  const live = useLive(() => api.read.instanceLive({ query: { id } }), [id], (instance) => {
    if (instance === null) setDeleted(true)
    else reloadSoon()
  }, reloadSoon)
  if (detail.data === null) {
    return (
      <>
        <div class="view-head">
          <h1>{id}</h1>
        </div>
        {detail.problem === null
          ? <Loading />
          : detail.code === "InstanceNotFound"
          ? (
            <p class="notice" role="alert">
              There is no instance with this id.{" "}
              <a href={link(["instances"], { idPrefix: id })}>Search ids that begin with {id}</a>
            </p>
          )
          : <Problem text={detail.problem} retry={detail.reload} />}
        <p>
          <a href="#/instances">All instances</a>
        </p>
      </>
    )
  }
  const data: InstanceDetail = detail.data
  return (
    <>
      <InstanceHeader detail={data} onDo={setDoing} />
      {isDeleted && <p class="notice" role="alert">This instance was deleted. What you see is what it was.</p>}
      {detail.problem !== null && !isDeleted && <Problem text={detail.problem} retry={detail.reload} />}
      {live.problem !== null && live.problem !== "connecting" && overview.problem === null && !isDeleted && (
        <p class="notice" role="status">not live: {live.problem}</p>
      )}
      <ExplanationPanel detail={data} onDo={setDoing} />
      <nav class="row tight tabs" aria-label="Parts of the instance" ref={tabsRef}>
        {tabs.map(([tab, name]) => (
          <a
            key={tab}
            class="button plain"
            href={toInstance(id, { tab, execution: query["execution"] })}
            aria-current={(query["tab"] ?? "") === tab ? "page" : undefined}
          >
            {name} <TabCount tab={tab} detail={data} />
          </a>
        ))}
        {data.executions.length > 1 && (
          <label class="row tight end-of-row">
            <span class="muted small">Execution</span>
            <select
              value={String(execution ?? data.instance.executionId)}
              onChange={(event) => (location.hash = toInstance(id, { execution: event.currentTarget.value }))}
            >
              {data.executions.toReversed().map(({ executionId }) => (
                <option key={executionId} value={String(executionId)}>{executionId}</option>
              ))}
            </select>
          </label>
        )}
      </nav>
      <Part
        id={id}
        tab={query["tab"] ?? ""}
        query={query}
        detail={data}
        history={history}
        execution={execution}
        onDo={setDoing}
      />
      {doing !== null && (
        <InstanceDialog
          doing={doing}
          detail={data}
          onDone={() => {
            if (doing.action === "delete") location.hash = link(["instances"])
            else reload()
          }}
          onClose={() => setDoing(null)}
        />
      )}
    </>
  )
}

/** What is behind a tab, if it is not always something. */
const TabCount = ({ detail, tab }: { readonly detail: InstanceDetail; readonly tab: string }) => {
  const { answered, open } = detail.requests
  const text = tab === "children"
    ? detail.hasChildren ? "" : "none"
    : tab === "streams"
    ? detail.streams === 0 ? "none" : String(detail.streams)
    : tab === "requests"
    ? open > 0 ? `${open} open` : answered > 0 ? "" : "none"
    : ""
  return text === "" ? null : <span class="muted">{text}</span>
}

const Part = (props: {
  readonly id: string
  readonly tab: string
  readonly query: Query
  readonly detail: InstanceDetail
  readonly history: ReturnType<typeof useHistory>
  readonly execution: number | undefined
  readonly onDo: (doing: Doing) => void
}) => {
  const { detail, execution, history, id, query, tab } = props
  if (tab === "children") return <Children id={id} />
  if (tab === "state") return <StatePanels detail={detail} onDo={props.onDo} />
  if (tab === "streams") return <StreamsPanel id={id} query={query} />
  if (tab === "requests") return <RequestsPanel detail={detail} />
  const { executionId, status } = detail.instance
  const isCurrent = execution === undefined || execution === executionId
  const event = Number(query["event"])
  return (
    <>
      {history.loaded !== null && history.loaded.events.length > 0 && (
        <Timeline
          key={execution}
          id={id}
          events={history.loaded.events}
          hasEnded={status !== "Running" || !isCurrent}
          execution={query["execution"]}
        />
      )}
      <HistoryPanel
        instance={detail.instance}
        history={history}
        isCurrent={isCurrent}
        execution={query["execution"]}
        marked={query["event"] !== undefined && Number.isInteger(event) ? event : null}
        onDo={props.onDo}
      />
    </>
  )
}
