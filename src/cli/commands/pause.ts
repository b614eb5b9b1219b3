import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { PauseTarget } from "../../model/Pause.ts"
import { shownTarget } from "../../model/shared/pauses.ts"
import { Admin } from "../../provider/Admin.ts"
import { CommandError } from "../internal/failure.ts"
import { parseDefinition } from "../internal/filters.ts"
import { targetJson } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

const target = {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance"), Argument.optional),
  orchestration: Flag.String("orchestration").pipe(
    Flag.withMetavar("<name>[@version]"),
    Flag.withDescription("The instances of this orchestration, of one version or of all"),
    Flag.optional
  ),
  activity: Flag.String("activity").pipe(
    Flag.withMetavar("<name>"),
    Flag.withDescription("The activities of this name"),
    Flag.optional
  ),
  tag: Flag.String("tag").pipe(
    Flag.withMetavar("<tag>"),
    Flag.withDescription("The activities with this tag"),
    Flag.optional
  ),
  all: Flag.Boolean("all").pipe(
    Flag.withoutNegation,
    Flag.withDescription("All instances and activities"),
    Flag.withDefault(false)
  )
}

export const pause = Command.make("pause", {
  ...target,
  reason: Flag.String("reason").pipe(
    Flag.withMetavar("<text>"),
    Flag.withDescription("Why, for those who look at it later"),
    Flag.optional
  )
}, (flags) => Effect.provide(runPause(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Pause an instance, a definition or everything"),
  Command.withDescription(
    "Pause an instance, a definition, a tag or everything: no process claims its work until it is resumed. Starts and " +
      "messages wait, activities that run are not interrupted."
  ),
  Command.withExamples([
    { command: "duroxide-prisma pause order-17 --reason \"asked the customer\"" },
    { command: "duroxide-prisma pause --orchestration Order@1.0.0", description: "One version of a definition" },
    { command: "duroxide-prisma pause --all --reason \"incident 7\"", description: "The kill switch" }
  ])
)

export const resume = Command.make(
  "resume",
  target,
  (flags) => Effect.provide(runResume(flags), Store.layerForChanges)
).pipe(
  Command.withShortDescription("Resume what was paused"),
  Command.withDescription(
    "Resume exactly what was paused: an instance that was paused by itself stays paused when its definition is resumed."
  ),
  Command.withExamples([
    { command: "duroxide-prisma resume order-17" },
    { command: "duroxide-prisma resume --all" }
  ])
)

// internal

interface Flags {
  readonly id: Option.Option<string>
  readonly orchestration: Option.Option<string>
  readonly activity: Option.Option<string>
  readonly tag: Option.Option<string>
  readonly all: boolean
}

const runPause = Effect.fnUntraced(function*({ reason, ...flags }: Flags & { readonly reason: Option.Option<string> }) {
  const target = yield* targetOf(flags)
  yield* (yield* Admin).pause(target, { reason: Option.getOrUndefined(reason) })
  const { answer } = yield* Output
  const why = Option.match(reason, { onNone: () => "", onSome: (text) => `: ${text}` })
  yield* answer({
    json: { action: "paused", ...targetJson(target), reason: Option.getOrNull(reason) },
    text: [oneLine(`paused ${shownTarget(target)}${why}`)]
  })
})

const runResume = Effect.fnUntraced(function*(flags: Flags) {
  const target = yield* targetOf(flags)
  if (!(yield* (yield* Admin).resume(target))) {
    return yield* new CommandError({
      code: "NotPaused",
      message: `there is no pause of ${shownTarget(target)}`,
      exit: "no"
    })
  }
  const { answer } = yield* Output
  yield* answer({
    json: { action: "resumed", ...targetJson(target) },
    text: [oneLine(`resumed ${shownTarget(target)}`)]
  })
})

const targetOf = ({ activity, all, id, orchestration, tag }: Flags) => {
  const targets = [
    ...Option.toArray(id).map((instanceId) => PauseTarget.Instance({ instanceId })),
    ...Option.toArray(orchestration).map((text) => PauseTarget.Orchestration(parseDefinition(text))),
    ...Option.toArray(activity).map((name) => PauseTarget.Activity({ name })),
    ...Option.toArray(tag).map((tag) => PauseTarget.Tag({ tag })),
    ...(all ? [PauseTarget.Everything()] : [])
  ]
  const [first, second] = targets
  return first !== undefined && second === undefined ? Effect.succeed(first) : Effect.fail(
    new CommandError({
      code: "Usage",
      message: "name one of: the id of an instance, --orchestration, --activity, --tag, --all",
      exit: "usage"
    })
  )
}
