/**
 * A PostgreSQL in a container, for tests of a machine that has an engine and no `DATABASE_URL`.
 */
import * as Cause from "effect/Cause"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"

export interface Started {
  readonly getConnectionUri: () => string
  readonly stop: () => Promise<unknown>
}

export interface Engine {
  /** Fails where there is no engine. */
  readonly find: () => Promise<unknown>
  /** Pulls the image if the engine does not have it. */
  readonly start: () => Promise<Started>
}

/** Testcontainers, with the settings given to the server. */
export const testcontainers = (settings: Readonly<Record<string, string>>): Engine => ({
  find: async () => {
    const { getContainerRuntimeClient } = await import("testcontainers")
    return getContainerRuntimeClient()
  },
  start: async () => {
    const { PostgreSqlContainer } = await import("@testcontainers/postgresql")
    return new PostgreSqlContainer(process.env.TEST_PG_IMAGE ?? "postgres:18-alpine")
      .withCommand(["postgres", ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`])])
      .start()
  }
})

/**
 * The URL of the container's server, which ends with the scope. None without an engine, or if it does not start the
 * container within two minutes, for example because the registry cannot be reached: `warn` learns why.
 */
export const make = (
  engine: Engine,
  warn: (problem: string) => void
): Effect.Effect<Option.Option<string>, never, Scope.Scope> =>
  Effect.gen(function*() {
    // Searching takes milliseconds where there is none; one that hangs gets 3 seconds.
    const found = yield* Effect.tryPromise(engine.find).pipe(Effect.timeout("3 seconds"), Effect.option)
    if (Option.isNone(found)) return Option.none()
    return yield* Effect.acquireRelease(
      Effect.timeout(Effect.tryPromise(engine.start), "2 minutes"),
      (container) => Effect.promise(() => container.stop()),
      { interruptible: true }
    ).pipe(
      Effect.map((container) => Option.some(`${container.getConnectionUri()}?sslmode=disable`)),
      Effect.catchCause((cause) =>
        Effect.sync(() => {
          const error = Cause.squash(cause)
          warn(String(error instanceof Error && error.cause instanceof Error ? error.cause.message : error))
          return Option.none()
        })
      )
    )
  })
