import { assert, describe, it } from "@effect/vitest"
import { Notifier } from "duroxide-prisma/provider"
import type { Provider } from "duroxide-prisma/provider"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import * as changes from "../../src/provider/internal/changes.ts"
import * as hints from "../../src/waking/hints.ts"
import * as Notified from "../utils/notified.ts"

const { Hint } = Notifier

/** Changes on a notifier that the test plays. */
const open = Effect.gen(function*() {
  const announced: Array<Notifier.Hint> = []
  let listener: Notifier.Listener | undefined
  let fails = false
  const notifier = Notifier.Notifier.of({
    name: "played",
    listen: (given) => Effect.sync(() => void (listener = given)),
    announce: (sent) =>
      Effect.suspend(() => {
        if (fails) return Effect.fail(new Notifier.NotifierError({ problem: "closed" }))
        announced.push(...sent)
        return Effect.void
      })
  })
  const self = yield* changes.make(yield* hints.make(notifier, { notifyDeliveryTimeoutMs: 100 }))
  const connection = listener!
  /** What is announced from now until `ms` later. */
  const announcedWithin = Effect.fnUntraced(function*(ms: number) {
    announced.length = 0
    yield* Notified.pass(ms, 100)
    return announced.map(({ _tag }) => _tag)
  })
  return {
    ...self,
    announced,
    announcedWithin,
    connection,
    fail: (value: boolean) => void (fails = value),
    hear: (hint: Notifier.Hint, sender: string | null = "other") =>
      Effect.andThen(
        Effect.sync(() => {
          announced.length = 0
          connection.receive({ hint, sender })
        }),
        TestClock.adjust(0)
      )
  }
})

const watcher = () => {
  const seen: Array<string> = []
  return { seen, changed: () => void seen.push("changed"), doubted: () => void seen.push("doubted") }
}

const item = (instanceId: string) =>
  ({ instanceId, executionId: 1, history: [] }) as unknown as Provider.OrchestrationItem

const end = (instanceId: string) => Notified.completion(item(instanceId))
const turn = (instanceId: string, ...tags: ReadonlyArray<string>) =>
  Notified.turn(item(instanceId), tags.map((_tag) => ({ _tag, key: "k", value: "v", status: "s" })))

describe("fingerprint", () => {
  it("is the beginning of the SHA-256 of the id as UTF-8", () => {
    assert.deepStrictEqual(["order-7", "Bestellung Zürich"].map(changes.fingerprint), ["df8cf802", "70fbb3db"])
  })
})

describe("A process with callers that wait", () => {
  it.effect("says so when the first comes, and every five minutes while one waits", () =>
    Effect.gen(function*() {
      const self = yield* open
      self.connection.connected()
      assert.deepStrictEqual(yield* self.announcedWithin(60_000), ["Hello"])
      const release = self.watch("a", watcher())
      assert.deepStrictEqual(yield* self.announcedWithin(1_000), ["Waiting"])
      self.watch("b", watcher())()
      assert.deepStrictEqual(yield* self.announcedWithin(298_000), [])
      assert.deepStrictEqual(yield* self.announcedWithin(601_000), ["Waiting", "Waiting", "Waiting"])
      release()
      assert.deepStrictEqual(yield* self.announcedWithin(601_000), [])
    }))

  it.effect("says so again to one that has connected, and when it was not connected itself", () =>
    Effect.gen(function*() {
      const self = yield* open
      const release = self.watch("a", watcher())
      assert.deepStrictEqual(yield* self.announcedWithin(1_000), [])
      self.connection.connected()
      assert.deepStrictEqual(yield* self.announcedWithin(1_000), ["Hello", "Waiting"])
      yield* self.hear(Hint.Hello())
      assert.deepStrictEqual(self.announced, [Hint.Waiting()])
      self.connection.disconnected("cut")
      assert.deepStrictEqual(yield* self.announcedWithin(61_000), [])
      self.connection.connected()
      assert.deepStrictEqual(yield* self.announcedWithin(1_000), ["Hello", "Waiting"])
      release()
      yield* self.hear(Hint.Hello())
      assert.deepStrictEqual(self.announced, [])
    }))

  it.effect("says so to one that connected while it did not wait, as soon as it waits again", () =>
    Effect.gen(function*() {
      const self = yield* open
      self.connection.connected()
      self.watch("a", watcher())()
      assert.deepStrictEqual(yield* self.announcedWithin(10_000), ["Hello", "Waiting"])
      yield* self.hear(Hint.Hello())
      self.watch("a", watcher())()
      assert.deepStrictEqual(yield* self.announcedWithin(10_000), ["Waiting"])
      yield* self.hear(Hint.Hello())
      self.watch("a", watcher())
      const nowMs = yield* TestClock.testClockWith((clock) => clock.currentTimeMillis)
      assert.strictEqual(self.announcedSinceMs(), nowMs + 1_000)
    }))

  it.effect("relies on announcements a second after it has said so, and no longer after it could not", () =>
    Effect.gen(function*() {
      const self = yield* open
      const now = Effect.map(TestClock.testClockWith((clock) => clock.currentTimeMillis), (ms) => ms)
      self.connection.connected()
      assert.strictEqual(self.announcedSinceMs(), Infinity)
      self.watch("a", watcher())
      const since = self.announcedSinceMs()
      assert.strictEqual(since, (yield* now) + 1_000)
      yield* Notified.pass(1_000_000, 10_000)
      assert.strictEqual(self.announcedSinceMs(), since, "it is repeated in time")
      self.fail(true)
      self.watch("b", watcher())
      yield* Notified.pass(301_000, 1_000)
      assert.strictEqual(self.announcedSinceMs(), Infinity)
      self.fail(false)
      yield* Notified.pass(2_000, 100)
      assert.isBelow(self.announcedSinceMs(), Infinity)
      self.connection.disconnected("cut")
      assert.strictEqual(self.announcedSinceMs(), Infinity)
    }))

  it.effect("is notified of its instances only, also by plain SQL, and doubts all when hints are lost", () =>
    Effect.gen(function*() {
      const self = yield* open
      const [a, b] = [watcher(), watcher()]
      self.watch("a", a)
      self.watch("b", b)
      const heard: Array<ReadonlyArray<boolean>> = []
      yield* self.onChanged((hasChanged) => void heard.push(["a", "c"].map(hasChanged)))
      self.connection.connected()
      yield* self.hear(Hint.Changed({ fingerprints: ["a", "c"].map(changes.fingerprint) }), null)
      self.connection.disconnected("cut")
      assert.deepStrictEqual(a.seen, ["doubted", "changed", "doubted"])
      assert.deepStrictEqual(b.seen, ["doubted", "doubted"])
      assert.deepStrictEqual(heard, [[true, true], [true, true], [true, true]])
      self.connection.connected()
      yield* self.hear(Hint.Changed({ fingerprints: [changes.fingerprint("a")] }))
      assert.deepStrictEqual(heard.slice(4), [[true, false]])
      for (let i = 0; i < 65; i++) self.connection.receive({ hint: Hint.Hello(), sender: `${i}` })
      assert.strictEqual(b.seen.at(-1), "doubted")
    }))
})

