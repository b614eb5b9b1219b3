/**
 * Runs orchestrations and activities in this process.
 *
 * A runtime is a scoped layer: building it starts the dispatchers, closing its scope stops them gracefully. Any number
 * of processes may share one store; each serves the definitions it was given.
 *
 * @since 0.1.0
 */
import * as Cause from "effect/Cause"
import * as Clock from "effect/Clock"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import type * as Activity from "./Activity.ts"
import { SealsDefects } from "./model/shared/defect.ts"
import { withHarmlessLoggers } from "./model/shared/logging.ts"
import * as tracing from "./model/shared/tracing.ts"
import type * as Orchestration from "./Orchestration.ts"
import { Provider } from "./provider/Provider.ts"
import { ConfigurationInvalid, ProviderError } from "./provider/ProviderError.ts"
import { checkRuntimes } from "./replay/programs.ts"
import { Retention } from "./Retention.ts"
import { wakeBlocked } from "./runtime/blocked.ts"
import * as eventLoops from "./runtime/eventLoop.ts"
import { activityKey, orchestrationKey } from "./runtime/handlers.ts"
import * as activitiesHeld from "./runtime/heldActivities.ts"
import * as messageSweep from "./runtime/messageSweep.ts"
import * as orchestrationDispatcher from "./runtime/orchestrationDispatcher.ts"
import * as outcomesOf from "./runtime/outcomes.ts"
import * as pauses from "./runtime/pauses.ts"
import * as registries from "./runtime/registry.ts"
import * as retention from "./runtime/retention.ts"
import { fingerprint, UnsetOnMismatch } from "./runtime/settings.ts"
import type { Complete } from "./runtime/settings.ts"
import * as shutdown from "./runtime/shutdown.ts"
import * as startLine from "./runtime/startLine.ts"
import * as supervisors from "./runtime/supervisor.ts"
import * as workerDispatcher from "./runtime/workerDispatcher.ts"
import * as RuntimeConfig from "./RuntimeConfig.ts"

/**
 * A running runtime: what it serves, and how it is.
 *
 * @category services
 * @since 0.1.0
 */
export class Runtime extends Context.Service<Runtime, {
  /** `name@version` of the orchestrations this process runs. */
  readonly orchestrations: ReadonlyArray<string>
  /** Names of the activities this process runs. */
  readonly activities: ReadonlyArray<string>
  /** The state of the runtime, for health checks. Does not query the store. */
  readonly health: Effect.Effect<Health>
  /**
   * Fails when the runtime cannot continue, and otherwise never ends. A failed runtime claims no more work: end the
   * process, so that its supervisor restarts it. `launch` does this for a program that consists of one layer.
   */
  readonly failure: Effect.Effect<never, RuntimeFailed>
}>()("duroxide-prisma/Runtime") {}

/**
 * The state of a runtime at one moment.
 *
 * @category models
 * @since 0.2.0
 */
export interface Health {
  /** In `Closing` and in `Failed` (see `Runtime.failure`) the runtime claims no more work. */
  readonly state: "Running" | "Closing" | "Failed"
  /** `none` when this process serves no orchestration. */
  readonly orchestrations: Option.Option<DispatcherHealth>
  /** `none` when this process serves no activity. */
  readonly activities: Option.Option<DispatcherHealth>
}

/**
 * The state of the loops that claim one kind of work.
 *
 * @category models
 * @since 0.2.0
 */
export interface DispatcherHealth {
  /**
   * Time since the store last answered a claim; `none` before the first answer. A process with a free slot claims at
   * least every `fallbackPollInterval`; a process without one does not.
   */
  readonly sinceLastLook: Option.Option<Duration.Duration>
  /** Number of claimed turns, or of activities, that this process runs now, or whose outcome it stores. */
  readonly underWay: number
}

/**
 * One of the runtime's loops has ended: through a defect of this package or of the `Provider`, or because the role of
 * its connection may not claim (for 10 seconds, and since the process began). The runtime claims no more work.
 *
 * @category errors
 * @since 0.2.0
 */
