import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { counted } from "../../model/shared/quantities.ts"
import * as RetryPlan from "../../operating/retryPlan.ts"
import { toRetry } from "../../operating/selection.ts"
import { Admin } from "../../provider/Admin.ts"
import type { RetriedActivity, RetriedInstance, RetriedTask } from "../../provider/Admin.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { noLessThan } from "../internal/numbers.ts"
import { Output } from "../internal/Output.ts"
import * as Selection from "../internal/selection.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const retry = Command.make("retry", {
  ...Selection.flags,
  from: Flag.Int("from").pipe(
    Flag.withMetavar("<event>"),
    Flag.withDescription("The last event that stays. Defaults to the one before what ended the instance"),
    noLessThan(1),
    Flag.optional
  ),
  reason: Flag.String("reason").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Kept with the removed events, for people"),
    Flag.optional
  )
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Run instances again that have failed, were cancelled or are blocked"),
  Command.withDescription(
    "Run instances again that have failed, were cancelled or are blocked, from their last good event. What failed is " +
      "carried out again with the same idempotency key; children that they wait for are retried as well. Instances are " +
      "named, or selected by filters: blocked ones, and failed or cancelled ones without a parent."
  ),
  Command.withExamples([
    { command: "duroxide-prisma retry order-17", description: "Once the cause is gone" },
    {
      command: "duroxide-prisma retry order-17 --from 6 --reason \"new fraud check\"",
      description: "Let the code that runs now decide what follows event 6"
    },
    {
      command: "duroxide-prisma retry --status failed --error \"bank is down\" --updated-after 2h",
      description: "All that failed in an outage: it counts them, and asks"
    }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ from, reason: given, ...flags }: Selection.Flags & {
  readonly from: Option.Option<number>
  readonly reason: Option.Option<string>
}) {
  const admin = yield* Admin
  const reason = Option.getOrUndefined(given)
  const id = Selection.onlyId({ ...flags, dryRun: false })
  if (id === undefined) {
    if (Option.isSome(from)) return yield* misused("--from is an event of one instance: name that one alone")
    return yield* Selection.run(flags, {
      verb: "retry",
      done: "retried",
      selectable: toRetry,
      check: checkRetryable,
      run: (id) => Effect.asVoid(admin.retry(id, { reason })),
      foresee: (items, total) =>
        Effect.map(RetryPlan.planMany(items), (sum) => ({ json: { plan: sum }, text: summed(sum, total) }))
    })
  }
  const { answer } = yield* Output
  const options = { from: Option.getOrUndefined(from) }
  if (flags.dryRun) {
    const { instances, warnings } = yield* RetryPlan.planOne(id, options)
    return yield* answer({
      json: { dryRun: true, instances, warnings },
      text: [...instances.flatMap(planned), ...warnings.map(warned)]
    })
  }
  const { instances } = yield* admin.retry(id, { ...options, reason })
  yield* answer({ json: { dryRun: false, instances }, text: instances.map(begun) })
})

/** Whether it continues is not known yet. */
const begun = ({ instanceId }: RetriedInstance, i: number) =>
  i === 0
    ? `retried ${oneLine(instanceId)}: it continues when a process takes it`
    : `  with its child ${oneLine(instanceId)}`

const warned = (warning: string) => `  warning: ${oneLine(warning)}`

const againWords = "with the same idempotency key"

const forgottenWords = "if the code still calls it, with a new idempotency key, or as a further try of a call that " +
  "stays, with the key of that; what it did before stays done"

const summed = ({ again, forgotten, looked, refused, warnings }: RetryPlan.Sum, total: number) => {
  const named = (activities: ReadonlyArray<RetryPlan.Calls>) =>
    activities.map(({ calls, name }) => `${counted(calls, "call")} of ${oneLine(name)}`).join(", ")
  return [
    ...(again.length === 0 ? [] : [`  runs again, ${againWords}: ${named(again)}`]),
    ...(forgotten.length === 0 ? [] : [`  runs a second time, ${forgottenWords}: ${named(forgotten)}`]),
    ...(refused === 0 ? [] : [`  cannot be retried: ${counted(refused, "instance")}`]),
    ...warnings.map(warned),
    ...(looked >= total ? [] : [`  only the first ${looked} were looked at for this`])
  ]
}

const planned = ({ again, forgotten, from, instanceId, removed, tasks }: RetriedInstance, i: number) => {
  const named = (activities: ReadonlyArray<RetriedActivity>) =>
    activities.map(({ eventId, name }) => `${oneLine(name)} (event ${eventId})`).join(", ")
  return [
    `${i === 0 ? "would retry" : "with its child"} ${oneLine(instanceId)} from event ${from}: ` + (
      removed === null ? "all events stay" : `events ${removed[0]} to ${removed[1]} are removed`
    ),
    ...(again.length === 0 ? [] : [`  runs again, ${againWords}: ${named(again)}`]),
    ...(forgotten.length === 0 ? [] : [`  runs a second time, ${forgottenWords}: ${named(forgotten)}`]),
    ...(tasks.length === 0 ? [] : [`  waits again for ${tasksWords}: ${tasks.map(taskNamed).join(", ")}`])
  ]
}

const tasksWords = "tasks, which run again, under the same id, if they are dead or were cancelled"

const taskNamed = ({ eventId, id, key, name }: RetriedTask) =>
  `${oneLine(name ?? "one whose name is sealed")}${id === null ? "" : ` ${id}`}${
    key === null ? "" : ` with the key ${oneLine(key)}`
  } (event ${eventId})`

/** Fails if its row says that it cannot be retried. */
const checkRetryable = Effect.fnUntraced(function*(id: string) {
  const { block, status } = yield* (yield* Admin).getInstanceInfo(id)
  if (status === "Failed" || block !== null) return
  return yield* new CommandError({
    code: "RetryRefused",
    message: `instance ${id} cannot be retried: it ${status === "Completed" ? "has completed" : "runs"}`,
    exit: "no"
  })
})
