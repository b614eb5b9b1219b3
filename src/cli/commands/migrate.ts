import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Migrator from "../../prisma/Migrator.ts"
import { CommandError } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import { Settings } from "../internal/settings.ts"
import * as Store from "../internal/store.ts"

export const migrate = Command.make(
  "migrate",
  {
    verify: Flag.Boolean("verify").pipe(
      Flag.withoutNegation,
      Flag.withDescription("Only check that the schema has exactly the migrations of this release; writes nothing"),
      Flag.withDefault(false)
    ),
    adopt: Flag.Boolean("adopt").pipe(
      Flag.withoutNegation,
      Flag.withDescription("Extend a schema that duroxide-pg made, for processes of both languages"),
      Flag.withDefault(false)
    )
  },
  Effect.fnUntraced(function*({ adopt, verify }) {
    if (verify && adopt) {
      return yield* new CommandError({ code: "Usage", message: "give --verify or --adopt, not both", exit: "usage" })
    }
    const { target } = yield* Settings
    const { address, directUrl, options: { allowAhead }, schema } = yield* target
    const options = { url: directUrl, schema, allowAhead }
    const { answer, style } = yield* Output
    const place = `${address}, schema ${schema}`
    if (verify) {
      yield* Store.verify({ allowAhead })
      return yield* answer({
        json: { address, schema, applied: [], upToDate: true },
        text: [`${style.green("up to date")}: ${place}`]
      })
    }
    const applied = yield* (adopt ? Migrator.adopt : Migrator.migrate)(options)
    yield* answer({
      json: { address, schema, applied, upToDate: true },
      text: applied.length === 0
        ? [`${style.green("up to date")}, nothing to apply: ${place}`]
        : [...applied.map((name) => `applied ${name}`), `${style.green("up to date")}: ${place}`]
    })
  })
).pipe(
  Command.withShortDescription("Bring the schema to the version of this release"),
  Command.withDescription(
    "Bring the schema to the version of this release: create it, or apply what is missing. Running processes keep " +
      "working meanwhile. Run it again whenever it was interrupted."
  ),
  Command.withExamples([
    { command: "duroxide-prisma migrate", description: "Migrate the database of DATABASE_URL" },
    { command: "duroxide-prisma migrate --verify", description: "Exit with 0 if nothing is missing, and with 1 if so" }
  ])
)
