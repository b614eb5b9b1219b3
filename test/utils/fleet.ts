/**
 * Processes of `programs/chaos` on one database, and what their handlers noted.
 */
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import path from "node:path"
import * as ChildProcess from "./childProcess.ts"

export interface Fleet {
  /** Starts a process; `versions` are those of `Box` it serves. Without any it serves none of the other work. */
  readonly worker: (
    name: string,
    versions: ReadonlyArray<string>,
    options?: {
      readonly lockMs?: number | undefined
      readonly statementTimeoutMs?: number | undefined
      readonly url?: string
    }
  ) => Effect.Effect<ChildProcess.Process, never, Scope.Scope>
  /** How often the handler of each activity call started, by idempotency key. */
  readonly runs: Effect.Effect<ReadonlyMap<string, number>>
  /** How many handlers each process started. */
  readonly runsOf: Effect.Effect<ReadonlyMap<number, number>>
}

/** On the database of a URL. Settings are the defaults. */
export const make = (url: string): Effect.Effect<Fleet, never, Scope.Scope> =>
  Effect.map(
    Effect.acquireRelease(
      Effect.promise(() => mkdtemp(path.join(tmpdir(), "duroxide-prisma-fleet-"))),
      (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true }))
    ),
    (directory) => {
      const effects = path.join(directory, "effects.jsonl")
      const begun = <Key>(keyOf: (call: { readonly key: string; readonly pid: number }) => Key) =>
        Effect.promise(async () => {
          const runs = new Map<Key, number>()
          for (const line of (await readFile(effects, "utf8").catch(() => "")).split("\n")) {
            if (line === "") continue
            const { event, ...call } = JSON.parse(line) as {
              readonly event: string
              readonly key: string
              readonly pid: number
            }
            if (event === "begin") runs.set(keyOf(call), (runs.get(keyOf(call)) ?? 0) + 1)
          }
          return runs
        })
      return {
        worker: (name, versions, options) =>
          ChildProcess.start("chaos/worker", JSON.stringify({ url, name, versions, effects, ...options })),
        runs: begun(({ key }) => key),
        runsOf: begun(({ pid }) => pid)
      }
    }
  )

/** `url` for sessions that wait for a table lock for only 100 milliseconds, as some roles are configured. */
export const impatient = (url: string): string => {
  const changed = new URL(url)
  changed.searchParams.set("options", "-c lock_timeout=100")
  return changed.toString()
}
