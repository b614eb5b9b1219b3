/**
 * Processes that leave out a look because another one says that it has taken what was announced: what that saves, and
 * that nothing is left.
 */
import { assert, describe, it } from "@effect/vitest"
import type { Provider } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as Random from "effect/Random"
import * as Scope from "effect/Scope"
import { Hint } from "../../src/waking/Notifier.ts"
import * as taken from "../../src/waking/taken.ts"
import { random } from "../programs/chaos/random.ts"
import { hub, lockTimeout, open, pass, storeOf, waiting } from "../utils/longPolling.ts"
import * as Starts from "../utils/starts.ts"
import { queueOf } from "../utils/workQueues.ts"

type Service = Provider.Provider["Service"]

const activity = (id: number, tag?: string) =>
  ({ _tag: "ActivityExecute", instance: "a", executionId: 1, id, name: "A", input: "1", ...(tag && { tag }) }) as const

const fetchOf = (provider: Service, tags: Parameters<Service["fetchWorkItems"]>[0]["tags"]) =>
  provider.fetchWorkItems({ lockTimeout, pollTimeout: Duration.days(900), tags, session: Option.none() })

/** Twenty processes with two callers each, which end what they claim; and one that only sends. */
const twenty = Effect.gen(function*() {
  const store = storeOf()
  const { connect } = hub()
  for (let i = 0; i < 20; i++) {
    const provider = yield* open(store.driver, connect(`${i}`))
    yield* waiting(
      2,
      Effect.forever(Effect.flatMap(
        fetchOf(provider, { _tag: "DefaultOnly" }),
        (claimed) => Effect.forEach(claimed, ({ lockToken }) => provider.ackWorkItem(lockToken, Option.none()))
      ))
    )
  }
  const sender = yield* open(store.driver, connect("sender"))
  yield* pass("1 minute")
  store.looks()
  return { sender, store }
})

describe("What was taken:", () => {
  it("a hint that was known before the claim, and whose item the claim has returned", () => {
    const hints = taken.make()
    const one = taken.itemOf("one")
    hints.hinted(one, 0)
    const early = hints.known()
    const two = taken.itemOf("two")
    hints.hinted(two, 0)
    assert.deepStrictEqual(hints.claimed(early, ["two", "three"]), [], "not known before")
    assert.deepStrictEqual(hints.claimed(early, ["one", "two"]), [one.id])
    assert.deepStrictEqual(hints.claimed(hints.known(), ["one", "two"]), [two.id], "each once")
  })

  it("equal items: only when there is one for each hint", () => {
    const hints = taken.make()
    const items = [taken.itemOf("same"), taken.itemOf("same")]
    for (const item of items) hints.hinted(item, 0)
    assert.deepStrictEqual(hints.claimed(hints.known(), ["same"]), [])
    assert.deepStrictEqual(hints.claimed(hints.known(), ["same", "other", "same"]), items.map(({ id }) => id))
  })

  it("hints of two seconds, and at most 64, are remembered", () => {
    const hints = taken.make()
    const items = Array.from({ length: 70 }, (_, i) => taken.itemOf(`${i}`))
    for (const item of items) hints.hinted(item, 0)
    const texts = items.map((_, i) => `${i}`)
    assert.deepStrictEqual(hints.claimed(hints.known(), texts), items.slice(6).map(({ id }) => id))
    hints.hinted(items[0]!, 0)
    hints.hinted(items[1]!, 2_000)
    assert.deepStrictEqual(hints.claimed(hints.known(), texts), [items[1]!.id])
  })
})

