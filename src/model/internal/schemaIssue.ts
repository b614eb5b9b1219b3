import type * as Exit from "effect/Exit"
import type * as Schema from "effect/Schema"

/** What was expected and where, on one line. A Schema issue never shows the value itself. */
export const describe = (exit: Exit.Failure<unknown, Schema.SchemaError>): string => {
  const reason = exit.cause.reasons[0]
  if (reason?._tag !== "Fail") return "it cannot be converted"
  return reason.error.message.replace(/\s*\n\s*/g, " ").slice(0, 300)
}
