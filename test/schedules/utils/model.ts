/**
 * A random life of a schedule, and what must hold of it: an occurrence starts at most once and not before its time; one
 * that does not start was missed by the rule, or came during a pause; runs that may not overlap do not.
 */
import { assert } from "@effect/vitest"
import { ScheduleDriver, Schedules } from "duroxide-prisma/schedules"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Result from "effect/Result"
import * as TestClock from "effect/testing/TestClock"
import { nextOf, occurrencesOf } from "../../../src/schedules/internal/timing.ts"
import type { OpenStore } from "./stores.ts"
import { Report } from "./suite.ts"

const hour = 3_600_000

const random = (seed: number) => () => {
  seed = (seed + 0x6d2b79f5) | 0
  let mixed = Math.imul(seed ^ (seed >>> 15), 1 | seed)
  mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
  return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32
}

type CatchUp = NonNullable<Schedules.Rules["catchUp"]>

/** When an occurrence was settled, by the clock then. */
interface Settled {
  readonly run: ScheduleDriver.NewRun
  readonly atMs: number
  /** Looks of schedulers before. */
  readonly looks: number
}

export const live = Effect.fnUntraced(function*(store: OpenStore, seed: number) {
  const next = random(seed)
  const pick = <A>(all: ReadonlyArray<A>): A => all[Math.floor(next() * all.length)]!
  // Nights in which the clocks change lie ahead, or none does.
  let nowMs = Date.parse(pick(["2030-03-30T20:00:00Z", "2030-10-26T20:00:00Z", "2030-06-01T20:00:00Z"]))
  yield* TestClock.setTime(nowMs)
  const opened = yield* store

  const timing = pick([
    Schedules.cron("*/20 * * * *", { timeZone: "Europe/Berlin" }),
    Schedules.cron("30 2,3 * * *", { timeZone: "Europe/Berlin" }),
    Schedules.cron("0 */2 * * *", { timeZone: "Australia/Lord_Howe" }),
    Schedules.every("7 minutes"),
    Schedules.dates(Array.from({ length: 40 }, (_, i) => new Date(nowMs + i * 17 * 60_000)))
  ])
  const overlap = pick(["skip", "queue", "allow", "interrupt"] as const)
  const catchUp = pick<CatchUp>(["none", "last", { within: "90 minutes" }])
  const withinMs = typeof catchUp === "string" ? 0 : 90 * 60_000
  const jitterMs = pick([0, 0, 40_000])
  const isCode = next() < 0.5
  const schedule = Schedules.make("model", {
    timing,
    start: Report,
    overlap,
    catchUp,
    jitter: jitterMs,
    ...(isCode ? { payload: ({ at }) => ({ day: at.toISOString() }) } : { payload: { day: "any" } })
  })

  /** When schedulers looked while it was not paused. */
  const looks: Array<number> = []
  const settled: Array<Settled> = []
  /** Ids of what runs, by this test's own account. */
  const running = new Set<string>()
  const driver = Context.get(opened.services, ScheduleDriver.ScheduleDriver)
  const watching = ScheduleDriver.ScheduleDriver.of({
    ...driver,
    fire: (fires) =>
      Effect.tap(driver.fire(fires), (won) =>
        Effect.sync(() => {
          for (const { runs } of fires) {
            assert.strictEqual(new Set(runs.map(({ number }) => number)).size, runs.length, "a run is stored once")
          }
          for (const [index, { runs }] of fires.entries()) {
            if (!won[index]) continue
            for (const run of runs) {
              settled.push({ run, atMs: nowMs, looks: looks.length })
              if (run.start?._tag !== "Orchestration") continue
              if (overlap !== "allow") assert.deepStrictEqual([...running], [], "nothing runs when one starts")
              running.add(run.start.start.instance)
            }
          }
        }))
  })
  const services = Context.add(opened.services, ScheduleDriver.ScheduleDriver, watching)
  const service = yield* Effect.provide(Effect.provide(Schedules.Schedules, Schedules.layerClient), services)
  const move = (ms: number) => Effect.suspend(() => TestClock.setTime(nowMs += ms))
  /** A statement that met another one is repeated after some milliseconds, which only this moves on. */
  const moving = Effect.forever(Effect.andThen(TestClock.withLive(Effect.sleep("2 seconds")), move(50)))
  const runAll = Effect.suspend(() =>
    Effect.raceFirst(
      Effect.all(
        Array.from(
          { length: 1 + Math.floor(next() * 3) },
          () => Effect.provide(Schedules.runDue([schedule]), services)
        ),
        { concurrency: "unbounded", discard: true }
      ),
      moving
    )
  )
  const endSome = Effect.suspend(() =>
    Effect.forEach(
      [...running].filter(() => next() < 0.7),
      (id) => Effect.andThen(opened.end(id), Effect.sync(() => running.delete(id))),
      { discard: true }
    )
  )

  /** Times at which all earlier occurrences were settled by a resume. */
  const resumed: Array<number> = []
  const createdMs = nowMs
  let isPaused = false
  /** What a scheduler that died has claimed; longer than it held if the clock is set back. */
  let heldUntilMs = 0
  yield* runAll

  /** Schedulers that run all the time, for 20 minutes. */
  const run = Effect.suspend(() =>
    Effect.forEach(Array.from({ length: 40 }), () =>
      Effect.gen(function*() {
        yield* move(30_000)
        yield* runAll
        if (!isPaused && nowMs >= heldUntilMs) looks.push(nowMs)
        if (next() < 0.3) yield* endSome
      }), { discard: true })
  )
  const steps: ReadonlyArray<() => Effect.Effect<unknown, unknown>> = [
    () => run,
    () => run,
    // An outage.
    () => move(Math.floor(next() * 3 * hour)),
    // The clock is set back, or forward.
    () => move(-Math.floor(next() * hour)),
    () => move(Math.floor(next() * 10 * 60_000)),
    () => endSome,
    // A scheduler dies between its claim and its decision.
    () =>
      Effect.andThen(
        driver.claim({ codes: isCode ? [schedule.code!] : [], limit: 10, holdMs: 5000 }),
        Effect.sync(() => {
          heldUntilMs = Math.max(heldUntilMs, nowMs + 5000)
        })
      ),
    () =>
      Effect.gen(function*() {
        if (isPaused) {
          yield* service.resume("model")
          resumed.push(nowMs)
        } else yield* service.pause("model")
        isPaused = !isPaused
      })
  ]
  for (let step = 0; step < 30; step++) {
    if (isPaused && next() < 0.5) {
      yield* service.resume("model")
      resumed.push(nowMs)
      isPaused = false
    }
    yield* pick(steps)()
    if (next() < 0.5) {
      yield* runAll
      if (!isPaused && nowMs >= heldUntilMs) looks.push(nowMs)
    }
  }
  if (isPaused) {
    yield* service.resume("model")
    resumed.push(nowMs)
  }
  yield* move(Math.max(0, heldUntilMs - nowMs))
  yield* runAll
  for (const id of running) {
    yield* opened.end(id)
    running.delete(id)
  }
  yield* runAll

  // -- what must hold --------------------------------------------------------------------------------

  const label = `seed ${seed}: ${JSON.stringify({ timing, overlap, catchUp, jitterMs })}`
  const info = Option.getOrThrow(yield* service.get("model"))
  assert.isUndefined(info.queued, `${label}: what waits has started`)
  const [{ firedUntilMs }] = (yield* driver.list({ name: "model", after: null, limit: 1 })).schedules as unknown as [
    { firedUntilMs: number }
  ]
  const occurrences = nextOf(Result.getOrThrow(occurrencesOf(timing)), createdMs, 2000).filter((at) =>
    at <= firedUntilMs
  )

  const final = new Map<number, Settled>()
  for (const one of settled) final.set(one.run.number, one)
  const starts = [...final.values()].filter(({ run }) => run.outcome === "Started").map(({ run }) => run.occurrenceMs)
  assert.strictEqual(new Set(starts).size, starts.length, `${label}: no occurrence starts twice`)
  for (const at of starts) assert.include(occurrences, at, `${label}: only occurrences start`)
  // One that was queued may start by a clock that was set back since.
  for (const { run } of final.values()) {
    const first = settled.find((other) => other.run.number === run.number)!
    if (run.outcome === "Started") assert.isAtLeast(first.atMs, run.occurrenceMs, `${label}: none starts early`)
  }

  const missed = [...final.values()].filter(({ run }) => run.outcome === "Missed")
  const one = new Map(
    [...final.values()].filter(({ run }) => run.outcome !== "Missed").map((settled) => [
      settled.run.occurrenceMs,
      settled
    ])
  )
  for (const at of occurrences) {
    const by = missed.filter(({ run }) => run.missedSinceMs! <= at && at <= run.occurrenceMs)
    const isSettled = one.has(at)
    assert.isAtMost(by.length + Number(isSettled), 1, `${label}: ${new Date(at).toISOString()} is settled once`)
    if (isSettled) continue
    if (by.length === 0) {
      assert.isTrue(resumed.some((time) => at <= time), `${label}: ${new Date(at).toISOString()} is settled`)
      continue
    }
    const { atMs, looks: before } = by[0]!
    assert.isAbove(atMs - at, 60_000, `${label}: only what is late is missed`)
    assert.isFalse(
      looks.slice(0, before).some((look) => look >= at + jitterMs && look - at <= 60_000),
      `${label}: ${new Date(at).toISOString()} is not missed when a scheduler looks in time`
    )
    if (withinMs > 0) assert.isAbove(atMs - at, withinMs, `${label}: what is within the window is not missed`)
    if (catchUp === "last") {
      assert.isTrue(
        occurrences.some((later) => later > at && one.get(later) !== undefined),
        `${label}: the last one that is late is not missed`
      )
    }
  }
  return starts.length
})
