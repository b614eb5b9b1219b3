import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { counted } from "../../model/shared/quantities.ts"
import { isUnderWay, outcomeOf } from "../../operating/outcome.ts"
import { toDelete } from "../../operating/selection.ts"
import { Admin } from "../../provider/Admin.ts"
import { confirm } from "../internal/bulk.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Selection from "../internal/selection.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const deletion = Command.make("delete", {
  ...Selection.flags,
  force: Flag.Boolean("force").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Delete instances that have not ended, too"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Delete ended instances, with their descendants"),
  Command.withDescription(
    "Delete ended instances, with their descendants: their histories, results, key-values and messages. There is no way " +
      "back, so it asks also about an instance that is named. Filters select instances without a parent that have ended."
  ),
  Command.withExamples([
    { command: "duroxide-prisma delete order-17" },
    {
      command: "duroxide-prisma delete --status completed --updated-before 30d --yes",
      description: "Every night: what completed more than 30 days ago"
    }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ force, ...flags }: Selection.Flags & { readonly force: boolean }) {
  const admin = yield* Admin
  const id = Selection.onlyId(flags)
  if (id === undefined) {
    if (Option.isSome(flags.parent)) {
      return yield* misused("--parent selects children, which are deleted with the root of their tree")
    }
    return yield* Selection.run(flags, {
      verb: "delete",
      done: "deleted",
      outcome: " with their descendants",
      selectable: toDelete(force),
      asksAboutNamed: true,
      check: (id) => find(id, force),
      run: (id) => Effect.asVoid(admin.deleteInstance(id, { force }))
    })
  }
  yield* find(id, force)
  if (!flags.yes) {
    const { allIds } = yield* admin.getInstanceTree(id)
    const descendants = allIds.length === 1 ? "" : ` and ${counted(allIds.length - 1, "descendant", "descendants")}`
    yield* confirm(`delete ${id}${descendants}`, flags.yes)
  }
  const deleted = yield* admin.deleteInstance(id, { force })
  const { answer } = yield* Output
  yield* answer({
    json: { action: "deleted", instanceId: id, ...deleted },
    text: [
      oneLine(
        `deleted ${id}: ${counted(deleted.instancesDeleted, "instance", "instances")}, ` +
          counted(deleted.eventsDeleted, "event", "events")
      )
    ]
  })
})

/** Fails if it cannot be deleted. */
const find = Effect.fnUntraced(function*(id: string, force: boolean) {
  const state = yield* (yield* Admin).getInstanceInfo(id)
  const { parentInstanceId } = state
  if (parentInstanceId !== null) {
    return yield* new CommandError({
      code: "InstanceHasParent",
      message: `instance ${id} is a child of ${parentInstanceId}: delete the root of its tree`,
      exit: "no"
    })
  }
  const { status } = outcomeOf(state)
  if (!force && isUnderWay(status)) {
    return yield* new CommandError({
      code: "InstanceRunning",
      message: `instance ${id} has not ended: interrupt it first, or delete it with --force`,
      exit: "no"
    })
  }
})
