/**
 * Works on one schema as hard and as carelessly as it can: claims sets of both queues, settles them in any order, lets
 * locks run out, stores turns without claims, starts, sends, cancels and deletes at random. Several of these run side
 * by side in `deadlock.long.test.ts`.
 *
 *     node churn.js <database url> <schema> <seconds> <claims in flight> <connections> <outcomes>
 *
 * Ends after that many seconds, but not before each of the comma-separated outcomes was counted a few times, so that a
 * busy machine does as much as an idle one; after twenty times that many seconds in any case.
 *
 * The last line on stdout is `counts: ` and how many items were settled or lost and how many calls failed, as JSON.
 */
import { Database, PrismaAdmin, PrismaDriver } from "duroxide-prisma/prisma"
import { AdminDriver, Instance, ProviderDriver } from "duroxide-prisma/provider"
import type { ProviderError } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"

const [url = "", schema, seconds = "20", inFlight = "50", connections = "50", outcomes = ""] = process.argv.slice(2)
const startedAt = Date.now()
const isOver = () => {
  const past = (Date.now() - startedAt) / 1000 / Number(seconds)
  return past > 20 || (past > 1 && outcomes.split(",").every((outcome) => (counts[outcome] ?? 0) > 2))
}
const instances = Array.from({ length: 100 }, (_, i) => `instance-${i}`)

const counts: Record<string, number> = {}
const count = (what: string, by = 1) => {
  counts[what] = (counts[what] ?? 0) + by
}

const chance = (probability: number) => Math.random() < probability
const between = (min: number, max: number) => min + Math.floor(Math.random() * (max - min + 1))
const one = <A>(all: ReadonlyArray<A>): A => all[between(0, all.length - 1)]!
const some = <A>(most: number, make: () => A) => Array.from({ length: between(0, most) }, make)
const shuffled = <A>(all: ReadonlyArray<A>) =>
  all.map((value) => ({ value, at: Math.random() })).sort((a, b) => a.at - b.at).map(({ value }) => value)

const pinned = { major: 1000, minor: 0, patch: 0 }
const message = () => ({
  instanceId: one(instances),
  workItem: "{\"CancelInstance\":{}}",
  visibleAtMs: null,
  delayMs: chance(0.2) ? between(1, 100) : null
})
const toInstance = () => {
  const instanceId = one(instances)
  return { instanceId, workItem: executing(instanceId) }
}
const activity = () => ({
  ...toInstance(),
  name: "Churn",
  executionId: 1,
  activityId: between(1, 4),
  sessionId: chance(0.3) ? `session-${between(1, 8)}` : null,
  tag: chance(0.3) ? `tag-${between(1, 3)}` : null
})
const tags = () =>
  one<Instance.TagFilter>([
    { _tag: "Any" },
    { _tag: "DefaultOnly" },
    { _tag: "Tags", tags: ["tag-1", "tag-2"] },
    { _tag: "DefaultAnd", tags: ["tag-3"] }
  ])
/** Mostly long, at times over before the work is done. */
const lock = () => chance(0.1) ? between(1, 20) : 5000

const ack = (claimed: ProviderDriver.ClaimedInstance): ProviderDriver.OrchestrationAck => {
  const ends = chance(0.1)
  const last = claimed.history.length
  return {
    lockToken: claimed.lockToken,
    executionId: chance(0.05) ? null : claimed.executionId + (last > 100 ? 1 : 0),
    history: some(3, () => 0).map((_, i) => ({
      eventId: last + i + (chance(0.02) ? 0 : 1),
      eventType: "TimerFired",
      eventData: "{}"
    })),
    customStatus: chance(0.2) ? { value: "busy" } : null,
    keyValues: some(2, () => ({ action: "set" as const, key: `key-${between(1, 5)}`, value: "v", lastUpdatedAtMs: 1 })),
    status: ends ? one(["Completed", "Failed", "ContinuedAsNew"]) : null,
    output: ends ? "output" : null,
    orchestrationName: chance(0.5) ? "Churn" : null,
    orchestrationVersion: "1.0.0",
    // Of instances only, so that all of them can be deleted together.
    parentInstanceId: instances.includes(claimed.instanceId) && chance(0.3) ? one(instances) : null,
    pinnedVersion: chance(0.3) ? pinned : null,
    workerItems: some(2, activity),
    orchestratorItems: some(1, message),
    cancelledActivities: some(3, activity).map(({ activityId, executionId, instanceId }) => ({
      activityId,
      executionId,
      instanceId
    }))
  }
}

