/**
 * A whole application in memory and in virtual time: thirty days of an orchestration take milliseconds.
 *
 * The runtime is the real one, with the application's own programs and handlers. The store is a map, and the clock
 * moves only when a test waits for something or moves it. Time then moves from one due moment to the next, and only
 * when everything that can happen at the present moment has happened. So every run of a test is the same.
 *
 * @since 0.1.0
 */
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as DateTime from "effect/DateTime"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as Client from "../Client.ts"
import type * as Event from "../model/Event.ts"
import { idOf } from "../model/shared/definitions.ts"
import { InBackground } from "../model/shared/inBackground.ts"
import { Rest } from "../model/shared/rest.ts"
import type * as WorkItem from "../model/WorkItem.ts"
import * as Admin from "../provider/Admin.ts"
import * as FromDriver from "../provider/FromDriver.ts"
import * as memory from "../provider/memory/driver.ts"
import * as tables from "../provider/memory/tables.ts"
import { PayloadCodec } from "../provider/PayloadCodec.ts"
import * as Provider from "../provider/Provider.ts"
import { ProviderDriver } from "../provider/ProviderDriver.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { openingProgress } from "../provider/shared/openingProgress.ts"
import * as sealing from "../provider/shared/sealing.ts"
import { Retention } from "../Retention.ts"
import { SweepInterval } from "../runtime/messageSweep.ts"
import { keepsAll } from "../runtime/retentionPolicy.ts"
import { UnsetOnMismatch } from "../runtime/settings.ts"
import { MostAhead } from "../runtime/workerDispatcher.ts"
import * as RuntimeConfig from "../RuntimeConfig.ts"
import { Notifier } from "../waking/Notifier.ts"
import { readExecutions } from "./internal/executions.ts"
import * as mortalProvider from "./internal/mortalProvider.ts"
import * as neighbours from "./internal/neighbour.ts"
import { TestProcess } from "./internal/testProcess.ts"
import * as untils from "./internal/untilDone.ts"
import * as virtualTime from "./internal/virtualTime.ts"

/**
 * Options of the simulated runtime.
 *
 * @category models
 * @since 0.1.0
 */
export interface Options {
  /** Time of the clock at the start. Defaults to 2030-01-01T00:00:00Z. */
  readonly startAt?: DateTime.DateTime.Input | undefined
  /**
   * How long to wait, in real time, for work that the clock cannot bring about: an activity that neither ends nor
   * sleeps, or, when nothing is due, another fiber of the test. After that the test dies of `Stuck`. Defaults to 2
   * seconds.
   */
  readonly patience?: Duration.Input | undefined
}

/**
 * Time cannot move, or the test waits for something that will never happen; the message says why. A defect.
 *
 * @category errors
 * @since 0.1.0
 */
export class Stuck extends Schema.TaggedError<Stuck>("duroxide-prisma/testing/Stuck")("Stuck", {
  problem: Schema.String
}) {
  override get message() {
    return this.problem
  }
}

/** The services that a test runtime provides to the layer it runs. */
type Provided = Provider.Provider | Admin.Admin | Client.Client

/**
 * The time and the process of a test. Its methods are this module's functions of the same names.
 *
 * @category services
 * @since 0.1.0
 */
export class TestRuntime extends Context.Service<TestRuntime, {
  readonly settle: Effect.Effect<void>
  readonly advance: (duration: Duration.Input) => Effect.Effect<void>
  readonly runToEnd: (
    instanceId: string,
    options?: Client.WaitOptions
  ) => Effect.Effect<Client.Status, Client.WaitTimeout | ProviderError>
  readonly history: (instanceId: string) => Effect.Effect<ReadonlyArray<Event.Event>, ProviderError>
  readonly restart: Effect.Effect<void>
  readonly crash: Effect.Effect<void>
  readonly deploy: <A, E, R>(runtime: Layer.Layer<A, E, R>) => Effect.Effect<void, E, Exclude<R, Provided>>
}>()("duroxide-prisma/testing/TestRuntime") {}

