import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import * as Stream from "effect/Stream"
import { isUuid } from "../../model/shared/identifiers.ts"
import * as Items from "../../operating/bulk.ts"
import { byOperator } from "../../operating/byOperator.ts"
import { errorOf } from "../../operating/tasks.ts"
import * as TaskReport from "../../prisma/shared/taskReport.ts"
import * as Tasks from "../../tasks/Tasks.ts"
import * as Bulk from "../internal/bulk.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Paging from "../internal/paging.ts"
import * as Store from "../internal/store.ts"
import { fitted, shortened } from "../internal/table.ts"
import { longestPayload, marked, shownTime, toJson } from "../internal/tasks.ts"

const name = Flag.String("name").pipe(
  Flag.withMetavar("<name>"),
  Flag.withDescription("Only tasks of this name"),
  Flag.optional
)

const ids = Argument.String("id").pipe(Argument.withDescription("Ids of the tasks"), Argument.variadic())

const all = Flag.Boolean("all").pipe(
  Flag.withoutNegation,
  Flag.withDescription("Tasks of every name"),
  Flag.withDefault(false)
)

const redrive = Command.make(
  "redrive",
  { ids, name, all, ...Bulk.flags },
  (flags) => Effect.provide(runRedrive(flags), layer)
).pipe(
  Command.withShortDescription("Give dead tasks all their attempts again"),
  Command.withDescription(
    "Give dead tasks all their attempts again: those that are named, those of a name, or all. An orchestration that " +
      "waited for one has learned of its death, and receives nothing more."
  ),
  Command.withExamples([
    { command: "duroxide-prisma tasks redrive 0b7c1a5e-8a4e-4d0e-9d5f-0f6a3c1b2d4e" },
    { command: "duroxide-prisma tasks redrive --name resize", description: "All that died: it counts them, and asks" }
  ])
)

const cancel = Command.make("cancel", {
  ids,
  name,
  status: Flag.ChoiceWithValue("status", [["pending", "Pending"], ["running", "Running"]] as const).pipe(
    Flag.withMetavar("<status>"),
    Flag.withDescription("Only pending or running ones"),
    Flag.optional
  ),
  all,
  reason: Flag.String("reason").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription(`Why: part of its outcome. Defaults to "${byOperator}"`),
    Flag.withDefault(byOperator)
  ),
  ...Bulk.flags
}, (flags) => Effect.provide(runCancel(flags), layer)).pipe(
  Command.withShortDescription("Cancel tasks that have not ended"),
  Command.withDescription(
    "Cancel tasks that have not ended: one that waits never runs, the handler of one that runs is interrupted. Tasks are " +
      "named, or selected by name and status."
  ),
  Command.withExamples([
    { command: "duroxide-prisma tasks cancel --name resize --status pending --reason \"wrong size\"" }
  ])
)

export const tasks = Command.make("tasks", {
  name,
  status: Flag.ChoiceWithValue(
    "status",
    [
      ["pending", "Pending"],
      ["running", "Running"],
      ["dead", "Dead"],
      ["completed", "Completed"],
      ["cancelled", "Cancelled"]
    ] as const
  ).pipe(
    Flag.withMetavar("<status>"),
    Flag.withDescription(
      "Only pending, running, dead, completed or cancelled ones. Defaults to dead ones, then those that have not ended"
    ),
    Flag.optional
  ),
  payloads: Flag.Boolean("payloads").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Also payloads, shortened; they may contain data of your application"),
    Flag.withDefault(false)
  ),
  cursor: Paging.cursor,
  limit: Paging.limitOf("tasks")
}, (flags) => Effect.provide(runList(flags), Store.layer)).pipe(
  Command.withShortDescription("List tasks, redrive dead ones, cancel others"),
  Command.withDescription(
    "List tasks with their attempts and the failure of the last one: the dead ones first, then those that have not ended. " +
      "\"queues\" counts them."
  ),
  Command.withExamples([
    { command: "duroxide-prisma tasks --status dead --name resize", description: "What died last, and why" }
  ]),
  Command.withSubcommands([redrive, cancel])
)

// internal

const layer = Layer.provideMerge(Tasks.layer, Store.layerForChanges)

