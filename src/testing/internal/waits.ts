/**
 * What an execution waits for, in words.
 */
import type * as Event from "../../model/Event.ts"

/** Of the newest execution among `events`. */
export const describeWaits = (events: ReadonlyArray<Event.Event>): string => {
  const executionId = events.at(-1)?.executionId
  const current = events.filter((event) => event.executionId === executionId)
  const settled = new Set(current.map(({ sourceEventId }) => sourceEventId))
  // Signals and messages go to the oldest wait of their name.
  const arrived = new Map<string, number>()
  for (const event of current) {
    if (event._tag === "ExternalEvent" || event._tag === "ExternalEventPersistent") {
      const line = `${event._tag} ${event.name}`
      arrived.set(line, (arrived.get(line) ?? 0) + 1)
    }
  }
  const isAnswered = (line: string) => {
    const left = arrived.get(line) ?? 0
    arrived.set(line, left - 1)
    return left > 0
  }
  const waits = current.flatMap((event) => {
    if (settled.has(event.eventId)) return []
    switch (event._tag) {
      case "ActivityScheduled":
        return `activity "${event.name}"`
      case "TimerCreated":
        return `a timer of ${new Date(event.fireAtMs).toISOString()}`
      case "SubOrchestrationScheduled":
        return `child orchestration "${event.name}" (${event.instance})`
      case "ExternalSubscribed":
        return isAnswered(`ExternalEvent ${event.name}`) ? [] : `signal "${event.name}"`
      case "ExternalSubscribedPersistent":
        return isAnswered(`ExternalEventPersistent ${event.name}`) ? [] : `a message in mailbox "${event.name}"`
      default:
        return []
    }
  })
  return waits.length === 0 ? "nothing" : waits.join(", ")
}
