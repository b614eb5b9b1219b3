/**
 * Random sequences of calls.
 */
import * as fc from "fast-check"
import type { CoreVersion, ExecutionStatus, InstanceStatus, TagFilter } from "../../../src/model/Instance.ts"
import { PauseTarget } from "../../../src/model/Pause.ts"
import type { HandOver, ServedOrchestration } from "../../../src/provider/ProviderDriver.ts"
import { instanceIds, lastExecutionId } from "./operations.ts"
import type {
  Activity,
  Handle,
  HistoryEvent,
  KeyValue,
  Message,
  Operation,
  OptimisticTurn,
  Turn,
  UnclaimedTurn
} from "./operations.ts"

// -----------------------------------------------------------------------------
// values
// -----------------------------------------------------------------------------

const orNull = <A>(arbitrary: fc.Arbitrary<A>, nullsInFour = 2): fc.Arbitrary<A | null> =>
  fc.oneof({ weight: nullsInFour, arbitrary: fc.constant(null) }, { weight: 4 - nullsInFour, arbitrary })

const some = <A>(arbitrary: fc.Arbitrary<A>, most = 3) => fc.array(arbitrary, { minLength: 1, maxLength: most })
const few = <A>(arbitrary: fc.Arbitrary<A>, most = 2) => fc.array(arbitrary, { maxLength: most })

const instanceId = fc.constantFrom(...instanceIds)
const executionId = fc.integer({ min: 1, max: lastExecutionId })
// Round times coincide: a lock expires exactly when a message becomes visible.
const ms = fc.constantFrom(0, 1, 10, 100, 1000, 1001, 5000)
const lockTimeoutMs = fc.constantFrom(10, 1000, 5000, 30_000, 30_000)
const delayMs = orNull(ms)

const handle: fc.Arbitrary<Handle> = fc.oneof(
  { weight: 10, arbitrary: fc.record({ open: fc.nat(3) }) },
  { weight: 2, arbitrary: fc.record({ any: fc.nat(8) }) },
  { weight: 1, arbitrary: fc.record({ forged: fc.constantFrom("", "1.x", "0.a", ".a", "x") }) }
)

const version: fc.Arbitrary<CoreVersion> = fc.record({
  major: fc.constantFrom(0, 1, 1000),
  minor: fc.constantFrom(0, 2),
  patch: fc.constantFrom(0, 3)
})

const orchestrationVersion = fc.constantFrom("1.0.0", "1.10.0", "2.0.0")

const serves: fc.Arbitrary<{ readonly serves?: ReadonlyArray<ServedOrchestration> }> = fc.oneof(
  { weight: 2, arbitrary: fc.constant({}) },
  {
    weight: 1,
    arbitrary: fc.record({
      serves: some(
        fc.record({
          name: fc.constantFrom("One", "Other", "Started"),
          versions: fc.subarray(["1.0.0", "1.10.0", "2.0.0"], { minLength: 1 })
        }),
        2
      )
    })
  }
)

const key = fc.constantFrom("k", "K", "", "ключ 😀")
const text = fc.constantFrom("", "v", "\"quoted\\\"", "ünï 😀", "large, \"quoted\\\" ünï 😀".repeat(60))

const stream = fc.constantFrom("s", "t")

const message: fc.Arbitrary<Message> = fc.record({
  instanceId,
  kind: fc.constantFrom("start", "startOfChild", "namedStart", "continueAsNew", "cancel", "cancel", "brokenStart"),
  creates: fc.boolean(),
  visibleInMs: orNull(fc.oneof(ms, fc.constantFrom(-5000, -1)), 3),
  delayMs: orNull(ms, 3)
})

const activity: fc.Arbitrary<Activity> = fc.record({
  name: fc.constantFrom("One", "One #gpu"),
  instanceId,
  executionId,
  activityId: fc.integer({ min: 1, max: 3 }),
  sessionId: orNull(fc.constantFrom("s", "t")),
  tag: orNull(fc.constantFrom("gpu", "cpu"), 3)
}).chain((fields) => fc.constantFrom(fields, { ...fields, limitKey: "a" }, { ...fields, limitKey: "b" }))

