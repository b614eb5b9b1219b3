import { useState } from "preact/hooks"
import { toast, useOverview, useReadOnly } from "../app/contexts.ts"
import { link, useRoute } from "../app/route.ts"
import { api } from "../client/client.ts"
import { useQuery } from "../client/query.ts"
import { ActionDialog } from "../parts/dialog.tsx"
import { TextField } from "../parts/fields.tsx"
import { Answer, Empty, Panel, Table } from "../parts/panel.tsx"
import { Ago, duration, Num, plural } from "../parts/time.tsx"
import { DuePanel } from "./overview/DuePanel.tsx"

/** Queues of messages with their dead letters, what is due, tasks by name. */
export const QueuesView = () => {
  const queues = useQuery(() => api.read.queues({}), [], { everyMs: 5000 })
  const overview = useOverview().data
  const open = useRoute().query["dead"]
  return (
    <>
      <div class="view-head">
        <h1>Queues</h1>
      </div>
      {open !== undefined && <DeadLetters key={open} queue={open} onChange={queues.reload} />}
      <Answer query={queues}>
        {(data) => (
          <>
            <Panel title="Queues of messages">
              {data.queues.length === 0
                ? <Empty>No queue has messages. Queues that the outbox or your code sends to would be here.</Empty>
                : (
                  <Table
                    label="Queues"
                    head={["Queue", "Waiting", "Running", "Later", "Oldest", "Dead letters"]}
                    nums={[1, 2, 3]}
                  >
                    {data.queues.map((queue) => (
                      <tr key={queue.queue}>
                        <td class="name">{queue.queue}</td>
                        <td class="num">
                          <Num n={queue.waiting} />
                        </td>
                        <td class="num">
                          <Num n={queue.running} />
                        </td>
                        <td class="num">
                          <Num n={queue.later} />
                        </td>
                        <td class="nowrap">
                          <Age ms={queue.oldestAgeMs} />
                        </td>
                        <td>
                          {queue.dead === 0
                            ? <span class="zero">0</span>
                            : (
                              <a href={link(["queues"], { dead: queue.queue })}>
                                Show {plural(queue.dead, "dead letter")}
                              </a>
                            )}
                        </td>
                      </tr>
                    ))}
                  </Table>
                )}
              {data.beforeStart > 0 && (
                <p class="note">
                  {plural(data.beforeStart, "message")} {data.beforeStart === 1 ? "waits" : "wait"}{" "}
                  for instances that are not started: sent early, or to a wrong id.
                </p>
              )}
            </Panel>
            {overview !== null && <DuePanel due={overview.due} />}
            {overview !== null && overview.outbox !== null && (
              <Panel title="Outbox">
                <p class="body">
                  {plural(overview.outbox.waiting, "message")} to send, {overview.outbox.failing} failing
                  {overview.outbox.oldestAgeMs !== null && `, the oldest for ${duration(overview.outbox.oldestAgeMs)}`}.
                </p>
              </Panel>
            )}
            <Panel title="Tasks by name" end={<a class="small" href="#/tasks">All tasks</a>}>
              {data.tasks.length === 0
                ? <Empty>There are no tasks. Tasks would be counted here by name and status.</Empty>
                : (
                  <Table
                    label="Tasks by name"
                    head={["Task", "Pending", "Running", "Completed", "Dead", "Cancelled"]}
                    nums={[1, 2, 3, 4, 5]}
                  >
                    {data.tasks.map((task) => (
                      <tr key={task.task}>
                        <td class="name">
                          <a href={link(["tasks"], { name: task.task })}>{task.task}</a>
                        </td>
                        <td class="num">
                          <Num n={task.pending} />
                        </td>
                        <td class="num">
                          <Num n={task.running} />
                        </td>
                        <td class="num">
                          <Num n={task.completed} />
                        </td>
                        <td class="num">
                          <Num n={task.dead} tone="red" />
                        </td>
                        <td class="num">
                          <Num n={task.cancelled} />
                        </td>
                      </tr>
                    ))}
                  </Table>
                )}
            </Panel>
          </>
        )}
      </Answer>
    </>
  )
}

const Age = ({ ms }: { readonly ms: number | null }) => ms === null ? <span class="zero">–</span> : <>{duration(ms)}</>

const DeadLetters = ({ onChange, queue }: { readonly queue: string; readonly onChange: () => void }) => {
  const letters = useQuery(() => api.read.deadLetters({ query: { queue } }), [queue])
  const [isAsking, setAsking] = useState(false)
  const readOnly = useReadOnly()
  return (
    <Panel
      title={`Dead letters of ${queue}`}
      end={
        <>
          <button
            type="button"
            class="button small"
            disabled={readOnly !== undefined || (letters.data?.dead ?? 0) === 0}
            title={readOnly}
            onClick={() => setAsking(true)}
          >
            Redrive
          </button>
          <a class="button small plain" href="#/queues">Close</a>
        </>
      }
    >
      <Answer query={letters}>
        {(data) =>
          data.messages.length === 0
            ? <Empty>This queue has no dead letters.</Empty>
            : (
              <div>
                <Table
                  label={`Dead letters of ${queue}`}
                  head={["Id", "Kind", "Deliveries", "Died", "Reason"]}
                  nums={[2]}
                >
                  {data.messages.map((message) => (
                    <tr key={message.id}>
                      <td class="mono">{message.id}</td>
                      <td>{message.kind ?? <span class="zero">–</span>}</td>
                      <td class="num">{message.deliveries}</td>
                      <td>
                        <Ago atMs={message.diedAtMs} />
                      </td>
                      <td class="detail break">{message.reason ?? "delivered too often"}</td>
                    </tr>
                  ))}
                </Table>
                {data.dead > data.messages.length && (
                  <p class="note">The {data.messages.length} oldest of {data.dead}.</p>
                )}
              </div>
            )}
      </Answer>
      {isAsking && (
        <RedriveDialog
          queue={queue}
          dead={letters.data?.dead ?? 0}
          onDone={() => {
            letters.reload()
            onChange()
          }}
          onClose={() => setAsking(false)}
        />
      )}
    </Panel>
  )
}

const RedriveDialog = (props: {
  readonly queue: string
  readonly dead: number
  readonly onDone: () => void
  readonly onClose: () => void
}) => {
  const [limit, setLimit] = useState("")
  const most = Number(limit)
  return (
    <ActionDialog
      title={`Redrive dead letters of ${props.queue}`}
      confirm="Redrive"
      canRun={limit === "" || (Number.isInteger(most) && most > 0)}
      effect={() =>
        api.operate.redriveMessages({ payload: { queue: props.queue, ...(limit === "" ? {} : { limit: most }) } })}
      onDone={({ message }) => {
        toast(message)
        props.onDone()
      }}
      onClose={props.onClose}
    >
      <p>They are put back into the queue, the oldest first, with no delivery counted.</p>
      <TextField label="At most" type="number" value={limit} onInput={setLimit} placeholder={`all ${props.dead}`} />
    </ActionDialog>
  )
}
