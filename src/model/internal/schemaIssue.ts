import type * as Exit from "effect/Exit"
import type * as Schema from "effect/Schema"

/** What was expected and where, on one line; Schema issues never show the value itself. */
export const describe = (exit: Exit.Failure<unknown, Schema.SchemaError>): string => {
  const reason = exit.cause.reasons[0]
  if (reason?._tag !== "Fail") return "it cannot be converted"
  return reason.error.message.replace(/\s*\n\s*/g, " ").slice(0, 300)
}
