/**
 * How long a fetch waits for work.
 */
import { assert } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import {
  claimInstance,
  elapse,
  enqueueActivity,
  enqueueStart,
  expectNoOrchestration,
  expectNoWork,
  fetchOrchestration,
  fetchWork,
  parallel,
  Settings,
  timed
} from "./harness.ts"
import type { Test, Topic } from "./harness.ts"

const pollTimeout = 500

/**
 * Asserts that a trial takes less than that many milliseconds, at the third try at the latest: a machine that others
 * use is late now and then, a provider that waits is late each time. Each trial has an instance of its own.
 */
const isBelow = <E, R>(boundMs: number, trial: (instanceId: string) => Effect.Effect<number, E, R>) =>
  Effect.gen(function*() {
    const taken: Array<number> = []
    while (taken.length < 3 && !(taken.at(-1)! < boundMs)) taken.push(yield* trial(`i-${taken.length}`))
    assert.isBelow(Math.min(...taken), boundMs)
  })

const isImmediate = <E, R>(fetch: Effect.Effect<unknown, E, R>) =>
  Effect.gen(function*() {
    const { shortPollThreshold } = yield* Settings
    // The first statement of a provider may open a connection.
    yield* fetchOrchestration()
    yield* fetchWork()
    const { millis } = yield* timed(fetch)
    assert.isBelow(millis, Duration.toMillis(shortPollThreshold))
  })

const waits = <E, R>(fetch: Effect.Effect<unknown, E, R>) =>
  Effect.map(timed(fetch), ({ millis }) => assert.isAtLeast(millis, pollTimeout))

const short: Readonly<Record<string, Test>> = {
  test_short_poll_returns_immediately: isImmediate(expectNoOrchestration({ pollTimeout })),
  test_short_poll_work_item_returns_immediately: isImmediate(expectNoWork({ pollTimeout }))
}

const long: Readonly<Record<string, Test>> = {
  test_long_poll_waits_for_timeout: waits(expectNoOrchestration({ pollTimeout })),
  test_long_poll_work_item_waits_for_timeout: waits(expectNoWork({ pollTimeout })),

  a_waiting_fetch_sees_new_work: isBelow(2000, (instanceId) =>
    Effect.gen(function*() {
      const [orchestration, work] = yield* parallel([
        timed(Effect.map(fetchOrchestration({ pollTimeout: "10 seconds" }), Option.isSome)),
        timed(Effect.map(fetchWork({ pollTimeout: "10 seconds" }), Option.isSome)),
        Effect.as(
          Effect.andThen(elapse(500), Effect.andThen(enqueueStart(instanceId), enqueueActivity(instanceId, 1))),
          { outcome: true, millis: 500 }
        )
      ])
      for (const fetched of [orchestration!, work!]) {
        assert.isTrue(fetched.outcome)
        assert.isAtLeast(fetched.millis, 500)
      }
      return Math.max(orchestration!.millis, work!.millis)
    }))
}

const both: Readonly<Record<string, Test>> = {
  test_fetch_respects_timeout_upper_bound: Effect.gen(function*() {
    const { shortPollThreshold } = yield* Settings
    yield* fetchOrchestration()
    yield* isBelow(
      300 + Math.max(200, Duration.toMillis(shortPollThreshold)),
      () => Effect.map(timed(expectNoOrchestration({ pollTimeout: 300 })), ({ millis }) => millis)
    )
  }),

  work_that_is_there_is_not_waited_for: Effect.gen(function*() {
    yield* fetchOrchestration()
    yield* isBelow(2000, (instanceId) =>
      Effect.gen(function*() {
        yield* enqueueStart(instanceId)
        return (yield* timed(claimInstance(instanceId, { pollTimeout: "5 seconds" }))).millis
      }))
  })
}

export const longPolling: Topic = {
  name: "long_polling",
  tests: ({ polling }) => ({ ...(polling === "short" ? short : long), ...both })
}