/** Like a runtime's own, its cancellations are of its own activities. */
const unclaimed = (instanceId: string, executionId: number, last: number): ProviderDriver.UnclaimedTurn => {
  const { lockToken: _, ...turn } = ack({
    instanceId,
    executionId,
    lockToken: "",
    nowMs: 0,
    instance: null,
    history: Array.from({ length: last }, () => ""),
    isWholeHistory: true,
    messages: [],
    keyValues: []
  })
  return {
    ...turn,
    executionId,
    history: some(3, () => 0).map((_, i) => ({ eventId: last + i + 1, eventType: "TimerFired", eventData: "{}" })),
    workerItems: some(3, () => ({ ...activity(), instanceId, executionId, workItem: executing(instanceId) })),
    orchestratorItems: [...turn.orchestratorItems, ...some(2, child)],
    cancelledActivities: some(2, () => ({ instanceId, executionId, activityId: between(1, 4) }))
  }
}
const child = () => ({
  instanceId: chance(0.5) ? one(instances) : `fresh-${between(1, 1_000_000)}`,
  workItem: "{\"StartOrchestration\":{}}",
  visibleAtMs: null,
  delayMs: null,
  start: { orchestrationName: "Churn", orchestrationVersion: null, parentInstanceId: null, pinnedVersion: pinned }
})
const handOver = (): ProviderDriver.HandOver | null =>
  chance(0.3)
    ? null
    : { limit: between(1, 3), spare: between(0, 40), lockTimeoutMs: lock(), activities: ["Churn"], tags: tags() }

/** Where the runtime finds the instance of an activity. */
const executing = (instanceId: string) => `{"ActivityExecute":{"instance":"${instanceId}"}}`
const instanceOf = (workItem: string): string => JSON.parse(workItem).ActivityExecute.instance

const given = ({ lockToken }: { readonly lockToken: string }) => ({
  lockToken,
  delayMs: chance(0.5) ? between(0, 50) : null,
  ignoreAttempt: chance(0.5)
})
const renewal = ({ lockToken }: { readonly lockToken: string }) => ({ lockToken, extendForMs: lock() })

type Settling = Effect.Effect<void, ProviderError.ProviderError>
const settle = (operation: string, outcomes: Effect.Effect<ReadonlyArray<string>, ProviderError.ProviderError>) =>
  Effect.map(outcomes, (all) => all.forEach((outcome) => count(`${operation} ${outcome}`)))
const sometimes = (probability: number, make: () => Settling) => chance(probability) ? [make()] : []
const atOnce = (all: ReadonlyArray<Settling>) => Effect.all(shuffled(all), { concurrency: "unbounded", discard: true })

