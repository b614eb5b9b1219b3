import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as SqliteImport from "../../sqlite/SqliteImport.ts"
import { CommandError } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import { Settings } from "../internal/settings.ts"
import { namingFlags } from "../internal/sqliteFailure.ts"
import * as SqliteProgress from "../internal/sqliteProgress.ts"
import * as Store from "../internal/store.ts"

export const verifySqlite = Command.make(
  "sqlite",
  {
    file: Argument.String("file").pipe(Argument.withDescription("The SQLite file of Duroxide that was imported")),
    maxDifferences: Flag.Int("max-differences").pipe(
      Flag.withMetavar("<number>"),
      Flag.withDescription("How many differences are listed; all are counted"),
      Flag.withDefault(100)
    )
  },
  Effect.fnUntraced(function*({ file, maxDifferences }) {
    const { address, directUrl, schema } = yield* (yield* Settings).target
    const { answer } = yield* Output
    const progress = yield* SqliteProgress.make
    const report = yield* SqliteImport.verify({
      file,
      target: { url: directUrl, schema },
      maxDifferences,
      onProgress: progress.report
    }).pipe(namingFlags, Effect.catch(Store.explained))
    yield* answer({ json: { address, ...report }, text: SqliteImport.render(report).split("\n") })
    if (!report.isEqual) {
      return yield* new CommandError({
        code: "Different",
        message: `${file} and ${address}, schema ${schema}, differ`,
        exit: "no"
      })
    }
  })
).pipe(
  Command.withShortDescription("Compare a SQLite file of Duroxide with what was imported from it"),
  Command.withDescription(
    "Compare every row of a SQLite file of Duroxide with what was imported from it, before processes run on either. " +
      "Other instances of the target do not matter. Exits with 1 if there is a difference."
  ),
  Command.withExamples([
    { command: "duroxide-prisma verify sqlite store.db", description: "Compare with the database of DATABASE_URL" }
  ])
)
