/**
 * Unusual calls that have an answer, and unusual values that are stored as they are.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import {
  activity,
  cancel,
  delay,
  envelope,
  most32,
  randomText,
  second,
  session,
  start,
  tags,
  turn,
  versions,
  zero
} from "./values.ts"
import type { Call } from "./values.ts"

const most = Number.MAX_SAFE_INTEGER
const strange = "'; DROP TABLE instances; -- \u{1F600} \u2028 %_"
const token = (lockToken: string): ReadonlyArray<[string, Call, unknown]> => [
  [
    `ackOrchestrationItem ${lockToken}`,
    ({ provider }) => provider.ackOrchestrationItem(lockToken, turn({})),
    "LockLost"
  ],
  [`dropOrchestrationItem ${lockToken}`, ({ provider }) => provider.dropOrchestrationItem(lockToken), "LockLost"],
  [
    `abandonOrchestrationItem ${lockToken}`,
    ({ provider }) => provider.abandonOrchestrationItem({ lockToken, delay, ignoreAttempt: true }),
    "LockLost"
  ],
  [
    `renewOrchestrationItemLock ${lockToken}`,
    ({ provider }) => provider.renewOrchestrationItemLock({ lockToken, extendFor: second }),
    "LockLost"
  ],
  [`ackWorkItem ${lockToken}`, ({ provider }) => provider.ackWorkItem(lockToken, Option.none()), "LockLost"],
  [
    `abandonWorkItem ${lockToken}`,
    ({ provider }) => provider.abandonWorkItem({ lockToken, delay, ignoreAttempt: true }),
    "LockLost"
  ],
  [
    `renewWorkItemLock ${lockToken}`,
    ({ provider }) => provider.renewWorkItemLock({ lockToken, extendFor: second }),
    "LockLost"
  ]
]
const nothing = { instancesDeleted: 0, executionsDeleted: 0, eventsDeleted: 0, queueMessagesDeleted: 0 }
const nothingInBulk = { ...nothing, failed: [], next: null }
const nothingPruned = { instancesProcessed: 0, executionsDeleted: 0, eventsDeleted: 0 }

/** Unusual calls with a result: a value, or the tag of a reason. */
export const answered: ReadonlyArray<[string, Call, unknown]> = [
  ...["", "unknown", "0.unknown", "99999999999999999999.x", "-1.x", strange, "x".repeat(10_000)].flatMap(token),
  ...["", "unknown", strange, "x".repeat(10_000)].flatMap((id): ReadonlyArray<[string, Call, unknown]> => [
    [`read ${id}`, ({ provider }) => provider.read(id), []],
    [`readWithExecution ${id}`, ({ provider }) => provider.readWithExecution(id, most), []],
    [`readInstance ${id}`, ({ provider }) => provider.readInstance(id), Option.none()],
    [`getCustomStatus ${id}`, ({ provider }) => provider.getCustomStatus(id, -1), Option.none()],
    [`getKvValue ${id}`, ({ provider }) => provider.getKvValue(id, id), Option.none()],
    [`getKvAllValues ${id}`, ({ provider }) => provider.getKvAllValues(id), new Map()],
    [`getInstanceStats ${id}`, ({ provider }) => provider.getInstanceStats(id), Option.none()],
    [`listExecutions ${id}`, ({ admin }) => admin.listExecutions(id), []],
    [`latestExecutionId ${id}`, ({ admin }) => admin.latestExecutionId(id), "InstanceNotFound"],
    [`readHistory ${id}`, ({ admin }) => admin.readHistory(id), "InstanceNotFound"],
    [`readHistoryWithExecutionId ${id}`, ({ admin }) => admin.readHistoryWithExecutionId(id, most), []],
    [`getInstanceInfo ${id}`, ({ admin }) => admin.getInstanceInfo(id), "InstanceNotFound"],
    [`getExecutionInfo ${id}`, ({ admin }) => admin.getExecutionInfo(id, most), "ExecutionNotFound"],
    [`getQueuedWork ${id}`, ({ admin }) => admin.getQueuedWork(id), {
      messages: [],
      activities: [],
      waitsForLimit: null
    }],
    [`listChildren ${id}`, ({ admin }) => admin.listChildren(id), []],
    [`getParentId ${id}`, ({ admin }) => admin.getParentId(id), "InstanceNotFound"],
    [`getInstanceTree ${id}`, ({ admin }) => admin.getInstanceTree(id), { rootId: id, allIds: [id] }],
    [`deleteInstance ${id}`, ({ admin }) => admin.deleteInstance(id, { force: true }), "InstanceNotFound"],
    [`deleteInstancesAtomic ${id}`, ({ admin }) => admin.deleteInstancesAtomic([id, id]), nothing],
    [`deleteInstanceBulk ${id}`, ({ admin }) => admin.deleteInstanceBulk({ instanceIds: [id] }), nothingInBulk],
    [`pruneExecutions ${id}`, ({ admin }) => admin.pruneExecutions(id, {}), "InstanceNotFound"],
    [`pruneExecutionsBulk ${id}`, ({ admin }) => admin.pruneExecutionsBulk({ instanceIds: [id] }, {}), nothingPruned],
    [`list ${id}`, ({ admin }) => admin.list({ idPrefix: id }), { instances: [], next: null }]
  ]),
  [
    "fetchOrchestrationItem pollTimeout negative",
    ({ provider }) =>
      provider.fetchOrchestrationItem({ lockTimeout: second, pollTimeout: Duration.millis(-1), versions }),
    Option.none()
  ],
  ["fetchOrchestrationItem versions the wrong way round", ({ provider }) =>
    provider.fetchOrchestrationItem({
      lockTimeout: second,
      pollTimeout: Duration.zero,
      versions: Option.some({ min: { ...zero, major: 9 }, max: zero })
    }), Option.none()],
  [
    "fetchWorkItems no tags",
    ({ provider }) =>
      provider.fetchWorkItems({
        lockTimeout: second,
        pollTimeout: Duration.zero,
        tags: { _tag: "Tags", tags: [] },
        session
      }),
    []
  ],
  ["fetchWorkItems fractional times", ({ provider }) =>
    provider.fetchWorkItems({
      lockTimeout: Duration.micros(1500n),
      pollTimeout: Duration.micros(500n),
      tags,
      session: Option.some({ workerId: strange, lockTimeout: Duration.nanos(1n) })
    }), []],
  [
    "renewSessionLock no owners",
    ({ provider }) => provider.renewSessionLock({ workerIds: [], extendFor: second, idleTimeout: second }),
    0
  ],
  [
    "renewSessionLock fractional times",
    ({ provider }) =>
      provider.renewSessionLock({ workerIds: ["o"], extendFor: Duration.micros(1n), idleTimeout: Duration.micros(1n) }),
    0
  ],
  ["appendWithExecution no events", ({ provider }) => provider.appendWithExecution("a", most, []), undefined],
  ["deleteInstancesAtomic nothing", ({ admin }) => admin.deleteInstancesAtomic([]), nothing],
  ["deleteInstanceBulk none", ({ admin }) => admin.deleteInstanceBulk({ instanceIds: [] }), nothingInBulk],
  ["deleteInstanceBulk limit 0", ({ admin }) => admin.deleteInstanceBulk({ limit: 0 }), nothingInBulk],
  [
    "deleteInstanceBulk largest numbers",
    ({ admin }) => admin.deleteInstanceBulk({ limit: most, completedBeforeMs: most }),
    nothingInBulk
  ],
  [
    "pruneExecutionsBulk largest numbers",
    ({ admin }) => admin.pruneExecutionsBulk({ limit: most }, { keepLast: most, completedBeforeMs: most }),
    nothingPruned
  ]
]

