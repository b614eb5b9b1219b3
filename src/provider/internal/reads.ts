/**
 * The operations that read what is stored, the one that adds events outside a turn, and the sweeps.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import type { InstanceState } from "../../model/Instance.ts"
import type { Provider } from "../Provider.ts"
import type { ProviderDriver } from "../ProviderDriver.ts"
import type { ProviderError } from "../ProviderError.ts"
import { shared } from "../shared/statement.ts"
import type { Sharing } from "../shared/statement.ts"
import * as check from "./check.ts"
import { checked } from "./check.ts"
import { carriedMessages, decodeHistory, encodeEvent } from "./encoding.ts"

type Service = Provider["Service"]
type Driver = ProviderDriver["Service"]

export const make = Effect.fnUntraced(function*(driver: Driver, options: Sharing) {
  const sendRead = yield* readsOfInstances(driver, options)
  return {
    read: read(driver),
    readWithExecution: readWithExecution(driver),
    appendWithExecution: appendWithExecution(driver),
    readInstance: readInstance(sendRead),
    getCustomStatus: getCustomStatus(sendRead),
    getKvValue: getKvValue(driver),
    getKvAllValues: getKvAllValues(driver),
    getInstanceStats: getInstanceStats(driver),
    readBacklog: driver.readBacklog({ limit: backlogLimit }),
    sweepMessages: sweepMessages(driver)
  }
})

// -- histories -------------------------------------------------------------------------------------

const read = (driver: Driver): Service["read"] => (instanceId) =>
  checked("read", [check.text("instanceId", instanceId)], () =>
    Effect.flatMap(
      driver.readHistory({ instanceId, executionId: null }),
      (rows) => decodeHistory(instanceId, rows)
    ))

export const readWithExecution =
  (driver: Pick<Driver, "readHistory">): Service["readWithExecution"] => (instanceId, executionId) =>
    checked(
      "readWithExecution",
      [check.text("instanceId", instanceId), check.whole("executionId", executionId)],
      () =>
        Effect.flatMap(
          driver.readHistory({ instanceId, executionId }),
          (rows) => decodeHistory(instanceId, rows)
        )
    )

const appendWithExecution = (driver: Driver): Service["appendWithExecution"] => (instanceId, executionId, events) =>
  checked(
    "appendWithExecution",
    [
      check.id("instanceId", instanceId),
      check.whole("executionId", executionId),
      ...events.map(({ eventId }) => check.whole("eventId", eventId, 1))
    ],
    () =>
      events.length === 0
        ? Effect.void
        : driver.appendHistory({ instanceId, executionId, history: events.map(encodeEvent) })
  )

// -- instances -------------------------------------------------------------------------------------

type ReadInstance = (instanceId: string) => Effect.Effect<Option.Option<InstanceState>, ProviderError>

/** Clients that wait for ends ask again and again: each statement answers all of them. */
const readsOfInstances = (driver: Driver, options: Sharing): Effect.Effect<ReadInstance, never, Scope.Scope> =>
  shared(
    "readInstance",
    (instanceIds: ReadonlyArray<string>) =>
      Effect.map(driver.readInstances([...new Set(instanceIds)]), (states) => {
        const byId = new Map(states.map((state) => [state.instanceId, state]))
        return instanceIds.map((instanceId) => Option.fromUndefinedOr(byId.get(instanceId)))
      }),
    options
  )

const readInstance = (send: ReadInstance): Service["readInstance"] => (instanceId) =>
  checked("readInstance", [check.text("instanceId", instanceId)], () => send(instanceId))

const getCustomStatus = (send: ReadInstance): Service["getCustomStatus"] => (instanceId, lastSeenVersion) =>
  checked(
    "getCustomStatus",
    [
      check.text("instanceId", instanceId),
      check.whole("lastSeenVersion", lastSeenVersion, Number.MIN_SAFE_INTEGER)
    ],
    () =>
      Effect.map(
        send(instanceId),
        Option.flatMap(({ customStatus, customStatusVersion }) =>
          customStatusVersion > lastSeenVersion
            ? Option.some({ status: Option.fromNullOr(customStatus), version: customStatusVersion })
            : Option.none()
        )
      )
  )

const getInstanceStats = (driver: Driver): Service["getInstanceStats"] => (instanceId) =>
  checked("getInstanceStats", [check.text("instanceId", instanceId)], () =>
    Effect.map(
      driver.readInstanceStats(instanceId),
      (sizes) =>
        Option.map(Option.fromNullOr(sizes), (sizes) => ({
          historyEventCount: sizes.eventCount,
          historySizeBytes: sizes.historyBytes,
          queuePendingCount: carriedMessages(sizes.firstEvent),
          kvUserKeyCount: sizes.keyCount,
          kvTotalValueBytes: sizes.valueBytes
        }))
    ))

/** Whether an execution of Duroxide in Rust is the current one of the instance. */
export const isOfRust =
  ({ readProgress }: Pick<Driver, "readProgress">) => (instanceId: string): Effect.Effect<boolean, ProviderError> =>
    Effect.map(
      readProgress([{ instanceId, key: null, executionId: 0, lastEventId: 0 }]),
      ([progress]) => progress?.isOfRust ?? false
    )

// -- key-values ------------------------------------------------------------------------------------

const getKvValue = (driver: Driver): Service["getKvValue"] => (instanceId, key) =>
  checked("getKvValue", [check.text("instanceId", instanceId), check.text("key", key)], () =>
    Effect.map(
      driver.readKeyValues({ instanceId, key }),
      ([entry]) => Option.map(Option.fromUndefinedOr(entry), ({ value }) => value)
    ))

const getKvAllValues = (driver: Driver): Service["getKvAllValues"] => (instanceId) =>
  checked("getKvAllValues", [check.text("instanceId", instanceId)], () =>
    Effect.map(
      driver.readKeyValues({ instanceId, key: null }),
      (entries) => new Map(entries.map(({ key, value }) => [key, value]))
    ))

// -- backlog ---------------------------------------------------------------------------------------

/** Items that are counted per definition: more of them cost more, and mean the same. */
const backlogLimit = 10_000

// -- sweep -----------------------------------------------------------------------------------------

const sweepMessages = (driver: Driver): Service["sweepMessages"] => ({ maxAge }) =>
  checked("sweepMessages", [check.length("maxAge", maxAge, 0)], () =>
    Effect.gen(function*() {
      const maxAgeMs = check.wholeMillis(maxAge)
      let total = 0
      let after: string | null = null
      do {
        const { deleted, next }: Effect.Success<ReturnType<Driver["sweepMessages"]>> = yield* driver
          .sweepMessages({ maxAgeMs, limit: sweepLimit, after })
        total += deleted
        after = next
      } while (after !== null)
      return total
    }))

/** Rows of one statement of a sweep. */
const sweepLimit = 1_000
