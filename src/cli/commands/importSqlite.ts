import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Effect from "effect/Effect"
import { CommandError } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import * as Progress from "../internal/Progress.ts"
import { Settings } from "../internal/settings.ts"

/**
 * `duroxide-prisma import sqlite FILE`.
 *
 * Not listed before it does something. Its shape: read the target, report progress as often as it changes, answer once.
 */
export const importSqlite = Command.make(
  "sqlite",
  {
    file: Argument.String("file").pipe(Argument.withDescription("The SQLite file of Duroxide"))
  },
  Effect.fnUntraced(function*({ file }) {
    const { target } = yield* Settings
    const { address, schema } = yield* target
    const { answer } = yield* Output
    const progress = yield* Progress.make
    yield* progress.report(`imported 0 of 0 instances of ${file}`, { file, imported: 0 })
    yield* answer({ json: { address, schema, imported: 0 }, text: [`imported 0 instances into ${address}`] })
    return yield* new CommandError({ code: "NotBuilt", message: "not part of this release", exit: "usage" })
  })
).pipe(
  Command.withDescription("Import instances, histories and queues from a SQLite file of Duroxide")
)
