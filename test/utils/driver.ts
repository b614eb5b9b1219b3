/**
 * The driver on a private database, and the rows that tests insert.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import type { TagFilter } from "../../src/model/Instance.ts"
import * as Database from "../../src/prisma/Database.ts"
import * as PrismaAdmin from "../../src/prisma/PrismaAdmin.ts"
import * as PrismaDriver from "../../src/prisma/PrismaDriver.ts"
import type { AdminDriver } from "../../src/provider/AdminDriver.ts"
import { everything } from "../../src/provider/internal/lists.ts"
import { ProviderDriver } from "../../src/provider/ProviderDriver.ts"
import type {
  ClaimedInstance,
  EncodedActivity,
  EncodedMessage,
  OptimisticTurn,
  OrchestrationAck,
  OrchestrationStart,
  UnclaimedTurn
} from "../../src/provider/ProviderDriver.ts"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as PgServer from "./PgServer.ts"
import * as Stores from "./stores.ts"

export type Driver = ProviderDriver["Service"]
export type Admin = AdminDriver["Service"]

export interface Opened extends PgServer.TestDatabase {
  readonly driver: Driver
  readonly admin: Admin
  /** Ids of all instances, newest first. */
  readonly listed: Effect.Effect<ReadonlyArray<string>, ProviderError>
  /** Statements sent so far. */
  readonly statements: Effect.Effect<number>
}

export interface Options extends PrismaDriver.Options {
  readonly maxConnections?: number
  /** Statements wait for locks as long as the test runs, instead of 50 or 200 milliseconds. */
  readonly patient?: boolean
}

/** A driver on a fresh migrated database. */
export const open = (options: Options = {}): Effect.Effect<Opened, ProviderError, Scope.Scope> =>
  Effect.flatMap(PgServer.database, (test) => openOn(test, options))

/**
 * Opens databases and connections that the tests of a file hand on. To be called once for a file, whose tests
 * leave nothing in the database but rows.
 */
export const opener = () => {
  const store = Stores.make(PgServer.database)
  return (options: PrismaDriver.Options = {}): Effect.Effect<Opened, ProviderError, Scope.Scope> =>
    Effect.flatMap(store, ({ database, test }) => driverOn(test, database, options))
}

/** For connections that wait a minute for a lock, as only a caller without retries needs. */
export const patient = (url: string): string => {
  const patiently = new URL(url)
  patiently.searchParams.set("options", "-c lock_timeout=60000")
  return patiently.toString()
}

/** Another driver, with its own connections, on an existing database. */
export const openOn = Effect.fnUntraced(function*(
  test: PgServer.TestDatabase,
  options: Options = {}
): Effect.fn.Return<Opened, ProviderError, Scope.Scope> {
  const url = options.patient === true ? patient(test.url) : test.url
  const { maxConnections } = options
  const database = yield* Database.make({ url, schema: test.schema, maxConnections })
  return yield* driverOn(test, database, options)
})

const driverOn = Effect.fnUntraced(function*(
  test: PgServer.TestDatabase,
  database: Database.Database["Service"],
  options: PrismaDriver.Options
) {
  const driver = yield* Effect.provideService(PrismaDriver.make(options), Database.Database, database)
  const admin = yield* PrismaAdmin.make(options).pipe(
    Effect.provideService(Database.Database, database),
    Effect.provideService(ProviderDriver, driver)
  )
  const sent = Effect.map(
    database.statementCounts,
    (counts) => Object.values(counts).reduce((sum, count) => sum + count, 0)
  )
  const before = yield* sent
  const statements = Effect.map(sent, (count) => count - before)
  const listed = Effect.map(
    admin.listInstances({ ...everything, limit: 100_000 }),
    ({ instanceIds }) => instanceIds
  )
  return { ...test, driver, admin, listed, statements }
})

export const message = (instanceId: string, workItem = "{\"CancelInstance\":{}}"): EncodedMessage => ({
  instanceId,
  workItem,
  visibleAtMs: null,
  delayMs: null
})

export const activity = (changes: Partial<EncodedActivity> = {}): EncodedActivity => ({
  workItem: "{\"ActivityExecute\":{}}",
  name: "Activity",
  instanceId: "instance",
  executionId: 1,
  activityId: 1,
  sessionId: null,
  tag: null,
  ...changes
})

export const start = (instanceId: string, changes: Partial<OrchestrationStart> = {}): OrchestrationStart => ({
  instanceId,
  orchestrationName: "Orchestration",
  orchestrationVersion: null,
  workItem: `{"StartOrchestration":{"instance":${JSON.stringify(instanceId)}}}`,
  pinnedVersion: { major: 1000, minor: 0, patch: 0 },
  delayMs: null,
  ...changes
})

