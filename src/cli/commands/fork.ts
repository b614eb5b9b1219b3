import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import { Admin } from "../../provider/Admin.ts"
import { noLessThan } from "../internal/numbers.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const fork = Command.make("fork", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  at: Flag.Int("at").pipe(
    Flag.withMetavar("<event>"),
    Flag.withDescription("The last event that the fork has"),
    noLessThan(1)
  ),
  as: Flag.String("as").pipe(Flag.withMetavar("<id>"), Flag.withDescription("Id of the fork"))
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Make an instance that continues from an event of another one"),
  Command.withDescription(
    "Make an instance that continues from an event of another one, which stays as it is. What was open then begins again " +
      "for the fork: its effects happen again, with idempotency keys of their own."
  ),
  Command.withExamples([{ command: "duroxide-prisma fork order-17 --at 6 --as order-17-again" }])
)

// internal

const run = Effect.fnUntraced(function*({ as, at, id }: {
  readonly id: string
  readonly at: number
  readonly as: string
}) {
  yield* (yield* Admin).fork(id, { atEvent: at, newId: as })
  const { answer } = yield* Output
  yield* answer({
    json: { action: "forked", instanceId: id, atEvent: at, newId: as },
    text: [oneLine(`${as} continues from event ${at} of ${id}`)]
  })
})
