import { link } from "../../app/route.ts"
import type { Attention, Overview } from "../../client/models.ts"
import { Empty, Panel } from "../../parts/panel.tsx"

/** What only a person can cure, each with the list that shows it. */
export const AttentionPanel = ({ overview }: { readonly overview: Overview }) => (
  <Panel title="Needs a person">
    {overview.attention.length === 0
      ? (
        <Empty>
          Nothing. Blocked and failed instances, dead tasks and letters, overdue schedules, and work that no process
          serves would be here.
        </Empty>
      )
      : (
        <ul class="list">
          {overview.attention.map((item, at) => {
            const { href, text, tone } = placeOf(item, overview)
            return (
              <li key={at}>
                <span class={`dot ${tone}`} aria-hidden="true" />
                <span class="grow">{item.text}</span>
                {href !== null && <a href={href}>{text}</a>}
              </li>
            )
          })}
        </ul>
      )}
  </Panel>
)

const placeOf = (
  item: Attention,
  { pauses }: Overview
): { readonly href: string | null; readonly text: string; readonly tone: string } => {
  const name = item.name ?? undefined
  switch (item.kind) {
    case "blocked":
      return { href: link(["instances"], { status: "Blocked", name }), text: "Show blocked instances", tone: "red" }
    case "failed":
      return {
        href: link(["instances"], { status: "Failed", name, updatedFromMs: "1h" }),
        text: "Show failed instances",
        tone: "red"
      }
    case "retrying":
      return { href: link(["instances"], { retrying: "true", name }), text: "Show retrying instances", tone: "amber" }
    case "paused":
      if (name === undefined) {
        return { href: link(["instances"], { status: "Paused" }), text: "Show paused instances", tone: "amber" }
      }
      // What is paused by name is beside this list, too; only orchestrations have a view.
      return pauses.some(({ target }) => target.kind === "orchestration" && target.name === name)
        ? { href: "#/definitions", text: "Show definitions", tone: "amber" }
        : { href: null, text: "", tone: "amber" }
    case "unserved":
      return { href: "#/processes", text: "Show processes", tone: "red" }
    case "late":
      return { href: "#/queues", text: "Show queues", tone: "amber" }
    case "deadTasks":
      return { href: link(["tasks"], { status: "Dead", name }), text: "Show dead tasks", tone: "red" }
    case "deadLetters":
      return { href: link(["queues"], { dead: name }), text: "Show dead letters", tone: "red" }
    case "overdueSchedules":
      return {
        href: name === undefined ? "#/schedules" : link(["schedules", name]),
        text: name === undefined ? "Show schedules" : "Show the schedule",
        tone: "red"
      }
    case "deadProcesses":
      return { href: "#/processes", text: "Show processes", tone: "amber" }
  }
}
