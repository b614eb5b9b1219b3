/**
 * What the events of an execution say of the state of its instance.
 */
import * as Effect from "effect/Effect"
import * as Result from "effect/Result"
import * as Event from "../../model/Event.ts"
import type { InstanceState } from "../../model/Instance.ts"
import * as attributes from "../../model/shared/attributes.ts"
import type { AdminDriver, HistoryCut } from "../AdminDriver.ts"
import type { ProviderError } from "../ProviderError.ts"

type Driver = Pick<AdminDriver["Service"], "readHistory">

/** Why a call that needs these events cannot be right. */
type Refuse = (instanceId: string, problem: string) => Effect.Effect<never, ProviderError>

/** The history of an execution; refused if this release cannot read it. */
export const readEvents = (
  driver: Driver,
  { executionId, instanceId }: Pick<InstanceState, "executionId" | "instanceId">,
  refuse: Refuse
) =>
  Effect.flatMap(driver.readHistory({ instanceId, executionId }), (texts) => {
    const events: Array<Event.Event> = []
    for (const text of texts) {
      const event = Event.decode(text)
      if (Result.isFailure(event)) return refuse(instanceId, "this release cannot read its history")
      events.push(event.success)
    }
    return Effect.succeed(events)
  })

export const customStatusOf = (
  kept: ReadonlyArray<Event.Event>,
  started: Event.Of<"OrchestrationStarted">
): string | null => {
  const last = kept.findLast((event) => event._tag === "CustomStatusUpdated")
  return last === undefined ? started.initialCustomStatus ?? null : last.status
}

/** The attributes after these events. */
export const attributesOf = (
  kept: ReadonlyArray<Event.Event>,
  started: Event.Of<"OrchestrationStarted">
): attributes.EncodedAttributes =>
  kept.reduce(
    (all, event) => isChangeOfAttributes(event) ? attributes.changed(all, attributes.readChanges(event.value)) : all,
    started.attributes ?? attributes.none
  )

const isChangeOfAttributes = (event: Event.Event): event is Event.Of<"KeyValueSet"> =>
  event._tag === "KeyValueSet" && event.key === attributes.recordKey

/** The last change of each key; `earlier` are the keys that there were before. */
export const changesOf = (events: ReadonlyArray<Event.Event>, earlier: Iterable<string>): HistoryCut["changed"] => {
  const known = [...earlier]
  const changes = new Map<string, { readonly value: string | null; readonly lastUpdatedAtMs: number }>()
  for (const event of events) {
    const removed = { value: null, lastUpdatedAtMs: event.timestampMs }
    if (event._tag === "KeyValueSet") {
      if (event.key === attributes.recordKey) continue
      changes.set(event.key, { value: event.value, lastUpdatedAtMs: event.lastUpdatedAtMs ?? event.timestampMs })
    } else if (event._tag === "KeyValueCleared") changes.set(event.key, removed)
    else if (event._tag === "KeyValuesCleared") {
      for (const key of [...known, ...changes.keys()]) changes.set(key, removed)
    }
  }
  return [...changes].map(([key, change]) => ({ key, ...change }))
}

export const changesValues = (event: Event.Event) => event._tag.startsWith("KeyValue") && !isChangeOfAttributes(event)

export type StoredValue = Exclude<HistoryCut["stored"], null>[number]

/** What earlier executions have left. */
export const valuesBefore = Effect.fnUntraced(function*(
  driver: Driver,
  { executionId, instanceId }: InstanceState,
  refuse: Refuse
) {
  const values = new Map<string, StoredValue>()
  for (let earlier = 1; earlier < executionId; earlier++) {
    const history = yield* readEvents(driver, { executionId: earlier, instanceId }, refuse)
    if (history.length === 0) {
      return yield* refuse(
        instanceId,
        `its key-values are those of earlier executions as well, and execution ${earlier} is not stored: it was pruned, or the instance is a fork`
      )
    }
    for (const { key, lastUpdatedAtMs, value } of changesOf(history, values.keys())) {
      if (value === null) values.delete(key)
      else values.set(key, { key, value, executionId: earlier, lastUpdatedAtMs })
    }
  }
  return values
})
