import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { Provider } from "../../provider/Provider.ts"
import { outcomeOf } from "../../provider/shared/endOf.ts"
import { durationOf } from "../internal/durations.ts"
import { CommandError } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const wait = Command.make("wait", {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  timeout: Flag.String("timeout").pipe(
    Flag.withMetavar("<duration>"),
    Flag.withDescription(
      "Longest wait, such as \"10 minutes\"; with \"0 seconds\" it looks once. Defaults to no limit"
    ),
    Flag.optional
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("Wait until an instance has ended, and print its output"),
  Command.withDescription(
    "Wait until an instance has ended, and print its output, which is JSON. Exits with 1 if it has failed or was " +
      "cancelled, and with 4 if it had not ended in time. Waits for the start of an id that is unknown as well."
  ),
  Command.withExamples([
    { command: "duroxide-prisma wait order-17 --timeout \"10 minutes\"" }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ id, timeout }: {
  readonly id: string
  readonly timeout: Option.Option<string>
}) {
  const provider = yield* Provider
  const { answer, isTerminal, warn } = yield* Output
  const duration = yield* durationOf("timeout", timeout)
  if (Option.isNone(yield* provider.readInstance(id))) {
    yield* warn(oneLine(`no instance ${id} is known: waiting for its start`))
  }
  const end = yield* provider.awaitEnd({ instanceId: id, timeout: duration })
  if (Option.isNone(end)) {
    return yield* new CommandError({
      code: "WaitTimeout",
      message: `instance ${id} had not ended after ${Option.getOrElse(timeout, () => "")}`,
      exit: "again"
    })
  }
  const outcome = outcomeOf(end.value)
  const { error, output, status } = outcome
  yield* answer({
    json: { instanceId: id, ...outcome },
    text: output === null ? [] : [isTerminal ? oneLine(output) : output]
  })
  if (status === "Completed") return
  return yield* new CommandError({
    code: status === "Cancelled" ? "InstanceCancelled" : "InstanceFailed",
    message: `instance ${id} ${status === "Cancelled" ? "was cancelled" : "has failed"}: ${error}`,
    exit: "no"
  })
})
