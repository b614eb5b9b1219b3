import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type * as Option from "effect/Option"
import * as Completion from "../../recipes/Completion.ts"
import { Output } from "../internal/Output.ts"
import * as Payload from "../internal/payload.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

const token = Argument.String("token").pipe(
  Argument.withDescription("The token that the handler of the activity has sent")
)

const keys = " DUROXIDE_COMPLETION_KEYS has the keys of the tokens, as in the application."

export const complete = Command.make(
  "complete",
  { token, payload: Payload.argument },
  (flags) => Effect.provide(run("complete", flags), Store.layerForChanges)
).pipe(
  Command.withShortDescription("Complete an activity from outside, by its token"),
  Command.withDescription(
    "Complete an activity that ends outside, by its token and with its result. The first completion counts. A result that " +
      "the program cannot read is a defect of it." + keys
  ),
  Command.withExamples([{ command: "duroxide-prisma complete c1.WyJ… '{\"by\":\"Ada\"}'" }])
)

export const fail = Command.make(
  "fail",
  { token, payload: Payload.argument },
  (flags) => Effect.provide(run("fail", flags), Store.layerForChanges)
).pipe(
  Command.withShortDescription("Fail an activity from outside, by its token"),
  Command.withDescription(
    "Fail an activity that ends outside, by its token and with an error of the activity. The first completion counts." +
      keys
  ),
  Command.withExamples([{ command: "duroxide-prisma fail c1.WyJ… '{\"_tag\":\"Refused\",\"by\":\"Ada\"}'" }])
)

// internal

const run = Effect.fnUntraced(function*(how: "complete" | "fail", { payload: given, token }: {
  readonly token: string
  readonly payload: Option.Option<string>
}) {
  const payload = yield* Payload.read(given)
  const completion = yield* Effect.provide(
    Completion.Completion,
    Layer.provide(Completion.layer(), Completion.layerKeysConfig)
  )
  const { activityName, instanceId } = yield* completion.named(token)
  const { state } = yield* completion[how](token, payload)
  const { answer } = yield* Output
  const done = how === "complete" ? "completed" : "failed"
  yield* answer({
    json: { action: done, instanceId, activity: activityName, state },
    text: [oneLine(
      `${done} ${activityName} of ${instanceId}` +
        (state === "taken" ? "" : "; the instance has not received it yet, a completion sent before counts instead")
    )]
  })
}, Effect.scoped)
