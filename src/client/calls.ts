/**
 * What the methods of a client share: their spans, and the checks of their input.
 */
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import { durationOf, noDuration } from "../model/shared/durations.ts"
import { checkId } from "../model/shared/identifiers.ts"
import type { Unfit } from "../model/shared/identifiers.ts"
import * as tracing from "../model/shared/tracing.ts"
import { InvalidInput, ProviderError } from "../provider/ProviderError.ts"

// Without the stack of a span: it would show lines of this package.
export const producer = { kind: "producer", captureStackTrace: false } as const
export const reader = { kind: "client", captureStackTrace: false } as const

export const describe = (instanceId: string) =>
  tracing.annotate((span, context) => tracing.describeInstance(span, context, instanceId))

export const describeSend = (operation: string, destination: string | undefined, instanceId: string) =>
  tracing.annotate((span, context) =>
    tracing.describeMessaging(span, context, { operation, type: "send", destination, instanceId })
  )

export const refused = (operation: string) =>
  Effect.mapError(({ field, problem }: Unfit) =>
    new ProviderError({ operation, reason: new InvalidInput({ field, problem }) })
  )

export const timeoutOf = (operation: string, timeout: Duration.Input | undefined) =>
  durationIn(operation, "timeout", timeout)

export const durationIn = (operation: string, field: string, input: Duration.Input | undefined) => {
  if (input === undefined) return Effect.succeed(undefined)
  const duration = durationOf(input)
  return duration === undefined || Duration.isNegative(duration)
    ? Effect.fail(new ProviderError({ operation, reason: new InvalidInput({ field, problem: noDuration }) }))
    : Effect.succeed(duration)
}

export const checkInstanceId = (operation: string, instanceId: string) => refused(operation)(checkId(instanceId))