describe("A process that stores turns", () => {
  const known = Effect.gen(function*() {
    const self = yield* open
    self.connection.connected()
    yield* Notified.pass(1_100, 100)
    return self
  })

  const announcedOf = (self: Effect.Success<typeof open>, ...turns: ReadonlyArray<Provider.Turn>) => {
    for (const turn of turns) self.turnStored(turn)
    return self.announcedWithin(100)
  }

  it.effect("announces ends, statuses and values while another process waits, and then nothing", () =>
    Effect.gen(function*() {
      const self = yield* known
      assert.deepStrictEqual(yield* announcedOf(self, end("a")), [])
      yield* self.hear(Hint.Waiting())
      for (const tag of ["CustomStatusUpdated", "KeyValueSet", "KeyValueCleared", "KeyValuesCleared"]) {
        assert.deepStrictEqual(yield* announcedOf(self, turn("a", tag)), ["Changed"], tag)
      }
      assert.deepStrictEqual(yield* announcedOf(self, end("a"), turn("b", "TimerFired"), end("c"), end("c")), [
        "Changed"
      ])
      assert.deepStrictEqual(self.announced, [
        Hint.Changed({ fingerprints: ["a", "c"].map(changes.fingerprint) })
      ])
      yield* Notified.pass(300_000, 1_000)
      assert.deepStrictEqual(yield* announcedOf(self, end("d")), ["Changed"])
      yield* Notified.pass(30_000, 1_000)
      assert.deepStrictEqual(yield* announcedOf(self, end("e")), [])
    }))

  it.effect("always announces cancellations of activities", () =>
    Effect.gen(function*() {
      const self = yield* known
      const cancelledActivities = [1, 2].map((activityId) => ({ instanceId: "a", executionId: 1, activityId }))
      assert.deepStrictEqual(yield* announcedOf(self, { ...turn("a", "TimerFired"), cancelledActivities }), ["Changed"])
      assert.deepStrictEqual(self.announced, [Hint.Changed({ fingerprints: [changes.fingerprint("a")] })])
    }))

  it.effect("announces all while it cannot know who waits: before it is connected, just after, and after a loss", () =>
    Effect.gen(function*() {
      const self = yield* open
      assert.deepStrictEqual(yield* announcedOf(self, end("a")), ["Changed"])
      self.connection.connected()
      assert.deepStrictEqual(yield* announcedOf(self, end("b")), ["Hello", "Changed"])
      yield* Notified.pass(1_000, 100)
      assert.deepStrictEqual(yield* announcedOf(self, end("c")), [])
      for (let i = 0; i < 65; i++) self.connection.receive({ hint: Hint.Hello(), sender: `${i}` })
      assert.deepStrictEqual(yield* announcedOf(self, end("d")), ["Changed"])
      self.connection.disconnected("cut")
      assert.deepStrictEqual(yield* announcedOf(self, end("e")), ["Changed"])
    }))
})
