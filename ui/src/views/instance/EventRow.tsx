import { useEffect, useRef, useState } from "preact/hooks"
import { useReadOnly } from "../../app/contexts.ts"
import { jumps, toInstance } from "../../app/route.ts"
import type { HistoryEvent } from "../../client/models.ts"
import { useSignal } from "../../client/signal.ts"
import { Payload, Short } from "../../parts/payload.tsx"
import { fullTime, offset } from "../../parts/time.tsx"
import type { Doing } from "./dialogs.tsx"

/** An event in one line, its payload and the rest on demand. */
export const EventRow = (props: {
  readonly event: HistoryEvent
  readonly instanceId: string
  readonly execution: string | undefined
  readonly startMs: number
  readonly isMarked: boolean
  readonly isExpanded: boolean
  /** Why the replay stopped at this event; null if it did not. */
  readonly problem: string | null
  /** Null in earlier executions, which cannot be forked. */
  readonly onDo: ((doing: Doing) => void) | null
  readonly canRetry: boolean
}) => {
  const { event, isMarked } = props
  const ref = useRef<HTMLLIElement>(null)
  const jump = useSignal(jumps)
  const [isOpen, setOpen] = useState(props.isExpanded || isMarked)
  useEffect(() => setOpen(props.isExpanded || isMarked), [props.isExpanded, isMarked])
  useEffect(() => {
    if (!isMarked) return
    // Rows above it may still come in, so it looks again a moment later.
    const scroll = () => ref.current?.scrollIntoView({ block: "center" })
    scroll()
    const timer = setTimeout(scroll, 250)
    return () => clearTimeout(timer)
  }, [isMarked, jump])
  const name = [
    "event",
    isMarked ? "marked" : "",
    event.isFailure ? "failure" : "",
    props.problem === null ? "" : "blocked"
  ].join(" ")
  return (
    <li ref={ref} class={name}>
      <button type="button" class="event-line" aria-expanded={isOpen} onClick={() => setOpen(!isOpen)}>
        <span class="event-id">{event.eventId}</span>
        <span class="event-time" title={fullTime(event.atMs)}>+{offset(event.atMs - props.startMs)}</span>
        <span class={`event-kind ${toneOf(event)}`}>{event.kind}</span>
        <span class="event-name">
          {event.name} {event.tag !== null && <span class="chip">{event.tag}</span>}{" "}
          {event.answers !== null && <span class="muted">#{event.answers}</span>}
        </span>
        <span class="event-text">
          {event.problem !== null
            ? <span class="clip">{event.problem}</span>
            : event.payload !== null
            ? <Short text={event.payload} />
            : null}
        </span>
      </button>
      {props.problem !== null && (
        <p class="event-block">
          <strong>The replay stopped here.</strong> The reason stands at the top of this view.
        </p>
      )}
      {isOpen && (
        <Details
          event={event}
          instanceId={props.instanceId}
          execution={props.execution}
          onDo={props.onDo}
          canRetry={props.canRetry}
        />
      )}
    </li>
  )
}

const Details = ({ canRetry, event, execution, instanceId, onDo }: {
  readonly event: HistoryEvent
  readonly instanceId: string
  readonly execution: string | undefined
  readonly canRetry: boolean
  readonly onDo: ((doing: Doing) => void) | null
}) => (
  <div class="event-details">
    <dl class="pairs">
      <dt>Time</dt>
      <dd>{fullTime(event.atMs)}</dd>
      <dt>Stored as</dt>
      <dd class="mono">{event.type}</dd>
      {event.answers !== null && (
        <>
          <dt>Answers</dt>
          <dd>
            <a href={toInstance(instanceId, { execution, event: String(event.answers) })}>event {event.answers}</a>
          </dd>
        </>
      )}
      {event.instanceId !== null && (
        <>
          <dt>Instance</dt>
          <dd>
            <a href={toInstance(event.instanceId)}>{event.instanceId}</a>
          </dd>
        </>
      )}
      {event.fireAtMs !== null && (
        <>
          <dt>Due</dt>
          <dd>{fullTime(event.fireAtMs)}</dd>
        </>
      )}
      {event.problem !== null && (
        <>
          <dt>{event.isFailure ? "Problem" : "Text"}</dt>
          <dd>{event.problem}</dd>
        </>
      )}
    </dl>
    <div class="row">
      <a class="button small" href={toInstance(instanceId, { execution, event: String(event.eventId) })}>
        Link to this event
      </a>
      {onDo !== null && <ActionButton text="Fork here…" doing={{ action: "fork", event: event.eventId }} onDo={onDo} />}
      {onDo !== null && canRetry && (
        <ActionButton text="Retry from here…" doing={{ action: "retry", from: event.eventId }} onDo={onDo} />
      )}
    </div>
    {event.payload !== null && <Payload text={event.payload} label={`payload of event ${event.eventId}`} />}
  </div>
)

const ActionButton = (
  props: { readonly text: string; readonly doing: Doing; readonly onDo: (doing: Doing) => void }
) => {
  const readOnly = useReadOnly()
  return (
    <button
      type="button"
      class="button small"
      disabled={readOnly !== undefined}
      title={readOnly}
      onClick={() => props.onDo(props.doing)}
    >
      {props.text}
    </button>
  )
}

const toneOf = (event: HistoryEvent): string =>
  event.isFailure
    ? "red"
    : event.kind.startsWith("activity")
    ? "blue"
    : event.kind.includes("signal")
    ? "amber"
    : event.kind.startsWith("child") || event.kind === "detached start"
    ? "violet"
    : event.kind === "completed"
    ? "green"
    : ""
