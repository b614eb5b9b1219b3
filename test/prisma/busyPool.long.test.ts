import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PgQueue } from "duroxide-prisma/prisma"
import { FromDriver, ProviderDriver } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import * as Database from "../../src/prisma/Database.ts"
import { Prisma } from "../../src/prisma/generated/client.js"
import * as notifying from "../../src/prisma/internal/notifying.ts"
import * as taskDrivers from "../../src/prisma/internal/tasks/driver.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import { Topics } from "../../src/waking/Topics.ts"
import { proxyFor } from "../programs/latencyProxy.ts"
import * as Test from "../utils/driver.ts"
import { loginRole } from "../utils/loginRole.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

const maxConnections = 2

/** Behind `at` a login of its own. */
const open = Effect.fn(function*(at: (url: string) => string = (url) => url) {
  const test = yield* PgServer.database
  const database = yield* Database.make({ url: at(test.url), maxConnections })
  const driver = yield* Effect.provideService(PrismaDriver.make(), Database.Database, database)
  const sleeping = Effect.map(
    test.sql(
      `SELECT FROM pg_stat_activity
       WHERE datname = current_database() AND query LIKE '%AS slow%' AND wait_event = 'PgSleep'`
    ),
    (rows) => rows.length
  )
  const cancelAll = test.sql(
    "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE '%AS slow' AND pid <> pg_backend_pid()"
  )
  return {
    test,
    database,
    driver,
    sleeping,
    /** Slow reads, on all connections of the pool and in its queue. */
    occupy: Effect.gen(function*() {
      const read = Effect.exit(database.query("readHistory", Prisma.sql`SELECT pg_sleep(20)::text AS slow`))
      const reads = yield* Effect.forEach(Array.from({ length: 2 * maxConnections }), () => Effect.forkChild(read))
      yield* waitUntil(Effect.map(sleeping, (count) => count === maxConnections))
      yield* Effect.addFinalizer(() => cancelAll)
      return {
        reads,
        end: waitUntil(
          Effect.as(cancelAll, true).pipe(
            Effect.map(() => reads.every((read) => read.pollUnsafe() !== undefined))
          )
        )
      }
    })
  }
})