/** Unusual values that are stored unchanged. */
export const stored: ReadonlyArray<[string, Call]> = [
  [
    "a delay of 1.5 ms",
    ({ provider }) =>
      provider.enqueueForOrchestrator({ message: cancel("a"), delay: Option.some(Duration.micros(1500n)) })
  ],
  [
    "a delay of 5000 years",
    ({ provider }) =>
      provider.enqueueForOrchestrator({ message: cancel("a"), delay: Option.some(Duration.days(5000 * 365)) })
  ],
  [
    "a timer at 2^53 - 1",
    ({ provider }) =>
      provider.enqueueForOrchestrator({
        message: { _tag: "TimerFired", instance: "a", executionId: 1, id: 1, fireAtMs: most },
        delay
      })
  ],
  [
    "an escaped NUL",
    ({ provider }) => provider.enqueueForOrchestrator({ message: cancel("a", "\\u0000 \\ud800"), delay })
  ],
  [
    "payloads with an escaped NUL",
    ({ provider }) =>
      provider.enqueueForWorker(activity({ input: JSON.stringify("\0\ud800"), tag: strange, sessionId: "" }))
  ],
  ["ids at 2^53 - 1", ({ provider }) => provider.enqueueForWorker(activity({ executionId: most, id: most }))],
  ["an id of strange letters", ({ provider }) => provider.startOrchestration(start({ instance: strange }))],
  ["an empty id", ({ provider }) => provider.startOrchestration(start({ instance: "" }))],
  ["ids and keys of the greatest length", ({ provider }) =>
    Effect.gen(function*() {
      const [instance, parentInstance, sessionId, tag] = [
        randomText(2048),
        randomText(2048),
        randomText(1024),
        randomText(256)
      ]
      const [name, orchestrationName, orchestrationVersion] = [randomText(1024), randomText(1024), randomText(1024)]
      yield* provider.startOrchestration(start({ instance, parentInstance, parentId: 2 }))
      const claimed = yield* provider.fetchOrchestrationItem({
        lockTimeout: second,
        pollTimeout: Duration.zero,
        versions
      })
      const { lockToken } = Option.getOrThrow(claimed)
      const [set, cleared] = [randomText(512), randomText(512)]
      const turned = turn({
        historyDelta: [
          { ...envelope, instanceId: instance, _tag: "KeyValueSet", key: set, value: "1", lastUpdatedAtMs: 0 },
          { ...envelope, instanceId: instance, eventId: 2, _tag: "KeyValueCleared", key: cleared }
        ],
        metadata: { orchestrationName, orchestrationVersion, parentInstanceId: parentInstance, pinnedVersion: most32 },
        workerItems: [activity({ name, instance, executionId: most, id: most, sessionId, tag })],
        orchestratorItems: [cancel(instance)]
      })
      yield* provider.ackOrchestrationItem(lockToken, turned)
      const claim = { lockTimeout: second, pollTimeout: Duration.zero, tags: { _tag: "Tags", tags: [tag] } } as const
      const taken = yield* provider.fetchWorkItems({
        ...claim,
        session: Option.some({ workerId: randomText(2048), lockTimeout: second })
      })
      assert.lengthOf(taken, 1)
      const ended = yield* provider.fetchOrchestrationItem({
        lockTimeout: second,
        pollTimeout: Duration.zero,
        versions
      })
      yield* provider.ackOrchestrationItem(
        Option.getOrThrow(ended).lockToken,
        turn({ metadata: { status: "Completed" } })
      )
      assert.deepStrictEqual(yield* provider.getKvAllValues(instance), new Map([[set, "1"]]))
    })]
]
