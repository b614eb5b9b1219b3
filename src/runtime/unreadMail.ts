/**
 * Unread mail at `continueAsNew`: what is carried over, and what stays in the queue.
 *
 * Carried mail is written three times per execution, however little of it is read: with the message that begins the
 * execution, in its first event, and as events of its own. So no more than `maxCarriedBytes` are carried of what could as
 * well stay in the queue: mail of the very batch that the execution ended with. Mail of earlier batches is stored
 * already.
 */
import type * as WorkItem from "../model/WorkItem.ts"
import type { OrchestrationItem } from "../provider/Provider.ts"
import type * as turns from "../replay/turn.ts"

/** Up to here mail goes over with the execution, as with Duroxide in Rust, and no batch is handed out twice. */
const maxCarriedBytes = 256 * 1024

/**
 * Smaller mail, on average, goes over as well. A batch of it is full by its number of messages: left in the queue, they
 * would be the next batch again, and a cancellation behind them would wait until nearly all of them are read. Of larger
 * mail 16 MiB fill a batch, carried or not.
 */
const smallMailBytes = 4 * 1024

/**
 * The turn again without the mail of its batch that it has not read, where there is too much of it; otherwise as it was.
 *
 * `run` runs the same turn with fewer messages. A mailbox is read in order and cannot be looked into otherwise, so what
 * the program has not taken makes no difference to it.
 */
export const leave = (
  ran: turns.Ran,
  { messageIds, messages }: Pick<OrchestrationItem, "messageIds" | "messages">,
  run: (isLeft: (message: WorkItem.WorkItem) => boolean) => turns.Ran
): turns.Ran => {
  const left = leftOf(ran, messages)
  if (left.size === 0) return ran
  const again = run((message) => left.has(message))
  if (again.outcome._tag !== "ContinuedAsNew") return ran
  return { ...again, turn: { ...again.turn, left: messageIds.filter((_, index) => left.has(messages[index]!)) } }
}

/** Whether `leave` has anything to leave. */
export const leavesMail = (ran: turns.Ran, { messages }: Pick<OrchestrationItem, "messages">): boolean =>
  leftOf(ran, messages).size > 0

// internal

type Carried = ReadonlyArray<readonly [mailbox: string, data: string]>

/** Roughly. */
const bytesOf = (carried: Carried) => carried.reduce((bytes, [, data]) => bytes + data.length, 0)

type Mail = WorkItem.Of<"QueueMessage">

const leftOf = ({ outcome }: turns.Ran, messages: ReadonlyArray<WorkItem.WorkItem>): ReadonlySet<WorkItem.WorkItem> => {
  if (outcome._tag !== "ContinuedAsNew" || bytesOf(outcome.carried) <= maxCarriedBytes) return none
  const unread = unreadOf(messages, outcome.carried)
  const bytes = [...unread].reduce((bytes, { data }) => bytes + data.length, 0)
  return bytes < unread.size * smallMailBytes ? none : unread
}

const none: ReadonlySet<WorkItem.WorkItem> = new Set()

/** Mail of the batch among what is carried: of each mailbox the last messages, for it was read from the front. */
const unreadOf = (messages: ReadonlyArray<WorkItem.WorkItem>, carried: Carried): ReadonlySet<Mail> => {
  const unread = new Map<string, number>()
  for (const [mailbox] of carried) unread.set(mailbox, (unread.get(mailbox) ?? 0) + 1)
  const left = new Set<Mail>()
  for (const message of messages.toReversed()) {
    if (message._tag !== "QueueMessage") continue
    const count = unread.get(message.name) ?? 0
    if (count === 0) continue
    unread.set(message.name, count - 1)
    left.add(message)
  }
  return left
}
