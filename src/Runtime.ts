/**
 * Runs orchestrations and activities in this process.
 *
 * A runtime is a scoped layer: building it starts the dispatchers, closing its scope stops them gracefully. Any number
 * of processes may run on one store; each serves the definitions it was given.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Activity from "./Activity.ts"
import * as orchestrationDispatcher from "./internal/runtime/orchestrationDispatcher.ts"
import * as registries from "./internal/runtime/registry.ts"
import * as runningActivities from "./internal/runtime/running.ts"
import * as workerDispatcher from "./internal/runtime/workerDispatcher.ts"
import * as Orchestration from "./Orchestration.ts"
import { Provider } from "./Provider.ts"
import * as RuntimeConfig from "./RuntimeConfig.ts"

/**
 * What a running runtime serves.
 *
 * @category services
 * @since 0.1.0
 */
export class Runtime extends Context.Service<Runtime, {
  /** `name@version` of the orchestrations this process runs. */
  readonly orchestrations: ReadonlyArray<string>
  /** Names of the activities this process runs. */
  readonly activities: ReadonlyArray<string>
}>()("duroxide-prisma/Runtime") {}

/**
 * Serves the given definitions. Their handlers must be provided as layers; a missing one, also of a single version, does
 * not compile.
 *
 * **Details**
 *
 * Dies when two activities have one name, or two orchestrations one name and version.
 *
 * Work for definitions nobody serves waits in the store. A process may serve activities only, or orchestrations only.
 * Settings come from `RuntimeConfig`.
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
    Effect.gen(function*() {
      const services = yield* Effect.context<never>()
      const provider = yield* Provider
      const settings = yield* RuntimeConfig.RuntimeConfig
      const registry = registries.makeUnsafe(
        (definitions.orchestrations ?? []).map(({ name, version }) => ({
          name,
          version,
          code: Context.getUnsafe(services, Orchestration.handlerKey(name, version))
        }))
      )
      const handlers = registries.handlersUnsafe(
        (definitions.activities ?? []).map(({ name }) => [
          name,
          Context.getUnsafe(services, Activity.handlerKey(name))
        ])
      )
      const running = yield* runningActivities.make(provider, settings)
      // A process that serves none of a kind must not claim any: it could only give it back.
      if (registry.known.length > 0) {
        yield* orchestrationDispatcher.run({
          provider: runningActivities.telling(provider, running),
          registry,
          settings
        })
      }
      if (handlers.size > 0 && settings.tags._tag !== "None") {
        yield* workerDispatcher.run({ provider, handlers, running, settings })
      }
      return { orchestrations: registry.known, activities: [...handlers.keys()] }
    })
  ) as never
