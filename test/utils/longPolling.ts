/**
 * Processes in virtual time that share a store and wake each other.
 */
import { FromDriver, MemoryDriver, Notifier } from "duroxide-prisma/provider"
import type { Provider, ProviderDriver } from "duroxide-prisma/provider"
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Option from "effect/Option"
import * as TestClock from "effect/testing/TestClock"
import * as LocalProcess from "./localProcess.ts"
import * as Starts from "./starts.ts"

type Service = Provider.Provider["Service"]

export type Driver = ProviderDriver.ProviderDriver["Service"]

/** A store, and the statements sent to it since they were last taken. */
export const storeOf = (driver: Driver = MemoryDriver.make()) => {
  const statements: Array<string> = []
  return {
    driver: LocalProcess.intercept(driver, (call, operation) => {
      statements.push(operation)
      return call
    }),
    /** Not counted. */
    directly: driver,
    statements: () => statements.splice(0),
    /** Claims of either queue. */
    looks: () => statements.splice(0).filter((operation) => operation.startsWith("fetch"))
  }
}

/** A driver whose statements that store starts, messages and activities take that long to answer. */
export const storingSlowly = (driver: Driver, duration: Duration.Input): Driver =>
  LocalProcess.intercept(
    driver,
    (call, operation) => /^(start|enqueue)/.test(operation) ? Effect.tap(call, Effect.sleep(duration)) : call
  )

/** One hub for all processes of a test. */
export const hub = () => {
  const shared = Notifier.makeInProcess()
  const heard: Array<Notifier.Hint> = []
  return {
    connect: (sender: string): Notifier.Notifier["Service"] => shared.connect(sender),
    /** What all processes announce, as another one hears it. */
    heard,
    listen: shared.connect("listener").listen({
      connected: () => {},
      disconnected: () => {},
      receive: ({ hint }) => void heard.push(hint)
    })
  }
}

export const open = (
  driver: Driver,
  notifier: Notifier.Notifier["Service"] | undefined,
  longPolling: FromDriver.LongPolling = {}
) => {
  const provider = FromDriver.make(driver, { longPolling: { maxWaitTime: "1000 days", ...longPolling } })
  return notifier === undefined ? provider : Effect.provideService(provider, Notifier.Notifier, notifier)
}

/** A notifier that a test holds in its hand. */
export const manual = () => {
  let listener: Notifier.Listener | undefined
  const sent: Array<Notifier.Hint> = []
  const state = { fails: false }
  return {
    state,
    sent,
    listener: () => listener!,
    notifier: Notifier.Notifier.of({
      name: "manual",
      listen: (listening) => Effect.sync(() => void (listener = listening)),
      announce: (hints) =>
        Effect.suspend(() => {
          if (state.fails) return Effect.fail(new Notifier.NotifierError({ problem: "the hub is down" }))
          sent.push(...hints)
          return Effect.void
        })
    })
  }
}

const forever = Duration.days(900)

export const lockTimeout = Duration.seconds(30)

export const fetchInstance = (provider: Service, pollTimeout = forever) =>
  Effect.map(
    provider.fetchOrchestrationItem({ lockTimeout, pollTimeout, versions: Option.none() }),
    Option.getOrUndefined
  )

export const fetchActivity = (provider: Service, pollTimeout = forever) =>
  Effect.map(
    provider.fetchWorkItems({ lockTimeout, pollTimeout, tags: { _tag: "DefaultOnly" }, session: Option.none() }),
    ([claimed]) => claimed
  )

const tick = Effect.promise(() => new Promise<void>((resolve) => void setImmediate(resolve)))

/** Lets everything happen that can happen at this time. */
export const settle = Effect.repeat(tick, { times: 20 })

/** Lets time pass, and everything happen that can happen then. */
export const pass = (duration: Duration.Input) =>
  Effect.andThen(settle, Effect.andThen(TestClock.adjust(duration), settle))

/** Forks callers that wait, and lets them look. */
export const waiting = <A, E, R>(count: number, fetch: Effect.Effect<A, E, R>) =>
  Effect.tap(
    Effect.forEach(Array.from({ length: count }), () => Effect.forkChild(fetch)),
    () => settle
  )

/** Results of the fibers that have ended. */
export const ended = <A, E>(fibers: ReadonlyArray<Fiber.Fiber<A, E>>) =>
  Effect.forEach(fibers.filter((fiber) => fiber.pollUnsafe() !== undefined), Fiber.join)

export const activity = (id: number) =>
  ({ _tag: "ActivityExecute", instance: "a", executionId: 1, id, name: "A", input: "1" }) as const

export const message = (instance: string, delay?: Duration.Duration) => ({
  message: Starts.message(instance),
  delay: Option.fromUndefinedOr(delay)
})

/** A start as another program stores it. */
export const row = (instanceId: string, visibleAtMs: number | null = null) => ({
  instanceId,
  workItem: JSON.stringify({
    StartOrchestration: {
      instance: instanceId,
      orchestration: "O",
      input: "1",
      version: null,
      parent_instance: null,
      parent_id: null,
      execution_id: 1
    }
  }),
  visibleAtMs,
  delayMs: null
})

/** Two processes that share a store: one serves, the other one only sends. */
export const pair = Effect.gen(function*() {
  const store = storeOf()
  const { connect, heard, listen } = hub()
  yield* listen
  const worker = yield* open(store.driver, connect("worker"))
  const sender = yield* open(store.driver, connect("sender"))
  // They have greeted each other.
  yield* pass("1 second")
  return { connect, heard, sender, store, worker }
})

/** What a wait came back with, and after how many milliseconds. */
export const timed = <A, E, R>(wait: Effect.Effect<A, E, R>) =>
  Effect.flatMap(
    Clock.currentTimeMillis,
    (begunMs) => Effect.zip(wait, Effect.map(Clock.currentTimeMillis, (nowMs) => nowMs - begunMs))
  )

export const attempts = <E, R>(fetch: Effect.Effect<{ readonly attemptCount: number } | undefined, E, R>) =>
  Effect.map(fetch, (claimed) => claimed?.attemptCount)