describe("A queue with a late look:", () => {
  const late = Effect.gen(function*() {
    const queue = yield* queueOf({}, { processes: () => 20, random: () => 0.5 })
    const woken: Array<string> = []
    queue.add({
      wake: (reason) => woken.push(reason),
      ring: () => {},
      hasCallers: () => true,
      lastLookMs: () => 0,
      lockTimeoutMs: 30_000
    })
    queue.changed({ _tag: "Connected" })
    woken.splice(0)
    let ids = 0
    const work = (isOne: boolean) => {
      const only = { id: `${++ids}`, fingerprint: "f" }
      queue.received({
        hint: Hint.Work({ queue: "worker", visibleAtMs: 0, ...(isOne && { only }) }),
        sender: "a"
      }, 0)
      return only.id
    }
    const isTaken = (...ids: ReadonlyArray<string>) =>
      queue.received({ hint: Hint.Taken({ queue: "worker", ids }), sender: "b" }, 0)
    const looks = Effect.map(pass("1 second"), () => woken.splice(0).filter((reason) => reason === "NotifyReceived"))
    return { isTaken, looks, queue, woken, work }
  })

  it.effect("all that was announced is taken: no look", () =>
    Effect.gen(function*() {
      const { isTaken, looks, work } = yield* late
      isTaken(work(true))
      assert.deepStrictEqual(yield* looks, [])
      const [one, two] = [work(true), work(true)]
      isTaken(one, "unknown")
      isTaken(two)
      assert.deepStrictEqual(yield* looks, [])
      work(true)
      assert.deepStrictEqual(yield* looks, ["NotifyReceived"])
    }))

  it.effect("a part is not taken, or not known: a look", () =>
    Effect.gen(function*() {
      const { isTaken, looks, work } = yield* late
      const one = work(true)
      work(true)
      isTaken(one)
      assert.deepStrictEqual(yield* looks, ["NotifyReceived"])
      const two = work(true)
      work(false)
      isTaken(two)
      assert.deepStrictEqual(yield* looks, ["NotifyReceived"])
      isTaken("3")
      work(true)
      assert.deepStrictEqual(yield* looks, ["NotifyReceived"])
    }))

  it.effect("the taker has not said until when it holds it: a look when that must be over", () =>
    Effect.gen(function*() {
      const { isTaken, queue, woken, work } = yield* late
      yield* pass("1 minute")
      woken.splice(0)
      isTaken(work(true))
      yield* pass("30 seconds")
      assert.deepStrictEqual(woken, [])
      yield* pass("2 seconds")
      assert.include(woken.splice(0), "LocksExpired")
      yield* pass("1 minute")
      woken.splice(0)
      queue.received({
        hint: Hint.Locks({ queue: "worker", untilMs: (yield* Clock.currentTimeMillis) + 600_000 }),
        sender: "b"
      }, 0)
      yield* pass("1 minute")
      woken.splice(0)
      isTaken(work(true))
      yield* pass("1 minute")
      assert.deepStrictEqual(woken, [])
    }))
})

describe("Twenty processes:", () => {
  it.effect("one item wakes a few of them: one takes it, and the others are spared", () =>
    Effect.gen(function*() {
      const { sender, store } = yield* twenty
      let looks = 0
      for (let round = 0; round < 20; round++) {
        yield* sender.enqueueForWorker(activity(2 + round))
        yield* pass("1 second")
        looks += store.looks().length
        yield* pass("1 minute")
        store.looks()
      }
      // Four of them on average.
      assert.isAtLeast(looks, 20)
      assert.isAtMost(looks, 20 * 8)
    }).pipe(Random.withSeed("taken")))

  it.effect("several items in one hint: each of them looks", () =>
    Effect.gen(function*() {
      const { sender, store } = yield* twenty
      yield* Effect.forEach([2, 3, 4], (id) => sender.enqueueForWorker(activity(id)), { concurrency: "unbounded" })
      yield* pass("1100 millis")
      assert.isAtLeast(store.looks().length, 20)
    }).pipe(Random.withSeed("taken")))

  it.effect("an item that the taker gives back is announced to all again", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const providers = yield* Effect.forEach(
        Array.from({ length: 20 }, (_, i) => `${i}`),
        (name) => open(store.driver, connect(name))
      )
      const claims = yield* Effect.forEach(
        providers,
        (provider) =>
          Effect.forkChild(
            Effect.map(fetchOf(provider, { _tag: "DefaultOnly" }), ([claimed]) => ({ claimed, provider }))
          )
      )
      yield* pass("1 minute")
      const sender = yield* open(store.driver, connect("sender"))
      yield* sender.enqueueForWorker(activity(2))
      yield* pass("1 second")
      const first = claims.filter((fiber) => fiber.pollUnsafe() !== undefined)
      assert.lengthOf(first, 1)
      const { claimed, provider } = yield* Fiber.join(first[0]!)
      yield* provider.abandonWorkItem({ lockToken: claimed!.lockToken, delay: Option.none(), ignoreAttempt: true })
      yield* pass("1100 millis")
      assert.lengthOf(claims.filter((fiber) => fiber.pollUnsafe() !== undefined), 2)
    }))
})

describe("Eight processes of which one serves what is started:", () => {
  it.effect("it looks within a tenth of a second", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const claimedMs: Array<number> = []
      for (let i = 0; i < 8; i++) {
        const provider = yield* open(store.driver, connect(`${i}`))
        const tags = i === 0 ? { _tag: "DefaultOnly" } as const : { _tag: "Tags", tags: ["other"] } as const
        yield* waiting(
          2,
          Effect.forever(Effect.gen(function*() {
            for (const { lockToken } of yield* fetchOf(provider, tags)) {
              claimedMs.push(yield* Clock.currentTimeMillis)
              yield* provider.ackWorkItem(lockToken, Option.none())
            }
          }))
        )
      }
      const sender = yield* open(store.driver, connect("sender"))
      yield* pass("1 minute")
      for (let id = 2; id < 32; id++) {
        yield* pass("10 seconds")
        const storedMs = yield* Clock.currentTimeMillis
        yield* sender.enqueueForWorker(activity(id))
        yield* pass("100 millis")
        assert.isAtMost(claimedMs.splice(0)[0]! - storedMs, 100)
      }
    }).pipe(Random.withSeed("one of eight")))
})

