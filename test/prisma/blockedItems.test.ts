/**
 * Calls travel together; one that waits for the transaction of somebody else neither holds nor fails the others.
 */
import { assert, describe, it } from "@effect/vitest"
import { Provider } from "duroxide-prisma"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Drivers from "../utils/driver.ts"
import { session } from "../utils/session.ts"

const start = (instance: string) => ({
  start: {
    _tag: "StartOrchestration",
    instance,
    orchestration: "O",
    input: "1",
    version: null,
    parentInstance: null,
    parentId: null,
    executionId: 1
  } as const,
  pinnedVersion: { major: 1000, minor: 1, patch: 0 },
  delay: Option.none()
})

const turn = {
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: { orchestrationName: "O", orchestrationVersion: "1.0.0" },
  cancelledActivities: []
}

const ids = Array.from({ length: 20 }, (_, i) => `i${i}`)

const all = <A, E>(items: ReadonlyArray<string>, call: (item: string) => Effect.Effect<A, E>) =>
  Effect.forEach(items, call, { concurrency: "unbounded" })

describe("An item that waits for the transaction of another session", () => {
  it.live("a start delays no other of its set, and is answered when the transaction ends", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      const provider = yield* Provider.fromDriver(test.driver)
      const application = yield* session(test)
      yield* application(
        `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('taken', 'O', now(), now())`
      )
      // The lanes are busy, so that the rest travels together.
      const blocked = yield* Effect.forkChild(provider.startOrchestration(start("taken")))
      const answers = yield* all(ids, (id) => provider.startOrchestration(start(id)))
      assert.deepStrictEqual(answers, ids.map(() => "Started"))
      // And in one set with it.
      const again = yield* Effect.forkChild(
        all(["taken", "other 1", "other 2"], (id) => Effect.exit(provider.startOrchestration(start(id))))
      )
      const later = yield* all(["later 1", "later 2"], (id) => provider.startOrchestration(start(id)))
      assert.deepStrictEqual(later, ["Started", "Started"])
      assert.isUndefined(blocked.pollUnsafe())
      yield* application("ROLLBACK")
      const both = [yield* Fiber.join(blocked), ...(yield* Fiber.join(again))]
      assert.sameDeepMembers(both, [
        "Started",
        Exit.succeed("AlreadyExists"),
        Exit.succeed("Started"),
        Exit.succeed("Started")
      ])
    }))

  it.live("a turn delays no other of its set", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      const provider = yield* Provider.fromDriver(test.driver)
      yield* all(ids, (id) => provider.startOrchestration(start(id)))
      const claimed = yield* all(ids, () =>
        Effect.map(
          provider.fetchOrchestrationItem({
            lockTimeout: Duration.minutes(5),
            pollTimeout: Duration.seconds(20),
            versions: Option.none()
          }),
          Option.getOrThrow
        ))
      const operator = yield* session(test)
      yield* operator("SELECT FROM instances WHERE instance_id = 'i7' FOR UPDATE")
      const acks = yield* Effect.forEach(claimed, ({ item, lockToken }) =>
        Effect.map(
          Effect.forkChild(provider.ackOrchestrationItem(lockToken, turn)),
          (fiber) => [item.instanceId, fiber] as const
        ))
      for (const [instanceId, fiber] of acks) if (instanceId !== "i7") yield* Fiber.join(fiber)
      const [, waiting] = acks.find(([instanceId]) => instanceId === "i7")!
      assert.isUndefined(waiting.pollUnsafe())
      yield* operator("ROLLBACK")
      yield* Fiber.join(waiting)
    }))
})
