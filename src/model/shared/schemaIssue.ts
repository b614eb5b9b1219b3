import type * as Exit from "effect/Exit"
import * as Schema from "effect/Schema"
import type * as SchemaAST from "effect/SchemaAST"
import type * as SchemaIssue from "effect/SchemaIssue"

/** What was expected and where, on one line: no value, and of the keys only those that the Schema names. */
export const describe = (exit: Exit.Failure<unknown, Schema.SchemaError>): string => {
  const reason = exit.cause.reasons[0]
  return reason?._tag === "Fail" ? describeThrown(reason.error) : "it cannot be converted"
}

/** `describe` for what code of an application threw: its options may have put the value into the issue. */
export const describeThrown = (error: Schema.SchemaError): string =>
  new Schema.SchemaError(withoutData(error.issue)).message.replace(/\s*\n\s*/g, " ").slice(0, 300)

// internal

/** The key of a record, which is data like a value: an id, an address. */
const hidden = "…"

/**
 * A formatter shows the `input` that is an own property of an issue: the copy inherits all properties and owns none.
 */
const withoutData = (issue: SchemaIssue.Issue, parent?: SchemaAST.AST): SchemaIssue.Issue =>
  Object.create(issue, {
    ...("issue" in issue && { issue: { value: withoutData(issue.issue, astOf(issue)) } }),
    ...("issues" in issue && { issues: { value: issue.issues.map((child) => withoutData(child, astOf(issue))) } }),
    ...(issue._tag === "Pointer" && parent?._tag === "Objects" && {
      path: { value: issue.path.map((key) => namesField(parent, key) ? key : hidden) }
    })
  })

const astOf = (issue: SchemaIssue.Issue) => "ast" in issue ? issue.ast : undefined

const namesField = (ast: SchemaAST.Objects, key: PropertyKey) => ast.propertySignatures.some(({ name }) => name === key)
