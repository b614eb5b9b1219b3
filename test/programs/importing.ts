// Imports a SQLite file: `node importing.js <file> <URL> <schema> <options>`. Prints `imported <report>` at the end.
//
// With `freezeAfter`, its process stops doing anything shortly after so many batches, and prints `frozen` before: what
// is then killed has a transaction open.
import { SqliteImport } from "duroxide-prisma/sqlite"
import * as Effect from "effect/Effect"

interface Options {
  readonly batch: number
  readonly serve?: ReadonlyArray<string>
  readonly freezeAfter?: {
    readonly batches: number
    /** How often the event loop goes round before. */
    readonly rounds: number
  }
}

const [file, url, schema, json] = process.argv.slice(2) as [string, string, string, string]
const { batch, freezeAfter, serve } = JSON.parse(json) as Options

const freezeIn = (rounds: number) => {
  if (rounds > 0) return void setImmediate(() => freezeIn(rounds - 1))
  process.stdout.write("frozen\n")
  Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)
}

let batches = 0
const report = await Effect.runPromise(SqliteImport.importFile({
  file,
  target: { url, schema },
  batch,
  serve,
  // The processes that made the file have been killed.
  ignoreLocks: true,
  onProgress: ({ done, phase, total }) =>
    Effect.sync(() => {
      process.stdout.write(`${phase} ${done} of ${total}\n`)
      if (phase === "copying" && ++batches === freezeAfter?.batches) freezeIn(freezeAfter.rounds)
    })
}))
process.stdout.write(`imported ${JSON.stringify(report)}\n`)
