/**
 * Renders a difference between history and code as text.
 */
import type * as Event from "../../model/Event.ts"
import { decisionText, eventText, payloadDifference } from "./eventText.ts"

export interface Difference {
  readonly orchestration: string
  readonly instanceId: string
  readonly executionId: number
  /** The events of the whole execution, and the index of the first that differs; their number, at the end. */
  readonly events: ReadonlyArray<Event.Event>
  readonly at: number
  /** The events of history from `at` to the next arrival, and the events of the code in their place. */
  readonly history: ReadonlyArray<Event.Event>
  readonly code: ReadonlyArray<Event.Event>
  /** Why the code cannot run there, or another problem that no event shows. */
  readonly problem: string | undefined
}

/** Lines of a diff: three events before, both sides, two events after; then where payloads differ. */
export const render = (difference: Difference): string => {
  const { at, code, events, executionId, history, instanceId, orchestration, problem } = difference
  const place = at < events.length ? `event ${events[at]!.eventId}` : "its end"
  const sides = align(history, code)
  const after = events.slice(at + history.length, at + history.length + contextAfter)
  const width = String(events.at(-1)?.eventId ?? 1).length
  const line = (mark: string, event: Event.Event) =>
    `  ${mark} ${mark === "+" ? " ".repeat(width) : String(event.eventId).padStart(width)}  ${eventText(event)}`
  return [
    `"${orchestration}" does not fit the history of instance ${instanceId}, execution ${executionId}, at ${place}:`,
    "",
    ...events.slice(Math.max(0, at - contextBefore), at).map((event) => line(" ", event)),
    ...sides.map(({ event, mark }) => line(mark, event)),
    ...(Math.max(history.length, code.length) > longestSide ? ["    …"] : []),
    ...after.map((event) => line(" ", event)),
    "",
    "- is the history, + is the code.",
    ...explain(sides, problem)
  ].join("\n")
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
const align = (history: ReadonlyArray<Event.Event>, code: ReadonlyArray<Event.Event>): ReadonlyArray<Line> => {
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
