/**
 * What a test of the suite needs besides a provider, and topics of tests.
 */
import * as Context from "effect/Context"
import type * as Duration from "effect/Duration"
import type * as Effect from "effect/Effect"
import type { Admin } from "../../../provider/Admin.ts"
import type { Provider } from "../../../provider/Provider.ts"

/**
 * Changes that tests make to a store without its provider. Each driver has its own.
 *
 * @category services
 * @since 0.1.0
 */
export class Backdoor extends Context.Service<Backdoor, {
  /** Overwrites the text of every event of the instance. */
  readonly corruptInstanceHistory: (instanceId: string, eventData: string) => Effect.Effect<void>
  /** Highest attempt count among the instance's messages, 0 when it has none. */
  readonly getMaxAttemptCount: (instanceId: string) => Effect.Effect<number>
  /** Puts a message with this text, readable or not, into the orchestrator queue, visible now. */
  readonly insertMessage: (instanceId: string, workItem: string) => Effect.Effect<void>
  /** Puts an activity with this text, readable or not, into the worker queue, visible now. */
  readonly insertActivity: (workItem: string) => Effect.Effect<void>
}>()("duroxide-prisma/testing/ProviderTest/Backdoor") {}

/**
 * The settings of the suite, shared by all its tests.
 *
 * @category services
 * @since 0.1.0
 */
export class Settings extends Context.Service<Settings, {
  /** The lock timeout of tests that wait for a lock to expire. */
  readonly lockTimeout: Duration.Duration
  /** Whether a fetch waits up to its poll timeout or returns at once. */
  readonly polling: "short" | "long"
  readonly time: "virtual" | "real"
  /** Longest time an empty fetch may take when it does not wait. */
  readonly shortPollThreshold: Duration.Duration
  /** Whether the provider stores turns without a claim, where that is possible. */
  readonly optimisticTurns: boolean
  /** Runs an effect on another fresh provider. */
  readonly onFreshProvider: <A, E>(effect: Effect.Effect<A, E, Services>) => Effect.Effect<A, unknown>
}>()("duroxide-prisma/testing/ProviderTest/Settings") {}

/** The services of a test. */
export type Services = Provider | Admin | Backdoor | Settings

/** The tests of one topic, by name. */
export interface Topic {
  readonly name: string
  readonly tests: (settings: Pick<Settings["Service"], "polling">) => Readonly<Record<string, Test>>
}

export type Test = Effect.Effect<unknown, unknown, Services>

/** A topic whose tests are the same for every provider. */
export const topic = (name: string, tests: Readonly<Record<string, Test>>): Topic => ({ name, tests: () => tests })
