/**
 * The calls that travel together: those of one kind in flight at the same time are one statement.
 */
import type * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Metric from "effect/Metric"
import * as Option from "effect/Option"
import * as Metrics from "../../model/Metrics.ts"
import type { OrchestrationAck, ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { answeredAlike, closed, isHeld, isOfOneItem, retried } from "./calls.ts"
import * as coalescer from "./coalescer.ts"

type Driver = ProviderDriver["Service"]

/** Each sends one item, and answers for it alone. */
export const make = Effect.fnUntraced(function*(
  driver: Driver,
  options: { readonly lanes: number; readonly maxBatch: number; readonly patience: Duration.Duration }
) {
  const together = <Item, A>(
    operation: string,
    send: (items: ReadonlyArray<Item>) => Effect.Effect<ReadonlyArray<A>, ProviderError>,
    more: {
      /** Repeats retryable failures; then it counts each repetition. */
      readonly retries?: Effect.Effect<void>
      readonly sizeOf?: (item: Item) => number
    } = {}
  ) => {
    const { retries } = more
    return coalescer.make<Item, A, ProviderError>({
      lanes: options.lanes,
      maxBatch: options.maxBatch,
      maxBytes: maxSetBytes,
      sizeOf: more.sizeOf ?? (() => 0),
      patience: options.patience,
      // What one item may be the cause of is repeated for that item alone, and not in a lane when it is held.
      send: retries === undefined ? send : (items) =>
        retried(send(items), {
          onRetry: retries,
          while: (error) => !isHeld(error) && (items.length === 1 || !isOfOneItem(error))
        }),
      splitOn: isOfOneItem,
      isHeld,
      closed: closed(operation)
    })
  }

  const ackTurns = yield* together("ackOrchestrationItem", driver.ackOrchestrationItems, {
    retries: Metric.update(Metrics.ackOrchestrationRetries, 1),
    sizeOf: sizeOfAck
  })
  const abandonTurns = yield* together("abandonOrchestrationItem", driver.abandonOrchestrationItems)
  const renewTurns = yield* together("renewOrchestrationItemLock", driver.renewOrchestrationItemLocks, {
    retries: Effect.void
  })
  const deferMessages = yield* together("deferMessages", driver.deferMessages)
  const enqueueMessages = yield* together(
    "enqueueForOrchestrator",
    (items: Parameters<Driver["enqueueForOrchestrator"]>[0]) =>
      answeredAlike(items, driver.enqueueForOrchestrator(items)),
    { sizeOf: sizeOfItem }
  )
  const enqueueActivities = yield* together(
    "enqueueForWorker",
    (items: Parameters<Driver["enqueueForWorker"]>[0]) => answeredAlike(items, driver.enqueueForWorker(items)),
    { sizeOf: sizeOfItem }
  )
  const startInstances = yield* together("startOrchestration", driver.startOrchestrations, { sizeOf: sizeOfItem })
  const ackActivities = yield* together("ackWorkItem", driver.ackWorkItems, {
    sizeOf: ({ completion }) => completion === null ? 0 : sizeOfItem(completion)
  })
  const abandonActivities = yield* together("abandonWorkItem", driver.abandonWorkItems)
  const renewActivities = yield* together("renewWorkItemLock", driver.renewWorkItemLocks, { retries: Effect.void })
  const readInstances = yield* together(
    "readInstance",
    (instanceIds: ReadonlyArray<string>) =>
      Effect.map(driver.readInstances([...new Set(instanceIds)]), (states) => {
        const byId = new Map(states.map((state) => [state.instanceId, state]))
        return instanceIds.map((instanceId) => Option.fromUndefinedOr(byId.get(instanceId)))
      }),
    { retries: Effect.void }
  )
  return {
    abandonActivities,
    abandonTurns,
    ackActivities,
    ackTurns,
    deferMessages,
    enqueueActivities,
    enqueueMessages,
    readInstances,
    renewActivities,
    renewTurns,
    startInstances
  }
})

// internal

/** Bytes of texts in one statement that stores, after which it takes no further item. */
const maxSetBytes = 16 * 1024 * 1024

/** Roughly, in bytes. */
const sizeOfItem = ({ workItem }: { readonly workItem: string }) => workItem.length

/** Roughly, in bytes. */
export const sizeOfAck = (ack: OrchestrationAck) => {
  let size = ack.output?.length ?? 0
  for (const { eventData } of ack.history) size += eventData.length
  for (const item of ack.workerItems) size += sizeOfItem(item)
  for (const item of ack.orchestratorItems) size += sizeOfItem(item)
  for (const change of ack.keyValues) size += change.action === "set" ? change.value.length : 0
  return size
}
