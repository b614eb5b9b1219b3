/**
 * The ledger of an execution: its open work, updated with each event.
 *
 * Open are activities, timers, children and waits without an answer, and signal messages that no wait has received.
 * The ledger alone decides which wait receives an arrival: a completion answers the request it names; a signal or
 * message goes to the oldest open wait of its name. A signal without a wait is lost, a message waits for the next wait.
 */
import type * as Event from "../Event.ts"
import * as interruptSignal from "./interruptSignal.ts"
import * as markers from "./markers.ts"
import * as requestSignal from "./requestSignal.ts"
import * as taskSignal from "./taskSignal.ts"

/** The kinds of events that a completion answers. */
export type Schedule = "ActivityScheduled" | "TimerCreated" | "SubOrchestrationScheduled"

/** An arrival, and the request that it answers. */
export interface Delivery {
  readonly requestId: number
  readonly answer: Event.Event
}

type Message = Event.Of<"ExternalEventPersistent">

export class Ledger {
  /** Event ids of activities without a result and without a cancel request, ascending. */
  readonly openActivities = new Set<number>()
  /** Children without a result and without a cancel request, by event id, ascending. */
  readonly openChildren = new Map<number, Event.Of<"SubOrchestrationScheduled">>()
  /** Children that were interrupted and have not ended yet, by event id, ascending. */
  readonly interruptedChildren = new Map<number, Event.Of<"SubOrchestrationScheduled">>()
  /** Event ids of waits for signals that are neither answered nor given up, ascending. */
  readonly openSubscriptions = new Set<number>()
  /** Event ids of open waits for signals. */
  readonly openDequeues = new Set<number>()
  /** Event ids of waits of both kinds with a cancel event. */
  readonly cancelledSubscriptions = new Set<number>()
  /** Requests that no completion has answered yet, given up or not, by event id. */
  readonly unanswered = new Map<number, Schedule>()
  /** Event ids of requests that a completion has answered. */
  readonly answered = new Set<number>()
  cancelRequest: Event.Of<"OrchestrationCancelRequested"> | undefined
  interruptRequest: Message | undefined
  /** Event ids of lossy signals that found no open wait, ascending. */
  readonly lostSignals: Array<number> = []
  /** Bytes of the texts in the events so far, at two per character. */
  textBytes = 0

  private readonly subscriptions = new Map<string, Line>()
  private readonly dequeues = new Map<string, Line>()
  private readonly signals = new Map<string, Array<Message>>()
  /** Questions without an answer, taken or not, by their ids. */
  private readonly questions = new Map<string, Message>()
  /** Activities that create tasks, open or failed: one that has failed may have created its task, and is repeated. */
  private readonly creating = new Set<number>()
  /** Signals of tasks that were created and that their calls do not await yet, as where a retry has cut between. */
  private readonly created = new Set<string>()
  private readonly givenUp: ReadonlySet<number>
  /** Signals that no wait receives: they were set aside. */
  private leftOut: ReadonlySet<number> = none

  /**
   * Makes the ledger of stored events, without their program. A wait with a cancel event receives nothing, not even
   * what arrived before that event: the code had given it up already.
   */
  static of(events: ReadonlyArray<Event.Event>): Ledger {
    const givenUp = events.flatMap((event) => isSubscriptionCancel(event) ? event.sourceEventId! : [])
    const ledger = new Ledger(new Set(givenUp))
    ledger.leaveOut(markers.signalsSetAside(events))
    for (const event of events) ledger.add(event)
    return ledger
  }

  constructor(givenUp: ReadonlySet<number> = new Set()) {
    this.givenUp = givenUp
  }

  /** These signals will be received by no wait. */
  leaveOut(eventIds: ReadonlySet<number>): void {
    this.leftOut = eventIds
  }

  /** The wait that has just received this signal receives the next one in its place, which may be there already. */
  reopen(requestId: number, signal: Event.Event): Delivery | undefined {
    if (signal._tag === "ExternalEvent") {
      this.openSubscriptions.add(requestId)
      this.subscriptions.get(signal.name)?.reopen(requestId)
    } else if (signal._tag === "ExternalEventPersistent") {
      const next = this.signals.get(signal.name)?.shift()
      if (next !== undefined) return { requestId, answer: next }
      this.openDequeues.add(requestId)
      entry(this.dequeues, signal.name, () => new Line()).reopen(requestId)
    }
    return undefined
  }

  /** Whether a request still waits for its answer, or an interrupted child for its end. */
  isOpen(eventId: number): boolean {
    return this.openActivities.has(eventId) || this.openChildren.has(eventId) ||
      this.interruptedChildren.has(eventId) || this.openSubscriptions.has(eventId) ||
      this.openDequeues.has(eventId) || this.unanswered.get(eventId) === "TimerCreated"
  }

  get openWaits(): number {
    return this.openSubscriptions.size + this.openDequeues.size
  }

  /** Messages that no wait has received, in order of arrival. */
  unread(): ReadonlyArray<Message> {
    return [...this.signals.values()].flat().sort((a, b) => a.eventId - b.eventId)
  }

  /** Questions that the program has not answered, in order of arrival; it may have taken them. */
  unansweredQuestions(): ReadonlyArray<Message> {
    return [...this.questions.values()]
  }

  hasQuestion(id: string): boolean {
    return this.questions.has(id)
  }

