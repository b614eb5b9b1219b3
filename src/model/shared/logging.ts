/**
 * Loggers belong to the application. A logger that throws, as on a full disk, must not change an outcome.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Logger from "effect/Logger"
import * as LogLevel from "effect/LogLevel"
import * as References from "effect/References"
import * as dashboardUrl from "./dashboardUrl.ts"

type Loggers = ReadonlySet<Logger.Logger<unknown, unknown>>

/** Makes loggers that drop what the given ones throw. */
export const harmless = (loggers: Loggers): Loggers =>
  new Set([...loggers].map((logger) =>
    Logger.make((options) => {
      try {
        return logger.log(options)
      } catch {
        return undefined
      }
    })
  ))

/** Replaces the loggers of services by loggers that cannot fail the effects run with them. */
export const harmlessIn = <R>(services: Context.Context<R>): Context.Context<R> =>
  Context.add(services, References.CurrentLoggers, harmless(Context.get(services, References.CurrentLoggers)))

/** Runs an effect so that loggers cannot fail it or the fibers it starts. */
export const withHarmlessLoggers = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.updateService(effect, References.CurrentLoggers, harmless)

/** Whether lines at this level are logged: where most are not, a caller need not even make them. */
export const isDebugging = (context: Context.Context<never>): boolean =>
  LogLevel.isLessThanOrEqualTo(Context.get(context, References.MinimumLogLevel), "Debug")

/** Marks the log lines of an effect as those of this package. A logger that throws fails neither. */
export const ours =
  (annotations: Readonly<Record<string, unknown>> = {}) =>
  <A, E, R>(line: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    withHarmlessLoggers(Effect.annotateLogs(line, { package: "duroxide-prisma", ...annotations }))

/** Annotations of log lines about an instance: where a dashboard is configured, with the address of its page. */
export const linked = <A extends { readonly instance_id: string }>(
  context: Context.Context<never>,
  annotations: A
): A & { readonly url?: string } => {
  const url = dashboardUrl.inContext(context, annotations.instance_id)
  return url === undefined ? annotations : { ...annotations, url }
}

/** Says which instance the log lines of an effect are about. */
export const aboutInstance =
  (annotations: { readonly instance_id: string } & Readonly<Record<string, unknown>>) =>
  <A, E, R>(lines: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
    Effect.withFiber((fiber) => Effect.annotateLogs(lines, linked(fiber.context, annotations)))
