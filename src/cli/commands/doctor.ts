import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { counted } from "../../model/shared/quantities.ts"
import * as Doctor from "../../prisma/shared/doctor.ts"
import { ProviderError } from "../../provider/ProviderError.ts"
import { CommandError } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import type { Style } from "../internal/Output.ts"
import { Settings } from "../internal/settings.ts"
import { fields, table } from "../internal/table.ts"
import type { Field } from "../internal/table.ts"

export const doctor = Command.make("doctor", {}, () => run).pipe(
  Command.withShortDescription("Say whether the server can carry a store, and what to change"),
  Command.withDescription(
    "Say whether the server can carry a store, and what to change: features, rights, settings, dead rows, indexes, " +
      "notifications. Works before the first migration. What it tries leaves nothing. Exits with 1 if there is a problem."
  ),
  Command.withExamples([
    { command: "duroxide-prisma doctor", description: "Examine the database of DATABASE_URL" }
  ])
)

// internal

const run = Effect.gen(function*() {
  const { address, directUrl, migrateCommand, options, schema, url } = yield* (yield* Settings).target
  const { answer, style } = yield* Output
  const findings = yield* Doctor.examine({ ...options, url, directUrl, schema, migrateCommand }).pipe(
    Effect.scoped,
    Effect.mapError((reason) => new ProviderError({ operation: "examine", reason }))
  )
  const problems = findings.filter(({ result }) => result === "problem")
  yield* answer({
    json: { address, schema, findings },
    text: [
      `${address}, schema ${schema}`,
      ...areas.flatMap((area) => section(area, findings, style)),
      ...todos(findings, style)
    ]
  })
  if (problems.length > 0) {
    return yield* new CommandError({
      code: "ProblemsFound",
      message: `${counted(problems.length, "problem")}: ${problems.map(({ name }) => name).join(", ")}`,
      exit: "no"
    })
  }
})

const areas = ["server", "needed", "optional", "rights", "settings", "vacuum", "indexes", "listening"] as const

const section = (area: Doctor.Area, findings: ReadonlyArray<Doctor.Finding>, style: Style): ReadonlyArray<string> => {
  const own = findings.filter((finding) => finding.area === area)
  return own.length === 0 ? [] : [
    "",
    ...table(own, [
      { title: area.toUpperCase(), value: ({ name }) => name },
      { title: "RESULT", value: ({ result }) => result, mark: ({ result }, text) => marked(result, style)(text) },
      { title: "FOUND", value: ({ found }) => found }
    ], style)
  ]
}

const marked = (result: Doctor.Finding["result"], style: Style) =>
  ({ ok: style.green, advice: style.yellow, problem: style.red, unknown: style.dim })[result]

/** Problems come last, where a terminal shows them. */
const todos = (findings: ReadonlyArray<Doctor.Finding>, style: Style): ReadonlyArray<string> => {
  const all = (["unknown", "advice", "problem"] as const).flatMap((result) =>
    findings.flatMap(({ name, result: own, todo }): ReadonlyArray<Field> =>
      own === result && todo !== null ? [[`${result}: ${name}`, todo, marked(result, style)]] : []
    )
  )
  return all.length === 0 ? [] : ["", style.bold("What to do"), ...fields(all, style)]
}
