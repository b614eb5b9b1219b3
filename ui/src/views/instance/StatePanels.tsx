import { Fragment } from "preact"
import { useReadOnly } from "../../app/contexts.ts"
import { toInstance } from "../../app/route.ts"
import type { InstanceDetail, Place } from "../../client/models.ts"
import { attributeText, toSame } from "../../parts/attributes.tsx"
import { StatusBadge } from "../../parts/badges.tsx"
import { Empty, Panel, Table } from "../../parts/panel.tsx"
import { Payload } from "../../parts/payload.tsx"
import { Ago, duration, For, number } from "../../parts/time.tsx"
import type { Doing } from "./dialogs.tsx"

/** What it waits for, its mailbox, its values and executions. */
export const StatePanels = (
  { detail, onDo }: { readonly detail: InstanceDetail; readonly onDo: (doing: Doing) => void }
) => (
  <>
    <Waits detail={detail} />
    <Mailbox detail={detail} onDo={onDo} />
    <div class="columns">
      <Values detail={detail} />
      <Executions detail={detail} />
    </div>
  </>
)

const Waits = ({ detail: { instance, waits } }: { readonly detail: InstanceDetail }) => (
  <Panel title="Waits for">
    {waits.length === 0
      ? <Empty>It has no open wait. Signals, timers, activities and children that it waits for would be here.</Empty>
      : (
        <Table isCards label="Open waits" head={["Kind", "Name", "Event", "Open for", "State"]}>
          {waits.map((wait) => (
            <tr key={wait.eventId}>
              <td>{wait.kind}</td>
              <td class="name">
                {wait.name} {wait.instanceId !== null && <a href={toInstance(wait.instanceId)}>{wait.instanceId}</a>}
                {" "}
                {wait.tag !== null && <span class="chip">{wait.tag}</span>}
              </td>
              <td data-label="Event">
                <a href={toInstance(instance.instanceId, { event: String(wait.eventId) })}>#{wait.eventId}</a>
              </td>
              <td data-label="Open for">
                <For sinceMs={wait.sinceMs} />
              </td>
              <td>
                <PlaceText place={wait.place} />
              </td>
            </tr>
          ))}
        </Table>
      )}
  </Panel>
)

const PlaceText = ({ place }: { readonly place: Place | null }) => {
  if (place === null) return <span class="zero">–</span>
  const deliveries = place.deliveries > 1 ? `, delivered ${place.deliveries} times` : ""
  if (place.lockedUntilMs !== null) {
    return (
      <span>
        runs in a process, its lock ends <Ago atMs={place.lockedUntilMs} />
        {deliveries}
      </span>
    )
  }
  return place.isDue
    ? (
      <span>
        due for <For sinceMs={place.visibleAtMs} />
        {deliveries}
      </span>
    )
    : (
      <span>
        due <Ago atMs={place.visibleAtMs} />
        {deliveries}
      </span>
    )
}

const Mailbox = ({ detail, onDo }: { readonly detail: InstanceDetail; readonly onDo: (doing: Doing) => void }) => {
  const readOnly = useReadOnly()
  const { instance, messages, setAside, untaken } = detail
  const event = (id: number) => <a href={toInstance(instance.instanceId, { event: String(id) })}>#{id}</a>
  return (
    <Panel title="Mailbox">
      {messages.length + untaken.length + setAside.length === 0
        ? (
          <Empty>
            It is empty. Messages that no turn has read, and signals that the program has not taken, would be here.
          </Empty>
        )
        : (
          <Table isCards label="Mailbox" head={["What", "Name", "Event", "Since", "State", "-Actions"]}>
            {messages.map((message, at) => (
              <tr key={`m${at}`}>
                <td>message: {message.kind}</td>
                <td class="name">{message.name}</td>
                <td>
                  {message.answers === null
                    ? <span class="zero">–</span>
                    : <span class="in-text">answers {event(message.answers)}</span>}
                </td>
                <td>
                  <Ago atMs={message.place.visibleAtMs} />
                </td>
                <td>
                  <PlaceText place={message.place} />
                </td>
                <td />
              </tr>
            ))}
            {untaken.map((signal) => (
              <tr key={`u${signal.eventId}`}>
                <td>signal not taken</td>
                <td class="name">{signal.name}</td>
                <td>{event(signal.eventId)}</td>
                <td>
                  <Ago atMs={signal.sinceMs} />
                </td>
                <td class="muted">its name may be misspelt</td>
                <td />
              </tr>
            ))}
            {setAside.map((signal) => (
              <tr key={`s${signal.eventId}`}>
                <td>signal set aside</td>
                <td class="name">{signal.name}</td>
                <td>{event(signal.eventId)}</td>
                <td>
                  <Ago atMs={signal.sinceMs} />
                </td>
                <td class="muted">
                  {signal.sentAgain === null
                    ? "no process could read it"
                    : <span class="in-text">sent again: {event(signal.sentAgain)}</span>}
                </td>
                <td class="num">
                  <button
                    type="button"
                    class="button small"
                    disabled={readOnly !== undefined || instance.status !== "Running"}
                    title={readOnly}
                    aria-label={`Redrive ${signal.name} of event ${signal.eventId}`}
                    onClick={() => onDo({ action: "redrive", event: signal.eventId, name: signal.name })}
                  >
                    Redrive
                  </button>
                </td>
              </tr>
            ))}
          </Table>
        )}
    </Panel>
  )
}

const Values = ({ detail: { instance, keyValues } }: { readonly detail: InstanceDetail }) => {
  const attributes = Object.entries(instance.attributes)
  return (
    <div class="stack">
      <Panel title="Attributes">
        {attributes.length === 0 ? <Empty>It has no attributes.</Empty> : (
          <dl class="pairs body">
            {attributes.map(([name, value]) => (
              <Fragment key={name}>
                <dt>{name}</dt>
                <dd>
                  <a
                    title="Instances with the same"
                    href={toSame(name, value)}
                  >
                    {attributeText(value)}
                  </a>
                </dd>
              </Fragment>
            ))}
          </dl>
        )}
      </Panel>
      <Panel title="Key-values">
        {keyValues.length === 0 ? <Empty>It has no key-values.</Empty> : (
          <dl class="body stack">
            {keyValues.map(({ key, value }) => (
              <div key={key}>
                <dt class="muted">{key}</dt>
                <dd>
                  <Payload text={value} label={`value of ${key}`} />
                </dd>
              </div>
            ))}
          </dl>
        )}
      </Panel>
    </div>
  )
}

const Executions = ({ detail: { executions, instance } }: { readonly detail: InstanceDetail }) => (
  <Panel title="Executions">
    <Table label="Executions" head={["#", "Status", "Events", "Started", "Took"]} nums={[2]}>
      {executions.toReversed().map((execution) => (
        <tr key={execution.executionId}>
          <td>
            <a href={toInstance(instance.instanceId, { execution: String(execution.executionId) })}>
              {execution.executionId}
            </a>
          </td>
          <td>
            <StatusBadge status={execution.status} />
          </td>
          <td class="num">{number(execution.events)}</td>
          <td>
            <Ago atMs={execution.startedAtMs} />
          </td>
          <td class="nowrap">
            {execution.endedAtMs === null
              ? <span class="muted">runs</span>
              : duration(execution.endedAtMs - execution.startedAtMs)}
          </td>
        </tr>
      ))}
    </Table>
  </Panel>
)
