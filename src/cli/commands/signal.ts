import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import type * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Client from "../../Client.ts"
import { findRunning } from "../../operating/running.ts"
import * as Signal from "../../Signal.ts"
import { misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Payload from "../internal/payload.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const signal = Command.make("signal", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  name: Argument.String("name").pipe(Argument.withDescription("Name of the signal")),
  payload: Payload.argument,
  lossy: Flag.Boolean("lossy").pipe(
    Flag.withoutNegation,
    Flag.withDescription("A signal that is defined as lost if it is not awaited, as raise_event of Duroxide"),
    Flag.withDefault(false)
  ),
  beforeStart: Flag.Boolean("before-start").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Send it also to an id that is not started yet: it waits for the start"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Send a signal to an instance"),
  Command.withDescription(
    "Send a signal to an instance, which keeps it until its program takes it. Two commands send it twice. A payload that " +
      "the program cannot read blocks the instance."
  ),
  Command.withExamples([
    { command: "duroxide-prisma signal order-17 Collected" },
    { command: "duroxide-prisma signal order-17 Approved '{\"by\":\"Ada\"}'" }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ beforeStart, id, lossy, name, payload: given }: {
  readonly id: string
  readonly name: string
  readonly payload: Option.Option<string>
  readonly lossy: boolean
  readonly beforeStart: boolean
}) {
  const payload = yield* Payload.read(given)
  const sent = yield* Effect.try({
    try: () => Signal.make(name, { payload: Schema.Unknown, unawaited: lossy ? "lost" : "kept" }),
    catch: (thrown) => misused((thrown as RangeError).message)
  })
  yield* Effect.catchReason(
    findRunning(id),
    "ProviderError",
    "InstanceNotFound",
    (_, error) => beforeStart ? Effect.void : Effect.fail(error)
  )
  const client = yield* Effect.provide(Client.Client, Client.layer)
  yield* client.send(sent, id, payload)
  const { answer } = yield* Output
  yield* answer({
    json: { action: "sent", instanceId: id, signal: name },
    text: [oneLine(`sent ${name} to ${id}`)]
  })
})
