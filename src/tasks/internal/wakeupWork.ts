/**
 * The work of a task worker on the wake-ups of one queue, in sets. A wake-up is a message of any kind that names a task
 * by its `task_id`.
 *
 * Wake-ups that were received together are claimed by one statement. Where the queue is in the database of the tasks,
 * the statement that receives them also claims their tasks, and deletes the messages: should this process die, the
 * sweep wakes the tasks when their leases have ended. Other messages are acknowledged last: until then another worker
 * may receive one, which costs a claim and does nothing.
 *
 * Each claimed task has a fiber for its handler, and handlers that end at about the same time are completed by one
 * statement. Everything else (failures, what is lost or given back, and all tasks of a set whose statement failed) is
 * settled task by task.
 *
 * A handler that has ended leaves its place to the next one before its result is stored. Nothing further is claimed
 * while more results than there are places wait to be stored, or too many bytes of them.
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Latch from "effect/Latch"
import type * as Scope from "effect/Scope"
import { monotonicMs } from "../../model/shared/monotonic.ts"
import { isAnswerLost } from "../../provider/shared/statement.ts"
import type { Queue, Received } from "../../queue/Queue.ts"
import type { Held, Receive, Settings, Tools, Work } from "../../queue/shared/consuming.ts"
import { logDefect, longestWait, notHandled, receiving } from "../../queue/shared/consuming.ts"
import { storedIn } from "../../queue/shared/stored.ts"
import type { Claim, Claimed, Suspect, TakenTask, TaskDriver } from "../TaskDriver.ts"
import type { Attempts } from "./attempts.ts"
import { makeClaimId } from "./claiming.ts"
import { farewellMs } from "./settlement.ts"
import type { Running } from "./settlement.ts"

/** A task that was claimed, its message deleted; or a message of which more must be known. */
type Taken = Received | TakenTask

/** A wake-up that is under way. */
interface Item {
  /** Its message, if there still is one. */
  readonly message: { readonly received: Received; readonly held: Held } | undefined
  readonly kind: string
  readonly beganMs: number
  /** Size of its result, roughly. */
  bytes: number
  stage: keyof Counts | "done"
  attempt: Running | undefined
}

type ReceivedItem = Item & { readonly message: NonNullable<Item["message"]> }

interface Named {
  readonly item: ReceivedItem
  readonly taskId: string
}

interface Counts {
  claiming: number
  /** Handlers. */
  running: number
  settling: number
}

/** Receives wake-ups, and where it can claims their tasks. */
export const receiveBy =
  (attempts: Attempts, driver: TaskDriver["Service"], settings: Settings) =>
  (queue: Queue["Service"]): Effect.Effect<Receive<Taken>, never, Scope.Scope> => {
    const here = storedIn("receive", queue, driver.database)
    if (here === undefined) return Effect.succeed(receiving(settings, queue))
    const take = driver.take(attempts.serves)
    const watched = attempts.watch<Effect.Success<ReturnType<typeof take>>>(
      ({ left, taken }) => taken.length > 0 || left.ids !== null
    )
    return Effect.clockWith((clock) =>
      Effect.map(
        here.receiveBy<TakenTask>(settings.queue, {
          fetch: (lease) => {
            const claimId = makeClaimId()
            return take(lease, { claimId, claimedMs: monotonicMs(clock) }).pipe(
              Effect.tapError((error) => isAnswerLost(error) ? attempts.claiming.returnClaim(claimId) : Effect.void),
              watched
            )
          },
          giveBack: ({ claimed }) => attempts.giveBack(claimed)
        }),
        (receive) => (maxMessages) =>
          receive({
            maxMessages,
            visibilityMs: Duration.toMillis(settings.visibility),
            waitMs: Duration.toMillis(longestWait)
          })
      )
    )
  }

