/**
 * Providers of several simulated processes that share a store in memory, and notify each other.
 */
import { FromDriver, MemoryDriver, Notifier } from "duroxide-prisma/provider"
import type { Provider, ProviderDriver } from "duroxide-prisma/provider"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "./localProcess.ts"

type Driver = ProviderDriver.ProviderDriver["Service"]
type Service = Provider.Provider["Service"]

export interface Process {
  readonly provider: Service
  /** Names of the driver's calls, as they were made. */
  readonly calls: Array<string>
  /** What it has announced, and what of it was dropped. */
  readonly announced: Array<Notifier.Hint>
}

export interface Options {
  /** Without it, the process has no notifier. Defaults to true. */
  readonly isNotified?: boolean
  /** Hints of this process that reach no other one. Defaults to none. */
  readonly drops?: (hint: Notifier.Hint) => boolean
  /** In place of the one that the processes share. */
  readonly notifier?: Notifier.Notifier["Service"]
  /** Changes the driver of this process. */
  readonly change?: (driver: Driver) => Partial<Driver>
}

/** A store, and the processes on it: each lives as long as its scope. */
export const make = () => {
  const driver = MemoryDriver.make()
  const bus = Notifier.makeInProcess()
  let count = 0
  const process = (
    { change = () => ({}), drops = () => false, isNotified = true, notifier: given }: Options = {}
  ): Effect.Effect<Process, never, Scope.Scope> =>
    Effect.gen(function*() {
      const calls: Array<string> = []
      const announced: Array<Notifier.Hint> = []
      const counting = LocalProcess.intercept({ ...driver, ...change(driver) }, (call, operation) => {
        calls.push(operation)
        return call
      })
      const connection = given ?? bus.connect(`process ${++count}`)
      const notifier = Notifier.Notifier.of({
        ...connection,
        announce: (hints) =>
          Effect.suspend(() => {
            announced.push(...hints)
            return connection.announce(hints.filter((hint) => !drops(hint)))
          })
      })
      const provider = FromDriver.make(counting)
      return {
        calls,
        announced,
        provider: yield* isNotified ? Effect.provideService(provider, Notifier.Notifier, notifier) : provider
      }
    })
  return { driver, process }
}

/** Lets time pass in small steps, as it does. */
export const pass = (ms: number, stepMs = 10) =>
  Effect.gen(function*() {
    for (let passed = 0; passed < ms; passed += stepMs) yield* TestClock.adjust(stepMs)
  })

/** Takes the only instance that can be claimed, and stores a turn of it. */
export const run = (provider: Service, turnOf: (item: Provider.OrchestrationItem) => Provider.Turn) =>
  Effect.gen(function*() {
    const claimed = Option.getOrThrow(
      yield* provider.fetchOrchestrationItem({
        lockTimeout: Duration.seconds(30),
        pollTimeout: Duration.zero,
        versions: Option.none()
      })
    )
    yield* provider.ackOrchestrationItem(claimed.lockToken, turnOf(claimed.item))
  })

/** A turn that stores these events, after the stored ones, and no more. */
export const turn = (
  { executionId, history, instanceId }: Provider.OrchestrationItem,
  events: ReadonlyArray<Record<string, unknown> & { readonly _tag: string }>,
  changes: Partial<Provider.Turn> = {}
): Provider.Turn => ({
  executionId,
  historyDelta: events.map((event, i) => ({
    instanceId,
    executionId,
    eventId: history.length + 1 + i,
    sourceEventId: null,
    timestampMs: 0,
    duroxideVersion: "1000.0.0",
    ...event
  })) as unknown as Provider.Turn["historyDelta"],
  workerItems: [],
  orchestratorItems: [],
  cancelledActivities: [],
  ...changes,
  metadata: { orchestrationName: "O", orchestrationVersion: "1.0.0", ...changes.metadata }
})

/** The turn that ends an instance. */
export const completion = (item: Provider.OrchestrationItem): Provider.Turn =>
  turn(item, [{ _tag: "OrchestrationCompleted", output: "1" }], { metadata: { status: "Completed", output: "1" } })
