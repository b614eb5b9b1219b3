/**
 * Calls share statements; a call that waits for another transaction neither delays nor fails the rest.
 */
import { assert, describe, it } from "@effect/vitest"
import { Client, Orchestration, Runtime } from "duroxide-prisma"
import { Transaction } from "duroxide-prisma/prisma"
import { FromDriver } from "duroxide-prisma/provider"
import type { Provider } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as pg from "pg"
import * as App from "../utils/app.ts"
import * as Drivers from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import { message, start } from "../utils/starts.ts"
import { waitUntil } from "../utils/waitUntil.ts"

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

/** First turns need the clock of the store, which a claim says. */
const withClock = Effect.fnUntraced(function*(provider: Provider.Provider["Service"]) {
  yield* provider.startOrchestration(start("clock"))
  yield* provider.fetchOrchestrationItem({
    lockTimeout: Duration.seconds(30),
    pollTimeout: Duration.zero,
    versions: Option.none()
  })
})

describe("An item that waits for the transaction of another session", () => {
  it.live("a start does not delay others of its set, and returns when the transaction ends", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      const provider = yield* FromDriver.make(test.driver)
      const application = yield* session(test)
      yield* application(
        `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('taken', 'O', now(), now())`
      )
      // The lanes are busy, so that the rest share a statement.
      const blocked = yield* Effect.forkChild(provider.startOrchestration(start("taken")))
      const answers = yield* all(ids, (id) => provider.startOrchestration(start(id)))
      assert.deepStrictEqual(answers, ids.map(() => "Started"))
      // And in one set with it.
      const again = yield* Effect.forkChild(
        all(["taken", "other 1", "other 2"], (id) => provider.startOrchestration(start(id)))
      )
      const later = yield* all(["later 1", "later 2"], (id) => provider.startOrchestration(start(id)))
      assert.deepStrictEqual(later, ["Started", "Started"])
      assert.isUndefined(blocked.pollUnsafe())
      yield* application("ROLLBACK")
      const [second, ...others] = yield* Fiber.join(again)
      // Either of the two; the other one comes too late.
      assert.sameMembers([yield* Fiber.join(blocked), second], ["Started", "AlreadyExists"])
      assert.deepStrictEqual(others, ["Started", "Started"])
    }))

  it.live("two held starts block no lane, and return when their transactions end", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      let sent = 0
      const provider = yield* FromDriver.make({
        ...test.driver,
        startOrchestrations: (starts) =>
          Effect.suspend(() => {
            sent++
            return test.driver.startOrchestrations(starts)
          })
      })
      const inserts = (id: string) =>
        `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('${id}', 'O', now(), now())`
      const commits = yield* session(test)
      const rollsBack = yield* session(test)
      yield* commits(inserts("committed"))
      yield* rollsBack(inserts("rolled back"))
      const taken = yield* Effect.forkChild(provider.startOrchestration(start("committed")))
      yield* waitUntil(Effect.sync(() => sent === 1))
      const free = yield* Effect.forkChild(provider.startOrchestration(start("rolled back")))
      yield* waitUntil(Effect.sync(() => sent === 2))
      const answers = yield* all(ids, (id) => provider.startOrchestration(start(id)))
      assert.deepStrictEqual(answers, ids.map(() => "Started"))
      // One at a time, too.
      for (const id of ["x", "y", "z"]) assert.strictEqual(yield* provider.startOrchestration(start(id)), "Started")
      assert.deepStrictEqual([taken.pollUnsafe(), free.pollUnsafe()], [undefined, undefined])
      yield* commits("COMMIT")
      yield* rollsBack("ROLLBACK")
      assert.strictEqual(yield* Fiber.join(taken), "AlreadyExists")
      assert.strictEqual(yield* Fiber.join(free), "Started")
    }))

  it.live("a start is stored without its first turn, which gives back its slots, when that starts a held id", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      const provider = yield* FromDriver.make(test.driver)
      const application = yield* session(test)
      yield* application(
        `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at)
         VALUES ('child', 'O', now(), now()), ('held', 'O', now(), now())`
      )
      const settled: Array<string> = []
      yield* withClock(provider)
      yield* provider.onStart(({ instance }) => {
        const child = message("child", { parentInstance: instance, parentId: 1 })
        return {
          turn: {
            ...turn,
            orchestratorItems: instance === "parent" ? [child] : [],
            startsPinnedTo: new Map([[child, { major: 1000, minor: 1, patch: 0 }]])
          },
          settled: (stored) => void settled.push(`${instance}: ${stored._tag}`)
        }
      })
      assert.strictEqual(yield* provider.startOrchestration(start("parent")), "Started")
      const held = yield* Effect.forkChild(provider.startOrchestration(start("held")))
      yield* waitUntil(Effect.sync(() => settled.length === 2))
      assert.strictEqual(yield* provider.startOrchestration(start("free")), "Started")
      assert.deepStrictEqual(settled, ["parent: None", "held: None", "free: Some"])
      assert.isUndefined(held.pollUnsafe())
      yield* application("ROLLBACK")
      assert.strictEqual(yield* Fiber.join(held), "Started")
    }))

  it.live("a start that stays blocked fails with Contention after statementTimeout", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      const provider = yield* FromDriver.make(test.driver, { statementTimeout: "1 second" })
      const application = yield* session(test)
      yield* application(
        `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('taken', 'O', now(), now())`
      )
      const error = yield* Effect.flip(provider.startOrchestration(start("taken")))
      assert.strictEqual(error.reason._tag, "Contention")
      assert.isTrue(error.isRetryable)
    }))

  it.live("within a transaction of the application, the lock_timeout of its connection applies", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      const other = yield* session(test)
      yield* other(
        `INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ('taken', 'O', now(), now())`
      )
      const client = yield* Effect.acquireRelease(
        Effect.promise(async () => {
          const client = new pg.Client(test.url)
          await client.connect()
          return client
        }),
        (client) => Effect.promise(() => client.end())
      )
      yield* Effect.promise(() => client.query("BEGIN"))
      const waiting = yield* Effect.forkChild(
        Transaction.make(client, { schema: test.schema }).startOrchestration(start("taken"))
      )
      // Twice as long as a lane waits.
      yield* Effect.sleep(400)
      assert.isUndefined(waiting.pollUnsafe())
      yield* other("ROLLBACK")
      assert.strictEqual(yield* Fiber.join(waiting), "Started")
    }))

  it.live("a blocked turn does not delay others of its set, and fails with Contention long before a start does", () =>
    Effect.gen(function*() {
      const test = yield* Drivers.open()
      const provider = yield* FromDriver.make(test.driver)
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
      assert.strictEqual((yield* Effect.flip(Fiber.join(waiting))).reason._tag, "Contention")
      yield* operator("ROLLBACK")
      const { lockToken } = claimed.find(({ item }) => item.instanceId === "i7")!
      yield* provider.ackOrchestrationItem(lockToken, turn)
    }))
})

