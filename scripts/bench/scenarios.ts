/** What the bench can run. README.md beside this file says what the numbers mean. */
import { plainLoad } from "./contender.ts"
import type { Load } from "./contender.ts"
import * as growth from "./growth.ts"

/** One measurement: a load, in so many processes. */
export interface Variant {
  readonly label: string
  readonly load: Load
  readonly processes: number
  readonly pauseMs: number
  /** Whether nothing is started, except one orchestration at the beginning of a window that `begins` with it. */
  readonly idle: boolean
  /** What happens at the beginning of a window; undefined for nothing. */
  readonly begins: "one start" | "lost listener" | undefined
  /** Round trip between the processes and the server, added by a proxy; 0 for no proxy. */
  readonly roundTripMs: number
  /** Run on our tables before the first window. */
  readonly preload: ReadonlyArray<string>
  /** Whether a process rests until its window, and has run nothing before. */
  readonly cold: boolean
  /** Whether each loop runs two long orchestrations, the second measured, in place of a window of some seconds. */
  readonly once: boolean
}

export interface Scenario {
  readonly about: string
  /** What `ratio` compares, so that more is better for us: our rate by the peer's, or the peer's number by ours. */
  readonly compares: "orchestrationsPerSecond" | "p50Ms" | "statementsPerMinute"
  /** Length of a window unless the caller chooses one. */
  readonly seconds: number
  /** Windows of each side unless the caller chooses; 2 where it is not given. */
  readonly rounds?: number
  /** Under load, or idle, before each window, unless the caller chooses; 2 where it is not given. */
  readonly warmUpSeconds?: number
  /** Numbers of the first variant that stand at the top of the JSON, too. */
  readonly shows?: ReadonlyArray<"statementsPerMinute" | "p50Ms" | "p99Ms">
  /** Label of the variant that the rates of the others are compared with. */
  readonly baseline?: string
  /** The first is the scenario's own result. */
  readonly variants: readonly [Variant, ...ReadonlyArray<Variant>]
}

const variant = (label: string, changes: Partial<Load> = {}, rest: Partial<Variant> = {}): Variant => ({
  label,
  load: { ...plainLoad, ...changes },
  processes: 1,
  pauseMs: 0,
  idle: false,
  begins: undefined,
  roundTripMs: 0,
  preload: [],
  cold: false,
  once: false,
  ...rest
})

const rate = (about: string, ...variants: Scenario["variants"]): Scenario => ({
  about,
  compares: "orchestrationsPerSecond",
  seconds: 10,
  variants
})
const time = (about: string, ...variants: Scenario["variants"]): Scenario => ({
  about,
  compares: "p50Ms",
  seconds: 10,
  variants
})

/** So that V8 has optimized what runs with each orchestration: F measures a process that has run nothing. */
const warmed = (scenario: Scenario): Scenario => ({ ...scenario, warmUpSeconds: 15 })

/** One orchestration at a time, at moments no poll can know. */
const alone = { inFlight: 1 }
const randomly = { pauseMs: 50 }
const single = { ...alone, activities: 1 }
const chain = { ...alone, activities: 10, inARow: true }

const idle = { idle: true }
const started = { ...idle, begins: "one start" } as const

const far = (roundTripMs: number) => ({ ...randomly, roundTripMs })

const long = { once: true }

/** One activity, which returns its payload. */
const returned = { activities: 1, inFlight: 4 }

/** Random words in quotes: as hard to compress as payloads get, and with as much to escape as JSON has. */
const words = (bytes: number) => {
  let text = ""
  while (text.length < bytes) text += `"${Math.random().toString(36).slice(2)}",`
  return text.slice(0, bytes)
}

/** One job as one activity, so that a peer runs one job, too. */
const job = { activities: 1, jobs: 1 }

const steps = (activities: number, inFlight: number) => ({ ...chain, activities, inFlight })

