/**
 * Values and calls that the cases share.
 */
import { Admin, Provider } from "duroxide-prisma/provider"
import type { Event, WorkItem } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { randomBytes } from "node:crypto"
import type { ProviderError } from "../../../src/provider/ProviderError.ts"
import * as Starts from "../../utils/starts.ts"

export type Services = {
  readonly provider: Provider.Provider["Service"]
  readonly admin: Admin.Admin["Service"]
}
export type Call = (services: Services) => Effect.Effect<unknown, ProviderError>

export const texts = { "NUL": "a\0b", "a lone high surrogate": "a\ud800b", "a lone low surrogate": "\udc00" }
export const tooLong = { "2,049 bytes": `${"\u00e9".repeat(1024)}x`, "10,000 bytes": "x".repeat(10_000) }
export const noKeys = { "2,561 bytes": `${"\u00e9".repeat(1280)}x` }
export const noIds = { "a fraction": 1.5, "NaN": NaN, "Infinity": Infinity, "2^53": 2 ** 53, "a negative number": -1 }
export const noDelays = {
  "negative": Duration.millis(-1),
  "endless": Duration.infinity,
  "beyond the year 9999": Duration.millis(2 ** 53)
}
export const noLeases = { ...noDelays, "of no length": Duration.zero }

export const most32 = { major: 2 ** 31 - 1, minor: 2 ** 31 - 1, patch: 2 ** 31 - 1 }

/** A text of that many bytes that does not compress. */
export const randomText = (bytes: number) => randomBytes(bytes).toString("base64url").slice(0, bytes)

export const second = Duration.seconds(1)
export const delay = Option.none<Duration.Duration>()
export const versions = Option.none()
export const session = Option.none()
export const tags = { _tag: "Any" } as const
export const zero = { major: 0, minor: 0, patch: 0 }
export const cancel = (instance: string, reason = "") => ({ _tag: "CancelInstance", instance, reason }) as const
export const activity = (changes: Partial<WorkItem.Of<"ActivityExecute">>) =>
  ({ _tag: "ActivityExecute", instance: "a", executionId: 1, id: 2, name: "A", input: "1", ...changes }) as const
export const start = (changes: Partial<WorkItem.Of<"StartOrchestration">>) => ({
  start: Starts.message("a", changes),
  pinnedVersion: zero,
  delay
})
export const envelope = {
  eventId: 1,
  sourceEventId: null,
  instanceId: "a",
  executionId: 1,
  timestampMs: 0,
  duroxideVersion: ""
}
export const event = (changes: Partial<Event.Event>) => ({
  _tag: "OrchestrationCompleted",
  eventId: 1,
  sourceEventId: null,
  instanceId: "a",
  executionId: 1,
  timestampMs: 0,
  duroxideVersion: "0.0.0",
  output: "1",
  ...changes
} as Event.Event)
export const turn = (changes: Partial<Provider.Turn>): Provider.Turn => ({
  executionId: 1,
  historyDelta: [],
  workerItems: [],
  orchestratorItems: [],
  metadata: {},
  cancelledActivities: [],
  ...changes
})
export const ack = (changes: Partial<Provider.Turn>): Call => ({ provider }) =>
  provider.ackOrchestrationItem("t", turn(changes))

/** `method parameter`: the values, and the call. */
export const each = <A>(
  what: string,
  values: Readonly<Record<string, A>>,
  call: (value: A) => Call
): ReadonlyArray<[string, Call]> => Object.entries(values).map(([name, value]) => [`${what}: ${name}`, call(value)])
