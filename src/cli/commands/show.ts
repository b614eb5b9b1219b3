import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { Block } from "../../model/Block.ts"
import { cureOf } from "../../model/shared/cures.ts"
import { age, count, counted } from "../../model/shared/quantities.ts"
import { shellArgument } from "../../model/shared/shellWord.ts"
import { shownValue } from "../../operating/attributes.ts"
import * as Events from "../../operating/events.ts"
import * as InstanceDetail from "../../operating/instanceDetail.ts"
import { deathOf, isUnderWay, outcomeOf } from "../../operating/outcome.ts"
import { isoTime, time } from "../../operating/times.ts"
import { Admin } from "../../provider/Admin.ts"
import type { InstanceInfo } from "../../provider/Admin.ts"
import type { QueuePlace } from "../../provider/AdminDriver.ts"
import type { Wait } from "../../provider/Explanation.ts"
import { definitionOf } from "../../provider/shared/unserved.ts"
import { marked, markedState, placeJson, shownPause, shownStatus, toJson } from "../internal/instances.ts"
import { noLessThan } from "../internal/numbers.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { fields, oneLine, shortened, table } from "../internal/table.ts"
import { orMessages } from "../internal/unstarted.ts"

export const show = Command.make("show", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  execution: Flag.Int("execution").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Execution to show the history of. Defaults to the current one"),
    noLessThan(1),
    Flag.optional
  ),
  events: Flag.Int("events").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Most events to show, the last ones. Defaults to 50"),
    noLessThan(0),
    Flag.withDefault(50)
  ),
  full: Flag.Boolean("full").pipe(
    Flag.withoutNegation,
    Flag.withDescription("All events, and payloads of any length"),
    Flag.withDefault(false)
  ),
  hidePayloads: Flag.Boolean("hide-payloads").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Show no payloads: inputs, results, data of signals, values"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("Show an instance: its state, what it waits for, its history"),
  Command.withDescription(
    "Show an instance: its state, what it waits for, its executions, children, attributes, key-values and history. " +
      "Payloads are shortened; they may contain data of your application."
  ),
  Command.withExamples([
    { command: "duroxide-prisma show order-17" },
    { command: "duroxide-prisma show order-17 --full --json", description: "Everything, for programs" }
  ])
)

// internal

/** Most executions, and most children, that are listed. */
const mostListed = 20

/** Most open waits that are listed for people. */
const mostWaits = 50

