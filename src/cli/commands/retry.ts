import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { counted } from "../../model/shared/quantities.ts"
import { Admin } from "../../provider/Admin.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const retry = Command.make("retry", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  from: Flag.Int("from").pipe(
    Flag.withMetavar("<event>"),
    Flag.withDescription("The last event that stays. Defaults to the one before what ended the instance"),
    Flag.filter((n) => n >= 1, (n) => `a number of at least 1, not ${n}`),
    Flag.optional
  ),
  reason: Flag.String("reason").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Kept with the removed events, for people"),
    Flag.optional
  )
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Run an instance again that has failed, was cancelled or is blocked"),
  Command.withDescription(
    "Run an instance again that has failed, was cancelled or is blocked, from its last good event. What failed is " +
      "carried out again with the same idempotency key; children that it waits for are retried as well."
  ),
  Command.withExamples([
    { command: "duroxide-prisma retry order-17", description: "Once the cause is gone" },
    {
      command: "duroxide-prisma retry order-17 --from 6 --reason \"new fraud check\"",
      description: "Let the code that runs now decide what follows event 6"
    }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ from, id, reason }: {
  readonly id: string
  readonly from: Option.Option<number>
  readonly reason: Option.Option<string>
}) {
  const admin = yield* Admin
  const { answer } = yield* Output
  const retried = yield* admin.retry(id, {
    from: Option.getOrUndefined(from),
    reason: Option.getOrUndefined(reason)
  })
  const [, ...children] = retried.instanceIds
  yield* answer({
    json: retried,
    text: [
      children.length === 0
        ? `${oneLine(id)} runs again`
        : `${oneLine(id)} runs again, with ${counted(children.length, "child", "children")}:`,
      ...children.map((child) => `  ${oneLine(child)}`)
    ]
  })
})
