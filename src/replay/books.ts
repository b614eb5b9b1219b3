/**
 * What a history leaves open, kept up event by event.
 */
import type * as Event from "../model/Event.ts"

/** The kinds of events that a completion answers. */
export type Schedule = "ActivityScheduled" | "TimerCreated" | "SubOrchestrationScheduled"

export class Books {
  /** Event ids of activities without a result and without a cancel request, ascending. */
  readonly openActivities = new Set<number>()
  /** Children without a notice and without a cancel request, by event id, ascending. */
  readonly openChildren = new Map<number, Event.Of<"SubOrchestrationScheduled">>()
  /** Event ids of waits for signals that no arrival has answered and nothing has given up, ascending. */
  readonly openSubscriptions = new Set<number>()
  /** The same for waits for mailboxes. */
  readonly openDequeues = new Set<number>()
  /** Event ids of waits of both kinds with a cancel event. */
  readonly cancelledSubscriptions = new Set<number>()
  /** What no completion has answered yet, given up or not, by event id. */
  readonly unanswered = new Map<number, Schedule>()
  /** Event ids of what a completion has answered. */
  readonly answered = new Set<number>()
  cancelRequest: Event.Of<"OrchestrationCancelRequested"> | undefined
  /** Bytes of the texts in the events so far, at two per character. */
  textBytes = 0

  private readonly subscriptions = new Map<string, Line>()
  private readonly dequeues = new Map<string, Line>()
  private readonly unread = new Map<string, number>()
  private readonly givenUp: ReadonlySet<number>

  /**
   * The books of a history that is not replayed. Its cancel events stand behind all that arrived in the same turn, though the
   * code had given up before: such a wait never took part.
   */
  static of(events: ReadonlyArray<Event.Event>): Books {
    const books = new Books(new Set(events.flatMap((event) => isSubscriptionCancel(event) ? event.sourceEventId! : [])))
    for (const event of events) books.add(event)
    return books
  }

  constructor(givenUp: ReadonlySet<number> = new Set()) {
    this.givenUp = givenUp
  }

  get openWaits(): number {
    return this.openSubscriptions.size + this.openDequeues.size
  }

  add(event: Event.Event): void {
    for (const value of Object.values(event)) if (typeof value === "string") this.textBytes += 2 * value.length
    switch (event._tag) {
      case "ActivityScheduled":
        this.unanswered.set(event.eventId, event._tag)
        this.openActivities.add(event.eventId)
        break
      case "TimerCreated":
        this.unanswered.set(event.eventId, event._tag)
        break
      case "SubOrchestrationScheduled":
        this.unanswered.set(event.eventId, event._tag)
        this.openChildren.set(event.eventId, event)
        break
      case "ActivityCompleted":
      case "ActivityFailed":
      case "TimerFired":
      case "SubOrchestrationCompleted":
      case "SubOrchestrationFailed":
        this.unanswered.delete(event.sourceEventId!)
        this.answered.add(event.sourceEventId!)
        this.close(event.sourceEventId!)
        break
      case "ActivityCancelRequested":
      case "SubOrchestrationCancelRequested":
        this.close(event.sourceEventId!)
        break
      case "ExternalSubscribed":
        if (this.givenUp.has(event.eventId)) break
        this.openSubscriptions.add(event.eventId)
        line(this.subscriptions, event.name).push(event.eventId)
        break
      case "ExternalSubscribedPersistent": {
        if (this.givenUp.has(event.eventId)) break
        const messages = this.unread.get(event.name) ?? 0
        if (messages > 0) this.unread.set(event.name, messages - 1)
        else {
          this.openDequeues.add(event.eventId)
          line(this.dequeues, event.name).push(event.eventId)
        }
        break
      }
      case "ExternalSubscribedCancelled":
      case "ExternalSubscribedPersistentCancelled":
        this.cancelledSubscriptions.add(event.sourceEventId!)
        this.giveUpWait(event.sourceEventId!)
        break
      case "ExternalEvent":
        this.subscriptions.get(event.name)?.next(this.openSubscriptions)
        break
      case "ExternalEventPersistent":
        if (!this.dequeues.get(event.name)?.next(this.openDequeues)) {
          this.unread.set(event.name, (this.unread.get(event.name) ?? 0) + 1)
        }
        break
      case "OrchestrationCancelRequested":
        this.cancelRequest ??= event
    }
  }

  /** The code has let go of this wait: what arrives from now on is for others. Its cancel event may come later. */
  giveUpWait(eventId: number): void {
    this.openSubscriptions.delete(eventId)
    this.openDequeues.delete(eventId)
  }

  private close(eventId: number): void {
    this.openActivities.delete(eventId)
    this.openChildren.delete(eventId)
  }
}

// internal

/** Waits for one name in the order they began, those that were given up among them. */
class Line {
  private readonly ids: Array<number> = []
  private served = 0
  push(eventId: number) {
    this.ids.push(eventId)
  }
  /** The oldest wait that is still open gets the arrival; false when there is none. */
  next(open: Set<number>): boolean {
    while (this.served < this.ids.length) {
      if (open.delete(this.ids[this.served++]!)) return true
    }
    this.ids.length = this.served = 0
    return false
  }
}

const line = (lines: Map<string, Line>, name: string): Line => {
  const known = lines.get(name) ?? new Line()
  lines.set(name, known)
  return known
}

const isSubscriptionCancel = (event: Event.Event) =>
  event._tag === "ExternalSubscribedCancelled" || event._tag === "ExternalSubscribedPersistentCancelled"