const Starts = Orchestration.make("Starts", { payload: Schema.String })
const Ends = Orchestration.make("Ends", { success: Schema.String })

const RuntimeLive = Runtime.layer({ orchestrations: [Starts, Ends], activities: [] }).pipe(Layer.provide([
  Starts.toLayer((id) => Effect.asVoid(Ends.startDetached({ instanceId: id }))),
  Ends.toLayer(() => Effect.succeed("ended"))
]))

it.layer(App.layer(RuntimeLive, { runtime: { orchestrationConcurrency: 2 } }), { excludeTestServices: true })(
  "Turns that start ids held by the transaction of another session",
  (it) => {
    it.effect("give their slots to other instances, and are stored after it", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const server = yield* PgServer.PgServer
        const application = yield* session(server)
        const held = Array.from({ length: 6 }, (_, i) => `held ${i}`)
        for (const id of held) {
          yield* application(
            "INSERT INTO instances (instance_id, orchestration_name, created_at, updated_at) VALUES ($1, 'O', now(), now())",
            [id]
          )
        }
        for (const id of held) yield* client.start(Starts, { instanceId: `starts ${id}`, payload: id })
        for (const id of ["a", "b", "c"]) {
          assert.strictEqual(yield* client.execute(Ends, { instanceId: id, timeout: "2 minutes" }), "ended")
        }
        // Deliveries that are under way have counted.
        const counted = "SELECT FROM orchestrator_queue WHERE instance_id LIKE 'starts %' AND attempt_count > 1"
        assert.lengthOf(yield* server.sql(counted), 0)
        yield* application("ROLLBACK")
        for (const id of held) {
          yield* client.wait(Starts, `starts ${id}`)
          assert.strictEqual(yield* client.wait(Ends, id), "ended")
        }
      }).pipe(Effect.scoped))
  }
)
