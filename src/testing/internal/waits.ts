/**
 * What an execution waits for, in words.
 */
import type * as Event from "../../model/Event.ts"
import { Ledger } from "../../model/shared/ledger.ts"

/** Describes the open waits of the newest execution among `events`. */
export const describeWaits = (events: ReadonlyArray<Event.Event>): string => {
  const executionId = events.at(-1)?.executionId
  const current = events.filter((event) => event.executionId === executionId)
  const ledger = Ledger.of(current)
  const waits = current.flatMap((event) => ledger.isOpen(event.eventId) ? describe(event) : [])
  return waits.length === 0 ? "nothing" : waits.join(", ")
}

// internal

const describe = (request: Event.Event): string | ReadonlyArray<never> => {
  switch (request._tag) {
    case "ActivityScheduled":
      return `activity "${request.name}"`
    case "TimerCreated":
      return `a timer of ${new Date(request.fireAtMs).toISOString()}`
    case "SubOrchestrationScheduled":
      return `child orchestration "${request.name}" (${request.instance})`
    case "ExternalSubscribed":
    case "ExternalSubscribedPersistent":
      return `signal "${request.name}"`
    default:
      return []
  }
}
