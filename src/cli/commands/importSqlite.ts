import * as Argument from "effect/cli/Argument"
import * as Command from "effect/cli/Command"
import * as Flag from "effect/cli/Flag"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { count, counted } from "../../model/shared/quantities.ts"
import * as SqliteImport from "../../sqlite/SqliteImport.ts"
import { CommandError } from "../internal/failure.ts"
import { Output } from "../internal/Output.ts"
import { Settings } from "../internal/settings.ts"
import { namingFlags } from "../internal/sqliteFailure.ts"
import * as SqliteProgress from "../internal/sqliteProgress.ts"
import * as Store from "../internal/store.ts"

const flags = {
  file: Argument.String("file").pipe(
    Argument.withDescription("The SQLite file of Duroxide; those with the endings -wal and -shm beside it")
  ),
  onConflict: Flag.Literals("on-conflict", ["refuse", "keep", "replace"]).pipe(
    Flag.withMetavar("<what>"),
    Flag.withDescription("What happens to an id that the target has: fail, leave it, or replace it"),
    Flag.withDefault("refuse" as const)
  ),
  serve: Flag.String("serve").pipe(
    Flag.withMetavar("<name>"),
    Flag.withDescription("An orchestration whose running instances this package continues; repeat for more"),
    Flag.atLeast(0)
  ),
  batch: Flag.Int("batch").pipe(
    Flag.withMetavar("<instances>"),
    Flag.withDescription("Instances per transaction, 500 by default"),
    Flag.optional
  ),
  discardUnfinished: Flag.Boolean("discard-unfinished").pipe(
    Flag.withoutNegation,
    Flag.withDescription("First remove what an import has copied that did not end"),
    Flag.withDefault(false)
  ),
  ignoreLocks: Flag.Boolean("ignore-locks").pipe(
    Flag.withoutNegation,
    Flag.withDescription("Import although locks of the file have not expired; no process may use it"),
    Flag.withDefault(false)
  )
}

export const importSqlite = Command.make(
  "sqlite",
  flags,
  Effect.fnUntraced(function*({ batch, file, ...options }) {
    const { address, directUrl, schema } = yield* (yield* Settings).target
    const { answer, style } = yield* Output
    const progress = yield* SqliteProgress.make
    const report = yield* SqliteImport.importFile({
      file,
      target: { url: directUrl, schema },
      batch: Option.getOrUndefined(batch),
      onProgress: progress.report,
      ...options
    }).pipe(
      Effect.catchIf(
        ({ isRetryable }) => isRetryable && progress.hasBegun("copying"),
        ({ reason }) =>
          Effect.fail(
            new CommandError({
              code: "ImportStopped",
              message: `the import stopped half way: ${reason.message}. Run it again: it continues`,
              exit: "again"
            })
          )
      ),
      namingFlags,
      Effect.catch(Store.explained)
    )
    const { counts, discarded, kept, lacksLog, outcome, replaced, served, stayPinned } = report
    const summary = `${counted(counts.instances, "instance")}, ${counted(counts.history, "event")}, ` +
      `${counted(counts.orchestrator_queue, "message")}, ${counted(counts.worker_queue, "activity", "activities")}`
    const isNew = outcome === "imported"
    const discarding = discarded > 0
      ? [`removed what ${counted(discarded, "unfinished import")} had copied`]
      : options.discardUnfinished && !isNew
      ? ["--discard-unfinished removed nothing: this import has ended, and no other one is unfinished"]
      : []
    yield* answer({
      json: { address, ...report },
      text: [
        isNew
          ? `${style.green("imported")} ${summary} into ${address}, schema ${schema}`
          : `${style.green("imported already")}, nothing to copy: ${summary}, in ${address}, schema ${schema}`,
        ...(lacksLog
          ? [
            `${
              style.red("incomplete?")
            } ${file} has no -wal file beside it, in which Duroxide keeps the newest data. ` +
            "If it is a copy, copy all files, and import into an empty schema"
          ]
          : []),
        ...discarding,
        ...(isNew && kept.length > 0 ? [`left out ${counted(kept.length, "id")} that the target has`] : []),
        ...(isNew && replaced > 0 ? [`replaced ${counted(replaced, "instance")} of the target`] : []),
        ...(served > 0 ? [`this package continues ${counted(served, "running instance")}`] : []),
        ...pinsOf(stayPinned, options.serve),
        ...(isNew ? [`compare both before processes run: duroxide-prisma verify sqlite ${file}`] : [])
      ]
    })
  })
).pipe(
  Command.withShortDescription("Import a SQLite file of Duroxide"),
  Command.withDescription(
    "Import instances, histories, key-values, queues and sessions from a SQLite file of Duroxide. Stop all processes " +
      "that use the file first. Run it again whenever it was interrupted: it continues. No imported instance runs before " +
      "all are there."
  ),
  Command.withExamples([
    { command: "duroxide-prisma import sqlite store.db", description: "Import into the database of DATABASE_URL" },
    {
      command: "duroxide-prisma import sqlite store.db --serve Fulfil --serve Refund",
      description: "Continue the running instances of two orchestrations here"
    }
  ])
)

// internal

/** What stays with Duroxide, and how to change it. */
const pinsOf = (stayPinned: Readonly<Record<string, number>>, serve: ReadonlyArray<string>): ReadonlyArray<string> => {
  const all = Object.entries(stayPinned)
  const locked = all.filter(([name]) => serve.includes(name))
  const others = all.filter(([name]) => !serve.includes(name))
  const listed = (some: typeof all) =>
    `${counted(some.reduce((sum, [, executions]) => sum + executions, 0), "running instance")} ` +
    `(${some.map(([name, executions]) => `${name} ${count(executions)}`).join(", ")})`
  return [
    ...(locked.length === 0 ? [] : [
      `a process of Duroxide is working on ${listed(locked)}, which stay with it: stop that process, and run this again`
    ]),
    ...(others.length === 0 ? [] : [
      `only processes of Duroxide continue ${
        listed(others)
      }. To continue them with this package, run this again with ` +
      "--serve <name>"
    ])
  ]
}
