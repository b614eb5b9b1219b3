/**
 * A provider whose payloads pass through a `PayloadCodec`: plain above it, sealed below it.
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as Event from "../../model/Event.ts"
import type { InstanceState } from "../../model/Instance.ts"
import { aboutInstance } from "../../model/shared/logging.ts"
import type * as WorkItem from "../../model/WorkItem.ts"
import * as renewal from "../../waking/renewal.ts"
import type { Claimed, End, OrchestrationItem, Provider } from "../Provider.ts"
import type { ProviderError } from "../ProviderError.ts"
import { openingProgress, openOption } from "../shared/openingProgress.ts"
import * as sealedEnqueue from "./sealedEnqueue.ts"
import * as sealing from "./sealing.ts"
import type { Sealing } from "./sealing.ts"

type Service = Provider["Service"]
type Activity = WorkItem.Of<"ActivityExecute">

export const make = (provider: Service, seals: Sealing, clock: Clock.Clock): Service => {
  const enqueueing = sealedEnqueue.make(provider, seals)
  /** Lock tokens of activities that executions of Rust have scheduled, which read only plain outcomes. */
  const forRust = new Set<string>()

  const openHistory = (operation: string, instanceId: string, stored: ReadonlyArray<Event.Event>) => {
    const open = seals.open(operation, instanceId)
    return Effect.tap(
      Effect.forEach(stored, (event) => sealing.openedEvent(event, open)),
      (history) => Effect.sync(() => seals.remember(history, stored))
    )
  }

  const openItem = Effect.fnUntraced(function*(item: OrchestrationItem) {
    const open = seals.open("fetchOrchestrationItem", item.instanceId)
    const keyValues = new Map<string, { readonly value: string; readonly lastUpdatedAtMs: number }>()
    for (const [key, entry] of item.keyValues) keyValues.set(key, { ...entry, value: yield* open(entry.value) })
    return {
      ...item,
      history: yield* openHistory("fetchOrchestrationItem", item.instanceId, item.history),
      messages: yield* Effect.forEach(item.messages, (message) => sealing.openedMessage(message, open)),
      keyValues
    }
  })

  /** Later: what cannot be opened now is claimed again. */
  const notYet = (abandoned: Effect.Effect<void, ProviderError>, instanceId: string) => (error: ProviderError) =>
    Effect.logWarning("Provider: payloads of claimed work cannot be decoded now; it is claimed again later").pipe(
      Effect.annotateLogs({ error: error.message }),
      Effect.andThen(Effect.ignore(abandoned)),
      aboutInstance({ instance_id: instanceId }),
      Effect.as(undefined)
    )
  const later = { delay: Option.some(unopenedPause), ignoreAttempt: true }

  const openActivity = (claimed: Claimed<Activity>) =>
    Effect.map(
      sealing.ofItem(claimed.item, seals.open("fetchWorkItems", claimed.item.instance)),
      (item): Claimed<Activity> => item === claimed.item ? claimed : { ...claimed, item }
    )

  const openEnd = (instanceId: string, end: End): Effect.Effect<End, ProviderError> => {
    const open = seals.open("awaitEnd", instanceId)
    return end._tag === "Completed"
      ? Effect.map(open(end.output), (output) => ({ ...end, output }))
      : Effect.map(sealing.ofDetails(end.details, open), (details) => ({ ...end, details }))
  }

  const openState = Effect.fnUntraced(function*(state: InstanceState) {
    const open = seals.open("readInstance", state.instanceId)
    const { customStatus, failure, output } = state
    const event = failure === null ? undefined : Result.getOrUndefined(Event.decode(failure))
    return {
      ...state,
      output: output === null ? null : yield* open(output),
      customStatus: customStatus === null ? null : yield* open(customStatus),
      failure: event === undefined ? failure : Event.encode(yield* sealing.ofEvent(event, open))
    }
  })

  return {
    ...provider,
    ...enqueueing,
    // Its turn is sealed where the start is sent.
    onStart: (begin) =>
      provider.onStart((start, nowMs, pinnedVersion) => begin(enqueueing.plainStart(start), nowMs, pinnedVersion)),
    storedText: (event) => provider.storedText(seals.storedEvent(event)),

    fetchOrchestrationItem: (options) =>
      Effect.flatMap(provider.fetchOrchestrationItem(options), (found) => {
        if (Option.isNone(found)) return Effect.succeedNone
        const claimed = found.value
        const { lockToken } = claimed
        const renewed = renewal.untilLost(
          options.lockTimeout,
          provider.renewOrchestrationItemLock({ lockToken, extendFor: options.lockTimeout }),
          "Provider: lock of an instance not renewed yet"
        )
        const abandoned = provider.abandonOrchestrationItem({ lockToken, ...later })
        return Effect.raceFirst(openItem(claimed.item), Effect.andThen(renewed, Effect.never)).pipe(
          Effect.map((item): Claimed<OrchestrationItem> => ({ ...claimed, item })),
          Effect.onInterrupt(() => Effect.ignore(abandoned)),
          Effect.catch(notYet(abandoned, claimed.item.instanceId)),
          Effect.map(Option.fromUndefinedOr)
        )
      }),

    ackOrchestrationItem: (lockToken, turn) =>
      Effect.flatMap(
        seals.turn("ackOrchestrationItem", turn),
        (stored) => provider.ackOrchestrationItem(lockToken, stored)
      ),

    advanceOrchestration: Effect.fnUntraced(function*(optimistic) {
      const { instanceId, lastEvent, results, turn } = optimistic
      const seal = seals.seal("advanceOrchestration", instanceId)
      const stored = yield* seals.turn("advanceOrchestration", turn)
      const answer = yield* provider.advanceOrchestration({
        ...optimistic,
        lastEvent: seals.storedEvent(lastEvent),
        turn: stored,
        results: yield* Effect.forEach(
          results,
          ({ completion, lockToken }) =>
            Effect.map(sealing.ofItem(completion, seal), (completion) => ({ lockToken, completion }))
        )
      })
      if (answer._tag === "Queued") return answer
      const handedOver = answer.handedOver.map((claimed) => ({
        ...claimed,
        item: turn.workerItems[stored.workerItems.indexOf(claimed.item)]!
      }))
      return { ...answer, handedOver }
    }),

    fetchWorkItems: (options) =>
      Effect.flatMap(provider.fetchWorkItems(options), (all) =>
        Effect.map(
          Effect.forEach(all, (claimed) => {
            const { item, lockToken } = claimed
            // Only this package writes the start of the execution.
            if (item.startedAtMs === undefined) forRust.add(lockToken)
            return Effect.catch(
              openActivity(claimed),
              notYet(provider.abandonWorkItem({ lockToken, ...later }), item.instance)
            )
          }, { concurrency: "unbounded" }),
          (opened) => opened.filter((claimed) => claimed !== undefined)
        )),

    ackWorkItem: (lockToken, completion) =>
      Effect.suspend(() => {
        if (Option.isNone(completion) || forRust.has(lockToken)) return provider.ackWorkItem(lockToken, completion)
        const { value } = completion
        return Effect.flatMap(
          sealing.ofItem(value, seals.seal("ackWorkItem", value.instance)),
          (stored) => provider.ackWorkItem(lockToken, Option.some(stored))
        )
      }).pipe(Effect.tap(() => Effect.sync(() => forRust.delete(lockToken)))),

    ...(provider.ackWorkItemWithin !== undefined && {
      ackWorkItemWithin: (options) =>
        Effect.suspend(() => {
          const { completion, lockToken } = options
          const stored = forRust.has(lockToken)
            ? Effect.succeed(completion)
            : sealing.ofItem(completion, seals.seal("ackWorkItemWithin", completion.instance))
          return Effect.flatMap(stored, (completion) => provider.ackWorkItemWithin!({ ...options, completion }))
        }).pipe(
          Effect.map(({ committed }) => ({
            committed: Effect.andThen(committed, Effect.sync(() => void forRust.delete(options.lockToken)))
          }))
        )
    } satisfies Pick<Provider["Service"], "ackWorkItemWithin">),

    abandonWorkItem: (options) => {
      forRust.delete(options.lockToken)
      return provider.abandonWorkItem(options)
    },

    appendChunks: (append) =>
      Effect.flatMap(
        Effect.forEach(append.chunks, seals.sealAnew("appendChunks")),
        (chunks) => provider.appendChunks({ ...append, chunks })
      ),

    resumeChunks: (options) =>
      Effect.flatMap(provider.resumeChunks(options), (resumed) =>
        Effect.map(
          Effect.forEach(resumed.chunks, seals.open("resumeChunks", options.instanceId)),
          (chunks) => ({ ...resumed, chunks })
        )),

    readStream: (options) =>
      Effect.flatMap(provider.readStream(options), (page) => {
        const open = seals.open("readStream", options.instanceId)
        return Effect.map(
          Effect.forEach(page.chunks, (stored) => Effect.map(open(stored.chunk), (chunk) => ({ ...stored, chunk }))),
          (chunks) => ({ ...page, chunks })
        )
      }),

    read: (instanceId) =>
      Effect.flatMap(provider.read(instanceId), (stored) => openHistory("read", instanceId, stored)),

    readWithExecution: (instanceId, executionId) =>
      Effect.flatMap(
        provider.readWithExecution(instanceId, executionId),
        (stored) => openHistory("readWithExecution", instanceId, stored)
      ),

    appendWithExecution: (instanceId, executionId, events) =>
      Effect.flatMap(
        Effect.forEach(events, (event) => sealing.ofEvent(event, seals.seal("appendWithExecution", instanceId))),
        (stored) => provider.appendWithExecution(instanceId, executionId, stored)
      ),

    readInstance: (instanceId) =>
      Effect.flatMap(
        provider.readInstance(instanceId),
        Option.match({
          onNone: () => Effect.succeedNone,
          onSome: (state) => Effect.asSome(openState(state))
        })
      ),

    getCustomStatus: (instanceId, lastSeenVersion) =>
      Effect.flatMap(
        provider.getCustomStatus(instanceId, lastSeenVersion),
        Option.match({
          onNone: () => Effect.succeedNone,
          onSome: ({ status, version }) =>
            Effect.map(
              openOption(status, seals.open("getCustomStatus", instanceId)),
              (status) => Option.some({ status, version })
            )
        })
      ),

    getKvValue: (instanceId, key) =>
      Effect.flatMap(
        provider.getKvValue(instanceId, key),
        (value) => openOption(value, seals.open("getKvValue", instanceId))
      ),

    getKvAllValues: (instanceId) =>
      Effect.flatMap(provider.getKvAllValues(instanceId), (values) =>
        Effect.map(
          Effect.forEach(
            values,
            ([key, value]) =>
              Effect.map(seals.open("getKvAllValues", instanceId)(value), (value) => [key, value] as const)
          ),
          (entries) => new Map(entries)
        )),

    awaitEnd: (options) =>
      Effect.flatMap(
        provider.awaitEnd(options),
        Option.match({
          onNone: () => Effect.succeedNone,
          onSome: (end) => Effect.asSome(openEnd(options.instanceId, end))
        })
      ),

    awaitProgress: openingProgress(provider, seals, clock)
  }
}

// internal

/** Before work whose payloads an object store does not give back is claimed again. */
const unopenedPause = Duration.seconds(5)
