/** What `npm run stress` runs, and what each run should reach. */

export interface Configuration {
  readonly name: string
  /** Orchestrations in flight; each calls `activities` activities at once. */
  readonly inFlight: number
  /** How long new ones are started. */
  readonly seconds: number
  readonly activities: number
  readonly activityMs: number
  /** Slots for turns, and as many for activities. */
  readonly slots: number
  /** Size of the pool; undefined keeps the default. */
  readonly connections?: number
  /** What the exit code depends on. */
  readonly target: Target
  /** What is printed beside it. */
  readonly high?: Target
}

export interface Target {
  /** Whether every orchestration has to complete. */
  readonly success?: boolean
  readonly orchestrationsPerSecond?: number
  /** Elapsed time divided by completed orchestrations, milliseconds; less is better. */
  readonly elapsedPerCompletedMs?: number
  /** Orchestrations per second as a multiple of those of another configuration. */
  readonly timesFasterThan?: readonly [name: string, times: number]
}

const all = { success: true } as const
const classic = { inFlight: 20, seconds: 10, activities: 5, activityMs: 10 } as const
const usual = { ...all, orchestrationsPerSecond: 10, elapsedPerCompletedMs: 200 } as const

const pool = (connections: number): Configuration => ({
  name: `pool of ${connections}`,
  ...classic,
  inFlight: 30,
  slots: 4,
  connections,
  target: connections >= 5 ? all : {}
})

export const configurations: ReadonlyArray<Configuration> = [
  {
    name: "quick validation",
    inFlight: 10,
    seconds: 30,
    activities: 3,
    activityMs: 50,
    slots: 1,
    // Its activities alone take 150 ms of the only slot: 6.7 per second at most.
    target: { ...all, elapsedPerCompletedMs: 200 }
  },
  { name: "baseline 1/1", ...classic, slots: 1, target: usual },
  {
    name: "concurrency 2/2",
    ...classic,
    slots: 2,
    target: { ...usual, timesFasterThan: ["baseline 1/1", 1.3] }
  },
  {
    name: "short activities 2/2",
    ...classic,
    activityMs: 5,
    slots: 2,
    target: all,
    high: { orchestrationsPerSecond: 50, elapsedPerCompletedMs: 100 }
  },
  {
    name: "short activities 4/4",
    ...classic,
    activityMs: 5,
    slots: 4,
    target: all,
    high: { timesFasterThan: ["short activities 2/2", 2] }
  },
  ...[2, 5, 10, 20].map(pool)
]
