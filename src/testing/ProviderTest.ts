/**
 * The validation suite: the rules of the provider contract, as tests that run on any driver.
 *
 * One file per topic, one test per rule. The names are those of Duroxide's own suite, so that results can be compared.
 * Every test gets a store of its own. With virtual time the suite takes seconds; with real time, run its topics in
 * several files, because most tests wait for locks to expire.
 *
 * @since 0.1.0
 */
import { describe, it } from "@effect/vitest"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as TestClock from "effect/testing/TestClock"
import type { Admin } from "../provider/Admin.ts"
import type { Provider } from "../provider/Provider.ts"
import { Settings } from "./ProviderTest/harness.ts"
import type { Backdoor, Services, Topic } from "./ProviderTest/harness.ts"
import { topics } from "./ProviderTest/topics.ts"

export {
  /**
   * Changes that tests make to a store without its provider.
   *
   * @category services
   * @since 0.1.0
   */
  Backdoor
} from "./ProviderTest/harness.ts"

/**
 * Options of the suite.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /**
   * How time passes: `virtual` moves the `TestClock`, for stores that take the time from Effect's `Clock`; `real`
   * sleeps. Defaults to `real`.
   */
  readonly time?: "virtual" | "real" | undefined
  /** Whether an empty fetch waits for its poll timeout (`long`) or returns at once (`short`). Defaults to `short`. */
  readonly polling?: "short" | "long" | undefined
  /**
   * Length of locks that tests wait for to expire. At least 2 seconds in real time, because some tests must do their
   * work before a lock expires. Defaults to 2 seconds.
   */
  readonly lockTimeout?: Duration.Input | undefined
  /** Longest time an empty fetch may take without waiting. Defaults to 100 milliseconds. */
  readonly shortPollThreshold?: Duration.Input | undefined
  /**
   * Whether the driver has `advanceOrchestrations` and stores first turns with their starts. Without them the same
   * tests expect that results are queued, starts stored, and turns acked after a claim. Defaults to false.
   */
  readonly optimisticTurns?: boolean | undefined
  /** Only the topics with these names. Defaults to all. */
  readonly topics?: ReadonlyArray<TopicName> | undefined
}

/**
 * The name of a topic of the suite.
 *
 * @category models
 * @since 0.1.0
 */
export type TopicName = keyof typeof topics

/**
 * The names of all topics, in the suite's order.
 *
 * @category models
 * @since 0.1.0
 */
export const topicNames = Object.keys(topics) as ReadonlyArray<TopicName>

/**
 * Registers the suite with Vitest.
 *
 * **Details**
 *
 * `layer` is built once per test and must give an empty store each time. `name` heads the results.
 *
 * @category running
 * @since 0.1.0
 */
export const suite = (
  name: string,
  layer: Layer.Layer<Provider | Admin | Backdoor, unknown>,
  options: Options = {}
): void => {
  const time = options.time ?? "real"
  const settings = Settings.of({
    time,
    polling: options.polling ?? "short",
    lockTimeout: Duration.fromInputUnsafe(options.lockTimeout ?? "2 seconds"),
    shortPollThreshold: Duration.fromInputUnsafe(options.shortPollThreshold ?? "100 millis"),
    optimisticTurns: options.optimisticTurns ?? false,
    onFreshProvider: (effect) => onFreshProvider(effect)
  })
  const onFreshProvider = <A, E>(effect: Effect.Effect<A, E, Services>) =>
    effect.pipe(
      Effect.provide(Layer.mergeAll(Layer.fresh(layer), Layer.succeed(Settings, settings)), { local: true }),
      // Many tests provoke warnings.
      Effect.provide(Logger.layer([]))
    )
  const register = (topic: Topic) =>
    // oxlint-disable-next-line vitest/valid-title -- topics bring their names
    describe(topic.name, { concurrent: time === "real" }, () => {
      for (const [test, effect] of Object.entries(topic.tests(settings))) {
        // At zero, every absolute time in a test would be in the future.
        if (time === "virtual") {
          it.effect(test, () => Effect.andThen(TestClock.setTime(1_800_000_000_000), onFreshProvider(effect)))
        } else it.live(test, () => onFreshProvider(effect))
      }
    })
  // oxlint-disable-next-line vitest/valid-title -- so does the caller
  describe(name, () => {
    for (const topic of options.topics ?? topicNames) register(topics[topic])
  })
}