const bound = fc.oneof(
  fc.constant(null),
  // The interval between two tokens is a whole number, which both stores keep exactly.
  fc.record({
    concurrency: orNull(fc.constantFrom(1, 2, 8, 20, 5000), 1),
    rate: fc.constantFrom(null, null, 1, 2),
    rateMs: fc.constantFrom(100, 1000),
    burst: fc.constantFrom(1, 2)
  }).map((one) => one.rate === null ? { ...one, rateMs: null, burst: null } : one)
)
const limitChanges = fc.record(
  { total: bound, eachKey: bound, keys: fc.dictionary(fc.constantFrom("a", "b", "c"), bound, { maxKeys: 2 }) },
  { requiredKeys: [] }
)
const limitedActivity = fc.constantFrom("One", "One", "One #gpu", "Other")

const event: fc.Arbitrary<HistoryEvent> = fc.record({
  eventId: orNull(fc.constantFrom(1, 1, 2), 3),
  type: fc.constantFrom("OrchestrationStarted", "OrchestrationFailed", "TimerCreated", "ExternalEventPersistent")
})

const keyValue: fc.Arbitrary<KeyValue> = fc.oneof(
  { weight: 4, arbitrary: fc.record({ action: fc.constant("set"), key, value: text, lastUpdatedAtMs: fc.nat(9) }) },
  { weight: 2, arbitrary: fc.record({ action: fc.constant("clear_key"), key }) },
  { weight: 1, arbitrary: fc.constant({ action: "clear_all" }) }
)

const status = fc.constantFrom<ExecutionStatus | null>(null, "Running", "Completed", "Failed", "ContinuedAsNew")

const turnParts = {
  history: few(event, 3),
  customStatus: orNull(fc.record({ value: orNull(text, 1) }), 3),
  keyValues: few(keyValue, 5),
  status,
  output: orNull(text),
  orchestrationName: orNull(fc.constantFrom("One", "Other"), 1),
  orchestrationVersion: orNull(orchestrationVersion, 1),
  nextVersion: orNull(orchestrationVersion),
  parentInstanceId: orNull(instanceId, 3),
  pinnedVersion: orNull(version),
  workerItems: few(activity, 3),
  orchestratorItems: few(message),
  cancelledActivities: few(fc.record({ instanceId, executionId, activityId: fc.integer({ min: 1, max: 3 }) })),
  requeues: some(fc.nat(3), 3),
  cancelsItems: fc.boolean()
}

const turn: fc.Arbitrary<Turn> = fc.record({
  ...turnParts,
  token: handle,
  executionOffset: fc.constantFrom(0, 0, 0, 0, 1, null),
  leaves: few(fc.nat(3))
})

const tags: fc.Arbitrary<TagFilter> = fc.oneof(
  fc.constant({ _tag: "DefaultOnly" }),
  fc.constant({ _tag: "Any" }),
  fc.constant({ _tag: "Any" }),
  fc.constant({ _tag: "None" }),
  fc.record({ _tag: fc.constantFrom("Tags", "DefaultAnd"), tags: fc.subarray(["gpu", "cpu"], { minLength: 1 }) })
)

const handOver: fc.Arbitrary<HandOver | null> = orNull(
  fc.record({
    limit: fc.integer({ min: 1, max: 3 }),
    spare: fc.constantFrom(0, 0, 1, 2),
    lockTimeoutMs,
    activities: fc.constantFrom(["One"], ["One", "One #gpu"], ["One #gpu", "Other"]),
    tags
  }),
  1
)

const unclaimedTurn: fc.Arbitrary<UnclaimedTurn> = fc.record({
  ...turnParts,
  // One that takes an event id is not stored.
  history: fc.oneof(
    { weight: 8, arbitrary: few(fc.record({ eventId: fc.constant(null), type: event.map(({ type }) => type) }), 3) },
    { weight: 1, arbitrary: few(event, 3) }
  ),
  executionOffset: fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1),
  clockOffMs: fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 2_000, -2_000, 2_001, -2_001)
})

const result = fc.record({ token: handle, isOwn: fc.constantFrom(true, true, true, true, true, true, true, false) })

const turnOfInstance = {
  lastEventOffset: fc.constantFrom(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, -1),
  isOther: fc.constantFrom(...Array.from({ length: 15 }, () => false), true),
  results: fc.oneof({ weight: 3, arbitrary: some(result, 1) }, { weight: 1, arbitrary: some(result, 2) }),
  turn: unclaimedTurn,
  handOver
}