/** Optimistic turns for the results of these activities, and for those that they hand over in turn. */
const advance = Effect.fnUntraced(function*(
  driver: ProviderDriver.ProviderDriver["Service"],
  activities: ReadonlyArray<{ readonly instanceId: string; readonly lockToken: string }>
) {
  let left = activities
  for (let round = 0; round < 3 && left.length > 0; round++) {
    const ids = [...new Set(left.map(({ instanceId }) => instanceId))]
    const states = new Map((yield* driver.readInstances(ids)).map((state) => [state.instanceId, state]))
    const turns = yield* Effect.forEach(
      shuffled(ids),
      (instanceId) =>
        Effect.map(driver.readHistory({ instanceId, executionId: null }), (history): ProviderDriver.OptimisticTurn => ({
          instanceId,
          lastEventId: history.length,
          lastEvent: history.at(-1) ?? "",
          results: shuffled(left).filter((one) => one.instanceId === instanceId).map(({ lockToken }) => ({
            lockToken,
            workItem: "{\"ActivityCompleted\":{}}"
          })),
          turn: unclaimed(instanceId, states.get(instanceId)?.executionId ?? 1, history.length),
          handOver: handOver()
        }))
    )
    let answers: ReadonlyArray<ProviderDriver.OptimisticAnswer> = []
    const rest = left
    yield* atOnce([
      Effect.map(driver.advanceOrchestrations!(turns), (all) => {
        answers = all
        for (const { _tag } of all) count(`advanceOrchestrations ${_tag}`)
      }),
      ...sometimes(0.5, () => settle("renewWorkItemLocks", driver.renewWorkItemLocks(shuffled(rest).map(renewal)))),
      ...sometimes(0.2, () =>
        settle(
          "ackWorkItems",
          driver.ackWorkItems(shuffled(rest).map(({ lockToken }) => ({ lockToken, completion: null })))
        ))
    ])
    left = turns.flatMap(({ instanceId }, i) => handedOver(answers[i]!).map((one) => ({ ...one, instanceId })))
  }
})
const handedOver = (answer: ProviderDriver.OptimisticAnswer | ProviderDriver.StartAnswer) => {
  const all = typeof answer === "object" && "handedOver" in answer ? answer.handedOver : []
  count("handed over", all.length)
  return all
}

