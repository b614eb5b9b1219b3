/**
 * Signals not taken at `continueAsNew`: which messages the next execution carries, which stay in the queue, and which
 * return to it.
 *
 * Carried signals are written three times per execution, however few are taken: in the message that starts the
 * execution, in its first event, and as events. One turn cannot store many of them. Signals of the batch in which the
 * execution ends could stay in the queue instead, so a turn that would carry more than `maxCarriedBytes` leaves it
 * there. Those of earlier batches are in the history: what is more than that returns to the queue, in front of what
 * waits there. The next execution receives all of them in the order of arrival.
 */
import type * as WorkItem from "../model/WorkItem.ts"
import type { OrchestrationItem } from "../provider/Provider.ts"
import type * as turns from "../replay/turn.ts"

/** Up to this size all are carried, as in Duroxide in Rust, and no batch is delivered twice. */
const maxCarriedBytes = 256 * 1024

/**
 * Signals below this average size are always carried. Their number fills a batch: left in the queue, the same
 * messages would fill the next batch, and a cancellation behind them would wait until nearly all of them are read. Of
 * larger ones, 16 MiB fill a batch, whether they are carried or not.
 */
const smallSignalBytes = 4 * 1024

/** Most bytes that are carried of signals that are smaller on average. A turn may store 64 MiB. */
const maxSmallCarriedBytes = 8 * 1024 * 1024

/** Puts back into the queue what the next execution should not carry: the newest of the signals not taken. */
export const requeue = (ran: turns.Ran): turns.Ran => {
  const { outcome, turn } = ran
  if (outcome._tag !== "ContinuedAsNew") return ran
  const count = countToCarry(outcome.carried)
  if (count === outcome.carried.length) return ran
  const carried = outcome.carried.slice(0, count)
  const carryForwardEvents = carried.map(({ data, name }) => [name, data] as const)
  return {
    ...ran,
    outcome: { ...outcome, carried },
    turn: {
      ...turn,
      orchestratorItems: turn.orchestratorItems.map((item) =>
        item._tag === "ContinueAsNew" ? { ...item, carryForwardEvents } : item
      ),
      requeued: outcome.carried.slice(count).map(({ eventId }) => eventId)
    }
  }
}

/**
 * Runs the turn again without the signals not taken of its batch, if there are too many; otherwise returns it
 * unchanged.
 *
 * `run` runs the same turn with fewer messages. A program can only take the signals of a name in order, so the messages
 * that it has not read make no difference to it.
 */
export const leave = (
  ran: turns.Ran,
  { messageIds, messages }: Pick<OrchestrationItem, "messageIds" | "messages">,
  run: (isLeft: (message: WorkItem.WorkItem) => boolean) => turns.Ran | turns.Blocked
): turns.Ran => {
  const left = leftOf(ran, messages)
  if (left.size === 0) return ran
  const again = run((message) => left.has(message))
  if (!("outcome" in again) || again.outcome._tag !== "ContinuedAsNew") return ran
  return { ...again, turn: { ...again.turn, left: messageIds.filter((_, index) => left.has(messages[index]!)) } }
}

/**
 * Lossy signals that were sent with the start of the instance. In its first batch they would be lost: the waits of its
 * program are not open yet. So they stay in the queue until the next one.
 */
export const withStart = (
  { history, messages }: {
    readonly history: ReadonlyArray<unknown>
    readonly messages: ReadonlyArray<WorkItem.WorkItem>
  }
): ReadonlySet<WorkItem.WorkItem> =>
  history.length > 0
    ? none
    : new Set(messages.filter((message) => message._tag === "ExternalRaised" && message.withStart === true))

/** The turn that leaves these messages in the queue. */
export const leaveHeld = (
  ran: turns.Ran,
  { messageIds, messages }: Pick<OrchestrationItem, "messageIds" | "messages">,
  held: ReadonlySet<WorkItem.WorkItem>
): turns.Ran => {
  if (held.size === 0) return ran
  const left = messageIds.filter((_, index) => held.has(messages[index]!))
  return { ...ran, turn: { ...ran.turn, left: [...ran.turn.left ?? [], ...left] } }
}

/** Whether `leave` would leave any signal in the queue. */
export const leavesSignals = (ran: turns.Ran, { messages }: Pick<OrchestrationItem, "messages">): boolean =>
  leftOf(ran, messages).size > 0

// internal

type Carried = ReadonlyArray<{ readonly name: string; readonly data: string }>

/** An estimate. */
const bytesOf = (carried: Carried) => carried.reduce((bytes, { data }) => bytes + data.length, 0)

const countToCarry = (carried: Carried): number => {
  const isSmall = bytesOf(carried) < carried.length * smallSignalBytes
  let bytesLeft = isSmall ? maxSmallCarriedBytes : maxCarriedBytes
  const first = carried.findIndex(({ data }) => (bytesLeft -= data.length) < 0)
  return first < 0 ? carried.length : first
}

type Signal = WorkItem.Of<"QueueMessage">

const leftOf = ({ outcome }: turns.Ran, messages: ReadonlyArray<WorkItem.WorkItem>): ReadonlySet<WorkItem.WorkItem> => {
  if (outcome._tag !== "ContinuedAsNew" || bytesOf(outcome.carried) <= maxCarriedBytes) return none
  const unread = unreadOf(messages, outcome.carried)
  return bytesOf([...unread]) < unread.size * smallSignalBytes ? none : unread
}

const none: ReadonlySet<WorkItem.WorkItem> = new Set()

/** Carried signals of this batch. Programs read from the front, so these are the last ones of each name. */
const unreadOf = (messages: ReadonlyArray<WorkItem.WorkItem>, carried: Carried): ReadonlySet<Signal> => {
  const unread = new Map<string, number>()
  for (const { name } of carried) unread.set(name, (unread.get(name) ?? 0) + 1)
  const left = new Set<Signal>()
  for (const message of messages.toReversed()) {
    if (message._tag !== "QueueMessage") continue
    const count = unread.get(message.name) ?? 0
    if (count === 0) continue
    unread.set(message.name, count - 1)
    left.add(message)
  }
  return left
}