export class RuntimeFailed extends Schema.TaggedError<RuntimeFailed>("duroxide-prisma/Runtime/RuntimeFailed")(
  "RuntimeFailed",
  { loop: Schema.String, problem: Schema.String }
) {
  override get message() {
    return `the runtime has failed, its loop "${this.loop}" has ended: ${this.problem}`
  }
}

/**
 * Serves the given definitions. Their handlers must be provided as layers; a missing one, also of a single version,
 * does not compile.
 *
 * **Details**
 *
 * The list of definitions is what the compiler compares the handlers with: from handler layers alone, a forgotten one
 * would compile, and its work would wait. The compiler names it as a requirement that is left:
 * `ActivityHandler<"Charge">`, `OrchestrationHandler<"Fulfil", "1.0.0">`.
 *
 * Dies when two activities have one name, or two orchestrations one name and version; and of a `ProviderError`, reason
 * `ConfigurationInvalid`, when an activity is transactional and the `Provider` joins no transactions.
 *
 * Work of definitions that no process serves waits in the store. A process may serve activities only, or orchestrations
 * only. Settings come from `RuntimeConfig`.
 *
 * **Example** (A process that serves everything)
 *
 * ```ts
 * const RuntimeLive = Runtime.layer({ orchestrations: [Fulfil], activities: [Charge, Reserve] }).pipe(
 *   Layer.provide([FulfilLive, ChargeLive, ReserveLive])
 * )
 * ```
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = <
  const Orchestrations extends ReadonlyArray<Orchestration.Any> = [],
  const Activities extends ReadonlyArray<Activity.Any> = []
>(definitions: {
  readonly orchestrations?: Orchestrations
  readonly activities?: Activities
}): Layer.Layer<
  Runtime,
  never,
  | Provider
  | {
    readonly [I in keyof Orchestrations]: Orchestration.Handler<Orchestrations[I]["name"], Orchestrations[I]["version"]>
  }[number]
  | { readonly [I in keyof Activities]: Activity.Handler<Activities[I]["name"]> }[number]
> =>
  Layer.effect(
    Runtime,
    supervisors.starting((supervisor) =>
      Effect.gen(function*() {
        yield* checkRuntimes
        const provider = yield* Provider
        const services = yield* Effect.context<never>()
        const given = yield* RuntimeConfig.RuntimeConfig
        const registry = registries.makeUnsafe(
          (definitions.orchestrations ?? []).map(({ name, version }) => ({
            name,
            version,
            code: Context.getUnsafe(services, orchestrationKey(name, version))
          }))
        )
        const handlers = registries.handlersUnsafe(
          (definitions.activities ?? []).map(({ name }) => [
            name,
            Context.getUnsafe(services, activityKey(name))
          ])
        )
        for (const [name, { isTransactional }] of handlers) {
          if (isTransactional && provider.ackWorkItemWithin === undefined) {
            return yield* Effect.die(withoutTransactions(name))
          }
        }
        const settings: Complete = {
          ...given,
          onMismatch: given.onMismatch ?? (yield* UnsetOnMismatch),
          build: given.build ?? fingerprint([...registry.names, ...handlers.keys()])
        }
        const orchestrations = [...new Set(registry.serves.map(({ name }) => name))]
        yield* Effect.forkScoped(wakeBlocked(provider, { orchestrations, activities: [...handlers.keys()] }))
        /** Until the dispatchers are made, none. */
        const slotsInUse = { ofOrchestrations: () => 0, ofActivities: () => 0 }
        yield* provider.announceProcess(
          {
            build: settings.build,
            orchestrations: registry.names,
            activities: [...handlers.keys()],
            tags: settings.tags,
            orchestrationSlots: limitOf(settings.orchestrationConcurrency),
            activitySlots: limitOf(settings.workerConcurrency)
          },
          () => ({ orchestrations: slotsInUse.ofOrchestrations(), activities: slotsInUse.ofActivities() })
        )
        const heldActivities = yield* activitiesHeld.make(provider, settings, supervisor)
        yield* messageSweep.run(provider, settings, supervisor)
        yield* retention.run(yield* Retention, supervisor)
        const paused = yield* pauses.make({ provider, registry, activities: [...handlers.keys()], tags: settings.tags })
        let activities: workerDispatcher.WorkerDispatcher | undefined
        const eventLoop = yield* eventLoops.watch(() => activities?.running() ?? [])
        // A process that serves no definition of a kind claims no work of that kind.
        const turns = registry.names.length === 0
          ? undefined
          : yield* orchestrationDispatcher.make({ provider, registry, settings, paused, eventLoop, supervisor })
        if (handlers.size > 0 && settings.tags._tag !== "None") {
          const outcomes = outcomesOf.make({
            provider,
            heldActivities,
            build: settings.build,
            clock: yield* Clock.Clock,
            storeOutcome: turns?.optimisticTurns.store
          })
          activities = yield* workerDispatcher.make({
            provider,
            handlers,
            heldActivities,
            outcomes,
            settings,
            paused,
            supervisor
          })
          turns?.optimisticTurns.handOverTo(activities.handOverSlots)
          slotsInUse.ofActivities = activities.slotsInUse
        }
        if (turns !== undefined) slotsInUse.ofOrchestrations = turns.slotsInUse
        yield* shutdown.run([turns, activities].filter((one) => one !== undefined), settings, supervisor)
        yield* withHarmlessLoggers(
          Effect.andThen(
            startLine.log({ orchestrations: registry.names, activities: [...handlers.keys()], settings: given }),
            startLine.warnOfLimits(handlers, settings)
          )
        )
        const healthOf = (dispatcher: shutdown.Dispatcher | undefined) =>
          Option.map(Option.fromUndefinedOr(dispatcher), ({ looks, underWay }): DispatcherHealth => ({
            sinceLastLook: Option.map(Option.fromUndefinedOr(looks.ageMs()), Duration.millis),
            underWay: underWay()
          }))
        const failure = Effect.flatMap(
          Deferred.await(supervisor.failure),
          ({ cause, loop }) => Effect.fail(new RuntimeFailed({ loop, problem: Cause.pretty(cause) }))
        )
        return Runtime.of({
          orchestrations: registry.names,
          activities: [...handlers.keys()],
          health: Effect.sync(() => ({
            state: Deferred.isDoneUnsafe(supervisor.failure)
              ? "Failed"
              : Deferred.isDoneUnsafe(supervisor.stopping)
              ? "Closing"
              : "Running",
            orchestrations: healthOf(turns),
            activities: healthOf(activities)
          })),
          failure
        })
      })
    ).pipe(
      Effect.updateContext(<R>(context: Context.Context<Provider | R>) =>
        Context.add(tracing.withoutSpan(context), SealsDefects, Context.get(context, Provider).sealsPayloads)
      )
    )
  ) as never

/**
 * Builds a layer that contains a runtime, and keeps it until interruption; fails when the runtime fails. Use it as the
 * main program of a worker, instead of `Layer.launch`.
 *
 * @category execution
 * @since 0.2.0
 */
export const launch = <A, E, R>(self: Layer.Layer<A | Runtime, E, R>): Effect.Effect<never, E | RuntimeFailed, R> =>
  Effect.scoped(
    Effect.flatMap(
      Layer.build(self as Layer.Layer<Runtime, E, R>),
      (services) => Context.get(services, Runtime).failure
    )
  )

// internal

const withoutTransactions = (name: string) =>
  new ProviderError({
    operation: "Runtime.layer",
    reason: new ConfigurationInvalid({
      problem: `activity "${name}" is transactional, but the provider joins no transactions of the application. ` +
        "Provide one on PostgreSQL (PrismaProvider), or make its handler an ordinary one"
    })
  })

const limitOf = (concurrency: number) => concurrency === Infinity ? null : concurrency
