/**
 * Verbs of the orchestrator queue.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type { BlockReport } from "../../../model/Block.ts"
import type * as WorkItem from "../../../model/WorkItem.ts"
import { Provider } from "../../../provider/Provider.ts"
import type { Claimed, ExecutionMetadata, HistoryEnd, OrchestrationItem, Turn } from "../../../provider/Provider.ts"
import { none, some } from "./expectations.ts"
import { externalRaised, stamp, startItem, version } from "./items.ts"
import type { EventInput, Fields } from "./items.ts"
import { duration } from "./time.ts"

/** Enqueues for the orchestrator. */
export const send = (item: WorkItem.WorkItem, delay?: Duration.Input) =>
  Effect.flatMap(Provider, (provider) => provider.enqueueForOrchestrator({ message: item, delay: duration(delay) }))

export const enqueueStart = (instance: string, fields?: Fields<WorkItem.Of<"StartOrchestration">>) =>
  send(startItem(instance, fields))

/** What begins an execution, then the other messages of a batch: where it stands among them is up to the driver. */
export const beginFirst = (messages: ReadonlyArray<WorkItem.WorkItem>): ReadonlyArray<WorkItem.WorkItem> => {
  const begins = ({ _tag }: WorkItem.WorkItem) => _tag === "StartOrchestration" || _tag === "ContinueAsNew"
  return [...messages.filter(begins), ...messages.filter((message) => !begins(message))]
}

/** A message that only wakes the instance. */
export const poke = (instance: string, name = "poke") => send(externalRaised(instance, name))

export interface FetchOrchestration {
  readonly lockTimeout?: Duration.Input
  readonly pollTimeout?: Duration.Input
  /** Ends included: `["1.0.0", "1.9.9"]`. */
  readonly versions?: readonly [min: string, max: string]
  readonly isKnown?: (end: HistoryEnd) => boolean
  /** `TestOrch` in these versions. */
  readonly serves?: ReadonlyArray<string>
}

export type ClaimedOrchestration = Claimed<OrchestrationItem>

export const fetchOrchestration = (options: FetchOrchestration = {}) =>
  Effect.flatMap(Provider, (provider) =>
    provider.fetchOrchestrationItem({
      lockTimeout: Duration.fromInputUnsafe(options.lockTimeout ?? "30 seconds"),
      pollTimeout: Duration.fromInputUnsafe(options.pollTimeout ?? 0),
      versions: Option.map(
        Option.fromUndefinedOr(options.versions),
        ([min, max]) => ({ min: version(min), max: version(max) })
      ),
      isKnown: options.isKnown,
      ...(options.serves !== undefined && { serves: [{ name: "TestOrch", versions: options.serves }] })
    }))

export const claimOrchestration = (options?: FetchOrchestration) =>
  Effect.map(fetchOrchestration(options), (found) => some(found, "an instance to claim"))

/** Claims, and requires that it is this instance. */
export const claimInstance = (instance: string, options?: FetchOrchestration) =>
  Effect.map(claimOrchestration(options), (claimed) => {
    assert.strictEqual(claimed.item.instanceId, instance)
    return claimed
  })

export const expectNoOrchestration = (options?: FetchOrchestration) =>
  Effect.map(fetchOrchestration(options), (found) => none(found, ({ item }) => item.instanceId))

export interface Ack {
  /** Defaults to the item's execution. */
  readonly executionId?: number
  readonly events?: ReadonlyArray<EventInput>
  readonly workers?: Turn["workerItems"]
  readonly forRust?: Turn["forRust"]
  readonly items?: Turn["orchestratorItems"]
  readonly metadata?: ExecutionMetadata
  readonly cancelled?: Turn["cancelledActivities"]
  readonly cancelledTimers?: Turn["cancelledTimers"]
  readonly left?: Turn["left"]
  readonly requeued?: Turn["requeued"]
  readonly chunks?: Turn["chunks"]
  /** Starts among `items` create their instances, pinned to this version. */
  readonly pinsStartsTo?: string
}

/** A turn; whatever is left out is empty. */
export const turnOf = (instanceId: string, executionId: number, turn: Ack): Turn => ({
  executionId,
  historyDelta: (turn.events ?? []).map((event) => stamp(instanceId, executionId, event)),
  workerItems: turn.workers ?? [],
  orchestratorItems: turn.items ?? [],
  metadata: turn.metadata ?? {},
  cancelledActivities: turn.cancelled ?? [],
  ...(turn.forRust !== undefined && { forRust: turn.forRust }),
  ...(turn.cancelledTimers !== undefined && { cancelledTimers: turn.cancelledTimers }),
  ...(turn.left !== undefined && { left: turn.left }),
  ...(turn.requeued !== undefined && { requeued: turn.requeued }),
  ...(turn.chunks !== undefined && { chunks: turn.chunks }),
  ...(turn.pinsStartsTo !== undefined && {
    startsPinnedTo: new Map((turn.items ?? []).map((item) => [item, version(turn.pinsStartsTo!)]))
  })
})

/** Stores a turn. */
export const ack = (
  claimed: { readonly lockToken: string; readonly item: Pick<OrchestrationItem, "instanceId" | "executionId"> },
  turn: Ack = {}
) =>
  Effect.flatMap(Provider, (provider) => {
    const { executionId, instanceId } = { ...claimed.item, executionId: turn.executionId ?? claimed.item.executionId }
    return provider.ackOrchestrationItem(claimed.lockToken, turnOf(instanceId, executionId, turn))
  })

/** Metadata that creates the instance row. */
export const named = (metadata: ExecutionMetadata = {}): ExecutionMetadata => ({
  orchestrationName: "TestOrch",
  orchestrationVersion: "1.0.0",
  ...metadata
})

export const abandon = (
  lockToken: string,
  options: {
    readonly delay?: Duration.Input
    readonly ignoreAttempt?: boolean
    readonly beginsFirst?: boolean
    readonly block?: BlockReport
  } = {}
) =>
  Effect.flatMap(Provider, (provider) =>
    provider.abandonOrchestrationItem({
      lockToken,
      delay: duration(options.delay),
      ignoreAttempt: options.ignoreAttempt ?? false,
      beginsFirst: options.beginsFirst,
      block: options.block
    }))

export const renew = (lockToken: string, extendFor: Duration.Input) =>
  Effect.flatMap(
    Provider,
    (provider) => provider.renewOrchestrationItemLock({ lockToken, extendFor: Duration.fromInputUnsafe(extendFor) })
  )
