/** What the bench runs, ours and its peers alike: a module that exports `open`. */

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
  /** Bytes of the text that every orchestration and activity takes and returns. */
  readonly payloadBytes: number
  /** Callers that wait meanwhile for instances that never end. */
  readonly waits: number
  /** Slots for turns, and as many for activities; undefined leaves the choice to the contender. */
  readonly slots: number | undefined
}

export interface Options {
  /** A database of its own. Undefined for a contender that stores elsewhere. */
  readonly url: string
  readonly load: Load
  /** Different for each process of a contender. */
  readonly processName: string
}

export interface Contender {
  /** Starts one orchestration and waits for its result; rejects when it fails. `id` is unique in the database. */
  readonly execute: (id: string) => Promise<void>
  readonly close: () => Promise<void>
}

export type Open = (options: Options) => Promise<Contender>

/** What one process measured in one window. */
export interface Sample {
  readonly seconds: number
  /** Start to result of each orchestration that ended in the window. */
  readonly latenciesMs: ReadonlyArray<number>
  /** How many of them ended in each minute of the window. */
  readonly completedByMinute: ReadonlyArray<number>
  readonly failures: ReadonlyArray<string>
  /** User and system time of the process, its threads included. */
  readonly cpuMs: number
  /** Resident memory at the end of the window. */
  readonly memoryBytes: number
}
