import type { ComponentChildren } from "preact"
import { useEffect, useMemo, useRef, useState } from "preact/hooks"
import { useSession } from "../../app/contexts.ts"
import type { HistoryEvent, Instance } from "../../client/models.ts"
import { Check, SelectField, TextField } from "../../parts/fields.tsx"
import { Empty, Loading, Panel, Problem } from "../../parts/panel.tsx"
import { useIsHidden } from "../../parts/payload.tsx"
import { number } from "../../parts/time.tsx"
import type { Doing } from "./dialogs.tsx"
import { EventRow } from "./EventRow.tsx"
import { isRetriable } from "./InstanceHeader.tsx"
import type { HistoryQuery } from "./useHistory.ts"

/** So many rows come and go together as one scrolls. */
const chunkSize = 80
const rowHeight = 37

export const HistoryPanel = (props: {
  readonly instance: Instance
  readonly history: HistoryQuery
  readonly isCurrent: boolean
  /** As the address has it. */
  readonly execution: string | undefined
  /** The event that a link leads to. */
  readonly marked: number | null
  readonly onDo: (doing: Doing) => void
}) => {
  const { history, instance, isCurrent, marked } = props
  const [text, setText] = useState("")
  const [kind, setKind] = useState("")
  const [name, setName] = useState("")
  const [onlyFailures, setOnlyFailures] = useState(false)
  const [expandAll, setExpandAll] = useState(false)
  const isHidden = useIsHidden()
  const seesPayloads = useSession().seesPayloads && !isHidden
  const events = history.loaded?.events ?? []
  const options = useMemo(
    () => ({ kinds: valuesOf(events, (event) => event.kind), names: valuesOf(events, (event) => event.name) }),
    [events]
  )
  const shown = useMemo(() => {
    const wanted = text.trim().toLowerCase()
    return events.filter((event) =>
      (!onlyFailures || event.isFailure) && (kind === "" || event.kind === kind) &&
      (name === "" || event.name === name) &&
      (wanted === "" || textOf(event, seesPayloads).includes(wanted))
    )
  }, [events, text, kind, name, onlyFailures, seesPayloads])
  const isFilteredOut = marked !== null && events.some(({ eventId }) => eventId === marked) &&
    !shown.some(({ eventId }) => eventId === marked)
  useEffect(() => {
    if (!isFilteredOut) return
    setText("")
    setKind("")
    setName("")
    setOnlyFailures(false)
  }, [marked])

  const block = isCurrent ? instance.block : null
  const isBeyond = block !== null && history.loaded !== null && !events.some(({ eventId }) => eventId === block.eventId)
  const chunks = useMemo(() => {
    const all: Array<ReadonlyArray<HistoryEvent>> = []
    for (let at = 0; at < shown.length; at += chunkSize) all.push(shown.slice(at, at + chunkSize))
    return all
  }, [shown])
  const startMs = events[0]?.atMs ?? 0
  return (
    <Panel
      title="History"
      end={
        <span class="muted small" role="status">
          {history.loaded === null
            ? ""
            : shown.length === events.length
            ? `${number(history.loaded.total)} events${
              events.length < history.loaded.total ? `, ${number(events.length)} loaded` : ""
            }`
            : `${number(shown.length)} of ${number(events.length)} events`}
        </span>
      }
    >
      <div class="body fields history-filter">
        <TextField
          label="Text"
          type="search"
          value={text}
          onInput={setText}
          placeholder={seesPayloads ? "names, errors, payloads" : "names, errors"}
        />
        <SelectField label="Kind" value={kind} options={[["", "all"], ...options.kinds]} onInput={setKind} />
        <SelectField label="Name" value={name} options={[["", "all"], ...options.names]} onInput={setName} />
        <div class="row">
          <Check checked={onlyFailures} onInput={setOnlyFailures}>Only failures</Check>
          <Check checked={expandAll} onInput={setExpandAll}>Expand all</Check>
        </div>
      </div>
      {history.problem !== null && <Problem text={history.problem} retry={history.refresh} />}
      {history.loaded === null
        ? history.problem === null && <Loading />
        : shown.length === 0
        ? (
          <Empty>
            {events.length === 0
              ? "The instance has not begun: its first turn writes the first event."
              : "No event matches the filter."}
          </Empty>
        )
        : (
          <div class="events">
            {chunks.map((chunk, index) => (
              <Chunk
                key={index}
                size={chunk.length}
                isForced={marked !== null && chunk.some(({ eventId }) => eventId === marked)}
              >
                {() =>
                  chunk.map((event) => (
                    <EventRow
                      key={event.eventId}
                      event={event}
                      instanceId={instance.instanceId}
                      execution={props.execution}
                      startMs={startMs}
                      isMarked={event.eventId === marked}
                      isExpanded={expandAll}
                      problem={event.eventId === block?.eventId ? block.problem : null}
                      canRetry={isRetriable(instance)}
                      onDo={isCurrent ? props.onDo : null}
                    />
                  ))}
              </Chunk>
            ))}
          </div>
        )}
      {isBeyond && <p class="event-block">The replay stopped at event {block.eventId}: {block.problem}</p>}
      {history.loadMore !== null && (
        <p class="note">
          <button type="button" class="button small" onClick={history.loadMore}>Load more events</button>
        </p>
      )}
    </Panel>
  )
}

/** Rows that are rendered only near the window; out of sight they leave a gap of their height. */
const Chunk = (
  props: { readonly size: number; readonly isForced: boolean; readonly children: () => ComponentChildren }
) => {
  const ref = useRef<HTMLOListElement>(null)
  const [isNear, setNear] = useState(false)
  const height = useRef(props.size * rowHeight)
  useEffect(() => {
    const list = ref.current
    if (list === null) return
    const observer = new IntersectionObserver(([entry]) => {
      if (entry === undefined) return
      if (!entry.isIntersecting && list.childElementCount > 0) height.current = list.offsetHeight
      setNear(entry.isIntersecting)
    }, { rootMargin: "1200px" })
    observer.observe(list)
    return () => observer.disconnect()
  }, [])
  const isShown = isNear || props.isForced
  return <ol ref={ref} style={isShown ? {} : { height: `${height.current}px` }}>{isShown && props.children()}</ol>
}

const textOf = (event: HistoryEvent, withPayload: boolean): string =>
  [event.kind, event.type, event.name, event.tag, event.instanceId, event.problem, withPayload ? event.payload : null]
    .join("\n").toLowerCase()

const valuesOf = (events: ReadonlyArray<HistoryEvent>, of: (event: HistoryEvent) => string | null) => {
  const counts = new Map<string, number>()
  for (const event of events) {
    const value = of(event)
    if (value !== null) counts.set(value, (counts.get(value) ?? 0) + 1)
  }
  return [...counts].sort(([one], [other]) => one.localeCompare(other)).slice(0, 300).map(([value, n]) =>
    [value, `${value} (${number(n)})`] as const
  )
}
