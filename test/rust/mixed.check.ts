import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as Migrator from "../../src/prisma/Migrator.ts"
import type { ProviderError } from "../../src/provider/ProviderError.ts"
import * as Test from "../utils/driver.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import * as Functions from "./functions.ts"
import * as Rust from "./Rust.ts"

const instances = 12
const messagesEach = 40
const lockMs = 300

const instanceIds = Array.from({ length: instances }, (_, i) => `instance-${i}`)
const numbers = Array.from({ length: messagesEach }, (_, i) => i)

interface Message {
  readonly QueueMessage?: { readonly data: string }
  readonly ActivityCompleted?: { readonly id: number }
}

/** One event for each message, and an activity for each even number that came. */
const decide = (instance: string, known: number, messages: ReadonlyArray<Message>) => {
  const events = messages.map((message, i) => ({ event_id: known + i + 1, ...message }))
  const workerItems = events.flatMap(({ event_id: id, QueueMessage }) =>
    QueueMessage !== undefined && Number(QueueMessage.data) % 2 === 0
      ? [{ ActivityExecute: { instance, execution_id: 1, id, name: "Activity", input: QueueMessage.data } }]
      : []
  )
  return { events, workerItems }
}

const queueMessage = (instance: string, n: number) =>
  JSON.stringify({ QueueMessage: { instance, name: "q", data: String(n) } })

const completion = (workItem: string) => {
  const { ActivityExecute: { id, instance } } = JSON.parse(workItem) as {
    readonly ActivityExecute: { readonly instance: string; readonly id: number }
  }
  return {
    instanceId: instance,
    workItem: JSON.stringify({ ActivityCompleted: { instance, execution_id: 1, id, result: "1" } })
  }
}

/** A claimed instance or activity, of either side. */
interface Claim {
  readonly ack: Effect.Effect<string, unknown>
  readonly abandon: Effect.Effect<unknown, unknown>
}

/** Settles a claim once, twice, not at all, or too late; returns what was stored. */
const settle = Effect.fnUntraced(function*({ abandon, ack }: Claim) {
  const n = Math.random()
  if (n < 0.6) return yield* ack
  if (n < 0.7) {
    const first = yield* ack
    assert.strictEqual(yield* ack, first === "DuplicateEvent" ? first : "LockLost")
    return first
  }
  if (n < 0.85) {
    yield* abandon
    return "Abandoned"
  }
  if (n < 0.9) return "Forgotten"
  yield* Effect.sleep(lockMs + 50)
  assert.strictEqual(yield* ack, "LockLost")
  return "LockLost"
})

/** Like the provider: a lock that Duroxide holds for longer than a lock timeout is asked for again. */
const patiently = <A>(call: Effect.Effect<A, ProviderError>) =>
  Effect.retry(call, { while: ({ isRetryable }) => isRetryable, times: 20 })

const ourTurns = (driver: Test.Driver) =>
  Effect.map(
    driver.fetchOrchestrationItems({ limit: 3, lockTimeoutMs: lockMs, versions: null }),
    (claims) =>
      claims.map(({ history, instanceId, lockToken, messages }): Claim => {
        const parsed = messages.map(({ workItem }) => JSON.parse(workItem) as Message)
        const { events, workerItems } = decide(instanceId, history.length, parsed)
        const turn = Test.turn(lockToken, {
          ...Test.named,
          history: events.map((event) => ({
            eventId: event.event_id,
            eventType: "ExternalEvent",
            eventData: JSON.stringify(event)
          })),
          workerItems: workerItems.map((item) =>
            Test.activity({ workItem: JSON.stringify(item), instanceId, activityId: item.ActivityExecute.id })
          )
        })
        return {
          ack: patiently(Effect.map(driver.ackOrchestrationItems([turn]), ([settled]) => settled!)),
          abandon: patiently(driver.abandonOrchestrationItems([{ lockToken, delayMs: null, ignoreAttempt: false }]))
        }
      })
  )

/**
 * Their ack does not lock the row of its lock. One that is under way when the lock expires is stored although another
 * claim has taken the instance over, and its messages come again. `outlasted` gets the instance.
 */
const theirTurns = (theirs: Functions.Functions, outlasted: Set<string>) =>
  Effect.gen(function*() {
    const claimedAt = Date.now()
    const claim = yield* theirs.fetchInstance(lockMs)
    if (claim === undefined) return []
    const { out_history, out_instance_id, out_lock_token, out_messages } = claim
    const metadata = { orchestration_name: "Orchestration", orchestration_version: "1.0.0" }
    const ack = theirs.ackInstance(out_lock_token, {
      ...decide(out_instance_id, out_history.length, out_messages),
      metadata
    })
    return [
      {
        ack: Effect.tap(ack, (settled) =>
          Effect.sync(() => {
            if (settled === "Done" && Date.now() >= claimedAt + lockMs) outlasted.add(out_instance_id)
          })),
        abandon: theirs.abandonInstance(out_lock_token)
      } satisfies Claim
    ]
  })

