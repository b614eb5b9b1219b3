import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { age } from "../../model/shared/quantities.ts"
import { deathOf, outcomeOf } from "../../operating/outcome.ts"
import { isoTime } from "../../operating/times.ts"
import * as RetryReport from "../../prisma/shared/retryReport.ts"
import { Admin } from "../../provider/Admin.ts"
import type { InstanceInfo } from "../../provider/Admin.ts"
import * as Filters from "../internal/filters.ts"
import { markedState, shownStatus, toJson } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import * as Paging from "../internal/paging.ts"
import * as Store from "../internal/store.ts"
import { fitted } from "../internal/table.ts"

export const list = Command.make("list", {
  ...Filters.flags,
  order: Flag.ChoiceWithValue("order", [["newest", "newest"], ["oldest", "oldest"], ["id", "id"]] as const).pipe(
    Flag.withMetavar("<order>"),
    Flag.withDescription("newest, oldest or id. Defaults to newest, with --id-prefix to id"),
    Flag.optional
  ),
  cursor: Paging.cursor,
  limit: Paging.limitOf("instances"),
  hidePayloads: Flag.Boolean("hide-payloads").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Show no outputs, which are data of your application"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("List instances"),
  Command.withDescription(
    "List instances, the newest first, by status, orchestration, id, parent, attributes, times and texts. Indexes lead " +
      "to a status, an orchestration, a parent, an attribute and times of creation; the rest is looked for in one " +
      "instance after the other, and so are the others beside an attribute. A typed error is shown as JSON, such as " +
      "{\"_tag\":\"Declined\"}; what a program died of, a bug, as \"died: …\"."
  ),
  Command.withExamples([
    { command: "duroxide-prisma list --status failed --name Order", description: "The last orders that failed" },
    { command: "duroxide-prisma list --status blocked", description: "What a wrong deploy has stopped, and why" },
    {
      command: "duroxide-prisma list --status running --created-before 2d --order oldest",
      description: "What has run for more than two days, the oldest first"
    },
    {
      command: "duroxide-prisma list --attribute customer=c1 --attribute 'amount:>=100'",
      description: "By attributes: a text, and a range of numbers"
    },
    { command: "duroxide-prisma list --limit 1000 --json", description: "For programs: the instances, and a cursor" }
  ])
)

// internal

/** Such as `Charge again in 60 min: "the bank is down"`, or `Charge, try 2, runs: "the bank is down"`. */
const shownRetry = (
  { activity, atMs, deliveries, error, isRunning, tryNumber }: RetryReport.Retry,
  nowMs: number
): string => {
  const name = activity ?? "an activity"
  const when = atMs > nowMs ? `in ${age(atMs - nowMs)}` : `due for ${age(nowMs - atMs)}`
  const what = deliveries === null ? [`${name} again ${when}`] : [
    name,
    `try ${tryNumber}`,
    ...(deliveries > 1 ? [`delivery ${deliveries}`] : []),
    isRunning ? "runs" : when
  ]
  return `${what.join(", ")}${error === null ? "" : `: ${error}`}`
}

const retryJson = ({ activity, atMs, deliveries, error, tryNumber }: RetryReport.Retry) => ({
  activity,
  tryNumber,
  deliveries,
  error,
  at: isoTime(atMs)
})

const run = Effect.fnUntraced(function*({ cursor, hidePayloads, limit, order, ...filter }: Filters.Filter & {
  readonly order: Option.Option<"newest" | "oldest" | "id">
  readonly cursor: Option.Option<string>
  readonly limit: number
  readonly hidePayloads: boolean
}) {
  const admin = yield* Admin
  const { answer, columns, style } = yield* Output
  const search = { ...yield* Filters.searchOf(filter), orderBy: Option.getOrUndefined(order) }
  const found: Array<InstanceInfo> = []
  let next = Option.getOrNull(cursor)
  do {
    const page = yield* admin.list({ ...search, cursor: next ?? undefined, limit: limit - found.length })
    found.push(...page.instances)
    next = page.next
  } while (next !== null && found.length < limit)
  const nowMs = yield* Clock.currentTimeMillis
  const retries: ReadonlyMap<string, RetryReport.Retry> = filter.retrying
    ? yield* RetryReport.read(found.map(({ instanceId }) => instanceId))
    : new Map()
  const rows = found.map((state) => {
    const retry = retries.get(state.instanceId)
    const { error, status } = outcomeOf(state)
    const detail = (retry && shownRetry(retry, nowMs)) ?? deathOf(state) ?? error ?? state.pause?.reason ??
      state.block?.problem ?? state.customStatus ?? ""
    return { ...state, shown: shownStatus(state, status), status, detail }
  })
  yield* answer({
    json: {
      instances: found.map((state) => {
        const retry = retries.get(state.instanceId)
        return {
          ...toJson(state),
          ...(hidePayloads && { output: null }),
          ...(retry !== undefined && { retrying: retryJson(retry) })
        }
      }),
      next
    },
    text: rows.length === 0
      ? ["no instances"]
      : [
        ...fitted(
          rows,
          [
            { title: "INSTANCE", value: ({ instanceId }) => instanceId },
            { title: "ORCHESTRATION", value: ({ orchestrationName }) => orchestrationName },
            { title: "VERSION", value: ({ orchestrationVersion }) => orchestrationVersion ?? "-" },
            { title: "STATUS", value: ({ shown }) => shown, mark: (row, text) => markedState(row, text, style) },
            { title: "CREATED", value: ({ createdAtMs }) => `${age(nowMs - createdAtMs)} ago` },
            { title: "LAST TURN", value: ({ updatedAtMs }) => `${age(nowMs - updatedAtMs)} ago` },
            ...(rows.every(({ detail }) => detail === "") ? [] : [{
              title: "DETAIL",
              shrinks: "end" as const,
              value: ({ detail }: typeof rows[number]) => detail
            }])
          ],
          style,
          columns
        ),
        ...(next === null ? [] : ["", `More follow: repeat the command with --cursor ${next}`])
      ]
  })
})
