/**
 * Sequences on which the drivers once differed, shrunk to the minimum. Seeds would change their meaning as soon as the
 * generator gets another call; these do not.
 */
import type { Activity, Message, Operation, OptimisticTurn, Turn, UnclaimedTurn } from "./operations.ts"

const message = (instanceId: string, changes: Partial<Message> = {}): Message => ({
  instanceId,
  kind: "cancel",
  creates: false,
  visibleInMs: null,
  delayMs: null,
  ...changes
})

const activity = (changes: Partial<Activity> = {}): Activity => ({
  name: "One",
  instanceId: "a",
  executionId: 1,
  activityId: 1,
  sessionId: null,
  tag: null,
  ...changes
})

const unclaimed = (changes: Partial<UnclaimedTurn> = {}): UnclaimedTurn => ({
  executionOffset: 0,
  history: [],
  customStatus: null,
  keyValues: [],
  status: null,
  output: null,
  orchestrationName: "One",
  orchestrationVersion: "1.0.0",
  parentInstanceId: null,
  pinnedVersion: null,
  workerItems: [],
  orchestratorItems: [],
  cancelledActivities: [],
  ...changes
})

const turn = (open: number, changes: Partial<Turn> = {}): Turn => ({ token: { open }, ...unclaimed(), ...changes })

type Start = Extract<Operation, { readonly call: "startOrchestrations" }>["starts"][number]

const startWith = (instanceId: string, more: Partial<Start>): Operation => ({
  call: "startOrchestrations",
  starts: [{
    instanceId,
    orchestrationVersion: null,
    pinnedVersion: { major: 0, minor: 0, patch: 0 },
    delayMs: null,
    ...more
  }]
})

const start = (
  instanceId: string,
  firstTurn: UnclaimedTurn | null = null,
  orchestrationVersion: string | null = null
): Operation =>
  startWith(instanceId, {
    orchestrationVersion,
    ...(firstTurn !== null && { firstTurn: { turn: firstTurn, handOver: null } })
  })

const advance = (...turns: ReadonlyArray<Partial<OptimisticTurn>>): Operation => ({
  call: "advanceOrchestrations",
  turns: turns.map((changes) => ({
    instanceId: "a",
    lastEventOffset: 0,
    isOther: false,
    results: [{ token: { open: 0 }, isOwn: true }],
    turn: unclaimed(),
    handOver: null,
    ...changes
  }))
})

const send = (...messages: ReadonlyArray<Message>): Operation => ({ call: "enqueueForOrchestrator", messages })
const ack = (...turns: ReadonlyArray<Turn>): Operation => ({ call: "ackOrchestrationItems", turns })
const claim: Extract<Operation, { readonly call: "fetchOrchestrationItems" }> = {
  call: "fetchOrchestrationItems",
  limit: 1,
  lockTimeoutMs: 1000,
  versions: null,
  orphans: true,
  maxBytes: 1_000_000
}

const claimActivity: Operation = {
  call: "fetchWorkItems",
  limit: 1,
  lockTimeoutMs: 1000,
  tags: { _tag: "Any" },
  session: null
}