const ourActivities = (driver: Test.Driver) =>
  Effect.map(
    Test.take(driver, { limit: 3, lockTimeoutMs: lockMs }),
    (taken) =>
      taken.map(({ lockToken, workItem }): Claim => ({
        ack: patiently(
          Effect.map(driver.ackWorkItems([{ lockToken, completion: completion(workItem) }]), ([settled]) => settled!)
        ),
        abandon: patiently(driver.abandonWorkItems([{ lockToken, delayMs: null, ignoreAttempt: false }]))
      }))
  )

const theirActivities = (theirs: Functions.Functions) =>
  Effect.map(theirs.fetchActivity(lockMs), (taken): ReadonlyArray<Claim> =>
    taken === undefined ? [] : [{
      ack: theirs.ackActivity(taken.out_lock_token, completion(taken.out_work_item)),
      abandon: theirs.abandonActivity(taken.out_lock_token)
    }])

describe("both sides on the same rows", () => {
  it.live(
    `${instances * messagesEach} messages, acks, abandons, dead locks: each is recorded once, by one of them`,
    () =>
      Effect.gen(function*() {
        const shared = yield* Rust.open
        yield* Effect.provide(Migrator.adopt(shared), Logger.layer([]))
        const { driver } = yield* Test.openOn(shared, { maxConnections: 10 })
        const counts: Record<string, number> = {}
        const outlasted = new Set<string>()

        const state = { finished: false }
        const watch = waitUntil(
          Effect.map(
            shared.sql<{ left: number; recorded: number }>(
              `SELECT (SELECT count(*) FROM orchestrator_queue)::int + (SELECT count(*) FROM worker_queue)::int AS left,
                 (SELECT count(*) FROM history)::int AS recorded`
            ),
            ([row]) => (state.finished = row!.left === 0 && row!.recorded >= instances * messagesEach * 1.5)
          )
        )
        const work = (name: string, claim: Effect.Effect<ReadonlyArray<Claim>, unknown>) =>
          Effect.gen(function*() {
            while (!state.finished) {
              const claims = yield* claim
              for (const one of claims) {
                const outcome = `${name} ${yield* settle(one)}`
                counts[outcome] = (counts[outcome] ?? 0) + 1
              }
              if (claims.length === 0) yield* Effect.sleep(5)
            }
          })
        const processOfTheirs = Effect.flatMap(Functions.open(shared), (theirs) =>
          Effect.all([
            work("their turns", theirTurns(theirs, outlasted)),
            Effect.flatMap(Functions.open(shared), (more) => work("their activities", theirActivities(more)))
          ], { concurrency: "unbounded" }))
        const processOfOurs = Effect.all([
          work("our turns", ourTurns(driver)),
          work("our activities", ourActivities(driver))
        ], { concurrency: "unbounded" })
        const senders = Effect.flatMap(Functions.open(shared), (theirs) =>
          Effect.forEach(numbers, (n) =>
            Effect.forEach(instanceIds, (id, i) =>
              (n + i) % 2 === 0
                ? Effect.asVoid(driver.enqueueForOrchestrator([Test.message(id, queueMessage(id, n))]))
                : Effect.asVoid(theirs.enqueueMessage(id, queueMessage(id, n))))))

        const three = <A, E, R>(process: Effect.Effect<A, E, R>) => [process, process, process]
        yield* Effect.all([watch, senders, ...three(processOfOurs), ...three(processOfTheirs)], {
          concurrency: "unbounded"
        })

        for (const id of instanceIds) {
          const history = (yield* shared.sql<{ event_data: string }>(
            "SELECT event_data FROM history WHERE instance_id = $1 ORDER BY event_id",
            [id]
          )).map(({ event_data }) =>
            JSON.parse(event_data) as Message & { readonly event_id: number }
          )
          assert.deepStrictEqual(history.map(({ event_id }) => event_id), history.map((_, i) => i + 1))
          const sent = history.flatMap(({ QueueMessage }) =>
            QueueMessage === undefined ? [] : [Number(QueueMessage.data)]
          )
          const once = outlasted.has(id) ? [...new Set(sent)] : sent
          assert.deepStrictEqual(once.toSorted((a, b) => a - b), numbers, id)
          const scheduled = history.filter(({ QueueMessage }) => Number(QueueMessage?.data) % 2 === 0)
          const completed = history.flatMap(({ ActivityCompleted }) => ActivityCompleted?.id ?? [])
          assert.sameMembers(completed, scheduled.map(({ event_id }) => event_id))
        }
        for (const worker of ["our turns", "our activities", "their turns", "their activities"]) {
          for (const outcome of ["Done", "LockLost", "Abandoned"]) {
            assert.isAbove(counts[`${worker} ${outcome}`] ?? 0, 0, `${worker} ${outcome}`)
          }
        }
        console.log(Object.entries(counts).map(([outcome, count]) => `${outcome}: ${count}`).sort().join(", "))
      })
  )
})