/**
 * Runs `runtime`, the application's `Runtime.layer` with its handlers, on an empty store and in virtual time.
 *
 * **Details**
 *
 * Provides the services of `runtime`, a `Client`, the `Provider` and the `Admin` of the store, and the clock. The clock
 * replaces the one of `it.effect`, so `TestClock.adjust` moves it, too. Every test gets a store of its own. With a
 * `PayloadCodec` in the context of the layer, that store has sealed payloads, and `history` and `Admin` show them so.
 *
 * `wait` and `execute` of the client let time pass until the instance has ended, `waitForStatus`, `waitForValue` and
 * `request` until the status, the value or the answer is there. Its other methods begin and end at rest: everything
 * that can happen without time passing has happened when they return.
 *
 * Every turn is replayed (`verifyReplay`), and an instance whose code does not fit fails (`onMismatch`), so a program
 * that is not deterministic fails its test. A process that ends abandons
 * its work at once (`shutdownTimeout` of 1 millisecond). A `RuntimeConfig` in `runtime` overrides these settings.
 *
 * **Gotchas**
 *
 * Time passes while any fiber of the test waits, also one in the background. Send all messages first, then wait.
 *
 * For a handler that never answers use `Effect.sleep(Duration.infinity)`, not `Effect.never`: time waits for every
 * activity that neither ends nor sleeps, because it may be about to answer.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = <A, E, R>(
  runtime: Layer.Layer<A, E, R>,
  options: Options = {}
): Layer.Layer<A | Provided | TestRuntime, E, Exclude<R, Provided>> =>
  Layer.effectContext(Effect.gen(function*() {
    const patienceMs = Duration.toMillis(Duration.fromInputUnsafe(options.patience ?? "2 seconds"))
    const startMs = DateTime.toEpochMillis(DateTime.makeUnsafe(options.startAt ?? "2030-01-01T00:00:00Z"))
    const scope = yield* Effect.scope
    const outer = yield* Effect.context<Exclude<R, Provided>>()
    // By lock token.
    const claimed = new Map<string, WorkItem.Of<"ActivityExecute">>()
    const time = yield* virtualTime.make({ startMs, ready: Effect.suspend(() => handlersReady) })
    // Of other parts of the process.
    const stores: TestProcess["stores"] = new Map()
    const handlers: TestProcess["handlers"] = new Map()
    const unserved: TestProcess["unserved"] = new Set()

    // -- the store -------------------------------------------------------------------------------

    const store = tables.make()
    const neighbour = neighbours.make()
    const drivers = yield* Layer.buildWithScope(memory.layer(store), scope)
    const services = yield* Layer.buildWithScope(
      FromDriver.layerAdmin.pipe(
        Layer.provideMerge(Client.layer),
        Layer.provideMerge(Layer.effect(Provider.Provider, Effect.flatMap(ProviderDriver, makeProvider))),
        Layer.provide(Layer.succeed(Notifier, neighbour.notifier)),
        Layer.provide(Layer.succeedContext(neighbours.announcing(drivers, neighbour)))
      ),
      scope
    ).pipe(Effect.provideContext(time.context))
    const provider = Context.get(services, Provider.Provider)
    const admin = Context.get(services, Admin.Admin)

    // -- the process -----------------------------------------------------------------------------

    let current: Generation | undefined
    const onActivity = ({ item, lockToken }: Provider.Claimed<WorkItem.Of<"ActivityExecute">>) =>
      void claimed.set(lockToken, item)

    const start = <A, E, R>(runtime: Layer.Layer<A, E, R>, context: Context.Context<Exclude<R, Provided>>) =>
      Effect.gen(function*() {
        const generation = { store: mortalProvider.make(provider, onActivity), scope: yield* Scope.make() }
        const built = yield* Layer.buildWithMemoMap(
          // Shares no memoized layers, because a process starts with an empty memory.
          runtime.pipe(Layer.provide(quietConfig)),
          Layer.makeMemoMapUnsafe(),
          generation.scope
        ).pipe(
          Effect.provideContext(
            Context.merge(outer, context).pipe(
              Context.merge(services),
              Context.add(Provider.Provider, generation.store.provider),
              Context.add(InBackground, true),
              Context.add(SweepInterval, Duration.infinity),
              // Each look would be a step of virtual time.
              Context.add(Retention, keepsAll),
              Context.add(UnsetOnMismatch, "fail" as const),
              Context.add(MostAhead, 0),
              Context.add(TestProcess, {
                stores,
                handlers,
                unserved,
                isDead: generation.store.isDead,
                rest: time.rest,
                until: (isDone, problem) => Effect.asVoid(untilDone({ isDone, problem: Effect.sync(problem) }))
              }),
              Context.merge(time.context)
            ) as Context.Context<R>
          ),
          Effect.onError((cause) => Scope.close(generation.scope, Exit.failCause(cause)))
        )
        current = generation
        yield* time.rest
        return built
      })

    /** Ends the process. Time passes meanwhile, because a shutdown may take some. */
    const stop = Effect.gen(function*() {
      if (current === undefined) return
      // A process that ends does not wait for activities that do not.
      claimed.clear()
      handlers.clear()
      unserved.clear()
      const closing = yield* Effect.forkChild(Scope.close(current.scope, Exit.void))
      current = undefined
      const isDone = () => closing.pollUnsafe() !== undefined
      while ((yield* time.step({ limitMs: Infinity, isDone, includeBackground: true })) === "Moved");
      yield* Fiber.await(closing)
    }).pipe(Effect.provideContext(time.context))

    const replace = <A, E, R>(runtime: Layer.Layer<A, E, R>, context: Context.Context<Exclude<R, Provided>>) =>
      Effect.uninterruptible(stop.pipe(
        Effect.andThen(start(runtime, context)),
        Effect.andThen(neighbours.announceLeftovers(neighbour, store, time.rest))
      ))

    // -- waiting ---------------------------------------------------------------------------------

    const history = (instanceId: string) => Effect.map(readExecutions(admin, instanceId), (all) => all.flat())

    const { awaitProgress, handlersReady, readStream, untilDone, untilEnded } = untils.make({
      time,
      store,
      readProgress: Context.get(drivers, ProviderDriver).readProgress,
      readPage: provider.readStream,
      history,
      claimed,
      handlers,
      unserved,
      patienceMs,
      stuck: (problem) => new Stuck({ problem })
    })
    const waiting = Context.get(
      yield* Layer.buildWithScope(Client.layer, scope).pipe(
        Effect.provideService(Provider.Provider, {
          ...provider,
          awaitProgress: Option.match(yield* Effect.serviceOption(PayloadCodec), {
            onNone: () => awaitProgress,
            onSome: (codec) =>
              openingProgress(
                { awaitProgress },
                sealing.make(codec, "instance_id"),
                Context.get(time.context, Clock.Clock)
              )
          }),
          readStream
        })
      ),
      Client.Client
    )

    // -- what the test sees ----------------------------------------------------------------------

    const restful = <A, E>(effect: Effect.Effect<A, E>) =>
      Effect.andThen(time.rest, effect).pipe(Effect.tap(() => time.rest))
    const client = Context.get(services, Client.Client)
    const patient: Client.Client["Service"] = {
      start: (orchestration, options) => restful(client.start(orchestration, options)),
      startMany: (orchestration, starts, options) => restful(client.startMany(orchestration, starts, options)),
      send: (
        signal: any,
        instanceId: string,
        ...[payload, options]: readonly [payload?: any, options?: any]
      ): Effect.Effect<void, any> => restful(client.send(signal, instanceId, payload, options)),
      interrupt: (instanceId, reason, options) => restful(client.interrupt(instanceId, reason, options)),
      redrive: (instanceId, options) => restful(client.redrive(instanceId, options)),
      terminate: (instanceId, reason) => restful(client.terminate(instanceId, reason)),
      status: (instanceId) => restful(client.status(instanceId)),
      read: (keyValue, instanceId) => restful(client.read(keyValue, instanceId)),
      readStream: waiting.readStream,
      request: waiting.request,
      watch: waiting.watch,
      waitForStatus: waiting.waitForStatus,
      waitForValue: waiting.waitForValue,
      wait: (orchestration, instanceId, options) =>
        // Fails when the id is invalid.
        client.status(instanceId).pipe(
          Effect.andThen(untilEnded(instanceId, options)),
          Effect.andThen(client.wait(orchestration, instanceId))
        ),
      execute: Effect.fnUntraced(function*(orchestration, options) {
        yield* client.start(orchestration, options)
        const instanceId = idOf(orchestration, options)
        yield* untilEnded(instanceId, options)
        return yield* client.wait(orchestration, instanceId)
      })
    }

    const again = replace(runtime, outer)
    const testRuntime = TestRuntime.of({
      settle: time.rest,
      advance: (duration) =>
        Effect.suspend(() => time.moveTo(time.now() + Duration.toMillis(Duration.fromInputUnsafe(duration)))),
      runToEnd: (instanceId, options) => Effect.andThen(untilEnded(instanceId, options), client.status(instanceId)),
      history: (instanceId) => restful(history(instanceId)),
      restart: Effect.andThen(time.rest, Effect.orDie(again)),
      crash: time.rest.pipe(
        Effect.andThen(Effect.sync(() => current?.store.kill())),
        Effect.andThen(Effect.orDie(again))
      ),
      deploy: <A, E, R>(next: Layer.Layer<A, E, R>) =>
        Effect.contextWith((context: Context.Context<Exclude<R, Provided>>) =>
          Effect.andThen(time.rest, replace(next, context))
        )
    })

    yield* Effect.addFinalizer(() => stop)
    const built = yield* start(runtime, outer)
    return built.pipe(
      Context.merge(services),
      Context.add(Client.Client, patient),
      Context.add(TestRuntime, testRuntime),
      Context.add(Rest, time.rest),
      Context.merge(time.context)
    )
  }))