export const found: Readonly<Record<string, ReadonlyArray<Operation>>> = {
  "appendHistory: makes no execution": [
    { call: "appendHistory", instanceId: "a", executionId: 2, history: [{ eventId: null, type: "TimerCreated" }] },
    { call: "readHistory", instanceId: "a", executionId: null },
    { call: "readHistory", instanceId: "a", executionId: 2 },
    { call: "listExecutions", instanceId: "a" },
    start("a")
  ],

  "enqueueForOrchestrator: a time in the past does not jump the queue": [
    send(message("a")),
    send(message("b.1", { visibleInMs: -5000 })),
    claim
  ],

  "fetchOrchestrationItems: a key-value has a key, a value and a time": [
    send(message("a"), message("a", { visibleInMs: 10 })),
    claim,
    ack(turn(0, {
      keyValues: [{ action: "set", key: "k", value: "v", lastUpdatedAtMs: 1 }],
      status: "Completed"
    })),
    { call: "wait", ms: 10 },
    claim
  ],

  "pruneExecutions: of an execution without an instance nothing is left": [
    send(message("a")),
    claim,
    ack(turn(0, { orchestrationName: null, status: "Failed" })),
    { call: "pruneExecutions", instanceId: "a", keepLast: 0, completedAgoMs: null },
    start("a")
  ],

  "renewOrchestrationItemLocks: of two renewals of one lock the last counts": [
    send(message("a")),
    claim,
    {
      call: "renewOrchestrationItemLocks",
      items: [{ token: { open: 0 }, extendForMs: 10 }, { token: { open: 0 }, extendForMs: 5000 }]
    },
    { call: "wait", ms: 1000 },
    ack(turn(0))
  ],

  "renewWorkItemLocks: of two renewals of one lock the last counts": [
    { call: "enqueueForWorker", activities: [activity()] },
    claimActivity,
    {
      call: "renewWorkItemLocks",
      items: [{ token: { open: 0 }, extendForMs: 10 }, { token: { open: 0 }, extendForMs: 5000 }]
    },
    { call: "wait", ms: 1000 },
    { call: "ackWorkItems", items: [{ token: { open: 0 }, completes: "a" }] }
  ],

  "ackOrchestrationItems: a refused ack leaves the lock to another one of the set": [
    send(message("a"), message("b.1")),
    claim,
    ack(
      turn(0, { history: [{ eventId: 1, type: "TimerCreated" }, { eventId: 1, type: "TimerCreated" }] }),
      turn(0, { history: [{ eventId: 1, type: "TimerCreated" }] }),
      turn(0, { history: [{ eventId: 1, type: "TimerCreated" }] }),
      turn(0, { history: [{ eventId: 2, type: "TimerCreated" }] })
    ),
    claim
  ],

  "ackOrchestrationItems: a turn cancels what another turn of its set schedules": [
    send(message("a"), message("b.1")),
    { ...claim, limit: 2 },
    ack(
      turn(0, { cancelledActivities: [{ instanceId: "b.1", executionId: 1, activityId: 1 }] }),
      turn(1, { workerItems: [activity({ instanceId: "b.1" }), activity({ instanceId: "b.1", activityId: 2 })] })
    ),
    { call: "fetchWorkItems", limit: 4, lockTimeoutMs: 1000, tags: { _tag: "Any" }, session: null }
  ],

  "fetchOrchestrationItems: a look at an instance without free messages removes its expired lock": [
    send(message("b.1", { kind: "start" })),
    { ...claim, lockTimeoutMs: 30_000 },
    { call: "holdInstances", instanceIds: ["b.1"], force: true, holdForMs: 10 },
    { call: "wait", ms: 10 },
    { ...claim, takesOver: true },
    send(message("b.1", { kind: "start" })),
    { ...claim, takesOver: false }
  ],

  "ackOrchestrationItems: an instance that comes after the end of its execution has ended": [
    send(message("a")),
    claim,
    ack(turn(0, { orchestrationName: null, status: "Completed" })),
    send(message("a")),
    claim,
    ack(turn(0))
  ],

  "deleteInstances: an unreadable start fails nothing": [
    send(message("b.1", { kind: "brokenStart" }), message("ç 😀")),
    { call: "deleteInstances", instanceIds: ["ç 😀"], force: true },
    // It names its parent anyway.
    { call: "deleteInstances", instanceIds: ["a"], force: true }
  ],

  "startOrchestrations: a first turn without a version does not write the parent": [
    start("a", unclaimed({ orchestrationVersion: null, parentInstanceId: "a" })),
    { call: "listChildren", instanceIds: ["a"] }
  ],

  "startOrchestrations: after a first turn without a name, every version serves the instance": [
    start("a", unclaimed({ orchestrationName: null, pinnedVersion: { major: 0, minor: 0, patch: 0 } }), "1.0.0"),
    send(message("a")),
    { ...claim, serves: [{ name: "Started", versions: ["2.0.0"] }], orphans: false }
  ],

  "advanceOrchestrations: an execution without events has no last one": [
    start("a", unclaimed()),
    { call: "enqueueForWorker", activities: [activity()] },
    claimActivity,
    advance({})
  ],

  "advanceOrchestrations: an activity that the turn cancels does not count among those handed over": [
    start("a"),
    claim,
    ack(turn(0, { history: [{ eventId: 1, type: "OrchestrationStarted" }], workerItems: [activity()] })),
    claimActivity,
    advance({
      turn: unclaimed({
        workerItems: [activity({ activityId: 2 }), activity({ activityId: 3 })],
        cancelledActivities: [{ instanceId: "a", executionId: 1, activityId: 2 }]
      }),
      handOver: { limit: 1, spare: 0, lockTimeoutMs: 1000, activities: ["One"], tags: { _tag: "Any" } }
    })
  ],

  "startOrchestrations: an instance whose next execution nothing begins has ended, and is replaced": [
    start("a"),
    claim,
    ack(turn(0, { status: "ContinuedAsNew" })),
    startWith("a", { replaces: "Ended" })
  ],

  "fetchOrchestrationItems: a claim that finds nothing looks for what arrives with a start": [
    startWith("a", { delayMs: 1000 }),
    startWith("a", { hasMessage: true }),
    { call: "wait", ms: 1000 },
    claim,
    claim
  ],

  "forkInstance: an id of which values are left is taken": [
    send(message("a")),
    claim,
    ack(turn(0, {
      orchestrationName: null,
      keyValues: [{ action: "set", key: "K", value: "v", lastUpdatedAtMs: 1 }],
      status: "Failed"
    })),
    { call: "pruneExecutions", instanceId: "a", keepLast: null, completedAgoMs: null },
    {
      call: "forkInstance",
      instanceId: "a",
      executionId: 1,
      customStatus: null,
      stored: null,
      changed: null,
      messages: 1
    }
  ]
}
