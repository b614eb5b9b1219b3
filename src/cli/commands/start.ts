import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import * as Client from "../../Client.ts"
import type { ServedBy } from "../../model/shared/definitions.ts"
import { counted } from "../../model/shared/quantities.ts"
import { parseDefinition } from "../../operating/definitions.ts"
import * as Orchestration from "../../Orchestration.ts"
import { Admin } from "../../provider/Admin.ts"
import { serversOfOrchestration } from "../../provider/shared/served.ts"
import * as Attributes from "../internal/attributes.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Payload from "../internal/payload.ts"
import * as StartLines from "../internal/startLines.ts"
import * as StartTimes from "../internal/startTimes.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const start = Command.make("start", {
  ...StartTimes.flags,
  many: Flag.String("many").pipe(
    Flag.withMetavar("<file>"),
    Flag.withDescription(
      "Start one instance per line of this file, - for standard input: {\"id\", \"payload\", \"attributes\", \"at\", \"delay\"}"
    ),
    Flag.optional
  ),
  orchestration: Argument.String("name[@version]").pipe(
    Argument.withDescription(
      "The orchestration. Without a version, the newest runs that the process serves which claims the start"
    )
  ),
  payload: Payload.argument,
  id: Flag.String("id").pipe(
    Flag.withMetavar("<id>"),
    Flag.withDescription("Id of the instance. Defaults to a random one"),
    Flag.optional
  ),
  attributes: Attributes.given,
  ifExists: Flag.Literals("if-exists", ["refuse", "ignore", "replace-ended", "replace-failed"]).pipe(
    Flag.withMetavar("<what>"),
    Flag.withDescription(
      "What happens if the id is taken: refuse fails, ignore leaves that instance as it is; replace-ended deletes one " +
        "that has ended, with its descendants, and starts anew, replace-failed only a failed or cancelled one"
    ),
    Flag.withDefault("refuse")
  ),
  servedBy: Flag.Literals("served-by", ["typescript", "rust"]).pipe(
    Flag.withMetavar("<which>"),
    Flag.withDescription("Which processes run it: those of this package, or those of Duroxide in Rust"),
    Flag.withDefault("typescript")
  )
}, (flags) => Effect.provide(run(flags), Store.layerForChanges)).pipe(
  Command.withShortDescription("Start an instance"),
  Command.withDescription(
    "Start an instance, and print its id. It runs as soon as a process claims it that serves the orchestration."
  ),
  Command.withExamples([
    { command: "duroxide-prisma start Order '{\"item\":\"lamp\",\"amount\":25}' --id order-17" },
    {
      command: "duroxide-prisma start Order@1.0.0 @order.json --id order-17 --if-exists ignore",
      description: "Starts it once, however often the command runs"
    },
    {
      command: "duroxide-prisma start Order @order.json --attribute customer=c1 --attribute amount:=25",
      description: "With attributes, by which list finds it"
    },
    { command: "duroxide-prisma start Order @order.json --at 2026-12-01T08:00Z", description: "Begins then" },
    {
      command: "duroxide-prisma start Order --many orders.jsonl",
      description: "Starts one for each line, all in one statement"
    }
  ])
)

// internal

interface Flags {
  readonly at: Option.Option<string>
  readonly delay: Option.Option<string>
  readonly many: Option.Option<string>
  readonly attributes: ReadonlyArray<string>
  readonly orchestration: string
  readonly payload: Option.Option<string>
  readonly id: Option.Option<string>
  readonly ifExists: keyof typeof policies
  readonly servedBy: ServedBy
}

const policies = {
  refuse: "refuse",
  ignore: "ignore",
  "replace-ended": "replaceEnded",
  "replace-failed": "replaceFailed"
} as const

const run = Effect.fnUntraced(function*(flags: Flags) {
  const { attributes, id, ifExists, many, orchestration, payload: given, servedBy } = flags
  const { name, version } = parseDefinition(orchestration)
  const time = yield* StartTimes.timeOf(flags)
  const definition = yield* Effect.try({
    try: () => Orchestration.make(name, { version: version ?? "1.0.0", payload: Schema.Unknown, servedBy }),
    catch: (thrown) => misused((thrown as RangeError).message)
  })
  const client = yield* Effect.provide(Client.Client, Client.layer)
  const { answer } = yield* Output
  const options = { ...time, version: version === undefined ? "newest" as const : "own" as const }
  if (Option.isSome(many)) {
    if (Option.isSome(id) || Option.isSome(given) || attributes.length > 0) {
      return yield* misused("ids, payloads and attributes of --many are those of its lines")
    }
    const starts = yield* StartLines.read(many.value)
    const outcomes = yield* client.startMany(definition, starts, {
      ...options,
      ifExists: ifExists === "refuse" ? "ignore" : policies[ifExists]
    })
    if (servedBy === "typescript") yield* warnIfUnserved(name, version ?? null)
    const started = outcomes.filter(({ outcome }) => outcome === "Started").length
    const taken = outcomes.length - started
    yield* answer({
      json: { action: "started", orchestration: name, version: version ?? null, started, outcomes },
      text: [oneLine(`started ${started} of ${outcomes.length}${taken === 0 ? "" : `, ${taken} exist already`}`)]
    })
    if (taken === 0 || ifExists !== "refuse") return
    const ids = outcomes.flatMap(({ instanceId, outcome }) => outcome === "AlreadyExists" ? instanceId : [])
    return yield* new CommandError({
      code: "InstanceAlreadyExists",
      message: `${counted(taken, "id")} of these are taken, the first is ${ids[0]}: --if-exists ignore leaves them`,
      exit: "no"
    })
  }
  const instanceId = Option.getOrElse(id, () => randomUUID())
  yield* client.start(definition, {
    instanceId,
    payload: yield* Payload.read(given),
    attributes: yield* Attributes.attributesOf(attributes),
    ...options,
    ifExists: policies[ifExists]
  }).pipe(
    Effect.catchTag("InstanceAlreadyExists", ({ _tag }) =>
      Effect.fail(
        new CommandError({
          code: _tag,
          message: ifExists === "refuse"
            ? `instance ${instanceId} exists already: choose another id, or leave it as it is with --if-exists ignore`
            : `instance ${instanceId} exists already, and has not ended so that --if-exists ${ifExists} replaces it`,
          exit: "no"
        })
      ))
  )
  if (servedBy === "typescript") yield* warnIfUnserved(name, version ?? null)
  yield* answer({
    json: { action: "started", instanceId, orchestration: name, version: version ?? null },
    text: [oneLine(instanceId)]
  })
})

/** The name may be wrong. */
const warnIfUnserved = Effect.fnUntraced(function*(name: string, version: string | null) {
  const processes = yield* (yield* Admin).listProcesses
  if (serversOfOrchestration(processes, name, version) > 0) return
  const { warn } = yield* Output
  yield* warn(
    oneLine(`no living process serves ${name}${version === null ? "" : ` ${version}`}: it waits until one does`)
  )
})
