/**
 * The failure of an activity or orchestration, as stored in histories and messages.
 *
 * The wire form is Duroxide's externally tagged one (`{"Application":{…}}`); in TypeScript a plain `_tag` union.
 *
 * @since 0.1.0
 */
import * as Schema from "effect/Schema"
import { describe } from "./shared/defect.ts"
import { U64 } from "./shared/numbers.ts"
import { externallyTagged } from "./shared/wire.ts"
import type { Union } from "./shared/wire.ts"

/**
 * Why an application failed: the handler failed, it died (`Panicked`), or the instance was cancelled.
 *
 * @category schemas
 * @since 0.1.0
 */
export const AppErrorKind = Schema.Union([
  Schema.Literals(["ActivityFailed", "OrchestrationFailed", "Panicked"]),
  Schema.Struct({ Cancelled: Schema.Struct({ reason: Schema.String }) })
])

const PoisonMessage = Schema.Union([
  Schema.Struct({ Orchestration: Schema.Struct({ instance: Schema.String, execution_id: U64 }) }),
  Schema.Struct({
    Activity: Schema.Struct({
      instance: Schema.String,
      execution_id: U64,
      activity_name: Schema.String,
      activity_id: U64
    })
  }),
  Schema.Struct({
    FailedDeserialization: Schema.Struct({ instance: Schema.String, execution_id: U64, error: Schema.String })
  })
])

/** The resource of `invalidProgram`. */
const program = "program"

const variants = {
  // The storage or the runtime failed.
  Infrastructure: { operation: Schema.String, message: Schema.String, retryable: Schema.Boolean },
  // The code does not match its history, or cannot run as an orchestration.
  Configuration: {
    kind: Schema.Literal("Nondeterminism"),
    resource: Schema.String,
    message: Schema.NullOr(Schema.String)
  },
  // The handler itself failed. `message` is the error of a typed handler as JSON text, or free text. `stack` is where
  // it died, 2,000 characters at most; Rust ignores it.
  Application: {
    kind: AppErrorKind,
    message: Schema.String,
    retryable: Schema.Boolean,
    stack: Schema.optionalKey(Schema.String)
  },
  // A message was delivered more often than the runtime's `maxAttempts` allows.
  Poison: { attemptCount: U64, maxAttempts: U64, messageType: PoisonMessage, message: Schema.String }
}

/**
 * Why an activity or an instance failed, as it is stored.
 *
 * @category models
 * @since 0.1.0
 */
export type ErrorDetails = Union<typeof variants>

/**
 * Encoded form: `{"Infrastructure":{…}}`, `{"Configuration":{…}}`, `{"Application":{…}}` or `{"Poison":{…}}`.
 *
 * @category models
 * @since 0.1.0
 */
export const ErrorDetails: Schema.Codec<ErrorDetails, unknown> = externallyTagged("ErrorDetails", variants).schema

/**
 * An instance cancelled for `reason`.
 *
 * @category constructors
 * @since 0.1.0
 */
export const cancelled = (reason: string): ErrorDetails => ({
  _tag: "Application",
  kind: { Cancelled: { reason } },
  message: "",
  retryable: false
})

/**
 * The reason of a cancellation; undefined for other failures.
 *
 * @category getters
 * @since 0.2.0
 */
export const cancellationOf = (details: ErrorDetails): string | undefined =>
  details._tag === "Application" && typeof details.kind === "object" ? details.kind.Cancelled.reason : undefined

/**
 * Code that does not match its history.
 *
 * @category constructors
 * @since 0.1.0
 */
export const nondeterminism = (message: string): ErrorDetails => ({
  _tag: "Configuration",
  kind: "Nondeterminism",
  resource: "",
  message
})

/**
 * A handler that failed or died.
 *
 * @category constructors
 * @since 0.1.0
 */
export const application = (
  kind: "ActivityFailed" | "OrchestrationFailed" | "Panicked",
  message: string
): ErrorDetails => ({ _tag: "Application", kind, message, retryable: false })

/**
 * A handler or a program that died of `defect`: its message, and a stack of 2,000 characters at most.
 *
 * @category constructors
 * @since 0.2.0
 */
export const died = (defect: unknown): ErrorDetails => ({
  _tag: "Application",
  kind: "Panicked",
  ...describe(defect),
  retryable: false
})

/**
 * Code that cannot run as an orchestration: it awaits something that is not durable, or never comes to rest. Duroxide
 * has no kind of its own for it; the resource sets it apart.
 *
 * @category constructors
 * @since 0.2.0
 */
export const invalidProgram = (message: string): ErrorDetails => ({
  _tag: "Configuration",
  kind: "Nondeterminism",
  resource: program,
  message
})

/**
 * The text for people: stored in `executions.output` of a failed execution and shown by clients.
 *
 * @category rendering
 * @since 0.1.0
 */
export const display = (details: ErrorDetails): string => {
  switch (details._tag) {
    case "Infrastructure":
      return `infrastructure:${details.operation}: ${details.message}`
    case "Configuration":
      return details.message === null
        ? `nondeterministic in ${details.resource}`
        : `${details.resource === program ? "invalid program" : "nondeterministic"}: ${details.message}`
    case "Application":
      return typeof details.kind === "object"
        ? `canceled: ${details.kind.Cancelled.reason}`
        : details.kind === "Panicked"
        ? `orchestration panicked: ${details.message}`
        : details.message
    case "Poison": {
      const { attemptCount, maxAttempts, messageType } = details
      // Duroxide also counts the delivery that detects it; we count only those before.
      const outcome = attemptCount > maxAttempts
        ? `exceeded ${attemptCount} attempts (max ${maxAttempts})`
        : `was delivered ${attemptCount} times and never ended (maxAttempts ${maxAttempts})`
      if ("Orchestration" in messageType) {
        return `poison: orchestration ${messageType.Orchestration.instance} ${outcome}`
      }
      if ("Activity" in messageType) {
        const { activity_id, activity_name } = messageType.Activity
        return `poison: activity ${activity_name}#${activity_id} ${outcome}`
      }
      const { error, instance } = messageType.FailedDeserialization
      return `poison: orchestration ${instance} history deserialization failed after ${attemptCount} attempts (max ${maxAttempts}): ${error}`
    }
  }
}