const optimisticTurn: fc.Arbitrary<OptimisticTurn> = fc.record({ ...turnOfInstance, instanceId })

const session = orNull(
  fc.record({ workerId: fc.constantFrom("me", "you"), lockTimeoutMs, maxNew: fc.constantFrom(0, 1, 9) }),
  1
)
const block = fc.record({
  reason: fc.constantFrom("HistoryDiffers" as const, "DataUnreadable" as const),
  problem: fc.constantFrom("it differs", "ç 😀"),
  eventId: fc.nat(3),
  build: fc.constantFrom("one", "other")
})
const pauseTarget = fc.oneof(
  { weight: 3, arbitrary: instanceId.map((id) => PauseTarget.Instance({ instanceId: id })) },
  fc.constantFrom<PauseTarget>(
    PauseTarget.Orchestration({ name: "One" }),
    PauseTarget.Orchestration({ name: "One", version: "1.0.0" }),
    PauseTarget.Tag({ tag: "gpu" }),
    PauseTarget.Everything()
  )
)
const abandons = some(
  fc.record({
    token: handle,
    delayMs,
    ignoreAttempt: fc.boolean(),
    block: fc.option(block, { freq: 2, nil: undefined })
  }),
  2
)
const instanceAbandons = some(
  fc.record({
    token: handle,
    delayMs,
    ignoreAttempt: fc.boolean(),
    beginsFirst: fc.boolean(),
    block: fc.option(block, { freq: 2, nil: undefined })
  }),
  2
)
const renewals = some(fc.record({ token: handle, extendForMs: lockTimeoutMs }), 2)

const starts = some(
  fc.record({
    instanceId,
    orchestrationVersion: orNull(orchestrationVersion),
    pinnedVersion: version,
    delayMs,
    replaces: fc.constantFrom(null, null, "Ended" as const, "Failed" as const),
    hasMessage: fc.constantFrom(false, false, true),
    firstTurn: orNull(fc.record({ turn: unclaimedTurn, handOver }))
  }).map((start) => start.hasMessage || start.replaces !== null ? { ...start, firstTurn: null } : start)
)

// -----------------------------------------------------------------------------
// calls
// -----------------------------------------------------------------------------

const call = <Name extends Operation["call"]>(
  weight: number,
  name: Name,
  fields: {
    readonly [K in keyof Omit<Extract<Operation, { readonly call: Name }>, "call">]: fc.Arbitrary<
      Extract<Operation, { readonly call: Name }>[K]
    >
  }
) => ({ weight, arbitrary: fc.record({ call: fc.constant(name), ...fields }) as unknown as fc.Arbitrary<Operation> })

