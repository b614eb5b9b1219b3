import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Client from "../../Client.ts"
import { byOperator } from "../../operating/byOperator.ts"
import { findRunning } from "../../operating/running.ts"
import { toEnd } from "../../operating/selection.ts"
import { Admin } from "../../provider/Admin.ts"
import type { InstanceInfo, QueuedWork } from "../../provider/Admin.ts"
import * as Unserved from "../../provider/shared/unserved.ts"
import { durationOf } from "../internal/durations.ts"
import { Output } from "../internal/Output.ts"
import * as Selection from "../internal/selection.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

const shared = {
  ...Selection.flags,
  reason: Flag.String("reason").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription(`Why: part of its outcome. Defaults to "${byOperator}"`),
    Flag.withDefault(byOperator)
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
  Command.withShortDescription("Interrupt instances: they clean up, and end"),
  Command.withDescription(
    "Interrupt the programs of instances: their children are interrupted, their finalizers and compensations run, and " +
      "then they are Cancelled. Instances are named, or selected by filters among those that run."
  ),
  Command.withExamples([
    { command: "duroxide-prisma interrupt order-17 --reason \"the customer has called\" --deadline \"10 minutes\"" },
    {
      command: "duroxide-prisma interrupt --name Order@1.0.0 --created-before 2d",
      description: "Those that have run for more than two days: it counts them, and asks"
    }
  ])
)

export const terminate = Command.make(
  "terminate",
  shared,
  (flags) => Effect.provide(runTerminate(flags), Store.layerForChanges)
).pipe(
  Command.withShortDescription("End instances at once, without their clean-up"),
  Command.withDescription(
    "End instances at their next turn, and their children, without their programs: no finalizer and no compensation " +
      "runs. \"interrupt\" lets them clean up. Instances are named, or selected by filters among those that run."
  ),
  Command.withExamples([
    { command: "duroxide-prisma terminate order-17 --reason \"its clean-up hangs\"" },
    { command: "duroxide-prisma terminate --name Crawl --dry-run", description: "How many there are" }
  ])
)

// internal

interface Flags extends Selection.Flags {
  readonly reason: string
}

const runInterrupt = Effect.fnUntraced(
  function*({ deadline, reason, ...flags }: Flags & { readonly deadline: Option.Option<string> }) {
    const limit = Option.getOrUndefined(deadline)
    const duration = yield* durationOf("deadline", deadline)
    const client = yield* Effect.provide(Client.Client, Client.layer)
    const interruptOne = (id: string) => client.interrupt(id, reason, { deadline: duration })
    const terminated = limit === undefined ? "" : `terminated after ${limit}`
    const id = Selection.onlyId(flags)
    if (id === undefined) {
      return yield* Selection.run(flags, {
        selectable: toEnd,
        verb: "interrupt",
        done: "interrupted",
        outcome: `: they clean up, and then they are Cancelled${terminated === "" ? "" : `; they are ${terminated}`}`,
        check: findRunning,
        run: interruptOne
      })
    }
    const state = yield* findRunning(id)
    const queued = yield* (yield* Admin).getQueuedWork(id)
    yield* interruptOne(id)
    const missing = yield* unservedOf(state)
    const { answer } = yield* Output
    yield* answer({
      json: { action: "interrupted", instanceId: id, reason, deadline: limit ?? null },
      text: [
        oneLine(
          isBegun(state, queued)
            ? `interrupted ${id}: it cleans up, and then it is Cancelled${
              terminated === "" ? "" : `; it is ${terminated}`
            }${waitsFor(state, missing, limit !== undefined)}`
            : `interrupted ${id}: it has not begun, so it is Cancelled without clean-up${
              waitsFor(state, missing, false)
            }`
        )
      ]
    })
  }
)

const runTerminate = Effect.fnUntraced(function*({ reason, ...flags }: Flags) {
  const client = yield* Effect.provide(Client.Client, Client.layer)
  const id = Selection.onlyId(flags)
  if (id === undefined) {
    return yield* Selection.run(flags, {
      selectable: toEnd,
      verb: "terminate",
      done: "terminated",
      outcome: ": they are Cancelled at their next turn, without clean-up",
      check: findRunning,
      run: (id) => client.terminate(id, reason)
    })
  }
  const state = yield* findRunning(id)
  const { pause } = state
  yield* client.terminate(id, reason)
  const missing = yield* unservedOf(state)
  const { answer } = yield* Output
  yield* answer({
    json: { action: "terminated", instanceId: id, reason },
    text: [
      oneLine(
        `terminated ${id}: it is Cancelled at its next turn, without clean-up` +
          (pause === null ? "" : ". It is paused: that waits for the resume") +
          (missing === undefined
            ? ""
            : `. No living process serves ${missing}: that waits for one; "delete --force" removes it now`)
      )
    ]
  })
})

/** Whether a turn has run. */
const isBegun = ({ executionId }: InstanceInfo, { messages }: QueuedWork) =>
  executionId > 1 || !messages.some(({ item }) => item?._tag === "StartOrchestration")

/** What keeps an interrupted instance from its next turn. */
const waitsFor = ({ block, pause }: InstanceInfo, missing: string | undefined, hasDeadline: boolean) => {
  const late = hasDeadline ? "; if the deadline has passed then, it is Cancelled without clean-up" : ""
  return (pause === null ? "" : `. It is paused: this waits for the resume${late}`) +
    (block === null
      ? ""
      : `. It is blocked: its clean-up waits for code that fits${hasDeadline ? ", until its deadline" : ""}`) +
    (missing === undefined ? "" : `. No living process serves ${missing}: this waits for one${late}`)
}

/** The orchestration, if no living process could run the turn that ends it. */
const unservedOf = Effect.fnUntraced(function*(state: InstanceInfo) {
  const admin = yield* Admin
  const queued = yield* admin.getQueuedWork(state.instanceId)
  const [definition] = Unserved.unservedOf(state, queued, [], yield* admin.listProcesses)
  return definition === undefined ? undefined : Unserved.definitionOf(definition)
})
