/**
 * A random model of limits: calls of a driver in any order, and what must hold after each of them.
 *
 * It does not know slots. It looks from outside: which activities have begun and not ended, when they began, and in
 * which order keys came.
 */
import { assert } from "@effect/vitest"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as fc from "fast-check"
import type { BoundRow } from "../../src/model/shared/limits.ts"
import type { AdminDriver } from "../../src/provider/AdminDriver.ts"
import type { ProviderDriver } from "../../src/provider/ProviderDriver.ts"

export interface Store {
  readonly driver: ProviderDriver["Service"]
  readonly admin: AdminDriver["Service"]
}

export type Step =
  | { readonly call: "queue"; readonly keys: ReadonlyArray<string> }
  | { readonly call: "claim"; readonly most: number; readonly lockMs: number }
  | { readonly call: "ack" | "giveBack" | "forget" | "cancel"; readonly which: number }
  | { readonly call: "wait"; readonly ms: number }
  | { readonly call: "limit"; readonly total: BoundRow | null; readonly eachKey: BoundRow | null }

const keys = ["a", "b", "c", "d"] as const

const bound = fc.option(
  fc.record({
    concurrency: fc.option(fc.integer({ min: 1, max: 4 })),
    rate: fc.option(fc.integer({ min: 1, max: 2 })),
    rateMs: fc.constantFrom(50, 200, 1000),
    burst: fc.integer({ min: 1, max: 3 })
  }).map(({ concurrency, rate, ...rest }): BoundRow => ({
    concurrency,
    ...(rate === null ? { rate, rateMs: null, burst: null } : { rate, ...rest })
  }))
)

const which = fc.nat(5)

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      call: fc.constant("queue" as const),
      keys: fc.array(fc.constantFrom(...keys), { minLength: 1, maxLength: 8 })
    })
  },
  {
    weight: 8,
    arbitrary: fc.record({
      call: fc.constant("claim" as const),
      most: fc.integer({ min: 1, max: 5 }),
      lockMs: fc.constantFrom(100, 1000, 30_000)
    })
  },
  { weight: 4, arbitrary: fc.record({ call: fc.constant("ack" as const), which }) },
  {
    weight: 3,
    arbitrary: fc.record({ call: fc.constantFrom("giveBack" as const, "forget" as const, "cancel" as const), which })
  },
  { weight: 4, arbitrary: fc.record({ call: fc.constant("wait" as const), ms: fc.constantFrom(1, 60, 250, 1100) }) },
  { weight: 1, arbitrary: fc.record({ call: fc.constant("limit" as const), total: bound, eachKey: bound }) }
)

export const steps = fc.tuple(
  fc.record({ call: fc.constant("limit" as const), total: bound, eachKey: bound }),
  fc.array(step, { minLength: 20, maxLength: 60, size: "max" })
).map(([first, others]): ReadonlyArray<Step> => [first, ...others])

interface Activity {
  readonly key: string
  /** When it first began; undefined while it waits. */
  beganMs: number | undefined
  token: string | undefined
  isGivenBack: boolean
}

