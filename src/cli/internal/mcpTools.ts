/**
 * The tools of the MCP server: each is a command that only reads, with its arguments as parameters. A value cannot be
 * read as another flag, because it stands behind `=`, or behind `--`.
 */
import { Tool, Toolkit } from "effect/ai"
import * as Schema from "effect/Schema"

/** A tool, and the arguments of the command that answers it. */
interface CommandTool {
  readonly tool: Tool.Any
  readonly args: (params: Params, hidesPayloads: boolean) => ReadonlyArray<string>
}

type Params = Readonly<Record<string, string | number | boolean | ReadonlyArray<string> | undefined>>

/** Why there is no answer, as the command line says it. */
export const Refused = Schema.Struct({ code: Schema.String, message: Schema.String })

/** What a command prints with `--json`. */
export const Answer = Schema.Struct({ answer: Schema.Json })

const text = (description: string) =>
  Schema.optionalKey(Schema.String.check(Schema.isMaxLength(2_048)).annotate({ description }))
const flag = (description: string) => Schema.optionalKey(Schema.Boolean.annotate({ description }))
const choice = <const L extends ReadonlyArray<string>>(description: string, literals: L) =>
  Schema.optionalKey(Schema.Literals(literals).annotate({ description }))
const number = (description: string, minimum: number, maximum: number) =>
  Schema.optionalKey(Schema.Int.check(Schema.isBetween({ minimum, maximum })).annotate({ description }))
const id = Schema.String.check(Schema.isMinLength(1), Schema.isMaxLength(2_048))

/** The flags that select instances, in the words of the command line. */
const filters = {
  "name": text("Orchestration, with @version for one version"),
  "id-prefix": text("Ids that begin so"),
  "parent": text("Direct children of this instance"),
  "roots": flag("Only instances without a parent"),
  "retrying": flag("Only running ones that try an activity again"),
  "attribute": Schema.optionalKey(
    Schema.Array(Schema.String.check(Schema.isMaxLength(400))).check(Schema.isMaxLength(20)).annotate({
      description: "Conditions such as customer=c1"
    })
  ),
  "created-after": text("A time such as 2026-11-27T08:00Z, or an age: 30m, 2h, 7d"),
  "created-before": text("That time, or longer ago"),
  "updated-after": text("Took a turn since"),
  "updated-before": text("Took no turn since"),
  "custom-status": text("Text in the custom status"),
  "error": text("Text in the error of failed, cancelled and blocked ones")
}

const statuses = ["running", "completed", "failed", "cancelled", "blocked", "paused"] as const

/** A parameter that does not exist is refused: without it, the answer would be about something else. */
const parametersOf = (name: string, parameters: Schema.Struct.Fields) => {
  const names = Object.keys(parameters)
  return names.length === 0
    ? Schema.Record(Schema.String, Schema.Never.annotate({ message: `${name} takes no parameters` }))
    : Schema.Struct(parameters).annotate({
      messageUnexpectedKey: `${name} has no such parameter. It has: ${names.join(", ")}`
    })
}

const make = (
  name: string,
  description: string,
  parameters: Schema.Struct.Fields,
  args: CommandTool["args"] = (params) => [name, ...flagsOf(params)]
): CommandTool => ({
  tool: Tool.make(name, {
    description,
    parameters: parametersOf(name, parameters),
    success: Answer,
    failure: Refused,
    failureMode: "return"
  }).annotate(Tool.Strict, true).annotate(Tool.Readonly, true).annotate(Tool.Destructive, false).annotate(
    Tool.Idempotent,
    true
  ).annotate(
    Tool.OpenWorld,
    false
  ),
  args
})

export const commandTools: ReadonlyArray<CommandTool> = [
  make("status", "What the store is: its schema, instances by state, processes, and what is wrong", {}),
  make("doctor", "Looks for what is wrong with the store and its processes, and says what to do", {}),
  make("list", "Lists instances, newest first, a page at a time", {
    ...filters,
    status: choice("Only these", statuses),
    order: choice("Defaults to newest", ["newest", "oldest", "id"]),
    limit: number("Most instances, 1 to 100. Defaults to 20", 1, 100),
    cursor: text("`next` of the page before")
  }, (params, hidesPayloads) => ["list", ...flagsOf({ limit: 20, ...params, "hide-payloads": hidesPayloads })]),
  make("count", "Counts instances by orchestration and state", {
    name: text("Only this orchestration"),
    status: choice("Only these", ["running", "completed", "failed", "cancelled"]),
    versions: flag("Counts versions apart")
  }),
  make(
    "show",
    "Shows an instance: its state, what it waits for, its executions, children, attributes and history",
    {
      id,
      execution: number("Execution to show the history of. Defaults to the current one", 1, 2_147_483_647),
      events: number("Most events, the last ones, 0 to 500. Defaults to 50", 0, 500)
    },
    ({ id, ...params }, hidesPayloads) => [
      "show",
      ...flagsOf({ ...params, "hide-payloads": hidesPayloads }),
      "--",
      String(id)
    ]
  ),
  make(
    "explain",
    "Says in a sentence why an instance does not continue; without an id, what running instances wait for, in groups",
    {
      ...filters,
      id: Schema.optionalKey(id),
      status: choice("Only these", statuses),
      limit: number("Most instances to look at without an id, 1 to 1000", 1, 1_000)
    },
    ({ id, ...params }, hidesPayloads) => [
      "explain",
      ...flagsOf({ ...params, "hide-payloads": hidesPayloads }),
      ...(id === undefined ? [] : ["--", String(id)])
    ]
  ),
  make("queues", "What waits in each queue, and for how long", {}),
  make("processes", "The processes of the store: what they serve, and how busy they are", {}),
  make("tasks", "Lists tasks, dead ones first, then those that wait or run, a page at a time", {
    name: text("Only tasks of this name"),
    status: choice("Only these", ["pending", "running", "completed", "dead", "cancelled"]),
    limit: number("Most tasks, 1 to 100. Defaults to 20", 1, 100),
    cursor: text("`next` of the page before")
  }, (params, hidesPayloads) => ["tasks", ...flagsOf({ limit: 20, ...params, payloads: !hidesPayloads })]),
  make("audit", "What operators have done, newest first, a page at a time", {
    limit: number("Most actions, 1 to 100. Defaults to 20", 1, 100),
    cursor: text("`next` of the page before")
  }, (params) => ["audit", ...flagsOf({ limit: 20, ...params })])
]

export const toolkit = Toolkit.make(...commandTools.map(({ tool }) => tool))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

const flagsOf = (params: Params): ReadonlyArray<string> =>
  Object.entries(params).flatMap(([name, value]) =>
    value === undefined || value === false
      ? []
      : value === true
      ? [`--${name}`]
      : Array.isArray(value)
      ? value.map((one) => `--${name}=${one}`)
      : [`--${name}=${String(value)}`]
  )
