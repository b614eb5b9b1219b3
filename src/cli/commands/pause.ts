import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { PauseTarget } from "../../model/Pause.ts"
import { shownTarget } from "../../model/shared/pauses.ts"
import { parseDefinition } from "../../operating/definitions.ts"
import { Admin } from "../../provider/Admin.ts"
import { CommandError } from "../internal/failure.ts"
import { targetJson } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

const target = {
  id: Argument.String("id").pipe(Argument.withDescription("Id of the instance"), Argument.optional),
  orchestration: Flag.String("name").pipe(
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
    { command: "duroxide-prisma pause --name Order@1.0.0", description: "One version of a definition" },
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
  yield* warnIfUnknown(target)
  const { answer } = yield* Output
  const why = Option.match(reason, { onNone: () => "", onSome: (text) => `: ${text}` })
  yield* answer({
    json: { action: "paused", ...targetJson(target), reason: Option.getOrNull(reason) },
    text: [oneLine(`paused ${shownTarget(target)}${why}`)]
  })
})

/** The name may be wrong. A pause of it is kept nevertheless: the definition may come with the next deploy. */
const warnIfUnknown = Effect.fnUntraced(function*(target: PauseTarget) {
  if (target._tag === "Instance" || target._tag === "Everything" || (yield* isKnown(target))) return
  yield* (yield* Output).warn(
    oneLine(`${shownTarget(target)} is unknown: no process serves it, and no instance or activity belongs to it`)
  )
})

/** Whether a process that is listed serves it, or the store has work of it. */
const isKnown = Effect.fnUntraced(function*(target: Exclude<PauseTarget, { _tag: "Instance" | "Everything" }>) {
  const admin = yield* Admin
  const processes = yield* admin.listProcesses
  if (target._tag === "Orchestration") {
    const { name, version } = target
    if (
      processes.some(({ orchestrations }) =>
        orchestrations.some((one) =>
          version === undefined ? parseDefinition(one).name === name : one === `${name}@${version}`
        )
      )
    ) return true
    const { instances, next } = yield* admin.list({ name, version, limit: 1 })
    return instances.length > 0 || next !== null
  }
  if (target._tag === "Activity" && processes.some(({ activities }) => activities.includes(target.name))) return true
  if (target._tag === "Tag" && processes.some(({ tags }) => "tags" in tags && tags.tags.includes(target.tag))) {
    return true
  }
  const { activities } = yield* admin.getQueueLoads
  return activities.some(({ activity, tag }) =>
    target._tag === "Activity" ? activity === target.name : tag === target.tag
  )
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
      message: "name one of: the id of an instance, --name, --activity, --tag, --all",
      exit: "usage"
    })
  )
}