const run = Effect.fnUntraced(function*({ events, execution, full, hidePayloads, id }: {
  readonly id: string
  readonly execution: Option.Option<number>
  readonly events: number
  readonly full: boolean
  readonly hidePayloads: boolean
}) {
  const { answer, columns, style } = yield* Output
  const detail = yield* InstanceDetail.read(id, {
    execution: Option.getOrUndefined(execution),
    mostExecutions: mostListed
  }).pipe(orMessages(id))
  const { executions, history, interruption, messages, pinnedVersion, setAside, state, untaken, waits } = detail
  const { executionId } = detail.execution
  const visibility = { hidesPayloads: hidePayloads }
  const output = hidePayloads ? null : detail.output
  const keyValues = detail.keyValues.map(([key, value]) => [key, hidePayloads ? "(hidden)" : value] as const)
  const shownEvents = full ? history : history.slice(Math.max(0, history.length - events))
  const { instances: children } = yield* (yield* Admin).list({ parentId: id, limit: full ? 1000 : mostListed })
  const attributes = Object.entries(state.attributes)
  const isRunning = detail.status === "Running"
  const shownWaits = full ? waits : waits.slice(0, mostWaits)
  const nowMs = yield* Clock.currentTimeMillis
  const limited = isRunning ? yield* limitedOf(id, detail) : null
  const death = deathOf(state)

  const redrive = `redrive ${id}${
    executionId === state.executionId ? "" : ` --execution ${executionId}`
  } --event <event>`
  const kindWidth = Math.max(0, ...shownEvents.map((event) => Events.kindOf(event, detail.lostSignals).length))

  // On a terminal, a line each; elsewhere a payload is cut at the same length, so that output looks alike everywhere.
  const cut = (text: string, taken: number) =>
    full ? shortened(text, Number.POSITIVE_INFINITY) : shortened(text, Math.max(20, Math.min(columns, 100) - taken))
  const brief = (text: string | null) => text === null || full ? text : shortened(text, 200)
  const moment = (ms: number) => `${time(ms)}, ${age(nowMs - ms)} ago`
  const titled = (title: string, lines: ReadonlyArray<string>) =>
    lines.length === 0 ? [] : ["", style.bold(title), ...lines]

  yield* answer({
    json: {
      ...toJson(state),
      output: brief(output),
      error: brief(detail.error),
      customStatus: brief(state.customStatus),
      pinnedVersion,
      waitsFor: waits.map(({ place, eventId, instanceId, kind, name, sinceMs }) => ({
        kind,
        name,
        instanceId,
        eventId,
        since: isoTime(sinceMs),
        ...placeJson(place)
      })),
      unserved: detail.unserved,
      limited,
      untaken: untaken.map(({ eventId, name, sinceMs }) => ({ name, eventId, since: isoTime(sinceMs) })),
      setAside: setAside.map(({ eventId, name, sentAgain, sinceMs }) => ({
        name,
        eventId,
        since: isoTime(sinceMs),
        sentAgain
      })),
      interrupted: interruption === null
        ? null
        : { since: isoTime(interruption.sinceMs), reason: interruption.reason },
      messages: messages.map(({ answers, place, kind, name }) => ({
        kind,
        name,
        answers,
        ...placeJson(place)
      })),
      keyValues: Object.fromEntries(keyValues.map(([key, value]) => [key, brief(value)])),
      children: children.map((child) => ({
        instanceId: child.instanceId,
        orchestration: child.orchestrationName,
        status: outcomeOf(child).status
      })),
      executions: executions.map((one) => ({
        executionId: one.executionId,
        status: one.status,
        events: one.eventCount,
        startedAt: isoTime(one.startedAtMs),
        endedAt: one.completedAtMs === null ? null : isoTime(one.completedAtMs)
      })),
      history: {
        executionId,
        events: detail.execution.eventCount,
        shown: shownEvents.map((event) => ({
          eventId: event.eventId,
          at: isoTime(event.timestampMs),
          event: event._tag,
          answers: event.sourceEventId,
          text: brief(Events.describe(event, visibility)),
          ...(detail.lostSignals.has(event.eventId) && { lost: true })
        }))
      }
    },
    text: [
      style.bold(oneLine(id)),
      ...fields([
        [
          "status",
          shownStatus(state, detail.status),
          (text) => markedState({ block: state.block, pause: state.pause, status: detail.status }, text, style)
        ],
        ...(state.pause === null ? [] : [["paused", shownPause(state.pause, nowMs), style.red] as const]),
        ...(interruption === null
          ? []
          : [["interrupted", `${moment(interruption.sinceMs)}: ${interruption.reason}`] as const]),
        ...(state.block === null ? [] : blockFields(state.block, id, nowMs)),
        ...detail.unserved.map((one) => ["unserved", `no process serves ${definitionOf(one)}`, style.red] as const),
        ...(limited === null ? [] : [["limited", limited] as const]),
        ["orchestration", `${state.orchestrationName} ${state.orchestrationVersion ?? "(no version yet)"}`],
        ["execution", `${state.executionId}`],
        ...pinned(detail),
        ...(state.parentInstanceId === null ? [] : [["parent", state.parentInstanceId] as const]),
        ["created", moment(state.createdAtMs)],
        ["last turn", moment(state.updatedAtMs)],
        ...(state.customStatus === null ? [] : [["custom status", cut(state.customStatus, 15)] as const]),
        ...(output === null ? [] : [["output", cut(output, 15)] as const]),
        ...(detail.error === null ? [] : [["error", brief(death ?? detail.error) ?? ""] as const]),
        ...(detail.status !== "Failed" || detail.foreign === "duroxide"
          ? []
          : [["cure", cureOfFailure(state, death !== undefined)] as const])
      ], style),
      ...titled(
        shownWaits.length < waits.length
          ? `Waits for (the first ${shownWaits.length} of ${count(waits.length)})`
          : "Waits for",
        waits.length === 0
          ? isRunning && messages.length === 0
            ? ["nothing that is stored: the history has no open wait, and the queue has no message for it"]
            : []
          : [
            ...table(shownWaits, [
              { title: "KIND", value: ({ kind }) => kind },
              { title: "NAME", value: nameOf },
              { title: "EVENT", align: "right", value: ({ eventId }) => `#${eventId}` },
              { title: "STATE", value: (wait) => stateOf(wait, detail, nowMs) },
              { title: "DELIVERIES", align: "right", value: ({ place }) => String(place?.attemptCount ?? "-") }
            ], style),
            ...(waits.length === 1 || state.block !== null || state.pause !== null
              ? []
              : ["The next turn runs as soon as one of them ends."])
          ]
      ),
      ...titled(
        "Messages",
        messages.length === 0 ? [] : table(messages, [
          { title: "KIND", value: ({ kind }) => kind },
          { title: "NAME", value: ({ name }) => name ?? "-" },
          { title: "EVENT", align: "right", value: ({ answers }) => answers === null ? "-" : `#${answers}` },
          { title: "STATE", value: ({ place }) => progressOf(place, nowMs, "due") },
          { title: "DELIVERIES", align: "right", value: ({ place }) => String(place.attemptCount) }
        ], style)
      ),
      ...titled(
        untaken.length > mostWaits && !full
          ? `Signals and questions not taken (the first ${mostWaits} of ${count(untaken.length)})`
          : "Signals and questions not taken",
        untaken.length === 0 ? [] : table(full ? untaken : untaken.slice(0, mostWaits), [
          { title: "NAME", value: ({ name }) => name },
          { title: "EVENT", align: "right", value: ({ eventId }) => `#${eventId}` },
          { title: "SINCE", value: ({ sinceMs }) => moment(sinceMs) }
        ], style)
      ),
      ...titled(
        `Signals set aside, because no process could read them (${redrive} sends one again)`,
        setAside.length === 0 ? [] : table(full ? setAside : setAside.slice(-mostWaits), [
          { title: "NAME", value: ({ name }) => name },
          { title: "EVENT", align: "right", value: ({ eventId }) => `#${eventId}` },
          { title: "SET ASIDE", value: ({ sinceMs }) => moment(sinceMs) },
          { title: "SENT AGAIN", value: ({ sentAgain }) => sentAgain === null ? "-" : `#${sentAgain}` }
        ], style)
      ),
      ...titled(
        "Attributes",
        attributes.length === 0
          ? []
          : fields(attributes.map(([name, value]) => [name, cut(shownValue(value), name.length + 2)]), style)
      ),
      ...titled(
        "Key-values",
        keyValues.length === 0 ? [] : fields(keyValues.map(([key, value]) => [key, cut(value, key.length + 2)]), style)
      ),
      ...titled(
        "Children",
        children.length === 0 ? [] : table(children.map((child) => ({ ...child, shown: outcomeOf(child).status })), [
          { title: "INSTANCE", value: ({ instanceId }) => instanceId },
          { title: "ORCHESTRATION", value: ({ orchestrationName }) => orchestrationName },
          { title: "STATUS", value: ({ shown }) => shown, mark: ({ shown }, text) => marked(shown, text, style) }
        ], style)
      ),
      ...titled(
        detail.executionCount > executions.length
          ? `Executions (the last ${executions.length} of ${count(detail.executionCount)})`
          : "Executions",
        table(executions, [
          { title: "#", align: "right", value: (one) => String(one.executionId) },
          { title: "STATUS", value: ({ status }) => status },
          { title: "EVENTS", align: "right", value: (one) => count(one.eventCount) },
          { title: "STARTED", value: (one) => time(one.startedAtMs) },
          { title: "ENDED", value: (one) => one.completedAtMs === null ? "-" : time(one.completedAtMs) }
        ], style)
      ),
      ...titled(
        `History of execution ${executionId}` + (shownEvents.length < history.length
          ? ` (the last ${count(shownEvents.length)} of ${count(history.length)} events)`
          : ""),
        shownEvents.map((event) => {
          const start = `${String(event.eventId).padStart(String(history.length).length)}  ` +
            `${time(event.timestampMs).slice(11)}  ${Events.kindOf(event, detail.lostSignals).padEnd(kindWidth)}  `
          return `${start}${style.dim(cut(Events.shown(event, visibility), start.length))}`.trimEnd()
        })
      )
    ]
  })
})