export const scenarios: Readonly<Record<string, Scenario>> = {
  S1: rate("5 activities of 10 ms, 20 in flight, 1 slot of each kind", variant("", { activityMs: 10, slots: 1 })),
  S2: rate("the same with 2 slots of each kind", variant("", { activityMs: 10, slots: 2 })),
  S4: rate("the same with 4 slots of each kind", variant("", { activityMs: 10, slots: 4 })),
  S8: rate("5 activities of 0 ms, 20 in flight, best settings", variant("")),
  D: {
    ...rate(
      "S8, and with 200 and 1,000 in flight, with the default slots; beside it with those of S8, W200 and W1000",
      variant("S8, defaults", { slots: 40 }),
      variant("S8"),
      variant("S8, 16 slots", { slots: 16 }),
      variant("W200, defaults", { inFlight: 200, slots: 40 }),
      variant("W200", { inFlight: 200 }),
      variant("W1000, defaults", { inFlight: 1000, slots: 40 }),
      variant("W1000", { inFlight: 1000 })
    ),
    baseline: "S8"
  },
  W200: rate("S8 with 200 in flight", variant("", { inFlight: 200 })),
  W1000: rate("S8 with 1,000 in flight", variant("", { inFlight: 1000 })),
  L: warmed(time("one activity on an idle system, start to result", variant("", single, randomly))),
  C: warmed(time("ten activities in a row on an idle system", variant("", chain, randomly))),
  F: {
    ...time(
      "L without pauses, the first 400 ms after two seconds of rest: about its first hundred",
      variant("", single, { cold: true })
    ),
    seconds: 0.4,
    rounds: 20
  },
  Q: {
    about: "nothing to do, or one thing: statements per minute",
    compares: "statementsPerMinute",
    // Until then a process looks for locks of those that died before it started.
    warmUpSeconds: 35,
    seconds: 60,
    rounds: 1,
    shows: ["statementsPerMinute"],
    variants: [
      variant("woken", {}, idle),
      variant("polling every 50 ms", { pollMs: 50 }, idle),
      variant("polling every second", { pollMs: 1000 }, idle),
      variant("20 processes", {}, { ...idle, processes: 20 }),
      variant("after one start", { ...alone, noticed: "claim" }, started),
      variant("after one start, 20 processes", { ...alone, noticed: "claim", servers: 20 }, started),
      variant("after the listener was lost", {}, { ...idle, begins: "lost listener" })
    ]
  },
  N: {
    ...time(
      "how soon another process notices: a start, the end of an instance; beside an empty statement",
      variant("start to claim", { ...alone, noticed: "claim" }, randomly),
      variant("end to waiter", { ...alone, noticed: "end" }, randomly),
      variant("SELECT 1", { ...alone, noticed: "round trip" }, randomly),
      variant("start to claim, polling every 50 ms", { ...alone, noticed: "claim", pollMs: 50 }, randomly),
      variant("start to claim, polling every second", { ...alone, noticed: "claim", pollMs: 1000 }, randomly)
    ),
    shows: ["p50Ms", "p99Ms"]
  },
  B: {
    ...rate(
      "single-row inserts of a neighbour, 8 at once, beside S8",
      variant("woken", { neighbour: true, inFlight: 8 }),
      variant("polling", { neighbour: true, inFlight: 8, pollMs: 100 })
    ),
    baseline: "polling"
  },
  T: time(
    "how late a timer of 100 ms is, its start and result included; 10 in flight",
    variant("", { inFlight: 10, activities: 0, timerMs: 100 }, randomly)
  ),
  P: rate(
    "one activity that returns its payload, 4 in flight",
    variant("1 KB, one letter", { ...returned, text: "x".repeat(1024) }),
    variant("1 KB, words", { ...returned, text: words(1024) }),
    variant("64 KB, one letter", { ...returned, text: "x".repeat(65_536) }),
    variant("64 KB, words", { ...returned, text: words(65_536) }),
    variant("1 MB, one letter", { ...returned, text: "x".repeat(1_048_576) }),
    variant("1 MB, words", { ...returned, text: words(1_048_576) })
  ),
  M2: {
    ...rate(
      "S8 with 50 in flight in each of two processes; beside it one process, four and eight",
      variant("2 processes", { inFlight: 50 }, { processes: 2 }),
      variant("1 process", { inFlight: 50 }),
      variant("4 processes", { inFlight: 50 }, { processes: 4 }),
      variant("8 processes", { inFlight: 50 }, { processes: 8 })
    ),
    baseline: "1 process"
  },
  J: rate(
    "plain jobs of 0 ms, without an orchestration",
    variant("20 in flight", job),
    variant("200 in flight", { ...job, inFlight: 200 }),
    variant("10,000 created at once", { activities: 10_000, jobs: 10_000, inFlight: 1 }, long),
    variant(
      "10,000 created at once, not waited for",
      { activities: 10_000, jobs: 10_000, inFlight: 1, awaited: false },
      long
    )
  ),
  O: {
    ...rate(
      "S8 with metrics and spans, and without; ours only",
      variant("metrics and spans, all sent", { observed: "sent" }),
      variant("nothing", { observed: "nothing" }),
      variant("metrics", { observed: "metrics" }),
      variant("metrics and spans, none sampled", { observed: "unsampled" }),
      variant("metrics and spans, none sent", { observed: "dropped" })
    ),
    baseline: "nothing"
  },
  K: {
    ...rate(
      "S8 with limits of its activities by four keys, and without; ours only",
      variant("100,000 of each key at once", { eachKey: 100_000 }),
      variant("no limit"),
      variant("100 of each key at once", { eachKey: 100 }),
      variant("4 of each key at once", { eachKey: 4 })
    ),
    baseline: "no limit"
  },
  R: {
    ...time(
      "L and C through a proxy: what a round trip costs",
      variant("L, 20 ms", single, far(20)),
      variant("C, 20 ms", chain, far(20)),
      ...[1, 5, 180].flatMap((ms) => [variant(`L, ${ms} ms`, single, far(ms)), variant(`C, ${ms} ms`, chain, far(ms))]),
      variant("L, 20 in flight and 1 slot, 180 ms", { ...single, inFlight: 20, slots: 1 }, { roundTripMs: 180 }),
      ...[20, 180].flatMap((ms) =>
        (["abandon", "read", "append"] as const).map((call) =>
          variant(`${call}, ${ms} ms`, { ...alone, call }, { roundTripMs: ms })
        )
      )
    ),
    seconds: 30 // a chain at 180 ms takes a while
  },
  G: {
    ...rate(
      "S8 beside much that waits or has ended, and long orchestrations; ours only",
      variant("empty"),
      variant("100,000 callers of wait", { waits: 100_000 }),
      variant("100,000 waiting instances", {}, { preload: growth.waiting(100_000) }),
      variant("1,000,000 future timers", {}, { preload: growth.timers(1_000_000) }),
      variant("1,000,000 ended instances", {}, { preload: growth.ended(1_000_000) }),
      variant("chains of 1,000 activities", steps(1000, 4), long),
      variant("histories of 10,000 events", steps(5000, 2), long),
      variant("chains of 1,000 activities, replayed at every turn", { ...steps(1000, 2), warm: false }, long),
      variant("1,000 times continue-as-new", { ...steps(1, 4), executions: 1000 }, long)
    ),
    baseline: "empty"
  }
}

/** Peers have no such calls. */
export const isOnlyOurs = ({ load: { call, eachKey, neighbour, noticed, observed, pollMs } }: Variant): boolean =>
  [call, eachKey, noticed, observed].some((one) => one !== undefined) || neighbour || pollMs !== null
