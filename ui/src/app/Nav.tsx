import { useEffect, useRef } from "preact/hooks"
import type { Attention } from "../client/models.ts"
import { useOverview } from "./contexts.ts"
import { useRoute } from "./route.ts"

const entries: ReadonlyArray<{ path: string; name: string; kinds: ReadonlyArray<Attention["kind"]> }> = [
  { path: "", name: "Overview", kinds: [] },
  { path: "instances", name: "Instances", kinds: ["blocked"] },
  { path: "definitions", name: "Definitions", kinds: [] },
  { path: "queues", name: "Queues", kinds: ["deadLetters"] },
  { path: "tasks", name: "Tasks", kinds: ["deadTasks"] },
  { path: "schedules", name: "Schedules", kinds: ["overdueSchedules"] },
  { path: "limits", name: "Limits", kinds: [] },
  { path: "processes", name: "Processes", kinds: ["deadProcesses"] },
  { path: "audit-log", name: "Audit log", kinds: [] }
]

export const Nav = () => {
  const open = useRoute().path[0] ?? ""
  const ref = useRef<HTMLElement>(null)
  useEffect(() => {
    // A narrow window scrolls the names of the views sideways.
    const entry = ref.current?.querySelector<HTMLElement>("[aria-current]")
    if (entry !== null && entry !== undefined) ref.current?.scrollTo({ left: entry.offsetLeft - 48 })
  }, [open])
  const attention = useOverview().data?.attention ?? []
  const countOf = (kinds: ReadonlyArray<string>) =>
    attention.filter((item) => kinds.includes(item.kind)).reduce((sum, item) => sum + (item.count ?? 0), 0)
  return (
    <nav ref={ref} class="nav" aria-label="Views">
      <ul>
        {entries.map(({ path, name, kinds }) => {
          const count = countOf(kinds)
          return (
            <li key={path}>
              <a href={`#/${path}`} aria-current={open === path ? "page" : undefined}>
                {name}
                {count > 0 && <span class="count" title={`${count} need a person`}>{count}</span>}
              </a>
            </li>
          )
        })}
      </ul>
    </nav>
  )
}
