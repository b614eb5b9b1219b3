import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import * as Client from "../../Client.ts"
import { findRunning } from "../../operating/running.ts"
import * as Request from "../../Request.ts"
import { durationOf } from "../internal/durations.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Payload from "../internal/payload.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const request = Command.make("request", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  name: Argument.String("name").pipe(Argument.withDescription("Name of the request")),
  payload: Payload.argument,
  requestId: Flag.String("request-id").pipe(
    Flag.withMetavar("<id>"),
    Flag.withDescription("Names the question: the same one is answered once. Defaults to a random one"),
    Flag.optional
  ),
  timeout: Flag.String("timeout").pipe(
    Flag.withMetavar("<duration>"),
    Flag.withDescription("Longest wait for the answer, such as \"10 seconds\". Defaults to no limit"),
    Flag.optional
  )
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Ask an instance, and print its answer"),
  Command.withDescription(
    "Ask an instance, wait for its answer, and print it, which is JSON. Exits with 1 if the program refuses, and prints " +
      "why; with 4 if there was no answer in time. The question stays: ask it again with the same id."
  ),
  Command.withExamples([
    { command: "duroxide-prisma request order-17 Approve '{\"by\":\"Ada\"}' --timeout \"10 seconds\"" }
  ])
)

// internal

const run = Effect.fnUntraced(function*(flags: {
  readonly id: string
  readonly name: string
  readonly payload: Option.Option<string>
  readonly requestId: Option.Option<string>
  readonly timeout: Option.Option<string>
}) {
  const { id, name, payload, timeout } = flags
  const value = yield* Payload.read(payload)
  const question = yield* Effect.try({
    try: () => Request.make(name, { payload: Schema.Unknown, success: Schema.Unknown, error: Schema.Unknown }),
    catch: (thrown) => misused((thrown as RangeError).message)
  })
  yield* findRunning(id)
  const requestId = Option.getOrElse(flags.requestId, () => randomUUID())
  const client = yield* Effect.provide(Client.Client, Client.layer)
  const { answer, isTerminal } = yield* Output
  const print = (outcome: { readonly answer: unknown } | { readonly refused: unknown }) => {
    const text = JSON.stringify("answer" in outcome ? outcome.answer : outcome.refused)
    return answer({
      json: { instanceId: id, request: name, requestId, ...outcome },
      text: [isTerminal ? oneLine(text) : text]
    })
  }
  yield* client.request(question, id, value, { requestId, timeout: yield* durationOf("timeout", timeout) }).pipe(
    Effect.flatMap((answer) => print({ answer })),
    // A program may refuse with any JSON; all other errors are those of this package.
    Effect.catch((error) =>
      error instanceof Error ? Effect.fail(error) : Effect.andThen(
        print({ refused: error }),
        new CommandError({ code: "RequestRefused", message: `instance ${id} refused the request ${name}`, exit: "no" })
      )
    )
  )
})
