import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Client from "../../Client.ts"
import { noLessThan } from "../internal/numbers.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const redrive = Command.make("redrive", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  event: Flag.Int("event").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("The event of the signal, as \"show\" lists it"),
    noLessThan(1)
  ),
  execution: Flag.Int("execution").pipe(
    Flag.withMetavar("<n>"),
    Flag.withDescription("The execution of the event. Defaults to the current one"),
    noLessThan(1),
    Flag.optional
  )
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Send a signal again that no process could read"),
  Command.withDescription(
    "Send a signal again that was set aside because no process could read it. The instance receives it as its newest one. " +
      "Deploy a build that can read it first."
  ),
  Command.withExamples([{ command: "duroxide-prisma redrive order-17 --event 5" }])
)

// internal

const run = Effect.fnUntraced(function*({ event, execution, id }: {
  readonly id: string
  readonly event: number
  readonly execution: Option.Option<number>
}) {
  const client = yield* Effect.provide(Client.Client, Client.layer)
  yield* client.redrive(id, { event, execution: Option.getOrUndefined(execution) })
  const { answer } = yield* Output
  yield* answer({
    json: { action: "redriven", instanceId: id, event },
    text: [oneLine(`sent the signal of event ${event} to ${id} again`)]
  })
})
