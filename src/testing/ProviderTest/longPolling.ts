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

  a_waiting_fetch_sees_new_work: Effect.gen(function*() {
    const [orchestration, work] = yield* parallel([
      timed(Effect.map(fetchOrchestration({ pollTimeout: "10 seconds" }), Option.isSome)),
      timed(Effect.map(fetchWork({ pollTimeout: "10 seconds" }), Option.isSome)),
      Effect.as(
        Effect.andThen(elapse(500), Effect.andThen(enqueueStart("i"), enqueueActivity("i", 1))),
        { outcome: true, millis: 500 }
      )
    ])
    for (const fetched of [orchestration!, work!]) {
      assert.isTrue(fetched.outcome)
      assert.isAtLeast(fetched.millis, 500)
      assert.isBelow(fetched.millis, 5000)
    }
  })
}

const both: Readonly<Record<string, Test>> = {
  test_fetch_respects_timeout_upper_bound: Effect.gen(function*() {
    const { shortPollThreshold } = yield* Settings
    yield* fetchOrchestration()
    const { millis } = yield* timed(expectNoOrchestration({ pollTimeout: 300 }))
    // A machine that others use is late; a wait that does not end is found anyway.
    assert.isBelow(millis, 5_000 + Duration.toMillis(shortPollThreshold))
  }),

  work_that_is_there_is_not_waited_for: Effect.gen(function*() {
    yield* fetchOrchestration()
    yield* enqueueStart("i")
    const { millis } = yield* timed(claimInstance("i", { pollTimeout: "5 seconds" }))
    assert.isBelow(millis, 4500)
  })
}

export const longPolling: Topic = {
  name: "long_polling",
  tests: ({ polling }) => ({ ...(polling === "short" ? short : long), ...both })
}
