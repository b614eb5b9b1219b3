import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { CommandError } from "../internal/failure.ts"

/** `duroxide-prisma verify sqlite FILE`. Not listed before it does something. */
export const verifySqlite = Command.make("sqlite", {
  file: Argument.String("file").pipe(Argument.withDescription("The SQLite file of Duroxide"))
}, () => Effect.fail(new CommandError({ code: "NotBuilt", message: "not part of this release", exit: "usage" }))).pipe(
  Command.withDescription("Compare a SQLite file of Duroxide with what was imported from it")
)
