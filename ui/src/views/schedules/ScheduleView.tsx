import * as Effect from "effect/Effect"
import { useState } from "preact/hooks"
import { useOverview, useReadOnly } from "../../app/contexts.ts"
import { api } from "../../client/client.ts"
import { tellTime } from "../../client/clock.ts"
import { useLive } from "../../client/live.ts"
import type { ScheduleDetail, ScheduleRun } from "../../client/models.ts"
import { useQuery } from "../../client/query.ts"
import { Menu, MenuItem } from "../../parts/menu.tsx"
import { Empty, Loading, Panel, Problem, Table } from "../../parts/panel.tsx"
import { Ago, dateTime, duration, fullTime, plural } from "../../parts/time.tsx"
import { type Doing, ScheduleDialog } from "./dialogs.tsx"
import { RunBadge, RunLink, StateBadge, Target, Timing } from "./parts.tsx"

/** One schedule: its rules, what comes, what became of it. */
export const ScheduleView = ({ name }: { readonly name: string }) => {
  const [isDeleted, setDeleted] = useState(false)
  const [doing, setDoing] = useState<Doing | null>(null)
  const first = useQuery(
    () => api.read.schedule({ query: { name } }).pipe(Effect.tap(({ nowMs }) => Effect.sync(() => tellTime(nowMs)))),
    [name]
  )
  const [live, setLive] = useState<ScheduleDetail | null>(null)
  const stream = useLive(() => api.read.scheduleLive({ query: { name } }), [name], (detail) => {
    if (detail === null) return setDeleted(true)
    tellTime(detail.nowMs)
    setDeleted(false)
    setLive(detail)
  })
  const overview = useOverview()
  const isOlder = live === null || (first.data !== null && first.data.nowMs > live.nowMs)
  const detail = isOlder ? first.data : live
  if (detail === null) {
    return (
      <>
        <div class="view-head">
          <h1>{name}</h1>
        </div>
        {first.problem === null
          ? <Loading />
          : first.code === "ScheduleNotFound"
          ? <p class="notice" role="alert">There is no schedule of this name.</p>
          : <Problem text={first.problem} retry={first.reload} />}
        <p>
          <a href="#/schedules">All schedules</a>
        </p>
      </>
    )
  }
  const { schedule } = detail
  return (
    <>
      <header class="instance-head">
        <nav class="crumbs" aria-label="Ancestors">
          <a href="#/schedules">Schedules</a>
        </nav>
        <div class="view-head">
          <h1>{name}</h1>
          <StateBadge schedule={schedule} />
          {!isDeleted && (
            <div class="end">
              <Actions isPaused={schedule.pause !== null} onDo={setDoing} />
            </div>
          )}
        </div>
        <p class="facts">
          <Timing timing={schedule.timing} />
          <span>
            starts <Target target={schedule.target} />
          </span>
        </p>
      </header>
      {isDeleted && <p class="notice" role="alert">This schedule was deleted. What you see is what it was.</p>}
      {schedule.problem !== null && <p class="notice" role="alert">Overdue: {schedule.problem}.</p>}
      {schedule.pause !== null && (
        <p class="notice" role="status">
          Paused <Ago atMs={schedule.pause.sinceMs} />
          {schedule.pause.reason === null ? "." : `: ${schedule.pause.reason}`}
        </p>
      )}
      {stream.problem !== null && stream.problem !== "connecting" && overview.problem === null && (
        <p class="notice" role="status">not live: {stream.problem}</p>
      )}
      <div class="columns">
        <div class="stack">
          <Rules detail={detail} />
          <Waiting detail={detail} />
        </div>
        <Next detail={detail} />
      </div>
      <Runs runs={detail.runs} />
      {doing !== null && (
        <ScheduleDialog
          doing={doing}
          name={name}
          onDone={() => {
            if (doing === "delete") location.hash = "#/schedules"
            else first.reload()
          }}
          onClose={() => setDoing(null)}
        />
      )}
    </>
  )
}

const Actions = (props: { readonly isPaused: boolean; readonly onDo: (doing: Doing) => void }) => {
  const readOnly = useReadOnly()
  const item = (text: string, doing: Doing, note?: string) => (
    <MenuItem
      text={text}
      note={readOnly === undefined ? note : undefined}
      isDisabled={readOnly !== undefined}
      onClick={() => props.onDo(doing)}
    />
  )
  return (
    <Menu label="Actions">
      {readOnly !== undefined && <p class="menu-note">{readOnly}</p>}
      {item("Run now…", "run")}
      {props.isPaused ? item("Resume…", "resume") : item("Pause…", "pause")}
      {item("Backfill…", "backfill", "occurrences of a time that has passed")}
      <hr />
      {item("Delete…", "delete", "what it has started continues")}
    </Menu>
  )
}

const overlaps = {
  skip: "An occurrence is left out while the last run continues.",
  queue: "One occurrence waits for the end of the last run; further ones are left out meanwhile.",
  allow: "Runs may overlap.",
  interrupt: "The last run is interrupted, and the newest occurrence starts when it has ended."
}