/** Plays the steps, then acks all that is left. */
export const play = Effect.fnUntraced(function*({ admin, driver }: Store, steps: ReadonlyArray<Step>) {
  const all = new Map<number, Activity>()
  let limits: { total: BoundRow | null; eachKey: BoundRow | null } = { total: null, eachKey: null }
  let nextId = 0
  /** The keys of what the claim under way has begun. */
  let ofClaim: Array<string> = []
  /** How often each other key was served since a key began to wait, by key. */
  const passed = new Map<string, Map<string, number>>()

  const underWay = (key?: string) =>
    [...all.entries()].filter(([, one]) => one.beganMs !== undefined && (key === undefined || one.key === key))
  const waits = (key: string) => [...all.values()].some((one) => one.key === key && one.beganMs === undefined)

  const began = (id: number, nowMs: number) => {
    const one = all.get(id)!
    for (const [bound, key] of [[limits.total, undefined], [limits.eachKey, one.key]] as const) {
      const counted = underWay(key).length
      if (bound?.concurrency !== undefined && bound?.concurrency !== null) {
        assert.isBelow(counted, bound.concurrency, `${counted} were under way, and another one began`)
      }
    }
    one.beganMs = nowMs
    begins.push({ key: one.key, atMs: nowMs })
    for (const [bound, key] of [[limits.total, undefined], [limits.eachKey, one.key]] as const) {
      if (bound?.rate !== null && bound?.rate !== undefined) assertRate(bound, key)
    }
    ofClaim.push(one.key)
  }

  /** What one claim takes begins at once: until a key is served, each other key is served once at most. */
  const assertTurns = (waited: ReadonlyArray<string>, served: ReadonlyArray<string>) => {
    for (const key of waited) {
      const own = served.filter((one) => one === key).length
      const counts = passed.get(key) ?? new Map<string, number>()
      for (const other of keys) {
        if (other === key) continue
        const count = (counts.get(other) ?? 0) + served.filter((one) => one === other).length
        counts.set(other, count)
        if (!waits(key)) continue
        assert.isAtMost(count, own + 1, `${other} came ${count} times, and ${key} ${own} times while it waited`)
      }
      if (own > 0) passed.delete(key)
      else passed.set(key, counts)
    }
  }

  let begins: Array<{ readonly key: string; readonly atMs: number }> = []

  /** In no span of time begin more than the burst, and one for each token that came back. */
  const assertRate = (bound: BoundRow, key: string | undefined) => {
    const times = begins.filter((one) => key === undefined || one.key === key).map(({ atMs }) => atMs)
    const last = times.at(-1)!
    for (const [i, from] of times.entries()) {
      const most = bound.burst! + Math.floor((last - from) * bound.rate! / bound.rateMs!)
      assert.isAtMost(times.length - i, most, `${times.length - i} began within ${last - from} ms`)
    }
  }

  const claim = Effect.fnUntraced(function*(most: number, lockMs: number) {
    const nowMs = yield* Clock.currentTimeMillis
    const waited = keys.filter(waits)
    ofClaim = []
    const claimed = yield* driver.fetchWorkItems({
      limit: most,
      lockTimeoutMs: lockMs,
      tags: { _tag: "DefaultOnly" },
      session: null
    })
    for (const { attemptCount, lockToken, workItem } of claimed) {
      const id = Number(workItem)
      const one = all.get(id)!
      assert.isDefined(one, "an activity that has ended was delivered")
      if (one.beganMs === undefined) began(id, nowMs)
      else assert.isAtLeast(attemptCount, 1)
      one.token = lockToken
      one.isGivenBack = false
    }
    // The bound of a key may hold it back.
    if (limits.eachKey === null) assertTurns(waited, ofClaim)
  })

  const held = () => [...all.entries()].filter(([, { token }]) => token !== undefined)
  const pick = <A>(items: ReadonlyArray<A>, which: number): A | undefined =>
    items.length === 0 ? undefined : items[which % items.length]

  const ack = Effect.fnUntraced(function*(id: number) {
    const one = all.get(id)!
    const [settled] = yield* driver.ackWorkItems([{ lockToken: one.token!, completion: null }])
    one.token = undefined
    if (settled === "Done") all.delete(id)
  })

  const perform = Effect.fnUntraced(function*(step: Step) {
    switch (step.call) {
      case "queue": {
        const queued = step.keys.map((key) => ({ id: nextId++, key }))
        for (const { id, key } of queued) all.set(id, { key, beganMs: undefined, token: undefined, isGivenBack: false })
        return yield* driver.enqueueForWorker(queued.map(({ id, key }) => ({
          workItem: `${id}`,
          name: "Charge",
          instanceId: "i",
          executionId: 1,
          activityId: id,
          sessionId: null,
          tag: null,
          limitKey: key
        })))
      }
      case "claim":
        yield* claim(step.most, step.lockMs)
        return
      case "ack": {
        const found = pick(held(), step.which)
        if (found !== undefined) yield* ack(found[0])
        return
      }
      case "giveBack": {
        const found = pick(held(), step.which)
        if (found === undefined) return
        yield* driver.abandonWorkItems([{ lockToken: found[1].token!, delayMs: null, ignoreAttempt: false }])
        found[1].token = undefined
        found[1].isGivenBack = true
        return
      }
      // Its process was killed: the lock stays until it ends.
      case "forget": {
        const found = pick(held(), step.which)
        if (found !== undefined) found[1].token = undefined
        return
      }
      case "cancel": {
        const found = pick([...all], step.which)
        if (found === undefined) return
        const [id, { key }] = found
        all.delete(id)
        // What comes later of this key has not waited so long.
        if (!waits(key)) passed.delete(key)
        yield* cancelled(driver, id)
        return
      }
      case "wait":
        return yield* TestClock.adjust(step.ms)
      case "limit": {
        limits = { total: step.total, eachKey: step.eachKey }
        yield* admin.setLimit({ kind: "activity", name: "Charge", changes: limits, replaces: true })
        // What was given back waits again.
        for (const one of all.values()) if (one.isGivenBack) one.beganMs = undefined
        begins = []
        passed.clear()
        return
      }
    }
  })

  for (const step of steps) yield* perform(step)

  // Every slot comes back: with all locks over, all activities run until they end.
  yield* TestClock.adjust("1 minute")
  for (let round = 0; all.size > 0; round++) {
    assert.isBelow(round, 2_000, `${all.size} activities never run`)
    yield* claim(5, 30_000)
    for (const [id] of held()) yield* ack(id)
    yield* TestClock.adjust(500)
  }
  const [limit] = yield* admin.readLimits({ of: { kind: "activity", name: "Charge" }, key: null, mostKeys: 10 })
  assert.deepInclude(limit, { inUse: 0, waiting: 0 })
})

/** Cancels an activity by a turn of its instance. */
const cancelled = (driver: Store["driver"], activityId: number) =>
  Effect.gen(function*() {
    yield* driver.enqueueForOrchestrator([{ instanceId: "i", workItem: poke, visibleAtMs: null, delayMs: null }])
    const [claimed] = yield* driver.fetchOrchestrationItems({
      limit: 1,
      lockTimeoutMs: 30_000,
      versions: null,
      orphans: true
    })
    yield* driver.ackOrchestrationItems([{
      lockToken: claimed!.lockToken,
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
      cancelledActivities: [{ instanceId: "i", executionId: 1, activityId }]
    }])
  })

const poke = "{\"StartOrchestration\":{\"instance\":\"i\",\"orchestration\":\"O\",\"input\":\"\",\"version\":null," +
  "\"parent_instance\":null,\"parent_id\":null,\"execution_id\":1}}"