  /** Whether a call of a task still waits for its end, or may come to wait for it, in the signal of this name. */
  expectsTaskEnd(signal: string): boolean {
    return this.creating.size > 0 || this.created.has(signal) ||
      (this.dequeues.get(signal)?.hasOpen(this.openDequeues) ?? false)
  }

  /**
   * Enters an event. Returns what is delivered because of it; a wait that has already been given up receives nothing.
   */
  add(event: Event.Event, isGivenUp = this.givenUp.has(event.eventId)): Delivery | undefined {
    for (const value of Object.values(event)) if (typeof value === "string") this.textBytes += 2 * value.length
    let delivery: Delivery | undefined
    switch (event._tag) {
      case "ActivityScheduled":
        this.unanswered.set(event.eventId, event._tag)
        this.openActivities.add(event.eventId)
        if (taskSignal.creates(event.name)) this.creating.add(event.eventId)
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
        this.interruptedChildren.delete(event.sourceEventId!)
        this.answered.add(event.sourceEventId!)
        this.close(event.sourceEventId!)
        if (event._tag === "ActivityCompleted" && this.creating.delete(event.sourceEventId!)) {
          const signal = taskSignal.signalIn(event.result)
          if (signal !== undefined) this.created.add(signal)
        }
        delivery = { requestId: event.sourceEventId!, answer: event }
        break
      case "SubOrchestrationCancelRequested": {
        const child = this.openChildren.get(event.sourceEventId!)
        if (child !== undefined && event.reason === interruptSignal.ofChild) {
          this.interruptedChildren.set(child.eventId, child)
        }
        this.close(event.sourceEventId!)
        break
      }
      case "ActivityCancelRequested":
        this.close(event.sourceEventId!)
        this.creating.delete(event.sourceEventId!)
        break
      case "ExternalSubscribed":
        if (isGivenUp) break
        this.openSubscriptions.add(event.eventId)
        entry(this.subscriptions, event.name, () => new Line()).push(event.eventId)
        break
      case "ExternalSubscribedPersistent": {
        this.created.delete(event.name)
        if (isGivenUp) break
        const message = this.signals.get(event.name)?.shift()
        if (message !== undefined) delivery = { requestId: event.eventId, answer: message }
        else {
          this.openDequeues.add(event.eventId)
          entry(this.dequeues, event.name, () => new Line()).push(event.eventId)
        }
        break
      }
      case "ExternalSubscribedCancelled":
      case "ExternalSubscribedPersistentCancelled":
        this.cancelledSubscriptions.add(event.sourceEventId!)
        this.giveUpWait(event.sourceEventId!)
        break
      case "ExternalEvent": {
        if (this.leftOut.has(event.eventId)) break
        const requestId = this.subscriptions.get(event.name)?.next(this.openSubscriptions)
        if (requestId !== undefined) delivery = { requestId, answer: event }
        else this.lostSignals.push(event.eventId)
        break
      }
      case "ExternalEventPersistent": {
        if (event.name === interruptSignal.name) this.interruptRequest ??= event
        if (requestSignal.isName(event.name)) this.ask(event)
        if (this.leftOut.has(event.eventId)) break
        const requestId = this.dequeues.get(event.name)?.next(this.openDequeues)
        if (requestId !== undefined) delivery = { requestId, answer: event }
        else entry(this.signals, event.name, (): Array<Message> => []).push(event)
        break
      }
      case "KeyValueSet":
        if (requestSignal.isAnswerKey(event.key)) this.questions.delete(requestSignal.idOfAnswer(event.key))
        break
      case "OrchestrationCancelRequested":
        this.cancelRequest ??= event
    }
    return delivery
  }

  /** The code has given up this wait: later arrivals are for other waits. Its cancel event may come later. */
  giveUpWait(eventId: number): void {
    this.openSubscriptions.delete(eventId)
    this.openDequeues.delete(eventId)
  }

  private ask(event: Message): void {
    const question = requestSignal.decode(event.data)
    if (question !== undefined && !this.questions.has(question.id)) this.questions.set(question.id, event)
  }

  private close(eventId: number): void {
    this.openActivities.delete(eventId)
    this.openChildren.delete(eventId)
  }
}

// internal

const none: ReadonlySet<number> = new Set()

/** Waits for one name in the order they began, including those that were given up. */
class Line {
  private readonly ids: Array<number> = []
  private served = 0
  push(eventId: number): void {
    this.ids.push(eventId)
  }
  hasOpen(open: ReadonlySet<number>): boolean {
    return this.ids.some((id) => open.has(id))
  }
  /** Puts a wait back that was served last, or that did not have to wait. */
  reopen(id: number): void {
    if (this.served > 0 && this.ids[this.served - 1] === id) this.served--
    else this.ids.push(id)
  }
  /** Closes the oldest wait that is still open, and returns it. */
  next(open: Set<number>): number | undefined {
    while (this.served < this.ids.length) {
      const id = this.ids[this.served++]!
      if (open.delete(id)) return id
    }
    this.ids.length = this.served = 0
    return undefined
  }
}

const entry = <A>(map: Map<string, A>, name: string, make: () => A): A => {
  const value = map.get(name) ?? make()
  map.set(name, value)
  return value
}

const isSubscriptionCancel = (event: Event.Event) =>
  event._tag === "ExternalSubscribedCancelled" || event._tag === "ExternalSubscribedPersistentCancelled"