/**
 * Waits until nothing can happen without time passing.
 *
 * @category time
 * @since 0.1.0
 */
export const settle: Effect.Effect<void, never, TestRuntime> = Effect.flatMap(TestRuntime, ({ settle }) => settle)

/**
 * Lets time pass. Everything that falls due meanwhile happens at its time.
 *
 * @category time
 * @since 0.1.0
 */
export const advance = (duration: Duration.Input): Effect.Effect<void, never, TestRuntime> =>
  Effect.flatMap(TestRuntime, (self) => self.advance(duration))

/**
 * Lets time pass until the instance has ended in any way, and returns its status. `timeout` is virtual time.
 *
 * @category time
 * @since 0.1.0
 */
export const runToEnd = (
  instanceId: string,
  options?: Client.WaitOptions
): Effect.Effect<Client.Status, Client.WaitTimeout | ProviderError, TestRuntime> =>
  Effect.flatMap(TestRuntime, (self) => self.runToEnd(instanceId, options))

/**
 * The events of all executions of an instance, in order; empty when the instance is unknown.
 *
 * @category reading
 * @since 0.1.0
 */
export const history = (
  instanceId: string
): Effect.Effect<ReadonlyArray<Event.Event>, ProviderError, TestRuntime> =>
  Effect.flatMap(TestRuntime, (self) => self.history(instanceId))

