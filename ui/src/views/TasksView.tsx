import type * as Effect from "effect/Effect"
import { useEffect, useState } from "preact/hooks"
import { toast, useReadOnly } from "../app/contexts.ts"
import { link, type Query, replace } from "../app/route.ts"
import { api } from "../client/client.ts"
import type { Task } from "../client/models.ts"
import { useQuery } from "../client/query.ts"
import { StatusBadge } from "../parts/badges.tsx"
import { ActionDialog } from "../parts/dialog.tsx"
import { ReasonField, reasonOf, SelectField, TextField } from "../parts/fields.tsx"
import { Pager } from "../parts/pager.tsx"
import { usePages } from "../parts/pages.ts"
import { Answer, Empty, Panel, Table } from "../parts/panel.tsx"
import { Payload } from "../parts/payload.tsx"
import { Ago, plural } from "../parts/time.tsx"

const statuses = ["Pending", "Running", "Completed", "Dead", "Cancelled"] as const

type Doing = { readonly action: "redrive" | "cancel"; readonly tasks: ReadonlyArray<Task> }

export const TasksView = ({ query }: { readonly query: Query }) => {
  const status = statuses.find((one) => one === query["status"])
  const name = query["name"] ?? ""
  const id = query["id"]
  const pages = usePages([status, name])
  const [selected, setSelected] = useState<ReadonlySet<string>>(new Set())
  const [doing, setDoing] = useState<Doing | null>(null)
  const readOnly = useReadOnly()
  const tasks = useQuery(
    () =>
      api.read.tasks({
        query: {
          ...(status === undefined ? {} : { status }),
          ...(name === "" ? {} : { name }),
          ...(id === undefined ? {} : { id }),
          ...(pages.cursor === undefined ? {} : { cursor: pages.cursor })
        }
      }),
    [status, name, id, pages.cursor],
    { everyMs: 5000, delayMs: 250 }
  )
  useEffect(() => setSelected(new Set()), [status, name, pages.cursor])
  const set = (part: Record<string, string>) => replace(link(["tasks"], { ...query, ...part }))
  const chosen = tasks.data?.tasks.filter(({ taskId }) => selected.has(taskId)) ?? []
  const dead = chosen.filter((task) => task.status === "Dead")
  const open = chosen.filter((task) => task.status === "Pending" || task.status === "Running")
  return (
    <>
      <div class="view-head">
        <h1>Tasks</h1>
        <div class="end">
          <button
            type="button"
            class="button"
            disabled={readOnly !== undefined || dead.length === 0}
            title={readOnly ?? "Gives dead tasks all their attempts again. Select some first."}
            onClick={() => setDoing({ action: "redrive", tasks: dead })}
          >
            Redrive {dead.length > 0 ? dead.length : ""}
          </button>
          <button
            type="button"
            class="button danger"
            disabled={readOnly !== undefined || open.length === 0}
            title={readOnly ?? "Cancels tasks that have not ended. Select some first."}
            onClick={() => setDoing({ action: "cancel", tasks: open })}
          >
            Cancel {open.length > 0 ? open.length : ""}
          </button>
        </div>
      </div>
      {id === undefined
        ? <Filter status={status} name={name} onSet={set} />
        : (
          <p>
            <a href="#/tasks">All tasks</a>
          </p>
        )}
      <Panel title={id !== undefined ? "One task" : status === undefined ? "Tasks" : `${status} tasks`}>
        <Answer query={tasks}>
          {(page) =>
            page.tasks.length === 0
              ? (
                <Empty>
                  No task matches. Tasks are what applications run outside of orchestrations, with attempts and retries.
                </Empty>
              )
              : (
                <div>
                  <Table
                    isCards
                    label="Tasks"
                    head={["-Select", "Task", "Name", "Status", "Attempts", "Runs", "Detail"]}
                  >
                    {page.tasks.map((task) => (
                      <TaskRow
                        key={task.taskId}
                        task={task}
                        isSelected={selected.has(task.taskId)}
                        onSelect={(on) => {
                          const next = new Set(selected)
                          if (on) next.add(task.taskId)
                          else next.delete(task.taskId)
                          setSelected(next)
                        }}
                      />
                    ))}
                  </Table>
                  <Pager pages={pages} next={page.next} isLoading={tasks.isLoading} />
                </div>
              )}
        </Answer>
      </Panel>
      {doing !== null && <TaskDialog {...doing} onDone={tasks.reload} onClose={() => setDoing(null)} />}
    </>
  )
}

