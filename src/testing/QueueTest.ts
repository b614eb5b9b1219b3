/**
 * The conformance suite of queues: the rules of `Queue`, as tests that run on any server.
 *
 * @since 0.2.0
 */
import { describe, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as TestClock from "effect/testing/TestClock"
import type { Queue } from "../queue/Queue.ts"
import { badInput } from "./QueueTest/badInput.ts"
import { deadLetters } from "./QueueTest/deadLetters.ts"
import { delivery } from "./QueueTest/delivery.ts"
import { Settings } from "./QueueTest/harness.ts"
import type { Services } from "./QueueTest/harness.ts"
import { settling } from "./QueueTest/settling.ts"

export {
  /**
   * The queues that the layer must declare: `work`, `other`, and `fragile`, whose messages are delivered three times at
   * most.
   *
   * @category models
   * @since 0.2.0
   */
  queues
} from "./QueueTest/harness.ts"

/**
 * Options of the suite. `layer` is required.
 *
 * @category models
 * @since 0.2.0
 */
export interface Options {
  /** Built once per test; must give empty `queues` each time. */
  readonly layer: Layer.Layer<Queue, unknown>
  /**
   * How time passes: `virtual` moves the `TestClock`, for queues that take the time from Effect's `Clock`; `real`
   * sleeps. Defaults to `real`.
   */
  readonly time?: "virtual" | "real" | undefined
  /** The visibility timeout that tests wait for. Defaults to 1 second. */
  readonly timeout?: Duration.Input | undefined
  /** Messages of the test that none is lost. Defaults to 10,000. */
  readonly messages?: number | undefined
}

/**
 * Registers the suite with Vitest. `name` heads the results.
 *
 * @category running
 * @since 0.2.0
 */
export const suite = (name: string, options: Options): void => {
  const isVirtual = options.time === "virtual"
  const settings = Settings.of({
    pause: isVirtual ? TestClock.adjust : Effect.sleep,
    timeout: Duration.fromInputUnsafe(options.timeout ?? "1 second"),
    messages: options.messages ?? 10_000
  })
  const onFreshQueues = <A, E>(effect: Effect.Effect<A, E, Services>) =>
    effect.pipe(
      Effect.provide(Layer.mergeAll(Layer.fresh(options.layer), Layer.succeed(Settings, settings)), { local: true }),
      Effect.provide(Logger.layer([]))
    )
  // oxlint-disable-next-line vitest/valid-title -- the caller brings the name
  describe(name, () => {
    for (const topic of topics) {
      // oxlint-disable-next-line vitest/valid-title -- so do topics
      describe(topic.name, { concurrent: !isVirtual }, () => {
        for (const [test, effect] of Object.entries(topic.tests)) {
          if (isVirtual) {
            it.effect(test, () => Effect.andThen(TestClock.setTime(1_800_000_000_000), onFreshQueues(effect)))
          } else it.live(test, () => onFreshQueues(effect), 60_000)
        }
      })
    }
  })
}

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const topics = [delivery, settling, deadLetters, badInput]
