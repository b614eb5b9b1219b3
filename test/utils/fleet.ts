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
  /** The starts of handlers of activity calls that ran more than once: when, where, and at which delivery. */
  readonly repeated: Effect.Effect<ReadonlyArray<Begun>>
}

interface Begun {
  readonly key: string
  readonly pid: number
  /** Milliseconds since the epoch. */
  readonly at: number
  readonly delivery: number
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
      const begun = Effect.promise(async () => {
        const lines = (await readFile(effects, "utf8").catch(() => "")).split("\n").filter((line) => line !== "")
        return lines.map((line) => JSON.parse(line) as Begun & { readonly event: string }).filter(({ event }) =>
          event === "begin"
        )
      })
      const counted = <Key>(keyOf: (call: Begun) => Key) =>
        Effect.map(begun, (calls) => {
          const runs = new Map<Key, number>()
          for (const call of calls) runs.set(keyOf(call), (runs.get(keyOf(call)) ?? 0) + 1)
          return runs
        })
      const runs = counted(({ key }) => key)
      return {
        worker: (name, versions, options) =>
          ChildProcess.start("chaos/worker", JSON.stringify({ url, name, versions, effects, ...options })),
        runs,
        runsOf: counted(({ pid }) => pid),
        repeated: Effect.zipWith(runs, begun, (runs, calls) =>
          calls.filter(({ key }) =>
            runs.get(key)! > 1
          ).map(({ at, delivery, key, pid }) => ({ key, pid, at, delivery })))
      }
    }
  )

/** `url` for sessions that wait for a table lock for only 100 milliseconds, as some roles are configured. */
export const impatient = (url: string): string => {
  const changed = new URL(url)
  changed.searchParams.set("options", "-c lock_timeout=100")
  return changed.toString()
}
