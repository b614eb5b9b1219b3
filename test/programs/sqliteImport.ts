// Imports a SQLite file: `node sqliteImport.js <file> <database URL> <batch>`; prints `copied <rows>` after each batch
// and `imported` at the end.
import { SqliteImport } from "duroxide-prisma/sqlite"
import * as Effect from "effect/Effect"

const [file, url, batch] = process.argv.slice(2) as [string, string, string]
await Effect.runPromise(SqliteImport.importFile({
  file,
  target: { url },
  batch: Number(batch),
  onProgress: ({ done, phase }) => Effect.sync(() => phase === "copying" && process.stdout.write(`copied ${done}\n`))
}))
process.stdout.write("imported\n")
