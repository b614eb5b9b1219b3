/**
 * The driver on PostgreSQL for the validation suite, each time on an empty store, with the rights of a worker alone.
 */
import { Database, Partitions, PgNotifier, PrismaAdmin, PrismaDriver, ReadReplica } from "duroxide-prisma/prisma"
import { FromDriver } from "duroxide-prisma/provider"
import { ProviderTest } from "duroxide-prisma/testing/provider"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import { afterAll } from "vitest"
import * as PgServer from "./PgServer.ts"
import * as Stores from "./stores.ts"
import { layerWithoutOptimisticTurns } from "./withoutOptimisticTurns.ts"

interface Options extends FromDriver.Options {
  readonly driver?: ReturnType<typeof PrismaDriver.layer>
  readonly fresh?: Effect.Effect<PgServer.MigratedDatabase, never, Scope.Scope>
}

/** What `PrismaProvider.layer` composes, on the connections of a store. */
const layer = ({ driver = PrismaDriver.layer(), fresh = PgServer.database, ...options }: Options = {}) => {
  const store = Stores.make(Effect.map(fresh, (test) => ({ ...test, url: test.workerUrl })))
  return Layer.unwrap(Effect.map(store, ({ database, test }) =>
    FromDriver.layer(options).pipe(
      Layer.merge(ReadReplica.layerAdmin),
      Layer.provide(PrismaAdmin.layer()),
      Layer.provide(driver),
      Layer.provide(PgNotifier.layer({ url: test.url, listens: options.longPolling?.enabled })),
      Layer.provide(Layer.succeed(Database.Database, database)),
      Layer.merge(Layer.succeed(ProviderTest.Backdoor, backdoor(test)))
    )))
}

/** Without what a driver may leave out. */
const simpleLayer = () =>
  layer({
    driver: Layer.provide(layerWithoutOptimisticTurns, PrismaDriver.layer()),
    longPolling: { enabled: false }
  })

/** Runs a part of the suite, which is split over files that run at the same time; processes notify each other. */
export const suite = (...topics: ReadonlyArray<ProviderTest.TopicName>): void =>
  ProviderTest.suite("prisma", layer(), {
    topics,
    polling: "long",
    shortPollThreshold: "500 millis",
    optimisticTurns: true
  })

export const suiteWithoutOptimisticTurns = (...topics: ReadonlyArray<ProviderTest.TopicName>): void =>
  ProviderTest.suite("prisma, without optimistic turns", simpleLayer(), { topics, shortPollThreshold: "500 millis" })

/** The suite without connections that listen: tests that depend on the time of a claim bear no further load. */
export const shortPollingSuite = (...topics: ReadonlyArray<ProviderTest.TopicName>): void =>
  ProviderTest.suite("prisma, short polling", layer({ longPolling: { enabled: false } }), {
    topics,
    shortPollThreshold: "500 millis",
    optimisticTurns: true
  })

/** The suite on a store whose history is partitioned; skipped where databases cannot be created. */
export const partitionedSuite = (...topics: ReadonlyArray<ProviderTest.TopicName>): void => {
  const { template } = PgServer.server()
  if (template === null) return
  const scope = Scope.makeUnsafe()
  let partitioned: Promise<string> | undefined
  const make = PgServer.otherTemplate(
    template,
    (url) => Effect.orDie(Effect.asVoid(Partitions.apply({ url, partitions: 16 })))
  )
  const name = Effect.promise(() => partitioned ??= Effect.runPromise(Scope.provide(make, scope)))
  afterAll(() => Effect.runPromise(Scope.close(scope, Exit.void)))
  ProviderTest.suite("prisma, partitioned", layer({ fresh: Effect.flatMap(name, PgServer.databaseLike) }), {
    topics,
    polling: "long",
    shortPollThreshold: "500 millis",
    optimisticTurns: true
  })
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const backdoor = ({ sql }: PgServer.TestDatabase): ProviderTest.Backdoor["Service"] => ({
  corruptInstanceHistory: (instanceId, eventData) =>
    Effect.asVoid(sql("UPDATE history SET event_data = $2 WHERE instance_id = $1", [instanceId, eventData])),
  getMaxAttemptCount: (instanceId) =>
    Effect.map(
      sql<{ highest: number }>(
        "SELECT COALESCE(max(attempt_count), 0) AS highest FROM orchestrator_queue WHERE instance_id = $1",
        [instanceId]
      ),
      ([row]) => row!.highest
    ),
  insertMessage: (instanceId, workItem) =>
    Effect.asVoid(
      sql(
        "INSERT INTO orchestrator_queue (instance_id, work_item, visible_at, created_at) VALUES ($1, $2, now(), now())",
        [instanceId, workItem]
      )
    ),
  insertActivity: (workItem) =>
    Effect.asVoid(
      sql("INSERT INTO worker_queue (work_item, visible_at, created_at) VALUES ($1, now(), now())", [workItem])
    )
})
