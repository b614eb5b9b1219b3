/** What the bench runs, ours and its peers alike: a module that exports `open`. */

import type { Observed } from "./observed.ts"

/** One kind of load. Every orchestration runs `activities` activities that take and return a text. */
export interface Load {
  /** Orchestrations under way at once, per process. */
  readonly inFlight: number
  readonly activities: number
  /** How long each activity sleeps; 0 returns at once. */
  readonly activityMs: number
  /** Whether each activity waits for the one before; else all are called at once. */
  readonly inARow: boolean
  /** A durable timer that runs before the activities; 0 for none. */
  readonly timerMs: number
  /** What every orchestration and activity takes and returns. */
  readonly text: string
  /** Callers that wait meanwhile for instances that never end. */
  readonly waits: number
  /** Slots for turns, and as many for activities; undefined leaves the choice to the contender. */
  readonly slots: number | undefined
  /** Executions of each orchestration, one after another by continue-as-new; each runs the activities. */
  readonly executions: number
  /** Whether programs stay in memory between their turns; else every turn reads and replays the history. */
  readonly warm: boolean
  /** What is recorded, and who takes it; undefined as Effect has it, which records and sends nothing. Ours only. */
  readonly observed: Observed | undefined
  /** Activities of each of four keys under way at once; undefined without a limit. Ours only. */
  readonly eachKey: number | undefined
  /** One call of the store that is made and timed in place of an orchestration. */
  readonly call: "abandon" | "read" | "append" | undefined
  /**
   * Plain jobs that are created together in place of an orchestration, which count one by one; 0 for orchestrations.
   */
  readonly jobs: number
  /** Whether those that were created together are waited for; else they end when their handlers have run. */
  readonly awaited: boolean
  /** What is timed in place of an orchestration that other processes serve: see `elsewhere.ts`. */
  readonly noticed: "claim" | "end" | "round trip" | undefined
  /** How many other processes serve, where one is timed that they serve. */
  readonly servers: number
  /** Milliseconds between two looks of processes that poll; null: they wake each other. */
  readonly pollMs: number | null
  /** Whether single rows are inserted, in place of orchestrations, beside a process under full load. */
  readonly neighbour: boolean
}

/** S8. */
export const plainLoad: Load = {
  inFlight: 20,
  activities: 5,
  activityMs: 0,
  inARow: false,
  timerMs: 0,
  text: "x".repeat(20),
  waits: 0,
  slots: undefined,
  executions: 1,
  warm: true,
  observed: undefined,
  eachKey: undefined,
  call: undefined,
  jobs: 0,
  awaited: true,
  noticed: undefined,
  servers: 1,
  pollMs: null,
  neighbour: false
}

export interface Options {
  /** A database of its own. Undefined for a contender that stores elsewhere. */
  readonly url: string
  readonly load: Load
  /** Different for each process of a contender. */
  readonly processName: string
}

export interface Contender {
  /**
   * Starts one orchestration and waits for its result; rejects when it fails. `id` is unique in the database. Resolves
   * with a time where the call itself does not say it.
   */
  readonly execute: (id: string) => Promise<Timing | void>
  readonly close: () => Promise<void>
}

export type Open = (options: Options) => Promise<Contender>

export interface Timing {
  /** Counts in place of the time from call to answer. */
  readonly ms?: number
  /** What a step took in the last tenth of the orchestration, by what it took in the second. */
  readonly lastToFirst?: number
}

/** What one process measured in one window. */
export interface Sample {
  readonly seconds: number
  /** Start to result of each orchestration that ended in the window. */
  readonly latenciesMs: ReadonlyArray<number>
  /** `lastToFirst` of these orchestrations, where the contender says it. */
  readonly lastToFirst: ReadonlyArray<number>
  /** How many of them ended in each minute of the window. */
  readonly completedByMinute: ReadonlyArray<number>
  readonly failures: ReadonlyArray<string>
  /** User and system time of the process, its threads included. */
  readonly cpuMs: number
  /** Resident memory at the end of the window. */
  readonly memoryBytes: number
}
