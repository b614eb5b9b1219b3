import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import * as Client from "../../Client.ts"
import { parseDefinition } from "../../operating/definitions.ts"
import { findRunning } from "../../operating/running.ts"
import * as Orchestration from "../../Orchestration.ts"
import * as Signal from "../../Signal.ts"
import { CommandError, misused } from "../internal/failure.ts"
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
  orStart: Flag.String("or-start").pipe(
    Flag.withMetavar("<name[@version]>"),
    Flag.withDescription("Start this orchestration in the same transaction, if there is no instance of this id"),
    Flag.optional
  ),
  startPayload: Flag.String("start-payload").pipe(
    Flag.withMetavar("<payload>"),
    Flag.withDescription("Payload of --or-start, given as that of the signal"),
    Flag.optional
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
    { command: "duroxide-prisma signal order-17 Approved '{\"by\":\"Ada\"}'" },
    {
      command: "duroxide-prisma signal cart-7 Added '\"lamp\"' --or-start Cart",
      description: "Starts the cart with its first item"
    }
  ])
)

// internal

const run = Effect.fnUntraced(function*(
  { beforeStart, id, lossy, name, orStart, payload: given, startPayload }: Flags
) {
  const payload = yield* Payload.read(given)
  const sent = yield* Effect.try({
    try: () => Signal.make(name, { payload: Schema.Unknown, unawaited: lossy ? "lost" : "kept" }),
    catch: (thrown) => misused((thrown as RangeError).message)
  })
  const client = yield* Effect.provide(Client.Client, Client.layer)
  if (Option.isSome(orStart)) {
    const { name, version } = parseDefinition(orStart.value)
    const orchestration = yield* Effect.try({
      try: () => Orchestration.make(name, { version: version ?? "1.0.0", payload: Schema.Unknown }),
      catch: (thrown) => misused((thrown as RangeError).message)
    })
    yield* client.send(sent, id, payload, {
      orStart: {
        orchestration,
        payload: yield* Payload.read(startPayload),
        version: version === undefined ? "newest" : "own"
      }
    }).pipe(
      Effect.catchTag(
        "InstanceAlreadyExists",
        () =>
          new CommandError({ code: "InstanceEnded", message: `instance ${id} has ended: nothing was sent`, exit: "no" })
      )
    )
  } else {
    if (Option.isSome(startPayload)) return yield* misused("--start-payload goes with --or-start")
    yield* Effect.catchReason(
      findRunning(id),
      "ProviderError",
      "InstanceNotFound",
      (_, error) => beforeStart ? Effect.void : Effect.fail(error)
    )
    yield* client.send(sent, id, payload)
  }
  const { answer } = yield* Output
  yield* answer({
    json: { action: "sent", instanceId: id, signal: name },
    text: [oneLine(`sent ${name} to ${id}`)]
  })
})

interface Flags {
  readonly id: string
  readonly name: string
  readonly payload: Option.Option<string>
  readonly lossy: boolean
  readonly beforeStart: boolean
  readonly orStart: Option.Option<string>
  readonly startPayload: Option.Option<string>
}