const catchUpOf = ({ catchUp, withinMs }: NonNullable<ScheduleDetail["rules"]>) =>
  catchUp === "none"
    ? "Occurrences that are more than a minute late are left out."
    : catchUp === "last"
    ? "Of those that are more than a minute late, the last one starts."
    : `Late ones start if they are not older than ${duration(withinMs ?? 0)}.`

const Rules = ({ detail }: { readonly detail: ScheduleDetail }) => {
  const { isCode, rules, schedule: { timing } } = detail
  return (
    <Panel title="Rules">
      <dl class="pairs body">
        {timing?.expression !== null && timing !== null && (
          <>
            <dt>Cron</dt>
            <dd>
              <code>{timing.expression}</code> in {timing.timeZone}
            </dd>
          </>
        )}
        {rules !== null && (
          <>
            <dt>Overlap</dt>
            <dd>{overlaps[rules.overlap]}</dd>
            <dt>Late</dt>
            <dd>{catchUpOf(rules)}</dd>
            {rules.jitterMs > 0 && (
              <>
                <dt>Jitter</dt>
                <dd>Each starts up to {duration(rules.jitterMs)} later.</dd>
              </>
            )}
          </>
        )}
        <dt>Fired by</dt>
        <dd>
          {isCode
            ? "processes that have its code in Schedules.layer: code makes its payload"
            : "any process with Schedules.layer"}
        </dd>
        <dt>Created</dt>
        <dd>
          <Ago atMs={detail.createdMs} />
        </dd>
        {detail.updatedMs !== detail.createdMs && (
          <>
            <dt>Changed</dt>
            <dd>
              <Ago atMs={detail.updatedMs} />
            </dd>
          </>
        )}
      </dl>
    </Panel>
  )
}

const Waiting = ({ detail: { schedule } }: { readonly detail: ScheduleDetail }) => (
  <Panel title="Waits">
    {schedule.queuedMs === null && schedule.requests === 0
      ? <Empty>Nothing. An occurrence that waits for the last run, and runs by hand, would be here.</Empty>
      : (
        <ul class="list">
          {schedule.queuedMs !== null && (
            <li>
              <span class="dot amber" aria-hidden="true" />
              <span class="grow" title={fullTime(schedule.queuedMs)}>
                The occurrence of {dateTime(schedule.queuedMs)} waits for the end of the last run.
              </span>
            </li>
          )}
          {schedule.requests > 0 && (
            <li>
              <span class="dot blue" aria-hidden="true" />
              <span class="grow">
                {plural(schedule.requests, "request")} for runs by hand or backfills{" "}
                {schedule.requests === 1 ? "waits" : "wait"} for a scheduler.
              </span>
            </li>
          )}
        </ul>
      )}
  </Panel>
)

const Next = ({ detail: { schedule } }: { readonly detail: ScheduleDetail }) => (
  <Panel title="Next occurrences">
    {schedule.nextMs.length === 0
      ? (
        <Empty>
          {schedule.pause === null ? "No occurrence follows." : "None while it is paused."}
        </Empty>
      )
      : (
        <>
          <Times all={schedule.nextMs.slice(0, shownAtOnce)} />
          {schedule.nextMs.length > shownAtOnce && (
            <details class="more">
              <summary>{schedule.nextMs.length - shownAtOnce} more</summary>
              <Times all={schedule.nextMs.slice(shownAtOnce)} />
            </details>
          )}
        </>
      )}
  </Panel>
)

const shownAtOnce = 6

const Times = ({ all }: { readonly all: ReadonlyArray<number> }) => (
  <ol class="list">
    {all.map((ms) => (
      <li key={ms} title={fullTime(ms)}>
        <span class="grow">{dateTime(ms)}</span>
        <span class="muted small">
          <Ago atMs={ms} />
        </span>
      </li>
    ))}
  </ol>
)

const kinds = { Scheduled: "by its timing", Manual: "by hand", Backfill: "backfill" }

const Runs = ({ runs }: { readonly runs: ReadonlyArray<ScheduleRun> }) => (
  <Panel title="Runs">
    {runs.length === 0
      ? <Empty>Nothing has come of it yet. The last 100 runs would be here.</Empty>
      : (
        <Table isCards label="Runs" head={["Occurrence", "Outcome", "Why", "Settled", "Detail"]}>
          {runs.map((run) => (
            <tr key={run.number}>
              <td class="nowrap" title={fullTime(run.occurrenceMs)}>
                <RunLink run={run} text={dateTime(run.occurrenceMs)} />
              </td>
              <td>
                <RunBadge run={run} />
              </td>
              <td class="muted">{kinds[run.kind]}</td>
              <td>
                <Ago atMs={run.settledMs} />
              </td>
              <td class="detail break">
                {run.sinceMs !== null && run.sinceMs !== run.occurrenceMs && `all since ${dateTime(run.sinceMs)}. `}
                {run.note ?? run.instanceId ?? run.taskId}
              </td>
            </tr>
          ))}
        </Table>
      )}
  </Panel>
)
