/**
 * What went wrong, as one line, a code for programs, and an exit code.
 */
import * as Cause from "effect/Cause"
import type * as CliError from "effect/cli/CliError"
import { ConfigError } from "effect/Config"
import * as Predicate from "effect/Predicate"
import * as Schema from "effect/Schema"
import { counted } from "../../model/shared/quantities.ts"
import { Refusal } from "../../operating/Refusal.ts"
import { SchemaBehind } from "../../prisma/MigrationError.ts"
import { InstanceNotFound } from "../../provider/ProviderError.ts"

/** The exit codes of every command, next to 0 and to 130 after Ctrl-C. */
export const exitCodes = {
  /** A negative answer: not found, different, another version. */
  no: 1,
  /** Bad usage or input. */
  usage: 2,
  /** The database could not be reached, or refused. */
  database: 3,
  /** Stopped half way: run it again. */
  again: 4,
  /** Running instances would not continue with the code that was given. */
  unfit: 5,
  /** A defect of this program. */
  defect: 70,
  /** The answer could not be written. */
  output: 74,
  interrupted: 130
} as const

/** A failure with a message that says what to do. */
export class CommandError extends Schema.TaggedError<CommandError>("duroxide-prisma/cli/CommandError")("CommandError", {
  /** For programs, in the style of the reasons of `ProviderError`: `InstanceNotFound`. */
  code: Schema.String,
  message: Schema.String,
  exit: Schema.Literals(["no", "usage", "database", "again", "unfit"])
}) {}

/** A bad value, or flags that do not go together. */
export const misused = (message: string) => new CommandError({ code: "Usage", message, exit: "usage" })

/** A schema that exists and lacks migrations. */
export const behind = ({ _tag, pending, schema }: SchemaBehind, migrateCommand: string): CommandError =>
  new CommandError({
    code: _tag,
    message: `schema ${schema} lacks ${counted(pending.length, "migration")}, the first is ${pending[0]}. ` +
      `Apply ${pending.length === 1 ? "it" : "them"}: ${migrateCommand}`,
    exit: "no"
  })

export interface Failure {
  readonly code: string
  readonly message: string
  readonly exitCode: number
}

/** A bad invocation: all problems, then where to look. */
export const ofUsage = (
  errors: ReadonlyArray<CliError.CliError>,
  commandPath: ReadonlyArray<string>
): Failure => ({
  code: "Usage",
  message: errors.length === 0
    ? `name a command. See: ${commandPath.join(" ")} --help`
    : `${errors.map(shownError).join(" ")} See: ${commandPath.join(" ")} --help`,
  exitCode: exitCodes.usage
})

/** A part of the answer that standard output did not take. */
export const ofLostOutput = (error: NodeJS.ErrnoException): Failure => ({
  code: "OutputLost",
  message: `standard output cannot be written, the answer is incomplete: ${error.message}`,
  exitCode: exitCodes.output
})

/** A failure of a handler. */
export const ofCause = (cause: Cause.Cause<unknown>): Failure => {
  if (Cause.hasInterruptsOnly(cause)) {
    return { code: "Interrupted", message: "interrupted", exitCode: exitCodes.interrupted }
  }
  const reason = cause.reasons.find(Cause.isFailReason)
  if (reason === undefined) return defect(Cause.squash(cause))
  const { error } = reason
  if (error instanceof CommandError) {
    return { code: error.code, message: error.message, exitCode: exitCodes[error.exit] }
  }
  if (error instanceof Refusal) return { code: error.code, message: error.message, exitCode: exitCodes.no }
  if (error instanceof ConfigError) {
    return { code: error._tag, message: error.cause.message, exitCode: exitCodes.usage }
  }
  if (!(error instanceof Error)) return defect(error)
  // The errors of this package have a tagged reason inside; its message is the one for people.
  const inner = Predicate.hasProperty(error, "reason") && Predicate.hasProperty(error.reason, "_tag") &&
      error.reason instanceof Error
    ? error.reason
    : error
  if (inner instanceof SchemaBehind) return ofCause(Cause.fail(behind(inner, "duroxide-prisma migrate")))
  if (inner instanceof InstanceNotFound && inner.instanceId === "") {
    return { code: "Usage", message: "the id of the instance is empty", exitCode: exitCodes.usage }
  }
  const code: string = Predicate.hasProperty(inner, "_tag") ? inner._tag : inner.name
  const todo = advice[code]
  const exit = answers.has(code) ? "no" : inputs.has(code) ? "usage" : unfinished.has(code) ? "again" : "database"
  return {
    code,
    message: todo === undefined ? inner.message : `${inner.message}. ${todo}`,
    exitCode: exitCodes[exit]
  }
}

// internal

/** In one line; the parser shows names that are similar on lines of their own. */
const shownError = (error: CliError.CliError): string => {
  const similar = "suggestions" in error ? error.suggestions : []
  return numberExpected(error.message.split("\n")[0]!) +
    (similar.length === 0 ? "." : `: did you mean ${similar.join(" or ")}?`)
}

/** The message of the parser, with a plain name of the type. */
const numberExpected = (message: string) =>
  message.replace(/Expected (?:a string representing a finite number|an integer)$/, "Expected: a whole number")

const defect = (thrown: unknown): Failure => ({
  code: "Defect",
  message: `a defect of this program: ${thrown instanceof Error ? thrown.message : String(thrown)}. ` +
    "Please report it: https://github.com/duroxide-prisma/duroxide-prisma/issues",
  exitCode: exitCodes.defect
})

/** Reasons that are answers about what is stored. */
const answers: ReadonlySet<string> = new Set([
  "InstanceNotFound",
  "ExecutionNotFound",
  "RetryRefused",
  "ForkRefused",
  "RequestFailed",
  "PayloadMismatch",
  "InstanceAlreadyExists",
  "InstanceEnded",
  "InstanceRunning",
  "InstanceHasParent",
  "ChildLeftBehind",
  "InstanceFull",
  "SchemaBehind",
  "SchemaAhead",
  "SchemaMismatch",
  "SchemaOccupied",
  "MigrationsDiffer",
  "MigrationFailed",
  "LayoutMismatch",
  "IdsTaken",
  "AlreadyCompleted",
  "CompletionExpired",
  "NotAwaited"
])

const inputs: ReadonlySet<string> = new Set([
  "ConfigurationInvalid",
  "InvalidInput",
  "PayloadTooLarge",
  "TokenInvalid",
  "PackageMissing",
  "FileUnreadable",
  "NotDuroxide",
  "LayoutUnknown",
  "RowsRefused"
])

const unfinished: ReadonlySet<string> = new Set([
  "WaitTimeout",
  "LockTimeout",
  "TablesInUse",
  "FileInUse",
  "FileChanged",
  "ImportUnfinished",
  "ImportRunning"
])

/** What to do, where the message does not say it. */
const advice: Readonly<Record<string, string>> = {
  IdsTaken: "On the command line: --on-conflict keep, or replace",
  ImportUnfinished: "On the command line: --discard-unfinished",
  FileChanged: "On the command line: --discard-unfinished",
  ConnectionLost: "Check that the server runs and that the URL leads to it"
}
