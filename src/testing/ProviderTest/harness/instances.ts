/**
 * Instances in the states that tests begin with.
 */
import * as Effect from "effect/Effect"
import { Admin } from "../../../provider/Admin.ts"
import type { InstanceSearch } from "../../../provider/Admin.ts"
import type { ExecutionMetadata } from "../../../provider/Provider.ts"
import {
  activityItem,
  childStartItem,
  completed,
  continueAsNewItem,
  externalRaised,
  started,
  startItem,
  version
} from "./items.ts"
import {
  abandon,
  ack,
  claimInstance,
  claimOrchestration,
  enqueueStart,
  named,
  poke,
  send
} from "./orchestratorQueue.ts"
import type { Ack } from "./orchestratorQueue.ts"

/** The ids of a list. */
export const listed = (search?: InstanceSearch) =>
  Effect.gen(function*() {
    const { instances } = yield* (yield* Admin).list(search)
    return instances.map(({ instanceId }) => instanceId)
  })

/** An instance after its first turn, running. */
export const create = (instance: string, metadata?: ExecutionMetadata) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    yield* ack(yield* claimInstance(instance), { executionId: 1, events: [started()], metadata: named(metadata) })
  })

export const running = (instance: string) => create(instance)

/** A turn of an instance that exists. */
export const turn = (instance: string, parts: Ack) =>
  Effect.gen(function*() {
    yield* poke(instance)
    yield* ack(yield* claimInstance(instance), parts)
  })

/** Ends execution `executionId` of the instance. */
export const complete = (instance: string, executionId = 1) =>
  turn(instance, {
    executionId,
    events: [completed(9999)],
    metadata: named({ status: "Completed", output: "done" })
  })

/** Ends execution `executionId` - 1 of the instance and starts `executionId`. */
export const continueAsNew = (instance: string, executionId: number) =>
  Effect.gen(function*() {
    yield* turn(instance, { executionId: executionId - 1, metadata: named({ status: "ContinuedAsNew" }) })
    yield* send(continueAsNewItem(instance))
    yield* ack(yield* claimInstance(instance), { executionId, events: [started()], metadata: named() })
  })

/** An instance that ended with its first turn, a child of `parent` if given. */
export const done = (instance: string, parent?: string, metadata: ExecutionMetadata = {}) =>
  Effect.gen(function*() {
    yield* send(parent === undefined ? startItem(instance) : childStartItem(instance, parent))
    yield* ack(yield* claimInstance(instance), {
      executionId: 1,
      events: [started(parent === undefined ? {} : { parentInstance: parent, parentId: 1 })],
      metadata: named({
        status: "Completed",
        output: "done",
        ...(parent === undefined ? {} : { parentInstanceId: parent }),
        ...metadata
      })
    })
  })

/** An instance with executions 1 to `executions`, all but the last continued as new. */
export const multi = (
  instance: string,
  executions: number,
  last: ExecutionMetadata = { status: "Completed", output: "done" }
) =>
  Effect.gen(function*() {
    for (let executionId = 1; executionId <= executions; executionId++) {
      yield* send(executionId === 1 ? startItem(instance) : continueAsNewItem(instance))
      yield* ack(yield* claimInstance(instance), {
        executionId,
        events: [started()],
        metadata: named(executionId < executions ? { status: "ContinuedAsNew" } : last)
      })
    }
  })

/** An instance pinned to a version, with one visible message. */
export const seed = (instance: string, pinned: string) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    const others: Array<string> = []
    let claimed = yield* claimOrchestration()
    while (claimed.item.instanceId !== instance) {
      others.push(claimed.lockToken)
      claimed = yield* claimOrchestration()
    }
    yield* ack(claimed, {
      executionId: 1,
      events: [started({ duroxideVersion: pinned })],
      items: [externalRaised(instance, "ping")],
      metadata: named({ pinnedVersion: version(pinned) })
    })
    yield* Effect.forEach(others, (token) => abandon(token, { ignoreAttempt: true }))
  })

/** A turn that schedules activities of execution 1, without making an instance row. */
export const schedule = (instance: string, ids: ReadonlyArray<number>, turn: Ack = {}) =>
  Effect.gen(function*() {
    yield* enqueueStart(instance)
    yield* ack(yield* claimInstance(instance), {
      executionId: 1,
      events: [started()],
      workers: ids.map((id) => activityItem(instance, id)),
      metadata: { orchestrationName: "TestOrch", status: "Running" },
      ...turn
    })
  })