/** `counted` learns how many more, or less, are under way. */
export const make = (
  attempts: Attempts,
  { concurrency, queue: name }: Settings,
  counted: (more: number) => void
) =>
({ context, fork, freed, keeper, queue, settling }: Tools<never>): Work<Taken> => {
  const clock = Context.get(context, Clock.Clock)
  const counts: Counts = { claiming: 0, running: 0, settling: 0 }
  const running = new Set<Item>()
  /** Fibers that settle, of one item or a set. */
  const settlers = new Set<Fiber.Fiber<void>>()
  /** Handlers that have succeeded, to be completed as a set. */
  const succeeded: Array<Item> = []
  const changed = Latch.makeUnsafe()
  /** Size of results that are not stored yet. */
  let unstoredBytes = 0
  let lanes = 0
  let isStopping = false

  const enter = (item: Item, stage: Item["stage"]) => {
    if (item.stage === stage || item.stage === "done") return
    counts[item.stage]--
    if (stage === "done") unstoredBytes -= item.bytes
    else counts[stage]++
    item.stage = stage
    changed.openUnsafe()
    freed()
  }

  const finish = (item: Item, outcome: "acked" | "later" | "failed") => {
    if (item.stage === "done") return
    if (item.message !== undefined) keeper.release(item.message.held)
    item.attempt?.release()
    settling.timed(item.kind, outcome, monotonicMs(clock) - item.beganMs, context)
    counted(-1)
    enter(item, "done")
  }

  const forkSettler = (settlement: Effect.Effect<void>) => {
    const fiber = fork(Effect.catchDefect(settlement, logDefect(name, notHandled)))
    if (fiber.pollUnsafe() !== undefined) return
    settlers.add(fiber)
    fiber.addObserver(() => settlers.delete(fiber))
  }

  /** Ends with the settlement of the message. An interruption gives it back. */
  const alone = (item: Item, settlement: Effect.Effect<"acked" | "later" | "failed">) => {
    enter(item, "settling")
    forkSettler(
      Effect.uninterruptibleMask((restore) =>
        restore(settlement).pipe(
          Effect.tap((outcome) => Effect.sync(() => finish(item, outcome))),
          Effect.onInterrupt(() => given(item, Duration.zero)),
          Effect.ensuring(Effect.sync(() => finish(item, "failed"))),
          Effect.asVoid
        )
      )
    )
  }

  const acked = ({ message }: Item) =>
    message === undefined
      ? Effect.succeed("acked" as const)
      : Effect.as(settling.ack(message.received.receipt), "acked" as const)

  const given = ({ message }: Item, delay: Duration.Duration) =>
    message === undefined
      ? Effect.succeed("later" as const)
      : Effect.as(settling.giveBack(message.received.receipt, delay), "later" as const)

  // -- claiming ----------------------------------------------------------------------------------

  const claim = Effect.fnUntraced(function*(items: ReadonlyArray<ReceivedItem>) {
    const named: Array<Named> = []
    for (const item of items) {
      const { kind, task_id: taskId } = item.message.received.payload
      if (typeof taskId === "string") named.push({ item, taskId })
      else {
        const reason = `no handler for messages of kind "${kind}" without a task_id`
        alone(item, Effect.as(settling.refuse(item.message.received, reason), "failed"))
      }
    }
    if (named.length === 0) return
    // What is claimed begins at once: suspects may wait for others.
    const suspects = yield* claimBy(attempts.claiming.claimAll, named)
    if (suspects.length === 0) return
    for (const { answer, item } of yield* claimBy(attempts.claiming.claimSuspects, suspects)) postpone(item, answer)
  })

  /** Begins what is claimed, and settles all others but the suspects. */
  const claimBy = Effect.fnUntraced(function*(
    claimSet: typeof attempts.claiming.claimAll,
    named: ReadonlyArray<Named>
  ) {
    const claimedMs = monotonicMs(clock)
    const answers = yield* claimSet(named.map(({ taskId }) => taskId))
    return named.flatMap(({ item, taskId }, i) => {
      const exit = answers[i]!
      if (Exit.isFailure(exit)) {
        alone(item, Effect.as(settling.failed(item.message.received, exit.cause), "failed"))
        return []
      }
      const answer = exit.value
      if (answer.outcome === "Suspect") return [{ item, taskId, answer }]
      if (answer.outcome === "Claimed") start(item, answer, claimedMs)
      else alone(item, Effect.flatMap(passed(item, answer), (delay) => settled(item, delay)))
      return []
    })
  })

  const passed = ({ message }: ReceivedItem, answer: Exclude<Claim, Claimed>) =>
    attempts.pass(answer, message.received.deliveryCount)

  const settled = (item: Item, delay: Duration.Duration | undefined) =>
    delay === undefined ? acked(item) : given(item, delay)

  /** Its wake-up comes again when this worker has room for it, or else after a pause. */
  const postpone = (item: ReceivedItem, answer: Suspect) =>
    alone(
      item,
      Effect.flatMap(passed(item, answer), (delay) =>
        Effect.tap(settled(item, delay), () =>
          Effect.sync(() => {
            if (delay === undefined) return
            const recall = Effect.ignore(
              queue.extendVisibility(name, item.message.received.receipt, Duration.zero)
            )
            attempts.claiming.postponed({ lost: answer.lost, delay, recall })
          })))
    )

  const start = (item: Item, claimed: Claimed, claimedMs: number) => {
    // A claim that is made must be settled.
    if (isStopping) return alone(item, Effect.andThen(attempts.giveBack(claimed), given(item, Duration.zero)))
    enter(item, "running")
    running.add(item)
    item.attempt = attempts.start(claimed, claimedMs, (attempt) => {
      item.attempt = attempt
      running.delete(item)
      ended(item, attempt)
    })
  }

  // -- settling ----------------------------------------------------------------------------------

  const ended = (item: Item, attempt: Running) => {
    enter(item, "settling")
    if (attempt.isLost || attempt.exit === undefined || Exit.isFailure(attempt.exit)) return settleAlone(item, attempt)
    item.bytes = attempt.exit.value.length
    unstoredBytes += item.bytes
    succeeded.push(item)
    if (lanes === mostLanes) return
    lanes++
    forkSettler(Effect.ensuring(lane, Effect.sync(() => lanes--)))
  }

  const settleAlone = (item: Item, attempt: Running) =>
    alone(
      item,
      Effect.andThen(
        attempts.settle(attempt),
        // Its task was given back as well.
        Effect.suspend(() => attempt.isStopped && isFailure(attempt) ? given(item, Duration.zero) : acked(item))
      )
    )

  const lane = Effect.gen(function*() {
    // Handlers that end in the same tick are still to come.
    yield* Effect.yieldNow
    while (succeeded.length > 0) {
      const items = takeSet(succeeded)
      yield* Effect.onInterrupt(
        complete(items),
        () =>
          Effect.sync(() => {
            for (const item of items) if (item.stage === "settling") finish(item, "failed")
          })
      )
    }
  })

  const complete = Effect.fnUntraced(function*(items: ReadonlyArray<Item>) {
    const exit = yield* Effect.exit(attempts.completeAll(items.map(({ attempt }) => attempt!)))
    if (Exit.isFailure(exit)) {
      // One of them may be why, and whether it was stored is unknown: completing a task again changes nothing.
      for (const item of items) settleAlone(item, item.attempt!)
      return undefined
    }
    for (const [i, item] of items.entries()) {
      if (exit.value[i] === "Uncommitted") settleAlone(item, item.attempt!)
      else if (item.message !== undefined) alone(item, acked(item))
      else finish(item, "acked")
    }
  })

  // ----------------------------------------------------------------------------------------------

  const until = (isTrue: () => boolean) =>
    Effect.gen(function*() {
      while (!isTrue()) {
        changed.closeUnsafe()
        yield* changed.await
      }
    })

  return {
    begin: (taken) => {
      counted(taken.length)
      counts.claiming += taken.length
      const beganMs = monotonicMs(clock)
      const received: Array<ReceivedItem> = []
      for (const one of taken) {
        if ("claimed" in one) {
          start(
            { message: undefined, kind: one.kind, beganMs, bytes: 0, stage: "claiming", attempt: undefined },
            one.claimed,
            one.claimedMs
          )
        } else {
          const message = { received: one, held: keeper.hold(one.receipt) }
          received.push({ message, kind: one.payload.kind, beganMs, bytes: 0, stage: "claiming", attempt: undefined })
        }
      }
      if (received.length === 0) return
      fork(
        Effect.suspend(() => claim(received)).pipe(
          Effect.catchDefect(logDefect(name, notHandled)),
          // After a defect they come again.
          Effect.ensuring(Effect.sync(() => {
            for (const item of received) if (item.stage === "claiming") finish(item, "failed")
          }))
        )
      )
    },
    busy: () =>
      unstoredBytes >= mostBytes
        ? concurrency
        : counts.claiming + counts.running + Math.max(0, counts.settling - concurrency),
    ended: until(() => counts.claiming + counts.running + counts.settling === 0),
    interrupt: Effect.gen(function*() {
      isStopping = true
      for (const { attempt } of running) attempt?.stop()
      yield* Effect.timeoutOption(until(() => counts.claiming + counts.running + counts.settling === 0), farewellMs)
      yield* Fiber.interruptAll(settlers)
    })
  }
}

// internal

/** Statements that complete, under way at once. */
const mostLanes = 2

const mostPerStatement = 500

/** Results of one statement, after which it takes no further one. While as much is unstored, nothing is claimed. */
const mostBytes = 16 * 1024 * 1024

const takeSet = (items: Array<Item>): ReadonlyArray<Item> => {
  let count = 0
  let bytes = 0
  while (count < Math.min(items.length, mostPerStatement) && bytes < mostBytes) {
    bytes += items[count]!.bytes
    count++
  }
  return items.splice(0, count)
}

const isFailure = ({ exit }: Running) => exit !== undefined && Exit.isFailure(exit)