/** Which slot it waits for, as `explain` says it; null if it waits for none. */
const limitedOf = Effect.fnUntraced(function*(id: string, { limited }: InstanceDetail.InstanceDetail) {
  if (!limited.isStart && limited.activities.size === 0) return null
  const { cause, sentence } = yield* (yield* Admin).explain(id)
  return cause._tag === "Limited" || cause._tag === "ActivityLimited"
    ? sentence.slice(id.length + 1)
    : `${limited.isStart ? "waits" : "an activity waits"} for a slot of a limit; see limits`
})

const blockFields = (
  { build, eventId, problem, reason, sinceMs, tries, triedAtMs }: Block,
  id: string,
  nowMs: number
) => [
  ["blocked by", `${reason}: ${problem}`] as const,
  ["cure", cureOf({ eventId, problem, reason }, id)] as const,
  [
    "tried",
    `${counted(tries, "time", "times")} since ${time(sinceMs)}, last ${age(nowMs - triedAtMs)} ago by build ${build}`
  ] as const
]

/** A child is retried with its parent. */
const cureOfFailure = ({ instanceId, parentInstanceId }: InstanceInfo, hasDied: boolean): string =>
  `${hasDied ? "deploy code that does not die there, then" : "once its cause is gone"}: ${
    parentInstanceId === null
      ? `retry ${shellArgument(instanceId)} (first with --dry-run)`
      : `retry its parent ${parentInstanceId}, if that waits for it`
  }`