describe("while slow reads keep all connections busy", () => {
  it.live("locks of orchestrations, activities, sessions and messages, and leases of tasks are renewed", () =>
    Effect.scoped(Effect.gen(function*() {
      const { database, driver, occupy, sleeping, test } = yield* open()
      const tasks = taskDrivers.make(database)
      const signals = yield* Layer.build(
        Layer.provide(
          Layer.effect(Topics, notifying.makeTopics({ url: test.url, listens: false })),
          Layer.succeed(Database.Database, database)
        )
      )
      const queue = yield* PgQueue.make({ queues: { work: {} } }).pipe(
        Effect.provideService(Database.Database, database),
        Effect.provide(signals)
      )
      yield* queue.publish("work", { kind: "work" })
      const [received] = yield* queue.receive("work", {
        maxMessages: 1,
        visibilityTimeout: "1 minute",
        wait: "1 second"
      })
      const { reads } = yield* occupy
      const token = `1.${randomUUID()}`
      const lost = ["LockLost" as const]
      assert.deepStrictEqual(yield* driver.renewWorkItemLocks([{ lockToken: token, extendForMs: 1000 }]), lost)
      assert.deepStrictEqual(
        yield* driver.renewOrchestrationItemLocks([{ lockToken: `${randomUUID()}.i`, extendForMs: 1000 }]),
        lost
      )
      yield* driver.renewSessionLocks({ workerIds: ["w"], extendForMs: 1000, idleTimeoutMs: 1000 })
      assert.deepStrictEqual(yield* tasks.renew([{ taskId: randomUUID(), attempt: 1, leaseMs: 1000 }]), ["Lost"])
      yield* queue.extendVisibility("work", received!.receipt, "1 hour")
      // All of it before the first read had ended, on one connection more.
      assert.strictEqual(yield* sleeping, maxConnections)
      assert.deepStrictEqual(
        yield* test.sql(
          `SELECT count(*)::int AS connections FROM pg_stat_activity
           WHERE datname = current_database() AND application_name = 'duroxide-prisma'`
        ),
        [{ connections: maxConnections + 1 }]
      )
      for (const read of reads) assert.isUndefined(read.pollUnsafe())
    })))

  it.live("the wait for a connection counts into the time that a turn is sent with", () =>
    Effect.gen(function*() {
      const { driver, occupy, test } = yield* open()
      const { a } = yield* Test.waiting(driver, ["a"])
      const [now] = yield* test.sql<{ ms: number }>("SELECT extract(epoch FROM now())::float8 * 1000 AS ms")
      const { end } = yield* occupy
      let waitedMs = 0
      // Each is asked for the time at which it is sent, an hour ago by the clock that the wait below moves.
      const clockMs = () => Math.round(now!.ms) - 3_600_000 + waitedMs
      const firstTurn = { turn: Test.unclaimedTurn(0, { ...Test.named, clockMs }), handOver: null }
      const stored = yield* Effect.all([
        driver.advanceOrchestrations!([Test.optimistic("a", a!, { clockMs })]),
        driver.startOrchestrations([Test.start("b", { firstTurn })])
      ], { concurrency: "unbounded" }).pipe(Effect.forkChild({ startImmediately: true }))
      waitedMs = 3_600_000
      yield* end
      const answers = (yield* Fiber.join(stored)).flat()
      assert.deepStrictEqual(answers.map((answer) => typeof answer === "string" ? answer : answer._tag), [
        "Advanced",
        "Begun"
      ])
    }))

  it.live("a renewal waits for a connection of the pool where one more cannot log in", () =>
    Effect.scoped(Effect.gen(function*() {
      const role = yield* loginRole("nothing")
      const { driver, occupy, test } = yield* open((url) => role.at(url, "nothing"))
      const { end } = yield* occupy
      yield* test.sql(`ALTER ROLE ${role.name} NOLOGIN`)
      const [{ sentMs }] = yield* test.sql<{ sentMs: number }>(
        `SELECT extract(epoch FROM clock_timestamp())::float8 * 1000 AS "sentMs"`
      ) as Effect.Effect<readonly [{ readonly sentMs: number }]>
      const renewal = yield* Effect.forkChild(
        driver.renewWorkItemLocks([{ lockToken: `1.${randomUUID()}`, extendForMs: 1000 }])
      )
      // Its other login has been refused by then.
      yield* waitUntil(Effect.map(
        test.sql("SELECT WHERE extract(epoch FROM clock_timestamp()) * 1000 > $1::float8 + 2500", [sentMs]),
        ({ length }) => length > 0
      ))
      yield* Effect.promise(role.admit)
      yield* end
      assert.deepStrictEqual(yield* Fiber.join(renewal), ["LockLost"])
    })))

  it.live("a renewal whose connection has lost its way uses another one, long before the statement's time is over", () =>
    Effect.scoped(Effect.gen(function*() {
      const proxy = yield* proxyFor(PgServer.server().url)
      const { driver, test } = yield* open(proxy.through)
      yield* driver.startOrchestrations([Test.start("a")])
      const [claimed] = yield* Test.claim(driver, 1)
      proxy.freeze()
      const begunMs = performance.now()
      const renewal = { lockToken: claimed!.lockToken, extendForMs: 60_000 }
      assert.deepStrictEqual(yield* driver.renewOrchestrationItemLocks([renewal]), ["Done"])
      // A statement is given up after 30 seconds.
      assert.isBelow(performance.now() - begunMs, 25_000)
      assert.lengthOf(
        yield* test.sql("SELECT FROM instance_locks WHERE locked_until > extract(epoch FROM now()) * 1000 + 31000"),
        1
      )
    })))

  it.live("a running handler keeps its lock: no other process runs it, and its result is stored", () =>
    Effect.scoped(Effect.gen(function*() {
      const { driver, occupy, test } = yield* open()
      const Hold = Activity.make("Hold", { success: Schema.String })
      const Holds = Orchestration.make("Holds", { success: Schema.String })
      const begun = yield* Deferred.make<void>()
      const end = yield* Deferred.make<void>()
      const runs: Array<string> = []
      const process = (name: string) =>
        Runtime.layer({ orchestrations: [Holds], activities: [Hold] }).pipe(
          Layer.provide([
            Holds.toLayer(() => Hold.execute()),
            Hold.toLayer(() =>
              Effect.suspend(() => {
                runs.push(name)
                return Deferred.succeed(begun, undefined).pipe(
                  Effect.andThen(Deferred.await(end)),
                  Effect.as(name)
                )
              })
            )
          ]),
          Layer.provide(RuntimeConfig.layer({ workerLockTimeout: "3 seconds" })),
          Layer.merge(Client.layer),
          Layer.provide(FromDriver.layer()),
          Layer.provide(Logger.layer([]))
        )
      const one = yield* Layer.build(
        Layer.provide(process("one"), Layer.succeed(ProviderDriver.ProviderDriver, driver))
      )
      const client = Context.get(one, Client.Client)
      yield* client.start(Holds, { instanceId: "holds" })
      yield* Deferred.await(begun)
      const [{ first }] = yield* test.sql<{ first: number }>(
        "SELECT max(locked_until)::float8 AS first FROM worker_queue"
      ) as Effect.Effect<readonly [{ readonly first: number }]>
      const slow = yield* occupy
      yield* Layer.build(Layer.provide(
        process("two"),
        Layer.provide(PrismaDriver.layer(), Database.layer({ url: test.url }))
      ))
      // A whole lock after the end of the first one.
      yield* waitUntil(Effect.map(
        test.sql("SELECT WHERE extract(epoch FROM clock_timestamp()) * 1000 > $1::float8 + 3000", [first]),
        ({ length }) => length > 0
      ))
      for (const read of slow.reads) assert.isUndefined(read.pollUnsafe())
      yield* slow.end
      yield* Deferred.succeed(end, undefined)
      assert.strictEqual(yield* client.wait(Holds, "holds"), "one")
      assert.deepStrictEqual(runs, ["one"])
      assert.deepStrictEqual(yield* test.sql("SELECT FROM worker_queue"), [])
    })))
})
