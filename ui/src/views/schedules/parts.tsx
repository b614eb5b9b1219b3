/** What the list and the view of a schedule show alike. */
import { link, toInstance } from "../../app/route.ts"
import type { Schedule, ScheduleRun } from "../../client/models.ts"
import { StatusBadge } from "../../parts/badges.tsx"
import { Ago } from "../../parts/time.tsx"

export const toSchedule = (name: string): string => link(["schedules", name])

const tones = { Active: "green", Paused: "amber", Overdue: "red", Ended: "" }

export const StateBadge = ({ schedule: { state } }: { readonly schedule: Schedule }) => (
  <span class={`badge ${tones[state]}`}>{state}</span>
)

export const Timing = ({ timing }: Pick<Schedule, "timing">) =>
  timing === null
    ? <span class="muted">written by a newer version</span>
    : (
      <span title={timing.expression ?? undefined}>
        {timing.words}
        {timing.timeZone !== null && <span class="muted small">, {timing.timeZone}</span>}
      </span>
    )

export const Target = ({ target }: Pick<Schedule, "target">) =>
  target === null
    ? <span class="zero">–</span>
    : target.kind === "task"
    ? (
      <span>
        task <a href={link(["tasks"], { name: target.name })}>{target.name}</a>
      </span>
    )
    : (
      <span>
        <a href={link(["instances"], { name: target.name, version: target.version ?? undefined })}>{target.name}</a>
        {target.version !== null && <span class="muted small">{" "}{target.version}</span>}
      </span>
    )

/** What it has started, or the occurrence. */
export const RunLink = ({ run, text }: { readonly run: ScheduleRun; readonly text: string }) =>
  run.instanceId !== null
    ? <a href={toInstance(run.instanceId)}>{text}</a>
    : run.taskId !== null
    ? <a href={link(["tasks"], { id: run.taskId })}>{text}</a>
    : <>{text}</>

const outcomes = { Started: "blue", Skipped: "", Queued: "amber", Missed: "red", Refused: "red" }

/** How far it is, if it has started something. */
export const RunBadge = ({ run }: { readonly run: ScheduleRun }) =>
  run.outcome === "Started" && run.status !== null
    ? <StatusBadge status={run.status} />
    : <span class={`badge ${outcomes[run.outcome]}`} title={run.note ?? undefined}>{run.outcome}</span>

export const LastRun = ({ run }: { readonly run: ScheduleRun }) => (
  <span>
    <RunBadge run={run} />{" "}
    <span class="muted small">
      <Ago atMs={run.settledMs} />
    </span>
    {run.outcome === "Started" && (
      <span class="small">
        {" "}
        <RunLink run={run} text={run.instanceId !== null ? "instance" : "task"} />
      </span>
    )}
  </span>
)
