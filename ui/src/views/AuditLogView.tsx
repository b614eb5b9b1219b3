import { link, toInstance } from "../app/route.ts"
import { api } from "../client/client.ts"
import type { AuditEntry } from "../client/models.ts"
import { useQuery } from "../client/query.ts"
import { Pager } from "../parts/pager.tsx"
import { usePages } from "../parts/pages.ts"
import { Answer, Empty, Panel, Table } from "../parts/panel.tsx"
import { Ago, dateTime } from "../parts/time.tsx"
import { filterKeys, timeWords } from "./instances/filter.ts"

const tones = { done: "green", refused: "amber", failed: "red" }

/** What people did with the dashboard. */
export const AuditLogView = () => {
  const pages = usePages([])
  const log = useQuery(
    () => api.read.actions({ query: pages.cursor === undefined ? {} : { cursor: pages.cursor } }),
    [pages.cursor],
    { everyMs: 15_000 }
  )
  return (
    <>
      <div class="view-head">
        <h1>Audit log</h1>
      </div>
      <Panel title="What was done with the dashboard">
        <Answer query={log}>
          {({ actions: items, next }) =>
            items.length === 0
              ? (
                <Empty>
                  No one has done anything yet. Everything that is done with the dashboard is listed here, with its
                  reason and outcome.
                </Empty>
              )
              : (
                <div>
                  <Table isCards label="Audit log" head={["When", "Who", "Action", "Target", "Details", "Outcome"]}>
                    {items.map((item) => (
                      <tr key={item.id}>
                        <td>
                          <Ago atMs={item.atMs} />
                        </td>
                        <td class="break">{item.actor}</td>
                        <td class="name">{item.action}</td>
                        <td class="break">
                          <Target action={item} />
                        </td>
                        <td class="detail break">{item.details}</td>
                        <td>
                          <span class={`badge ${tones[item.outcome]}`}>{item.outcome}</span>
                        </td>
                      </tr>
                    ))}
                  </Table>
                  <Pager pages={pages} next={next} isLoading={log.isLoading} />
                </div>
              )}
        </Answer>
      </Panel>
    </>
  )
}

const ofInstances: ReadonlySet<string> = new Set([
  "start",
  "signal",
  "request",
  "interrupt",
  "terminate",
  "retry",
  "fork",
  "redrive",
  "delete"
])

/** What was done to all that a filter found: its target is the filter, in the names of the interface. */
const isBulk = ({ details, target }: AuditEntry) =>
  new RegExp(`^(${filterKeys.join("|")}) `).test(target) ||
  (target === "all" && /^(begun|\d+ done)/.test(details))

const ofSchedules: ReadonlySet<string> = new Set([
  "run schedule",
  "pause schedule",
  "resume schedule",
  "backfill schedule",
  "delete schedule"
])

const Target = ({ action }: { readonly action: AuditEntry }) =>
  ofSchedules.has(action.action)
    ? <a href={link(["schedules", action.target])}>{action.target}</a>
    : isBulk(action)
    ? <>{filterInWords(action.target)}</>
    : ofInstances.has(action.action)
    ? <a href={toInstance(action.target)}>{action.target}</a>
    : <>{action.target}</>

/** Its names are those of the interface, its times milliseconds. */
const filterInWords = (filter: string): string =>
  filter.replace(
    /\b(createdFrom|createdBefore|updatedFrom|updatedBefore)Ms (\d{13})\b/g,
    (_, name: keyof typeof timeWords, ms: string) => `${timeWords[name]} ${dateTime(Number(ms))}`
  )