/** A turn that by default stores only its end. */
export const turn = (lockToken: string, changes: Partial<OrchestrationAck> = {}): OrchestrationAck => ({
  lockToken,
  executionId: 1,
  history: [],
  customStatus: null,
  keyValues: [],
  status: null,
  output: null,
  orchestrationName: null,
  orchestrationVersion: null,
  parentInstanceId: null,
  pinnedVersion: null,
  workerItems: [],
  orchestratorItems: [],
  cancelledActivities: [],
  ...changes
})

/** A turn without a claim that by default stores only one event after the given last one. */
export const unclaimedTurn = (lastEventId: number, changes: Partial<UnclaimedTurn> = {}): UnclaimedTurn => {
  const { lockToken: _, ...empty } = turn("")
  return { ...empty, executionId: 1, history: events(lastEventId + 1), ...changes }
}

/** An optimistic turn that by default stores the results of these activities and one event. */
export const optimistic = (
  instanceId: string,
  lockTokens: ReadonlyArray<string>,
  { lastEventId = 2, lastEvent = events(lastEventId)[0]!.eventData, handOver = null, ...changes }: Partial<
    UnclaimedTurn & Pick<OptimisticTurn, "handOver" | "lastEvent" | "lastEventId">
  > = {}
): OptimisticTurn => ({
  instanceId,
  lastEventId,
  lastEvent,
  results: lockTokens.map((lockToken) => ({ lockToken, workItem: `{"ActivityCompleted":{"of":"${lockToken}"}}` })),
  turn: unclaimedTurn(lastEventId, changes),
  handOver
})

/** Instances that wait for activities: each has events 1 and 2, and the given number of claimed activities. */
export const waiting = Effect.fnUntraced(function*(driver: Driver, ids: ReadonlyArray<string>, activities = 1) {
  yield* driver.startOrchestrations(ids.map((id) => start(id)))
  const claimed = yield* claim(driver, ids.length)
  yield* driver.ackOrchestrationItems(claimed.map(({ instanceId, lockToken }) =>
    turn(lockToken, {
      ...named,
      history: events(1, 2),
      status: "Running",
      workerItems: Array.from({ length: activities }, (_, i) => activity({ instanceId, activityId: i + 2 }))
    })
  ))
  const taken = yield* take(driver, { limit: ids.length * activities })
  // In the order of the acks.
  return Object.fromEntries(claimed.map(({ instanceId }, i) => [
    instanceId,
    taken.slice(i * activities, (i + 1) * activities).map(({ lockToken }) => lockToken)
  ]))
})

/** Names the orchestration, as the first turn does. */
export const named = { orchestrationName: "Orchestration", orchestrationVersion: "1.0.0" } as const

export const events = (...ids: ReadonlyArray<number>) =>
  ids.map((eventId) => ({ eventId, eventType: "TimerFired", eventData: `{"event_id":${eventId}}` }))

export const claim = (driver: Driver, limit = 10, lockTimeoutMs = 30_000) =>
  driver.fetchOrchestrationItems({ limit, lockTimeoutMs, versions: null, orphans: true })

/** The only claimable instance. */
export const claimOne = (driver: Driver, lockTimeoutMs?: number): Effect.Effect<ClaimedInstance, ProviderError> =>
  Effect.map(claim(driver, 1, lockTimeoutMs), (claimed) => {
    if (claimed.length !== 1) throw new Error(`claimed ${claimed.length} instances instead of one`)
    return claimed[0]!
  })

/** Deliveries of a batch: the maximum of its messages. */
export const attempts = ({ messages }: ClaimedInstance) => Math.max(...messages.map(({ attemptCount }) => attemptCount))

/** Sends a message to an instance and claims it. */
export const claimed = (driver: Driver, instanceId: string, lockTimeoutMs?: number) =>
  Effect.andThen(driver.enqueueForOrchestrator([message(instanceId)]), claimOne(driver, lockTimeoutMs))

export const take = (
  driver: Driver,
  options: {
    readonly limit?: number
    readonly lockTimeoutMs?: number
    readonly tags?: TagFilter
    readonly session?: { readonly workerId: string; readonly lockTimeoutMs: number } | null
  } = {}
) => driver.fetchWorkItems({ limit: 10, lockTimeoutMs: 30_000, tags: { _tag: "Any" }, session: null, ...options })

/** The tables with rows of an instance. */
export const tablesWith = ({ sql }: PgServer.TestDatabase, instanceId: string) =>
  Effect.map(
    sql<{ table: string }>(
      [
        "executions",
        "history",
        "instance_locks",
        "instances",
        "kv_delta",
        "kv_store",
        "orchestrator_queue",
        "worker_queue"
      ]
        .map((table) => `SELECT '${table}' AS table FROM ${table} WHERE instance_id = $1`).join(" UNION ") +
        " ORDER BY 1",
      [instanceId]
    ),
    (rows) => rows.map(({ table }) => table)
  )
