import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Client from "../../Client.ts"
import { durationOf, noDuration } from "../../model/shared/durations.ts"
import { Admin } from "../../provider/Admin.ts"
import { CommandError } from "../internal/failure.ts"
import { outcomeOf } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

const shared = {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance")),
  reason: Flag.String("reason").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Why: part of its outcome. Defaults to \"by an operator\""),
    Flag.withDefault("by an operator")
  )
}

export const interrupt = Command.make("interrupt", {
  ...shared,
  deadline: Flag.String("deadline").pipe(
    Flag.withMetavar("<duration>"),
    Flag.withDescription(
      "How long it may clean up, such as \"10 minutes\". Then it is terminated. Defaults to no limit"
    ),
    Flag.optional
  )
}, (flags) => Effect.provide(runInterrupt(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Interrupt an instance: it cleans up, and ends"),
  Command.withDescription(
    "Interrupt the program of an instance: its children are interrupted, its finalizers and compensations run, and then " +
      "it is Cancelled."
  ),
  Command.withExamples([
    { command: "duroxide-prisma interrupt order-17 --reason \"the customer has called\" --deadline \"10 minutes\"" }
  ])
)

export const terminate = Command.make(
  "terminate",
  shared,
  (flags) => Effect.provide(runTerminate(flags), Store.layerForChanges)
).pipe(
  Command.withShortDescription("End an instance at once, without its clean-up"),
  Command.withDescription(
    "End an instance at its next turn, and its children, without their programs: no finalizer and no compensation runs. " +
      "\"interrupt\" lets them clean up."
  ),
  Command.withExamples([{ command: "duroxide-prisma terminate order-17 --reason \"its clean-up hangs\"" }])
)

// internal

interface Flags {
  readonly id: string
  readonly reason: string
}

const runInterrupt = Effect.fnUntraced(
  function*({ deadline, id, reason }: Flags & { readonly deadline: Option.Option<string> }) {
    const limit = Option.getOrUndefined(deadline)
    const duration = limit === undefined ? undefined : durationOf(limit as never)
    if (limit !== undefined && duration === undefined) {
      return yield* new CommandError({
        code: "Usage",
        message: `--deadline: ${noDuration}: write "10 minutes" or "1 hour"`,
        exit: "usage"
      })
    }
    const { client, isBlocked, isPaused } = yield* clientFor(id)
    yield* client.interrupt(id, reason, { deadline: duration })
    const { answer } = yield* Output
    yield* answer({
      json: { action: "interrupted", instanceId: id, reason, deadline: limit ?? null },
      text: [
        oneLine(
          `interrupted ${id}: it cleans up, and then it is Cancelled` +
            (limit === undefined ? "" : `; it is terminated after ${limit}`) +
            (isPaused ? ". It is paused: its clean-up waits for the resume, its deadline does not" : "") +
            (isBlocked ? ". It is blocked: both wait for code that fits" : "")
        )
      ]
    })
  }
)

const runTerminate = Effect.fnUntraced(function*({ id, reason }: Flags) {
  const { client, isPaused } = yield* clientFor(id)
  yield* client.terminate(id, reason)
  const { answer } = yield* Output
  yield* answer({
    json: { action: "terminated", instanceId: id, reason },
    text: [
      oneLine(
        `terminated ${id}: it is Cancelled at its next turn, without clean-up` +
          (isPaused ? ". It is paused: that waits for the resume" : "")
      )
    ]
  })
})

/** A client, if the instance has not ended: no process would read the request. */
const clientFor = Effect.fnUntraced(function*(id: string) {
  const state = yield* (yield* Admin).getInstanceInfo(id)
  const { status } = outcomeOf(state)
  if (status !== "Running" && status !== "ContinuedAsNew") {
    return yield* new CommandError({
      code: "InstanceEnded",
      message: `instance ${id} has ended: ${status}`,
      exit: "no"
    })
  }
  return {
    client: yield* Effect.provide(Client.Client, Client.layer),
    isBlocked: state.block !== null,
    isPaused: state.pause !== null
  }
})
