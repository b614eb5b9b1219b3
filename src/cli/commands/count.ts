import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import * as Counts from "../../operating/counts.ts"
import { Admin } from "../../provider/Admin.ts"
import * as Attributes from "../internal/attributes.ts"
import * as Filters from "../internal/filters.ts"
import { marked } from "../internal/instances.ts"
import { Output } from "../internal/Output.ts"
import * as Store from "../internal/store.ts"
import { table } from "../internal/table.ts"

export const count = Command.make("count", {
  status: Filters.endStatus,
  name: Filters.name,
  attributes: Attributes.wanted,
  versions: Flag.Boolean("versions").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Count versions apart"),
    Flag.withDefault(false)
  )
}, (flags) => Effect.provide(run(flags), Store.layer)).pipe(
  Command.withShortDescription("Count instances by orchestration and status"),
  Command.withDescription(
    "Count instances by orchestration, status and, with --versions, version. Beyond 10,000 of an orchestration and " +
      "status, the number is an estimate from the server's statistics; with --attribute, all that have it are counted."
  ),
  Command.withExamples([
    { command: "duroxide-prisma count" },
    { command: "duroxide-prisma count --name Order --versions", description: "Which versions orders still run" }
  ])
)

// internal

const run = Effect.fnUntraced(function*({ attributes, name, status, versions }: {
  readonly attributes: ReadonlyArray<string>
  readonly status: Option.Option<Filters.CountStatus>
  readonly name: Option.Option<string>
  readonly versions: boolean
}) {
  const { answer, style } = yield* Output
  const counts = yield* (yield* Admin).count({
    status: Option.getOrUndefined(status),
    name: Option.getOrUndefined(name),
    attributes: yield* Attributes.conditionsOf(attributes),
    byVersion: versions
  })
  yield* answer({
    json: counts.map(({ instances, isEstimate, orchestrationName, orchestrationVersion, status }) => ({
      orchestration: orchestrationName,
      ...(versions && { version: orchestrationVersion }),
      status,
      instances,
      isEstimate
    })),
    text: counts.length === 0
      ? ["no instances"]
      : table(counts, [
        { title: "ORCHESTRATION", value: (one) => one.orchestrationName },
        ...(versions
          ? [{ title: "VERSION", value: (one: typeof counts[number]) => one.orchestrationVersion ?? "-" }]
          : []),
        { title: "STATUS", value: (one) => one.status, mark: (one, text) => marked(one.status, text, style) },
        { title: "INSTANCES", align: "right", value: Counts.shown }
      ], style)
  })
})
