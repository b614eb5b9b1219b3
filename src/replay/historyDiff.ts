/**
 * Renders a difference between history and code as text.
 */
import type * as Event from "../model/Event.ts"
import { isArrival } from "../model/shared/recordedArrivals.ts"
import { decisionText, eventName, eventText, payloadDifference } from "./eventText.ts"

export interface Difference {
  /** The events of the whole execution, and the index of the first that differs; their number, at the end. */
  readonly events: ReadonlyArray<Event.Event>
  readonly at: number
  /** The events of history from `at` to the next arrival, and the events of the code in their place. */
  readonly history: ReadonlyArray<Event.Event>
  readonly code: ReadonlyArray<Event.Event>
  /** Why the code cannot run there, or another problem that no event shows. */
  readonly problem: string | undefined
}

/** The difference at this index of `events`, where the code makes the events of `code`. */
export const make = (
  events: ReadonlyArray<Event.Event>,
  at: number,
  code: ReadonlyArray<Event.Event>,
  problem?: string
): Difference => {
  const until = events.findIndex((event, index) => index >= at && isArrival(event, events))
  return { events, at, history: events.slice(at, until < 0 ? events.length : until), code, problem }
}

/** What does not fit, the lines of both sides with payloads, and where payloads differ. */
export const report = (orchestration: string, difference: Difference): string => {
  const { at, events } = difference
  const { executionId, instanceId } = events[0]!
  const place = at < events.length ? `event ${events[at]!.eventId}` : "its end"
  return [
    `"${orchestration}" does not fit the history of instance ${instanceId}, execution ${executionId}, at ${place}:`,
    "",
    ...lines(difference, { payloads: true }).map((line) => `  ${line}`),
    "",
    "- is the history, + is the code.",
    ...explain(align(difference), difference.problem)
  ].join("\n")
}

/** Three events before, both sides, and two events after, a line each. Payloads are cut. */
export const lines = (
  difference: Difference,
  { payloads }: { readonly payloads: boolean }
): ReadonlyArray<string> => {
  const { at, code, events, history } = difference
  const after = events.slice(at + history.length, at + history.length + contextAfter)
  const width = String(events.at(-1)?.eventId ?? 1).length
  const line = (mark: string, event: Event.Event) =>
    `${mark} ${mark === "+" ? " ".repeat(width) : String(event.eventId).padStart(width)}  ${
      payloads ? eventText(event) : eventName(event)
    }`
  return [
    ...events.slice(Math.max(0, at - contextBefore), at).map((event) => line(" ", event)),
    ...align(difference).map(({ event, mark }) => line(mark, event)),
    ...(Math.max(history.length, code.length) > longestSide ? ["  …"] : []),
    ...after.map((event) => line(" ", event))
  ]
}

// internal

const contextBefore = 3
const contextAfter = 2
const longestSide = 6

interface Line {
  readonly mark: "-" | "+" | " "
  readonly event: Event.Event
}

/** Both sides in one column, with as many common lines as possible. */
const align = ({ code, history }: Difference): ReadonlyArray<Line> => {
  const theirs = history.slice(0, longestSide)
  const ours = code.slice(0, longestSide)
  const common = (i: number, j: number): ReadonlyArray<Line> => {
    const [one, other] = [theirs[i], ours[j]]
    if (one === undefined) return ours.slice(j).map((event) => ({ mark: "+", event }))
    if (other === undefined) return theirs.slice(i).map((event) => ({ mark: "-", event }))
    if (decisionText(one) === decisionText(other)) return [{ mark: " ", event: one }, ...common(i + 1, j + 1)]
    const without = common(i + 1, j)
    const withNew = common(i, j + 1)
    return shared(without) >= shared(withNew)
      ? [{ mark: "-", event: one }, ...without]
      : [{ mark: "+", event: other }, ...withNew]
  }
  return common(0, 0)
}

const shared = (lines: ReadonlyArray<Line>) => lines.filter(({ mark }) => mark === " ").length

const explain = (lines: ReadonlyArray<Line>, problem: string | undefined): ReadonlyArray<string> => {
  const [removed, ...moreRemoved] = lines.filter(({ mark }) => mark === "-")
  const [added, ...moreAdded] = lines.filter(({ mark }) => mark === "+")
  if (problem !== undefined) return [`${problem}.`]
  if (removed === undefined) return ["The code does something that history does not have."]
  if (added === undefined) return ["The code does not do what history has there."]
  if (moreRemoved.length > 0 || moreAdded.length > 0) return []
  const where = payloadDifference(removed.event, added.event)
  return where === undefined ? [] : [`They differ in ${where}.`]
}