/** Where other processes alone can run it. */
const pinned = ({ foreign, pinnedVersion, status }: InstanceDetail.InstanceDetail) => {
  if (foreign === null) return []
  const [version, processes] = foreign === "duroxide"
    ? [`Duroxide ${pinnedVersion}`, "its processes"]
    : [pinnedVersion, "processes of a later duroxide-prisma"]
  return [["pinned to", `${version}${isUnderWay(status) ? `: only ${processes} run it` : ""}`] as const]
}

const nameOf = ({ instanceId, name }: Wait): string =>
  name === null ? "-" : instanceId === null ? name : `${name} ${instanceId}`

const stateOf = (
  { eventId, isInterrupted, kind, place, sinceMs }: Wait,
  { limited, messages }: InstanceDetail.InstanceDetail,
  nowMs: number
): string =>
  kind === "activity" && limited.activities.has(eventId)
    ? `waits for a slot for ${age(nowMs - sinceMs)}`
    : place !== null
    ? progressOf(place, nowMs, kind === "timer" ? "until" : "due")
    : messages.some(({ answers }) => answers === eventId)
    ? "has ended, see the messages"
    : kind === "activity"
    ? "not in the queue"
    : `${isInterrupted ? "interrupted, " : ""}for ${age(nowMs - sinceMs)}`

const progressOf = ({ isDue, lockedUntilMs, visibleAtMs }: QueuePlace, nowMs: number, later: string): string =>
  lockedUntilMs !== null
    ? `running, lock until ${time(lockedUntilMs)}`
    : isDue
    ? `waiting for ${age(nowMs - visibleAtMs)}`
    : `${later} ${time(visibleAtMs)}`