const operation: fc.Arbitrary<Operation> = fc.oneof(
  // A call that a failing sequence does not need shrinks to a wait of no time.
  { withCrossShrink: true },
  call(5, "wait", { ms }),
  call(3, "startOrchestrations", { starts }),
  call(4, "advanceOrchestrations", { turns: some(optimisticTurn) }),
  call(8, "enqueueForOrchestrator", { messages: some(message) }),
  call(6, "enqueueForWorker", { activities: some(activity) }),
  {
    weight: 10,
    arbitrary: fc.tuple(
      fc.record({
        call: fc.constant("fetchOrchestrationItems" as const),
        limit: fc.integer({ min: 1, max: 4 }),
        lockTimeoutMs,
        versions: orNull(fc.record({ min: version, max: version }), 3),
        suspects: fc.constantFrom([0, 0], [1], [3, 1], [2, 2, 1]),
        takesOver: fc.boolean(),
        maxBytes: fc.constantFrom(1, 150, 1_000_000)
      }),
      serves
    )
      // It is unspecified what an instance beyond the limit keeps of an expired lock.
      .map(([options, served]): Operation => ({
        ...options,
        ...served,
        limit: options.maxBytes < 1_000_000 ? 1 : options.limit,
        // Which messages before a start an unrestricted claim takes is unspecified.
        orphans: !("serves" in served)
      }))
  },
  call(1, "sweepMessages", { maxAgeMs: ms }),
  call(9, "ackOrchestrationItems", { turns: some(turn) }),
  call(3, "abandonOrchestrationItems", { items: instanceAbandons }),
  call(1, "wakeBlocked", {
    orchestrations: fc.subarray(["One", "Other"]),
    activities: fc.subarray(["One", "One #gpu"])
  }),
  call(2, "setLimit", {
    kind: fc.constant("activity"),
    name: limitedActivity,
    changes: limitChanges,
    replaces: fc.constantFrom(true, true, true, false)
  }),
  call(1, "removeLimit", { kind: fc.constant("activity"), name: limitedActivity }),
  call(1, "pause", { target: pauseTarget, reason: orNull(fc.constantFrom("look", "ç 😀")) }),
  call(2, "resume", { target: pauseTarget }),
  call(2, "renewOrchestrationItemLocks", { items: renewals }),
  call(2, "deferMessages", {
    items: some(fc.record({ token: handle, positions: few(fc.nat(2)), delayMs: ms }), 2)
  }),
  {
    weight: 8,
    arbitrary: fc.tuple(
      fc.record({
        call: fc.constant("fetchWorkItems" as const),
        limit: fc.integer({ min: 1, max: 4 }),
        lockTimeoutMs,
        tags,
        suspects: fc.constantFrom([0, 0], [1], [3, 1], [2, 2, 1]),
        takesOver: fc.boolean(),
        session
      }),
      fc.constantFrom({}, {}, { activities: ["One"] }, { activities: ["One #gpu", "Other"] })
    ).map(([options, served]): Operation => ({ ...options, ...served }))
  },
  call(4, "ackWorkItems", { items: some(fc.record({ token: handle, completes: orNull(instanceId) }), 2) }),
  call(2, "abandonWorkItems", { items: abandons }),
  call(2, "renewWorkItemLocks", {
    items: some(
      fc.oneof(
        fc.record({ token: handle, extendForMs: lockTimeoutMs }),
        fc.record({ token: handle, extendForMs: lockTimeoutMs, sufficientMs: ms })
      ),
      2
    )
  }),
  call(6, "appendChunks", {
    items: some(
      fc.record({
        token: handle,
        otherInstanceId: orNull(instanceId, 3),
        stream,
        delivery: fc.integer({ min: 1, max: 2 }),
        number: fc.integer({ min: 1, max: 4 }),
        isRepeat: fc.boolean(),
        chunks: some(text),
        keepChunks: fc.constantFrom(1, 2, 5, 100),
        keepBytes: fc.constantFrom(1, 10, 100, 100_000)
      })
    )
  }),
  call(2, "renewSessionLocks", {
    workerIds: fc.subarray(["me", "you"]),
    extendForMs: lockTimeoutMs,
    idleTimeoutMs: ms
  }),
  call(1, "cleanupOrphanedSessions", {}),
  call(1, "appendHistory", { instanceId, executionId, history: few(event, 3) }),
  call(1, "readInstanceStats", { instanceId }),
  call(2, "readChunks", {
    items: some(
      fc.record({
        instanceId,
        stream,
        from: orNull(fc.nat(6)),
        maxBytes: fc.constantFrom(0, 1, 30, 100_000)
      })
    )
  }),
  call(1, "resumeChunks", { instanceId, stream, activityId: fc.integer({ min: 1, max: 3 }) }),
  call(2, "readKeyValues", { instanceId, key: orNull(key) }),
  call(1, "readHistory", { instanceId, executionId: orNull(executionId) }),
  call(1, "holdInstances", {
    instanceIds: fc.subarray([...instanceIds]),
    force: fc.boolean(),
    holdForMs: lockTimeoutMs
  }),
  call(2, "deleteInstances", { instanceIds: fc.subarray([...instanceIds]), force: fc.boolean() }),
  call(1, "pruneExecutions", { instanceId, keepLast: orNull(fc.nat(2)), completedAgoMs: orNull(ms) }),
  call(2, "cutHistory", {
    instanceId,
    lastEventOffset: fc.constantFrom(0, 0, 0, 1),
    removes: fc.nat(2),
    customStatus: orNull(fc.constant("cut")),
    stored: orNull(fc.constantFrom("before", "ç 😀")),
    changed: orNull(fc.constant("kept")),
    messages: fc.nat(2),
    cancelledActivities: few(fc.integer({ min: 1, max: 3 }))
  }),
  call(2, "forkInstance", {
    instanceId,
    executionId,
    customStatus: orNull(fc.constant("forked")),
    stored: orNull(fc.constantFrom("before", "ç 😀")),
    changed: orNull(fc.constant("kept")),
    messages: fc.nat(2)
  }),
  call(1, "selectInstances", {
    instanceIds: orNull(fc.subarray([...instanceIds])),
    completedAgoMs: orNull(ms),
    endedRootsOnly: fc.boolean(),
    status: orNull(fc.constantFrom("Completed", "Failed", "Cancelled")),
    exceptDuroxide: fc.boolean()
  }),
  call(1, "listInstances", {
    status: fc.constantFrom<InstanceStatus | null>(null, "Running", "Completed", "Failed", "Cancelled"),
    orchestrationName: orNull(fc.constantFrom("One", "Other")),
    parentInstanceId: orNull(instanceId),
    idPrefix: orNull(instanceId.map((id) => id.slice(0, 1))),
    isBlocked: fc.boolean(),
    isPaused: fc.boolean()
  }),
  call(1, "listChildren", { instanceIds: fc.subarray([...instanceIds]) }),
  call(1, "readExecution", { instanceId, executionId }),
  call(1, "listExecutions", { instanceId }),
  call(1, "systemMetrics", {}),
  call(1, "queueDepths", {})
)

