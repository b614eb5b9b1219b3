import { useState } from "preact/hooks"
import { useReadOnly } from "../../app/contexts.ts"
import { api } from "../../client/client.ts"
import { useQuery } from "../../client/query.ts"
import { Pager } from "../../parts/pager.tsx"
import { usePages } from "../../parts/pages.ts"
import { Answer, Empty, Panel, Table } from "../../parts/panel.tsx"
import { Ago, fullTime } from "../../parts/time.tsx"
import { type Doing, ScheduleDialog } from "./dialogs.tsx"
import { LastRun, StateBadge, Target, Timing, toSchedule } from "./parts.tsx"

/** What starts at certain times: when, what, and what became of it last. */
export const SchedulesView = () => {
  const pages = usePages([])
  const schedules = useQuery(
    () => api.read.schedules({ query: pages.cursor === undefined ? {} : { cursor: pages.cursor } }),
    [pages.cursor],
    { everyMs: 5000 }
  )
  const [doing, setDoing] = useState<{ readonly name: string; readonly doing: Doing } | null>(null)
  const readOnly = useReadOnly()
  const button = (text: string, name: string, doing: Doing) => (
    <button
      type="button"
      class="button small"
      disabled={readOnly !== undefined}
      title={readOnly}
      onClick={() => setDoing({ name, doing })}
    >
      {text}
      <span class="hidden-visually">{name}</span>
    </button>
  )
  return (
    <>
      <div class="view-head">
        <h1>Schedules</h1>
      </div>
      <Panel title="What starts at certain times">
        <Answer query={schedules}>
          {(page) =>
            page.schedules.length === 0 && pages.number === 1
              ? (
                <Empty>
                  There is no schedule. Schedules that code defines or creates would be here, with their next and last
                  runs.
                </Empty>
              )
              : (
                <div>
                  <Table
                    isCards
                    label="Schedules"
                    head={["Schedule", "State", "When", "Starts", "Next", "Last run", "-Actions"]}
                  >
                    {page.schedules.map((schedule) => (
                      <tr key={schedule.name}>
                        <td class="name">
                          <a href={toSchedule(schedule.name)}>{schedule.name}</a>
                        </td>
                        <td title={schedule.problem ?? schedule.pause?.reason ?? undefined}>
                          <StateBadge schedule={schedule} />
                        </td>
                        <td class="wide">
                          <Timing timing={schedule.timing} />
                        </td>
                        <td class="break" data-label="starts">
                          <Target target={schedule.target} />
                        </td>
                        <td data-label="next" title={schedule.nextMs.map(fullTime).join("\n") || undefined}>
                          {schedule.nextMs[0] === undefined
                            ? <span class="zero">–</span>
                            : <Ago atMs={schedule.nextMs[0]} />}
                        </td>
                        <td data-label="last">
                          {schedule.lastRun === null
                            ? <span class="muted">none</span>
                            : <LastRun run={schedule.lastRun} />}
                        </td>
                        <td class="num">
                          <span class="row tight end-of-row">
                            {button("Run now…", schedule.name, "run")}
                            {schedule.pause === null
                              ? button("Pause…", schedule.name, "pause")
                              : button("Resume…", schedule.name, "resume")}
                          </span>
                        </td>
                      </tr>
                    ))}
                  </Table>
                  <Pager pages={pages} next={page.next} isLoading={schedules.isLoading} />
                </div>
              )}
        </Answer>
      </Panel>
      {doing !== null && <ScheduleDialog {...doing} onDone={schedules.reload} onClose={() => setDoing(null)} />}
    </>
  )
}
