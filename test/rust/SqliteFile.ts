/**
 * SQLite files of duroxide, read and written in a child process. The client of duroxide in this process has a copy of
 * SQLite of its own, and two copies in one process take each other's locks away.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { fork } from "node:child_process"
import { fileURLToPath } from "node:url"
import type { Answer, Question } from "../programs/sqliteFile.ts"

export interface SqliteFile {
  readonly select: <Row>(text: string) => Effect.Effect<ReadonlyArray<Row>>
  readonly write: (text: string) => Effect.Effect<void>
}

/** A file; its process ends with the scope. */
export const open = (file: string): Effect.Effect<SqliteFile, never, Scope.Scope> =>
  Effect.acquireRelease(
    Effect.sync(() => fork(fileURLToPath(new URL("../../build/test/programs/sqliteFile.js", import.meta.url)))),
    (child) => Effect.sync(() => child.kill("SIGKILL"))
  ).pipe(Effect.map((child) => {
    const waiting = new Map<number, (answer: Effect.Effect<ReadonlyArray<unknown>>) => void>()
    let last = 0
    child.on("message", ({ error, number, rows = [] }: Answer) => {
      waiting.get(number)?.(error === undefined ? Effect.succeed(rows) : Effect.die(new Error(error)))
      waiting.delete(number)
    })
    child.on("exit", () => {
      for (const resume of waiting.values()) resume(Effect.die(new Error("the process of the SQLite file has ended")))
    })
    const ask = (text: string, writes: boolean) =>
      Effect.callback<ReadonlyArray<unknown>>((resume) => {
        const number = ++last
        waiting.set(number, resume)
        child.send({ number, file, text, writes } satisfies Question)
      })
    return {
      select: <Row>(text: string) => Effect.map(ask(text, false), (rows) => rows as ReadonlyArray<Row>),
      write: (text: string) => Effect.asVoid(ask(text, true))
    }
  }))
