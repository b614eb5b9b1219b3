import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { age } from "../../model/shared/quantities.ts"
import { Admin } from "../../provider/Admin.ts"
import { markedState, outcomeOf, shownStatus, toJson } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { shortened, table } from "../internal/table.ts"

export const list = Command.make("list", {
  status: Flag.ChoiceWithValue(
    "status",
    [
      ["running", "Running"],
      ["completed", "Completed"],
      ["failed", "Failed"]
    ] as const
  ).pipe(
    Flag.withMetavar("<status>"),
    Flag.withDescription("Only running, completed or failed ones; cancelled ones are among the failed"),
    Flag.optional
  ),
  name: Flag.String("name").pipe(
    Flag.withMetavar("<name>"),
    Flag.withDescription("Only instances of this orchestration"),
    Flag.optional
  ),
  prefix: Flag.String("id-prefix").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Only ids that begin so"),
    Flag.optional
  ),
  parent: Flag.String("parent").pipe(
    Flag.withMetavar("<id>"),
    Flag.withDescription("Only direct children of this instance"),
    Flag.optional
  ),
  blocked: Flag.Boolean("blocked").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Only instances whose next turn no process could run"),
    Flag.withDefault(false)
  ),
  paused: Flag.Boolean("paused").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Only instances that are paused, by themselves or with their definition"),
    Flag.withDefault(false)
  ),
  limit: Flag.Int("limit").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("Most instances to list, 1 to 1000. Defaults to 20"),
    Flag.filter((n) => n >= 1 && n <= 1000, (n) => `a number from 1 to 1000, not ${n}`),
    Flag.withDefault(20)
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("List the newest instances"),
  Command.withDescription("List the newest instances, newest first, by status, orchestration, id or parent."),
  Command.withExamples([
    { command: "duroxide-prisma list --status failed --name Order", description: "The last orders that failed" },
    { command: "duroxide-prisma list --blocked", description: "What a wrong deploy has stopped, and why" },
    {
      command: "duroxide-prisma list --status failed --limit 1000 --json",
      description: "The same for programs: an array of objects"
    }
  ])
)

// internal

/** What an instance shows of itself, or why it failed. */
const longestDetail = 40

const run = Effect.fnUntraced(function*({ blocked, limit, name, parent, paused, prefix, status }: {
  readonly status: Option.Option<"Running" | "Completed" | "Failed">
  readonly name: Option.Option<string>
  readonly prefix: Option.Option<string>
  readonly parent: Option.Option<string>
  readonly blocked: boolean
  readonly paused: boolean
  readonly limit: number
}) {
  const admin = yield* Admin
  const { answer, style } = yield* Output
  const found = yield* admin.findInstances({
    status: Option.getOrUndefined(status),
    orchestrationName: Option.getOrUndefined(name),
    idPrefix: Option.getOrUndefined(prefix),
    parentInstanceId: Option.getOrUndefined(parent),
    isBlocked: blocked,
    isPaused: paused,
    limit
  })
  const nowMs = yield* Clock.currentTimeMillis
  const rows = found.map((state) => {
    const { error, status } = outcomeOf(state)
    const detail = error ?? state.pause?.reason ?? state.block?.problem ?? state.customStatus ?? ""
    return { ...state, shown: shownStatus(state, status), status, detail }
  })
  yield* answer({
    json: found.map(toJson),
    text: rows.length === 0
      ? ["no instances"]
      : table(rows, [
        { title: "INSTANCE", value: ({ instanceId }) => instanceId },
        { title: "ORCHESTRATION", value: ({ orchestrationName }) => orchestrationName },
        { title: "VERSION", value: ({ orchestrationVersion }) => orchestrationVersion ?? "-" },
        { title: "STATUS", value: ({ shown }) => shown, mark: (row, text) => markedState(row, text, style) },
        { title: "CREATED", value: ({ createdAtMs }) => `${age(nowMs - createdAtMs)} ago` },
        { title: "LAST TURN", value: ({ updatedAtMs }) => `${age(nowMs - updatedAtMs)} ago` },
        ...(rows.every(({ detail }) => detail === "") ? [] : [{
          title: "DETAIL",
          value: ({ detail }: typeof rows[number]) => shortened(detail, longestDetail)
        }])
      ], style)
  })
})
