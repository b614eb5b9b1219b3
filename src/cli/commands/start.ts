import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Schema from "effect/Schema"
import { randomUUID } from "node:crypto"
import * as Client from "../../Client.ts"
import type { ServedBy } from "../../model/shared/definitions.ts"
import { parseDefinition } from "../../operating/definitions.ts"
import * as Orchestration from "../../Orchestration.ts"
import { Admin } from "../../provider/Admin.ts"
import { serversOfOrchestration } from "../../provider/shared/served.ts"
import * as Attributes from "../internal/attributes.ts"
import { CommandError, misused } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Payload from "../internal/payload.ts"
import * as Store from "../internal/store.ts"
import { oneLine } from "../internal/table.ts"

export const start = Command.make("start", {
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
  ifExists: Flag.Literals("if-exists", ["refuse", "ignore"]).pipe(
    Flag.withMetavar("<what>"),
    Flag.withDescription("What happens if the id is taken: refuse fails, ignore leaves that instance as it is"),
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
    }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ attributes, id, ifExists, orchestration, payload: given, servedBy }: {
  readonly attributes: ReadonlyArray<string>
  readonly orchestration: string
  readonly payload: Option.Option<string>
  readonly id: Option.Option<string>
  readonly ifExists: "refuse" | "ignore"
  readonly servedBy: ServedBy
}) {
  const { name, version } = parseDefinition(orchestration)
  const payload = yield* Payload.read(given)
  const definition = yield* Effect.try({
    try: () => Orchestration.make(name, { version: version ?? "1.0.0", payload: Schema.Unknown, servedBy }),
    catch: (thrown) => misused((thrown as RangeError).message)
  })
  const instanceId = Option.getOrElse(id, () => randomUUID())
  const client = yield* Effect.provide(Client.Client, Client.layer)
  yield* client.start(definition, {
    instanceId,
    payload,
    attributes: yield* Attributes.attributesOf(attributes),
    ifExists,
    version: version === undefined ? "newest" : "own"
  }).pipe(
    Effect.catchTag("InstanceAlreadyExists", ({ _tag }) =>
      Effect.fail(
        new CommandError({
          code: _tag,
          message:
            `instance ${instanceId} exists already: choose another id, or leave it as it is with --if-exists ignore`,
          exit: "no"
        })
      ))
  )
  if (servedBy === "typescript") yield* warnIfUnserved(name, version ?? null)
  const { answer } = yield* Output
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
