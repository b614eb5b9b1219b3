import { useOverview } from "../app/contexts.ts"
import type { Process } from "../client/models.ts"
import { Answer, Empty, Panel, Table } from "../parts/panel.tsx"
import { Slots } from "../parts/slots.tsx"
import { Ago, plural } from "../parts/time.tsx"

/** The runtimes that use the store, and what they serve. */
export const ProcessesView = () => {
  const { data } = useOverview()
  return (
    <>
      <div class="view-head">
        <h1>Processes</h1>
      </div>
      <Answer query={{ data, problem: null }}>
        {({ processes }) => (
          <Panel
            title={`${processes.filter(({ isAlive }) => isAlive).length} alive, ${
              processes.filter(({ isAlive }) => !isAlive).length
            } dead within a day`}
          >
            {processes.length === 0
              ? (
                <Empty>
                  No process has used this store within a day. Those that run instances would be here, with what they
                  serve.
                </Empty>
              )
              : (
                <Table
                  isCards
                  label="Processes"
                  head={["Build", "Host", "State", "Started", "Seen", "Turns", "Activities", "Serves"]}
                >
                  {processes.toSorted((one, other) => Number(other.isAlive) - Number(one.isAlive)).map((process) => (
                    <ProcessRow key={process.id} process={process} />
                  ))}
                </Table>
              )}
          </Panel>
        )}
      </Answer>
    </>
  )
}

const ProcessRow = ({ process }: { readonly process: Process }) => (
  <tr>
    <td>
      <span class="chip">{process.build}</span>
    </td>
    <td class="break" title={process.id}>{process.host}/{process.pid}</td>
    <td>
      {process.isAlive
        ? <span class="badge green">{process.isListening ? "Alive" : "Alive, polls"}</span>
        : <span class="badge red">Dead</span>}
    </td>
    <td data-label="Started">
      <Ago atMs={process.sinceMs} />
    </td>
    <td data-label="Seen">
      <Ago atMs={process.seenMs} />
    </td>
    <td data-label="Turns">
      <Slots isAlive={process.isAlive} inUse={process.orchestrationSlotsInUse} of={process.orchestrationSlots} />
    </td>
    <td data-label="Activities">
      <Slots isAlive={process.isAlive} inUse={process.activitySlotsInUse} of={process.activitySlots} />
    </td>
    <td class="detail">
      <Serves process={process} />
    </td>
  </tr>
)

const Serves = ({ process }: { readonly process: Process }) => (
  <details>
    <summary>
      {plural(process.orchestrations.length, "orchestration")},{" "}
      {plural(process.activities.length, "activity", "activities")}
    </summary>
    <dl class="pairs">
      <dt>Orchestrations</dt>
      <dd>{process.orchestrations.join(", ") || "none"}</dd>
      <dt>Activities</dt>
      <dd>{process.activities.join(", ") || "none"}</dd>
      <dt>Tags</dt>
      <dd>{process.tags === null ? "any" : process.tags.map((tag) => tag ?? "without a tag").join(", ")}</dd>
    </dl>
  </details>
)
