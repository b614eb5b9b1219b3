/**
 * A random model of limits of orchestrations: calls of a driver in any order, and what must hold after each of them. As
 * `limitsModel.ts` it looks from outside: which instances have begun and not ended, and in which order keys came.
 */
import { assert } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as fc from "fast-check"
import type { BoundRow } from "../../src/model/shared/limits.ts"
import type { OrchestrationAck } from "../../src/provider/ProviderDriver.ts"
import type { Store } from "./limitsModel.ts"

export type Step =
  | { readonly call: "start"; readonly keys: ReadonlyArray<string>; readonly delayMs: number | null }
  | { readonly call: "claim"; readonly most: number; readonly lockMs: number }
  | { readonly call: "turn" | "end" | "continue" | "forget" | "signal" | "cancel"; readonly which: number }
  | { readonly call: "wait"; readonly ms: number }
  | { readonly call: "limit"; readonly total: number | null; readonly eachKey: number | null }

const keys = ["a", "b", "c", "d"] as const

const most = fc.option(fc.integer({ min: 1, max: 4 }))

const limit = fc.record({ call: fc.constant("limit" as const), total: most, eachKey: most })

const which = fc.nat(7)

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 4,
    arbitrary: fc.record({
      call: fc.constant("start" as const),
      keys: fc.array(fc.constantFrom(...keys), { minLength: 1, maxLength: 6 }),
      delayMs: fc.constantFrom(null, null, null, 200)
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
  {
    weight: 10,
    arbitrary: fc.record({
      call: fc.constantFrom("turn" as const, "end" as const, "end" as const, "continue" as const),
      which
    })
  },
  {
    weight: 3,
    arbitrary: fc.record({ call: fc.constantFrom("forget" as const, "signal" as const, "cancel" as const), which })
  },
  { weight: 4, arbitrary: fc.record({ call: fc.constant("wait" as const), ms: fc.constantFrom(1, 60, 250, 1100) }) },
  { weight: 1, arbitrary: limit }
)

export const steps = fc.tuple(limit, fc.array(step, { minLength: 20, maxLength: 60, size: "max" }))
  .map(([first, others]): ReadonlyArray<Step> => [first, ...others])

interface Instance {
  readonly key: string
  hasBegun: boolean
  isCancelled: boolean
  /** It was cancelled while it waited for a slot: it ends without one. */
  isFree: boolean
  executionId: number
  token: string | undefined
}

/** Plays the steps, then ends all that is left. */
export const play = Effect.fnUntraced(function*({ admin, driver }: Store, steps: ReadonlyArray<Step>) {
  const all = new Map<string, Instance>()
  let limits: { total: number | null; eachKey: number | null } = { total: null, eachKey: null }
  let nextId = 0

  const counted = (key?: string) =>
    [...all.values()].filter((one) => one.hasBegun && !one.isFree && (key === undefined || one.key === key)).length

  const claim = Effect.fnUntraced(function*(limit: number, lockTimeoutMs: number) {
    const claimed = yield* driver.fetchOrchestrationItems({ limit, lockTimeoutMs, versions: null })
    for (const { instanceId, lockToken } of claimed) {
      const one = all.get(instanceId)
      if (one === undefined) {
        // It has ended, and a signal came later.
        yield* driver.ackOrchestrationItems([{ ...nothing, lockToken, executionId: null }])
        continue
      }
      if (!one.hasBegun) {
        if (!one.isFree) {
          assert.isBelow(counted(), limits.total ?? Infinity, "more instances began than the limit")
          assert.isBelow(counted(one.key), limits.eachKey ?? Infinity, `more of key ${one.key} began than its limit`)
        }
        one.hasBegun = true
      }
      one.token = lockToken
    }
    return claimed.length
  })

  const store = Effect.fnUntraced(function*(id: string, how: Pick<OrchestrationAck, "status" | "orchestratorItems">) {
    const one = all.get(id)!
    const [settled] = yield* driver.ackOrchestrationItems([{
      ...nothing,
      lockToken: one.token!,
      executionId: one.executionId,
      orchestrationName: "Job",
      orchestrationVersion: "1.0.0",
      ...how
    }])
    one.token = undefined
    return settled === "Done"
  })

  const held = () => [...all].filter(([, { token }]) => token !== undefined)
  const pick = <A>(items: ReadonlyArray<A>, which: number): A | undefined =>
    items.length === 0 ? undefined : items[which % items.length]

  const send = (instanceId: string, workItem: string) =>
    driver.enqueueForOrchestrator([{ instanceId, workItem, visibleAtMs: null, delayMs: null }])

  /** A cancelled one that has a slot keeps it; the others go without. */
  const freeCancelled = Effect.gen(function*() {
    for (const [id, one] of all) {
      if (one.isCancelled && !one.hasBegun) one.isFree = (yield* admin.readLimitWait(id)) !== null
    }
  })

  const perform = Effect.fnUntraced(function*(step: Step) {
    switch (step.call) {
      case "start": {
        const started = step.keys.map((key) => ({ id: `i${nextId++}`, key }))
        for (const { id, key } of started) {
          all.set(id, { key, hasBegun: false, isCancelled: false, isFree: false, executionId: 1, token: undefined })
        }
        return yield* driver.startOrchestrations(started.map(({ id, key }) => ({
          instanceId: id,
          orchestrationName: "Job",
          orchestrationVersion: "1.0.0",
          workItem: startOf(id),
          pinnedVersion: { major: 1000, minor: 0, patch: 0 },
          delayMs: step.delayMs,
          limitKey: key
        })))
      }
      case "claim":
        return yield* claim(step.most, step.lockMs)
      case "turn":
      case "end":
      case "continue": {
        const found = pick(held(), step.which)
        if (found === undefined) return
        const [id, one] = found
        if (step.call === "turn") return yield* store(id, { status: null, orchestratorItems: [] })
        if (step.call === "end") {
          if (yield* store(id, { status: "Completed", orchestratorItems: [] })) all.delete(id)
          return
        }
        const isStored = yield* store(id, {
          status: "ContinuedAsNew",
          orchestratorItems: [{ instanceId: id, workItem: continueOf(id), visibleAtMs: null, delayMs: null }]
        })
        if (isStored) one.executionId++
        return
      }
      // Its process was killed: the lock stays until it ends.
      case "forget": {
        const found = pick(held(), step.which)
        if (found !== undefined) found[1].token = undefined
        return
      }
      case "signal": {
        const found = pick([...all.keys()], step.which)
        if (found !== undefined) yield* send(found, signalOf(found))
        return
      }
      case "cancel": {
        const found = pick([...all].filter(([, { hasBegun }]) => !hasBegun), step.which)
        if (found === undefined) return
        const [id, one] = found
        yield* send(id, `{"CancelInstance":{"instance":"${id}","reason":"test"}}`)
        one.isCancelled = true
        return yield* freeCancelled
      }
      case "wait":
        return yield* TestClock.adjust(step.ms)
      case "limit": {
        limits = { total: step.total, eachKey: step.eachKey }
        yield* admin.setLimit({
          kind: "orchestration",
          name: "Job",
          changes: { total: bound(limits.total), eachKey: bound(limits.eachKey) },
          replaces: true
        })
        // It took the slots of those that had not begun.
        return yield* freeCancelled
      }
    }
  })

  for (const step of steps) yield* perform(step)

  // Every slot comes back: with all locks over, all instances run until they end.
  yield* TestClock.adjust("1 minute")
  for (let round = 0; all.size > 0; round++) {
    assert.isBelow(round, 2_000, `${all.size} instances never run`)
    for (const [id, { hasBegun, token }] of all) if (hasBegun && token === undefined) yield* send(id, signalOf(id))
    yield* claim(5, 30_000)
    for (const [id] of held()) if (yield* store(id, { status: "Completed", orchestratorItems: [] })) all.delete(id)
  }
  const [found] = yield* admin.readLimits({ of: { kind: "orchestration", name: "Job" }, key: null, mostKeys: 10 })
  assert.deepInclude(found, { inUse: 0, waiting: 0 })
})

export const nothing = {
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
  cancelledActivities: []
}

const bound = (concurrency: number | null): BoundRow | null =>
  concurrency === null ? null : { concurrency, rate: null, rateMs: null, burst: null }

export const startOf = (id: string) =>
  `{"StartOrchestration":{"instance":"${id}","orchestration":"Job","input":"","version":"1.0.0",` +
  "\"parent_instance\":null,\"parent_id\":null,\"execution_id\":1}}"

const continueOf = (id: string) =>
  `{"ContinueAsNew":{"instance":"${id}","orchestration":"Job","input":"","version":"1.0.0"}}`

const signalOf = (id: string) => `{"QueueMessage":{"instance":"${id}","name":"Go","data":"null"}}`