/**
 * Shuts down the process, and starts the next one on the same store, with new handlers. Running activities are
 * interrupted and abandoned, and run again at once.
 *
 * @category processes
 * @since 0.1.0
 */
export const restart: Effect.Effect<void, never, TestRuntime> = Effect.flatMap(TestRuntime, ({ restart }) => restart)

/**
 * `restart` by a process that dies without abandoning its work. Its activities run again, as a further delivery, when
 * their locks have expired (`workerLockTimeout`).
 *
 * @category processes
 * @since 0.1.0
 */
export const crash: Effect.Effect<void, never, TestRuntime> = Effect.flatMap(TestRuntime, ({ crash }) => crash)

/**
 * `restart` with another runtime: new code continues the instances of the old code.
 *
 * @category processes
 * @since 0.1.0
 */
export const deploy = <A, E, R>(
  runtime: Layer.Layer<A, E, R>
): Effect.Effect<void, E, Exclude<R, Provided> | TestRuntime> =>
  Effect.flatMap(TestRuntime, (self) => self.deploy(runtime))

// internal

/**
 * No poll, check or sweep happens just because time passes, and a process that ends does not wait for its work. Every
 * turn is replayed, so that a program that would decide otherwise in another process does not pass its test.
 */
const quietConfig = RuntimeConfig.layer({
  verifyReplay: true,
  shutdownTimeout: 1,
  cancellationCheckInterval: Infinity,
  sessionCleanupInterval: Infinity
})

interface Generation {
  readonly store: mortalProvider.MortalProvider
  readonly scope: Scope.Closeable
}

const asleep = Effect.andThen(Effect.sleep(Duration.infinity), Effect.never)

const makeProvider = Effect.fnUntraced(function*(driver: ProviderDriver["Service"]) {
  // This process knows when work falls due, so no time passes because it looks.
  const provider = yield* FromDriver.make(driver, {
    longPolling: {
      fallbackPollInterval: Duration.infinity,
      maxWaitTime: Duration.infinity,
      timerGracePeriod: 0,
      aggressivePollInterval: Duration.infinity
    }
  })
  return Provider.Provider.of({
    ...provider,
    // The transaction of a handler is in no store of the test: its result is stored when that has committed.
    ackWorkItemWithin: ({ completion, lockToken }) =>
      provider.renewWorkItemLock({ lockToken, extendFor: Duration.seconds(1), sufficient: Duration.millis(1) }).pipe(
        Effect.as({ committed: Effect.ignore(provider.ackWorkItem(lockToken, Option.some(completion))) })
      ),
    // An activity that waits for an instance is asleep: time passes for it.
    awaitEnd: (options) => Effect.raceFirst(provider.awaitEnd(options), asleep),
    awaitProgress: (options) => Effect.raceFirst(provider.awaitProgress(options), asleep)
  })
})