const runList = Effect.fnUntraced(function*({ cursor, limit, name, payloads, status }: {
  readonly name: Option.Option<string>
  readonly payloads: boolean
  readonly status: Option.Option<TaskReport.Status>
  readonly cursor: Option.Option<string>
  readonly limit: number
}) {
  const { answer, columns, style } = yield* Output
  const page = yield* Effect.flatMap(
    TaskReport.list({
      name: Option.getOrUndefined(name),
      status: Option.getOrUndefined(status),
      hasPayloads: payloads,
      cursor: Option.getOrUndefined(cursor),
      limit
    }),
    Store.shown
  )
  const nowMs = yield* Clock.currentTimeMillis
  yield* answer({
    json: { tasks: page.tasks.map(toJson), next: page.next },
    text: page.tasks.length === 0
      ? [
        Option.isSome(status)
          ? "no tasks"
          : "no open or dead tasks; --status completed or --status cancelled lists those that have ended"
      ]
      : [
        ...fitted(
          page.tasks,
          [
            { title: "TASK", value: ({ id }) => id },
            { title: "NAME", value: ({ name }) => name },
            ...(page.tasks.every(({ key }) => key === null) ? [] : [{
              title: "KEY",
              value: ({ key }: TaskReport.ListedTask) => key ?? "-"
            }]),
            { title: "STATUS", value: ({ status }) => status, mark: (task, text) => marked(task, text, style) },
            {
              title: "ATTEMPTS",
              align: "right",
              value: ({ counted, maxAttempts }) => `${counted}/${maxAttempts}`
            },
            { title: "TIME", value: (task) => shownTime(task, nowMs) },
            ...(page.tasks.every(({ error }) => error === null) ? [] : [{
              title: "ERROR",
              // With payloads, the last column takes what is left.
              ...(!payloads && { shrinks: "end" as const }),
              value: (task: TaskReport.ListedTask) => errorOf(task) ?? ""
            }]),
            ...(payloads
              ? [{
                title: "PAYLOAD",
                shrinks: "end" as const,
                value: ({ payload }: TaskReport.ListedTask) => shortened(payload ?? "", longestPayload)
              }]
              : [])
          ],
          style,
          columns
        ),
        ...(page.next === null ? [] : ["", `More follow: repeat the command with --cursor ${page.next}`])
      ]
  })
})

interface Chosen extends Bulk.Flags {
  readonly ids: ReadonlyArray<string>
  readonly name: Option.Option<string>
  readonly all: boolean
}

const runRedrive = Effect.fnUntraced(function*(flags: Chosen) {
  const service = yield* Tasks.Tasks
  const found = yield* chosen(flags, "Dead", false)
  yield* Bulk.run(flags, found, { isNamed: flags.ids.length > 0 }, {
    verb: "redrive",
    done: "redriven",
    noun: "task",
    check: (id) =>
      Effect.flatMap(
        service.status(id),
        ({ _tag }) =>
          _tag === "Dead" ? Effect.void : Effect.fail(refusal(id, _tag, "TaskNotDead", `is ${_tag}, not Dead`))
      ),
    run: (id) =>
      Effect.flatMap(
        service.redrive({ ids: [id] }),
        ({ length }) => length > 0 ? Effect.void : Effect.fail(refusal(id, "", "TaskNotDead", "is no longer Dead"))
      )
  })
})

const runCancel = Effect.fnUntraced(function*(
  { reason, status, ...flags }: Chosen & {
    readonly status: Option.Option<"Pending" | "Running">
    readonly reason: string
  }
) {
  const service = yield* Tasks.Tasks
  const found = yield* chosen(flags, Option.getOrElse(status, () => "Open" as const), Option.isSome(status))
  yield* Bulk.run(flags, found, { isNamed: flags.ids.length > 0 }, {
    verb: "cancel",
    done: "cancelled",
    noun: "task",
    check: (id) =>
      Effect.flatMap(service.status(id), ({ _tag }) =>
        _tag === "Pending" || _tag === "Running"
          ? Effect.void
          : Effect.fail(refusal(id, _tag, "TaskEnded", `has ended: ${_tag}`))),
    run: (id) =>
      Effect.flatMap(
        service.cancel(id, reason),
        (isCancelled) => isCancelled ? Effect.void : Effect.fail(refusal(id, "", "TaskEnded", "has ended"))
      )
  })
})

/** Tasks that are named, or that are of a status now. */
const chosen = Effect.fnUntraced(function*(
  { all, ids, limit, name }: Chosen,
  status: TaskReport.Search["status"],
  hasStatus: boolean
) {
  const isFilter = Option.isSome(name) || all || hasStatus
  if (ids.length > 0) {
    return isFilter || Option.isSome(limit)
      ? yield* misused("name tasks by their ids, or select them with flags such as --name, not both")
      : Items.named(ids)
  }
  if (!isFilter) return yield* misused("name tasks by their ids, or select them with --name or --all")
  return Stream.map(
    TaskReport.stream({ status, name: Option.getOrUndefined(name) }),
    ({ id }): Items.Item => ({ id, parentId: null })
  )
})

const refusal = (id: string, status: string, code: string, problem: string) =>
  status === "NotFound"
    ? new CommandError({
      code: "TaskNotFound",
      message: `task ${id} not found${isUuid(id) ? "" : `: ids are UUIDs; to select tasks by name, give --name ${id}`}`,
      exit: "no"
    })
    : new CommandError({ code, message: `task ${id} ${problem}`, exit: "no" })