describe("Fleets of two kinds of processes, each of which serves one of two tags:", () => {
  const tags = ["a", "b"] as const

  for (const seed of [1, 2, 3]) {
    it.effect(
      `whatever is stored, given back and taken, nothing waits for a fallback look (seed ${seed})`,
      () =>
        Effect.gen(function*() {
          const chance = random(seed)
          const store = storeOf()
          const { connect } = hub()
          /** Since when each activity can be claimed. */
          const since = new Map<number, number>()
          const slow: Array<string> = []
          const done = new Set<number>()
          let processes = 0

          const serve = (tag: string): Effect.Effect<void, never, Scope.Scope> =>
            Effect.gen(function*() {
              const scope = yield* Scope.make()
              const provider = yield* Scope.provide(
                open(store.driver, connect(`${++processes}`), { fallbackPollInterval: "900 days" }),
                scope
              )
              const work = Effect.gen(function*() {
                for (
                  const { attemptCount, item, lockToken } of yield* fetchOf(provider, { _tag: "Tags", tags: [tag] })
                ) {
                  const nowMs = yield* Clock.currentTimeMillis
                  const waitedMs = nowMs - since.get(item.id)!
                  // Else a process that died held it.
                  if (attemptCount === 1 && waitedMs > 1_500) slow.push(`${item.id} waited ${waitedMs} ms`)
                  if (chance.is(0.1)) {
                    since.set(item.id, nowMs)
                    yield* provider.abandonWorkItem({ lockToken, delay: Option.none(), ignoreAttempt: true })
                  } else if (chance.is(0.03)) {
                    yield* Scope.close(scope, Exit.void)
                    yield* serve(tag)
                  } else {
                    if (chance.is(0.1)) yield* Effect.sleep(chance.between(1, 200))
                    yield* provider.ackWorkItem(lockToken, Option.none())
                    done.add(item.id)
                  }
                }
              })
              for (let i = 0; i < 3; i++) yield* Effect.forkScoped(Effect.ignore(Effect.forever(work)))
            })

          for (let i = 0; i < 10; i++) yield* serve(i < 8 ? "a" : "b")
          const senders = yield* Effect.forEach(["one", "two"], (name) => open(store.driver, connect(name)))
          yield* pass("1 minute")
          const activities = 150
          for (let id = 0; id < activities; id++) {
            since.set(id, yield* Clock.currentTimeMillis)
            yield* chance.one(senders).enqueueForWorker(activity(id, chance.one(tags)))
            // Soon another hint, or none that would make up for a lost look.
            if (chance.is(0.7)) yield* pass(chance.is(0.5) ? chance.between(1, 20) : chance.between(1, 4_000))
          }
          yield* pass("1 second")
          // Those of processes that died wait for the end of their locks, perhaps of several.
          for (let i = 0; i < 5; i++) yield* pass("40 seconds")
          assert.deepStrictEqual(slow, [])
          assert.strictEqual(done.size, activities)
        }).pipe(Effect.scoped, Random.withSeed(seed))
    )
  }

  it.effect("a start that only one process serves is found beside others that are taken at once", () =>
    Effect.gen(function*() {
      const store = storeOf()
      const { connect } = hub()
      const found: Array<string> = []
      for (let i = 0; i < 12; i++) {
        const provider = yield* open(store.driver, connect(`${i}`), { fallbackPollInterval: "900 days" })
        const fetch = provider.fetchOrchestrationItem({
          lockTimeout,
          pollTimeout: Duration.days(900),
          versions: Option.none(),
          serves: [{ name: i === 0 ? "Rare" : "Common", versions: ["1.0.0"] }]
        })
        yield* waiting(
          3,
          Effect.forever(Effect.gen(function*() {
            const claimed = Option.getOrUndefined(yield* fetch)
            if (claimed === undefined) return
            yield* provider.dropOrchestrationItem(claimed.lockToken)
            found.push(claimed.item.instanceId)
          }))
        )
      }
      const sender = yield* open(store.driver, connect("sender"))
      yield* pass("1 minute")
      for (let round = 0; round < 30; round++) {
        for (const orchestration of ["Rare", "Common"]) {
          const instanceId = `${orchestration} ${round}`
          yield* sender.startOrchestration({
            ...Starts.start(instanceId),
            start: Starts.message(instanceId, { orchestration })
          })
          yield* pass(10)
        }
        yield* pass("1100 millis")
        assert.sameMembers(found.splice(0), [`Rare ${round}`, `Common ${round}`])
        yield* pass("10 seconds")
      }
    }).pipe(Random.withSeed("rare")))
})
