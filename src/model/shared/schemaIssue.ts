import type * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as SchemaIssue from "effect/SchemaIssue"

/** What was expected and where, on one line. A Schema issue never shows the value itself. */
export const describe = (exit: Exit.Failure<unknown, Schema.SchemaError>): string => {
  const reason = exit.cause.reasons[0]
  if (reason?._tag !== "Fail") return "it cannot be converted"
  return onOneLine(reason.error)
}

/** `describe` for what code of an application threw: its options may have put the value into the issue. */
export const describeThrown = (error: Schema.SchemaError): string =>
  onOneLine(new Schema.SchemaError(withoutInput(error.issue)))

// internal

const onOneLine = ({ message }: Schema.SchemaError) => message.replace(/\s*\n\s*/g, " ").slice(0, 300)

/**
 * A formatter shows the `input` that is an own property of an issue: the copy inherits all properties and owns none.
 */
const withoutInput = (issue: SchemaIssue.Issue): SchemaIssue.Issue =>
  Object.create(issue, {
    ...("issue" in issue && { issue: { value: withoutInput(issue.issue) } }),
    ...("issues" in issue && { issues: { value: issue.issues.map(withoutInput) } })
  })
