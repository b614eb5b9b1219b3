/**
 * Simulated processes that share one store, each with its own provider and runtime, in this process.
 */
import { Client, RuntimeConfig } from "duroxide-prisma"
import type { Runtime } from "duroxide-prisma"
import { FromDriver, Provider, ProviderDriver, ProviderError } from "duroxide-prisma/provider"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Scope from "effect/Scope"
import type { Options } from "./app.ts"

type Driver = ProviderDriver.ProviderDriver["Service"]

const Driver = ProviderDriver.ProviderDriver

/** Ends with the scope of the test, at once. */
export const start = (
  runtime: Layer.Layer<Runtime.Runtime, never, Provider.Provider>,
  options: Options = {}
) =>
  Effect.gen(function*() {
    const driver = yield* Driver
    let dead = false
    const mortal = intercept(driver, (call, operation) => dead ? closed(operation) : call)
    const scope = yield* Scope.make()
    const stop = Scope.close(scope, Exit.void)
    yield* Effect.addFinalizer(() => stop)
    const services = yield* runtime.pipe(
      Layer.merge(Client.layer),
      Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 0, ...options.runtime })),
      Layer.provide(FromDriver.layer(options.provider)),
      Layer.provide(Layer.succeed(Driver, mortal)),
      Layer.buildWithScope(scope)
    )
    return {
      /** The wake-ups of this process: its calls wake no other process. */
      client: Context.get(services, Client.Client),
      /** A graceful shutdown. */
      stop,
      /** From now on it sends nothing to the store. */
      kill: Effect.sync(() => dead = true)
    }
  })

/** A driver whose calls `change` may replace; `operation` is their name. */
export const intercept = (
  driver: Driver,
  change: <A>(
    call: Effect.Effect<A, ProviderError.ProviderError>,
    operation: string
  ) => Effect.Effect<A, ProviderError.ProviderError>
): Driver =>
  Object.fromEntries(
    Object.entries(driver).map(([operation, member]) => [
      operation,
      typeof member === "function"
        ? (...args: ReadonlyArray<never>) =>
          Effect.suspend(() =>
            change((member as unknown as (...args: ReadonlyArray<never>) => never)(...args), operation)
          )
        : Effect.isEffect(member)
        ? Effect.suspend(() => change(member as Effect.Effect<unknown, ProviderError.ProviderError>, operation))
        : member
    ])
  ) as unknown as Driver

const closed = (operation: string) =>
  Effect.fail(new ProviderError.ProviderError({ operation, reason: new ProviderError.Closed({}) }))
