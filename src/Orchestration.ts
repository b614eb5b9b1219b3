/**
 * Orchestrations: ordinary Effect programs that survive crashes, deploys and months of waiting.
 *
 * Inside an orchestration `Effect.sleep`, `all`, `race`, `timeout`, `retry`, `forkChild`, `Clock`, `DateTime.now` and
 * `Random` are durable: they are recorded, and replayed when the program goes on in another process. Everything that
 * touches the world belongs into an activity; the program itself has no services but `Orchestration.Context`.
 *
 * @since 0.1.0
 */
import type * as ContextModule from "effect/Context"
import * as ContextService from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as payloads from "./internal/payload.ts"
import type { Payload as Codec, PayloadSchema } from "./internal/payload.ts"
import { OrchestrationContext } from "./internal/replay/context.ts"
import type { Code } from "./internal/replay/replay.ts"

/**
 * The service every durable operation needs, and what the program may know of the instance it runs for: `instanceId`,
 * `executionId`, `orchestrationName`, `orchestrationVersion`, `isReplaying`.
 *
 * @category context
 * @since 0.1.0
 */
export const Context: typeof OrchestrationContext = OrchestrationContext

/**
 * @category context
 * @since 0.1.0
 */
export type Context = OrchestrationContext

/**
 * A named, versioned program with the Schemas of what goes in and comes out.
 *
 * @category models
 * @since 0.1.0
 */
export interface Orchestration<
  in out Name extends string,
  in out Payload extends PayloadSchema,
  in out Success extends PayloadSchema,
  in out Error extends PayloadSchema
> {
  readonly name: Name
  /** Semver. A running instance keeps the version it was started with. */
  readonly version: string
  readonly payload: Payload
  readonly success: Success
  readonly error: Error
  /**
   * The program, as a layer for `Runtime.layer`. It has no services of the application: those belong into activities.
   */
  readonly toLayer: (
    program: (payload: Payload["Type"]) => Effect.Effect<Success["Type"], Error["Type"], OrchestrationContext>
  ) => Layer.Layer<Handler<Name>>
  /** @internal */
  readonly codecs: {
    readonly payload: Codec<Payload["Type"]>
    readonly success: Codec<Success["Type"]>
    readonly error: Codec<Error["Type"]>
  }
}

/**
 * @category models
 * @since 0.1.0
 */
export interface Any {
  readonly name: string
  readonly version: string
  readonly payload: PayloadSchema
  readonly success: PayloadSchema
  readonly error: PayloadSchema
}

/**
 * Marks, in the type of a layer, that a program of the orchestration `Name` is there.
 *
 * @category models
 * @since 0.1.0
 */
export interface Handler<Name extends string> {
  readonly _: unique symbol
  readonly name: Name
}

/**
 * Defines an orchestration. Name and version are what stored instances know it by.
 *
 * **Details**
 *
 * `version` defaults to `1.0.0`, `payload` and `success` to `Schema.Void`, `error` to `Schema.Never`. All three
 * travel as JSON text. What the program fails with becomes the typed failure of `Client.wait`; a defect becomes
 * `InstanceFailed`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make = <
  const Name extends string,
  Payload extends PayloadSchema = Schema.Void,
  Success extends PayloadSchema = Schema.Void,
  Error extends PayloadSchema = Schema.Never
>(name: Name, options?: {
  readonly version?: string
  readonly payload?: Payload
  readonly success?: Success
  readonly error?: Error
}): Orchestration<Name, Payload, Success, Error> => {
  const version = options?.version ?? "1.0.0"
  const payload = options?.payload ?? Schema.Void as unknown as Payload
  const success = options?.success ?? Schema.Void as unknown as Success
  const error = options?.error ?? Schema.Never as unknown as Error
  const codecs = {
    payload: payloads.make(`payload of orchestration "${name}"`, payload),
    success: payloads.make(`result of orchestration "${name}"`, success),
    error: payloads.make(`error of orchestration "${name}"`, error)
  }
  return {
    name,
    version,
    payload,
    success,
    error,
    codecs,
    toLayer: (program) =>
      Layer.succeed(handlerKey(name, version), (input: string) =>
        Effect.orDie(codecs.payload.decode(input)).pipe(
          Effect.flatMap((value) => program(value)),
          Effect.matchCauseEffect({
            onSuccess: (value) => Effect.orDie(codecs.success.encode(value)),
            onFailure: (cause) => {
              const typed = cause.reasons.find((reason) => reason._tag === "Fail")
              return typed === undefined
                ? Effect.failCause(cause)
                : Effect.flatMap(Effect.orDie(codecs.error.encode(typed.error)), (text) => Effect.fail(text))
            }
          })
        ))
  }
}

/**
 * How the runtime finds a program.
 *
 * @internal
 */
export const handlerKey = <Name extends string>(
  name: Name,
  version: string
): ContextModule.Key<Handler<Name>, Code> =>
  ContextService.Service<Handler<Name>, Code>(`duroxide-prisma/Orchestration/${name}@${version}`)
