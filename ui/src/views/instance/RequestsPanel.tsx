import { toInstance } from "../../app/route.ts"
import { api } from "../../client/client.ts"
import type { InstanceDetail, Question } from "../../client/models.ts"
import { useQuery } from "../../client/query.ts"
import { Answer, Empty, Panel, Table } from "../../parts/panel.tsx"
import { Payload } from "../../parts/payload.tsx"
import { Ago } from "../../parts/time.tsx"

const tones = { Waiting: "amber", Taken: "blue", Answered: "green", Refused: "amber", Failed: "red" }

/** What an instance was asked, and what it has answered. */
export const RequestsPanel = ({ detail }: { readonly detail: InstanceDetail }) => {
  const id = detail.instance.instanceId
  // Again whenever the instance has changed.
  const questions = useQuery(() => api.read.requests({ query: { id } }), [id, detail.nowMs])
  return (
    <Panel title="Requests">
      <Answer query={questions}>
        {(all) =>
          all.length === 0
            ? <Empty>No one has asked it anything. Requests and their answers would be here.</Empty>
            : (
              <Table isCards label="Requests" head={["Request", "State", "Since", "Event", "Detail"]}>
                {all.map((one) => (
                  <tr key={one.requestId}>
                    <td class="name">
                      {one.name ?? <span class="muted">of an earlier execution</span>}
                      <div class="muted small break">{one.requestId}</div>
                    </td>
                    <td>
                      <span class={`badge ${tones[one.state]}`}>{one.state}</span>
                    </td>
                    <td>{one.sinceMs === null ? <span class="zero">–</span> : <Ago atMs={one.sinceMs} />}</td>
                    <td>
                      {one.eventId === null
                        ? <span class="zero">–</span>
                        : <a href={toInstance(id, { event: String(one.eventId) })}>#{one.eventId}</a>}
                    </td>
                    <td class="detail">
                      <Detail question={one} />
                    </td>
                  </tr>
                ))}
              </Table>
            )}
      </Answer>
    </Panel>
  )
}

const Detail = ({ question }: { readonly question: Question }) => (
  <>
    {question.problem !== null && <div class="break">{question.problem}</div>}
    <details>
      <summary>{question.answer === null ? "Payload" : "Payload and answer"}</summary>
      <div class="stack-small">
        {question.name !== null && <Payload text={question.payload} label="payload of the request" />}
        {question.answer !== null && <Payload text={question.answer} label="answer" />}
      </div>
    </details>
  </>
)