/** One of the claims in flight: works until the time has passed. */
const work = Effect.fnUntraced(function*(
  driver: ProviderDriver.ProviderDriver["Service"],
  admin: AdminDriver.AdminDriver["Service"]
) {
  const turns = Effect.gen(function*() {
    const claimed = yield* driver.fetchOrchestrationItems({
      limit: between(1, 40),
      lockTimeoutMs: lock(),
      versions: chance(0.5) ? null : { min: pinned, max: pinned }
    })
    count("claimed instances", claimed.length)
    if (chance(0.1)) {
      const deferred = shuffled(claimed).map(({ lockToken, messages }) => ({
        lockToken,
        ids: messages.slice(0, 1).map(({ id }) => id),
        delayMs: 20
      }))
      yield* settle("deferMessages", driver.deferMessages(deferred))
    }
    if (chance(0.05)) return // killed in the middle of a turn
    const back = claimed.filter(() => chance(0.2)).map(given)
    const acks = claimed.filter(({ lockToken }) => !back.some((item) => item.lockToken === lockToken)).map(ack)
    yield* atOnce([
      settle("ackOrchestrationItems", driver.ackOrchestrationItems(shuffled(acks))),
      settle("abandonOrchestrationItems", driver.abandonOrchestrationItems(shuffled(back))),
      ...sometimes(
        0.3,
        () => settle("renewOrchestrationItemLocks", driver.renewOrchestrationItemLocks(shuffled(claimed).map(renewal)))
      ),
      ...sometimes(0.2, () => settle("ackOrchestrationItems", driver.ackOrchestrationItems(shuffled(acks))))
    ])
  })

  const activities = Effect.gen(function*() {
    const claimed = yield* driver.fetchWorkItems({
      limit: between(1, 40),
      lockTimeoutMs: lock(),
      tags: tags(),
      session: chance(0.7) ? { workerId: `owner-${process.pid % 3}`, lockTimeoutMs: lock() } : null
    })
    count("claimed activities", claimed.length)
    if (chance(0.05)) return
    const back = claimed.filter(() => chance(0.2)).map(given)
    const results = claimed.filter(({ lockToken }) => !back.some((item) => item.lockToken === lockToken)).map(
      ({ lockToken }) => ({
        lockToken,
        completion: chance(0.9) ? { instanceId: one(instances), workItem: "{\"ActivityCompleted\":{}}" } : null
      })
    )
    const optimistic = claimed.filter(() => chance(0.3)).map(({ lockToken, workItem }) => ({
      lockToken,
      instanceId: instanceOf(workItem)
    }))
    yield* atOnce([
      advance(driver, optimistic),
      settle("ackWorkItems", driver.ackWorkItems(shuffled(results))),
      settle("abandonWorkItems", driver.abandonWorkItems(shuffled(back))),
      ...sometimes(0.3, () => settle("renewWorkItemLocks", driver.renewWorkItemLocks(shuffled(claimed).map(renewal)))),
      ...sometimes(0.2, () => settle("ackWorkItems", driver.ackWorkItems(shuffled(results))))
    ])
  })

  const arrivals = Effect.gen(function*() {
    const starts = some(12, () => {
      const instanceId = chance(0.5) ? one(instances) : `fresh-${between(1, 1_000_000)}`
      return {
        instanceId,
        orchestrationName: "Churn",
        orchestrationVersion: null,
        workItem: "{\"StartOrchestration\":{}}",
        pinnedVersion: pinned,
        delayMs: null,
        ...(chance(0.7) && { firstTurn: { turn: unclaimed(instanceId, 1, 0), handOver: handOver() } })
      }
    })
    const begun = yield* driver.startOrchestrations(starts)
    for (const answer of begun) count(`startOrchestrations ${typeof answer === "string" ? answer : answer._tag}`)
    yield* advance(
      driver,
      starts.flatMap(({ instanceId }, i) => handedOver(begun[i]!).map((one) => ({ ...one, instanceId })))
    )
    yield* driver.enqueueForOrchestrator(some(60, message))
    yield* driver.enqueueForWorker(some(60, activity))
    yield* driver.readInstances(instances.slice(0, 10))
  })

  const removals = Effect.gen(function*() {
    const instanceIds = shuffled(instances).slice(0, chance(0.05) ? instances.length : between(1, 5))
    const mustHaveEnded = chance(0.3) ? instanceIds : []
    const { _tag } = yield* admin.deleteInstances({ instanceIds, mustHaveEnded })
    count(`deleteInstances ${_tag}`)
  })

  const attempt = (what: Settling) => Effect.catch(what, (error) => Effect.sync(() => count(outcomeOf(error))))
  while (!isOver()) {
    yield* attempt(chance(0.45) ? turns : chance(0.8) ? activities : chance(0.5) ? arrivals : removals)
  }
})

/**
 * A driver may give up a row that another transaction holds; it names the lock timeout then, never a deadlock. A server
 * that has to answer hundreds of logins at once is late for some; a deadlock ends within the time that statements have.
 */
const outcomeOf = ({ message, reason }: ProviderError.ProviderError) =>
  reason._tag === "Contention" && reason.sqlState === "55P03"
    ? "lock timeout"
    : reason._tag === "ConnectionLost" && reason.problem === "the server did not answer in time"
    ? "late login"
    : `failed: ${message}`

await Effect.gen(function*() {
  const driver = yield* ProviderDriver.ProviderDriver
  const admin = yield* AdminDriver.AdminDriver
  yield* Effect.all(Array.from({ length: Number(inFlight) }, () => work(driver, admin)), { concurrency: "unbounded" })
}).pipe(
  Effect.provide(
    PrismaAdmin.layer().pipe(
      Layer.provideMerge(PrismaDriver.layer()),
      Layer.provide(Database.layer({
        url,
        schema,
        maxConnections: Number(connections),
        // A machine that others use answers late, which is not what this looks for.
        checkoutTimeout: "8 minutes",
        statementTimeout: "8 minutes"
      }))
    )
  ),
  Effect.runPromise
)
console.log(`counts: ${JSON.stringify(counts)}`)