const Filter = (props: {
  readonly status: typeof statuses[number] | undefined
  readonly name: string
  readonly onSet: (part: Record<string, string>) => void
}) => (
  <Panel title="Filter">
    <div class="body fields">
      <SelectField
        label="Status"
        value={props.status ?? ""}
        options={[["", "Dead, then those that have not ended"], ...statuses.map((one) => [one, one] as const)]}
        onInput={(value) => props.onSet({ status: value })}
      />
      <TextField
        label="Name"
        value={props.name}
        onInput={(value) => props.onSet({ name: value })}
        placeholder="any"
      />
    </div>
  </Panel>
)

const TaskRow = (
  props: { readonly task: Task; readonly isSelected: boolean; readonly onSelect: (on: boolean) => void }
) => {
  const { task } = props
  const canSelect = task.status === "Dead" || task.status === "Pending" || task.status === "Running"
  return (
    <tr>
      <td>
        <input
          type="checkbox"
          aria-label={`Select ${task.taskId}`}
          checked={props.isSelected}
          disabled={!canSelect}
          onChange={(event) => props.onSelect(event.currentTarget.checked)}
        />
      </td>
      <td class="break mono wide">{task.taskId}</td>
      <td>
        <strong>{task.name}</strong>
        {task.key !== null && <div class="muted small">key {task.key}</div>}
      </td>
      <td>
        <StatusBadge status={task.status} />
        {task.waitsForLimit !== null && <div class="muted small">waits for a slot of {task.waitsForLimit}</div>}
      </td>
      <td class="nowrap" data-label="Attempts" title={`${task.attempts} in all`}>
        {task.counted} of {task.maxAttempts}
      </td>
      <td data-label="Runs">
        <Ago atMs={task.endedAtMs ?? task.startedAtMs ?? task.runAtMs} />
      </td>
      <td class="detail">
        {task.error !== null && <div class="clip" title={task.error}>{task.error}</div>}
        <details>
          <summary>More</summary>
          <dl class="pairs">
            <dt>Created</dt>
            <dd>
              <Ago atMs={task.createdAtMs} />
            </dd>
            <dt>Worker</dt>
            <dd>{task.workerId ?? "none"}</dd>
            {task.error !== null && (
              <>
                <dt>Error</dt>
                <dd>{task.error}</dd>
              </>
            )}
          </dl>
          {task.payload !== null && <Payload text={task.payload} label="payload of the task" />}
        </details>
      </td>
    </tr>
  )
}

const TaskDialog = (props: Doing & { readonly onDone: () => void; readonly onClose: () => void }) => {
  const [reason, setReason] = useState("")
  const taskIds = props.tasks.map(({ taskId }) => taskId)
  const isCancel = props.action === "cancel"
  const title = `${isCancel ? "Cancel" : "Redrive"} ${plural(taskIds.length, "task")}`
  const effect: () => Effect.Effect<{ readonly message: string }, unknown> = () =>
    isCancel
      ? api.operate.cancelTasks({ payload: { taskIds, ...reasonOf(reason) } })
      : api.operate.redriveTasks({ payload: { taskIds } })
  return (
    <ActionDialog
      title={title}
      confirm={isCancel ? "Cancel them" : "Redrive"}
      isDanger={isCancel}
      effect={effect}
      onDone={({ message }) => {
        toast(message)
        props.onDone()
      }}
      onClose={props.onClose}
    >
      <p>{isCancel ? "They do not run again. One that runs is stopped." : "They get all their attempts again."}</p>
      {isCancel && <ReasonField value={reason} onInput={setReason} />}
    </ActionDialog>
  )
}
