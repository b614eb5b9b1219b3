import { AuditLogView } from "../views/AuditLogView.tsx"
import { DefinitionsView } from "../views/DefinitionsView.tsx"
import { InstanceView } from "../views/instance/InstanceView.tsx"
import { InstancesView } from "../views/instances/InstancesView.tsx"
import { LimitsView } from "../views/LimitsView.tsx"
import { OverviewView } from "../views/overview/OverviewView.tsx"
import { ProcessesView } from "../views/ProcessesView.tsx"
import { QueuesView } from "../views/QueuesView.tsx"
import { SchedulesView } from "../views/schedules/SchedulesView.tsx"
import { ScheduleView } from "../views/schedules/ScheduleView.tsx"
import { TasksView } from "../views/TasksView.tsx"
import type { Route } from "./route.ts"

export const titleOf = ({ path: [view, id] }: Route): string =>
  id ?? (view === undefined ? "Overview" : (view.charAt(0).toUpperCase() + view.slice(1)).replaceAll("-", " "))

/** The view that the fragment names. */
export const View = ({ route }: { readonly route: Route }) => {
  const [view, id] = route.path
  switch (view) {
    case undefined:
      return <OverviewView />
    case "instances":
      return id === undefined
        ? <InstancesView query={route.query} />
        : <InstanceView key={id} id={id} query={route.query} />
    case "definitions":
      return <DefinitionsView />
    case "queues":
      return <QueuesView />
    case "tasks":
      return <TasksView query={route.query} />
    case "schedules":
      return id === undefined ? <SchedulesView /> : <ScheduleView key={id} name={id} />
    case "limits":
      return <LimitsView />
    case "processes":
      return <ProcessesView />
    case "audit-log":
      return <AuditLogView />
    default:
      return (
        <>
          <h1>There is no such view</h1>
          <p>
            Go to the <a href="#/">overview</a>.
          </p>
        </>
      )
  }
}
