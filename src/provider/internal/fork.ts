/**
 * Forks: an instance of its own that continues from an event of another one.
 *
 * It has the events up to there, under its own id and without the parent. Activities, timers and children that were
 * open then are begun again, for the fork; signals that the other instance received later are not copied.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as ErrorDetails from "../../model/ErrorDetails.ts"
import type * as Event from "../../model/Event.ts"
import * as coreVersion from "../../model/shared/coreVersion.ts"
import * as retrySignal from "../../model/shared/retrySignal.ts"
import * as taskCalls from "../../model/shared/taskCalls.ts"
import * as WorkItem from "../../model/WorkItem.ts"
import type { Admin, ForkOptions } from "../Admin.ts"
import type { AdminDriver } from "../AdminDriver.ts"
import { ForkRefused, InstanceNotFound, ProviderError } from "../ProviderError.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import * as encoding from "./encoding.ts"
import { attributesOf, changesOf, customStatusOf, readEvents, valuesBefore } from "./recordedState.ts"
import { beforeEnd, interruptedOf, withEndOfMarker } from "./retry.ts"

type Driver = AdminDriver["Service"]

export const forks = (driver: Driver): Pick<Admin["Service"], "fork"> => ({
  fork: (instanceId, { atEvent, newId }) =>
    checked("fork", [
      check.text("instanceId", instanceId),
      check.whole("atEvent", atEvent, 1),
      check.rootId("newId", newId)
    ], () => fork(driver, instanceId, { atEvent, newId }))
})

// internal

const refuse = (instanceId: string, problem: string) =>
  Effect.fail(new ProviderError({ operation: "fork", reason: new ForkRefused({ instanceId, problem }) }))

const fork = Effect.fnUntraced(function*(driver: Driver, instanceId: string, { atEvent, newId }: ForkOptions) {
  const [state] = yield* driver.readInstances([instanceId])
  if (state === undefined) {
    return yield* Effect.fail(new ProviderError({ operation: "fork", reason: new InstanceNotFound({ instanceId }) }))
  }
  const events = yield* readEvents(driver, state, refuse)
  const [started] = events
  if (started?._tag !== "OrchestrationStarted") return yield* refuse(instanceId, "it has not begun")
  if (!coreVersion.isOwn(started.duroxideVersion)) {
    return yield* refuse(instanceId, "Duroxide runs it, and knows no forks")
  }
  const pinned = coreVersion.parse(started.duroxideVersion)
  const least = 1 + (started.carryForwardEvents?.length ?? 0)
  const most = beforeEnd(events)
  const keep = withEndOfMarker(events, atEvent)
  if (keep < least || keep > most) {
    return yield* refuse(
      instanceId,
      `the event must be one from ${least} to ${most} of its execution ${state.executionId}`
    )
  }
  if (!events.some(({ eventId }) => eventId === keep)) {
    return yield* refuse(instanceId, `a retry has removed event ${keep} of its execution ${state.executionId}`)
  }
  const kept = events.filter(({ eventId }) => eventId <= keep)
  const closed = new Set(kept.flatMap(({ sourceEventId }) => sourceEventId ?? []))
  const isOpen = ({ eventId }: Event.Event) => !closed.has(eventId)
  const named = kept.find((event) =>
    event._tag === "SubOrchestrationScheduled" && isOpen(event) && !event.instance.startsWith("sub::")
  )
  if (named !== undefined) {
    return yield* refuse(
      instanceId,
      `event ${named.eventId} has started a child whose id is taken by it: choose an earlier event, or one after its end`
    )
  }
  const [task] = taskCalls.openIn(kept)
  if (task !== undefined) {
    return yield* refuse(
      instanceId,
      `it waits for a task that event ${task.created.eventId} has created: choose that event, an earlier one, or one after its end`
    )
  }
  const before = state.executionId === 1 ? new Map() : yield* valuesBefore(driver, state, refuse)
  const again = kept.filter((event) =>
    isOpen(event) && (event._tag === "ActivityScheduled" || event._tag === "TimerCreated" ||
      event._tag === "SubOrchestrationScheduled")
  ).map(({ eventId }) => eventId)
  const cut: Event.Event = {
    _tag: "ExternalEventPersistent",
    eventId: keep + 1,
    sourceEventId: null,
    instanceId: newId,
    executionId: state.executionId,
    // No replay may see the clock go back.
    timestampMs: Math.max(kept.at(-1)!.timestampMs, yield* Clock.currentTimeMillis),
    duroxideVersion: started.duroxideVersion,
    name: retrySignal.name,
    data: retrySignal.copied(keep)
  }
  const isForked = yield* driver.forkInstance({
    instanceId: newId,
    of: instanceId,
    orchestrationName: started.name,
    orchestrationVersion: started.version,
    executionId: state.executionId,
    pinnedVersion: pinned,
    history: [...kept.map((event) => readdressed(event, newId)), cut].map(encoding.encodeEvent),
    customStatus: customStatusOf(kept, started),
    attributes: encoding.changesOf(attributesOf(kept, started)),
    stored: [...before.values()],
    changed: changesOf(kept, before.keys()),
    messages: [
      // The fork has no such child, so that there is nothing to wait for.
      ...[...interruptedOf(kept).keys()].map((parentId) =>
        WorkItem.encode({
          _tag: "SubOrchFailed",
          parentInstance: newId,
          parentExecutionId: state.executionId,
          parentId,
          details: ErrorDetails.cancelled("it is a child of another instance")
        })
      ),
      WorkItem.encode({
        _tag: "QueueMessage",
        instance: newId,
        name: retrySignal.name,
        data: retrySignal.encodeFork(again)
      })
    ]
  })
  if (!isForked) return yield* refuse(instanceId, `the id ${newId} is taken, or signals wait for it`)
})

/** The event in the history of the fork. Its random numbers are those of the other instance. */
const readdressed = (event: Event.Event, newId: string): Event.Event => {
  if (event._tag !== "OrchestrationStarted") return { ...event, instanceId: newId }
  const { parentExecutionId: _, ...started } = event
  return {
    ...started,
    instanceId: newId,
    parentInstance: null,
    parentId: null,
    seedId: event.seedId ?? event.instanceId
  }
}
