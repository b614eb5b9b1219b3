import type { Process } from "../../client/models.ts"
import { Empty, Panel } from "../../parts/panel.tsx"
import { Slots } from "../../parts/slots.tsx"

export const ProcessesPanel = ({ processes }: { readonly processes: ReadonlyArray<Process> }) => {
  const alive = processes.filter(({ isAlive }) => isAlive)
  return (
    <Panel title={`Processes alive: ${alive.length}`} end={<a class="small" href="#/processes">All processes</a>}>
      {alive.length === 0
        ? <Empty>No process is alive, so nothing runs. Start one that serves your definitions.</Empty>
        : (
          <ul class="list">
            {alive.slice(0, 12).map((process) => (
              <li key={process.id}>
                <span class="dot green" aria-hidden="true" />
                <span class="grow">
                  {process.host}/{process.pid} <span class="chip">{process.build}</span>
                </span>
                <span class="small muted">
                  turns{" "}
                  <Slots
                    isAlive={process.isAlive}
                    inUse={process.orchestrationSlotsInUse}
                    of={process.orchestrationSlots}
                  />, activities{" "}
                  <Slots isAlive={process.isAlive} inUse={process.activitySlotsInUse} of={process.activitySlots} />
                </span>
              </li>
            ))}
            {alive.length > 12 && <li class="muted">and {alive.length - 12} more</li>}
          </ul>
        )}
    </Panel>
  )
}