const operations = (most: number) => fc.array(operation, { minLength: most - 20, maxLength: most, size: "max" })

/** Each of these instances waits for activities of its own, which are claimed; then optimistic turns. */
const waiting: fc.Arbitrary<ReadonlyArray<Operation>> = fc.subarray([...instanceIds], { minLength: 1 }).chain((ids) => {
  const turns = fc.tuple(
    ...ids.map((instanceId) => fc.record({ ...turnOfInstance, instanceId: fc.constant(instanceId) }))
  )
  return fc.record({
    pinnedVersion: version,
    scheduled: some(activity),
    sent: fc.oneof({ weight: 3, arbitrary: fc.constant([]) }, { weight: 1, arbitrary: few(message, 1) }),
    first: turns,
    second: turns
  }).map(({ first, pinnedVersion, scheduled, second, sent }): ReadonlyArray<Operation> => [
    {
      call: "startOrchestrations",
      starts: ids.map((instanceId) => ({ instanceId, orchestrationVersion: null, pinnedVersion, delayMs: null }))
    },
    {
      call: "fetchOrchestrationItems",
      limit: ids.length,
      lockTimeoutMs: 30_000,
      versions: null,
      orphans: true,
      maxBytes: 1_000_000
    },
    {
      call: "ackOrchestrationItems",
      turns: ids.map((instanceId, index) => ({
        token: { any: ids.length - 1 - index },
        executionOffset: 0,
        history: [{ eventId: 1, type: "OrchestrationStarted" }],
        customStatus: null,
        keyValues: [],
        status: null,
        output: null,
        orchestrationName: "One",
        orchestrationVersion: "1.0.0",
        parentInstanceId: null,
        pinnedVersion: null,
        cancelledActivities: [],
        orchestratorItems: index === 0 ? sent : [],
        workerItems: scheduled.map((activity, place) => ({ ...activity, instanceId, activityId: place + 1 }))
      }))
    },
    claimAll,
    { call: "advanceOrchestrations", turns: first },
    claimAll,
    { call: "advanceOrchestrations", turns: second }
  ])
})

const claimAll: Operation = {
  call: "fetchWorkItems",
  limit: 9,
  lockTimeoutMs: 30_000,
  tags: { _tag: "Any" },
  session: { workerId: "me", lockTimeoutMs: 30_000 }
}

/** Random calls seldom get to where a turn without a claim can be stored, so many sequences begin there. */
export const sequence: fc.Arbitrary<ReadonlyArray<Operation>> = fc.oneof(
  { withCrossShrink: true },
  operations(60),
  fc.tuple(call(1, "startOrchestrations", { starts }).arbitrary, operations(50)).map((
    [first, others]
  ) => [first, ...others]),
  fc.tuple(waiting, operations(40)).map(([first, others]) => [...first, ...others])
)
