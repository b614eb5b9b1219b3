import { assert, describe, it } from "@effect/vitest"
import * as pollMode from "../../src/waking/pollMode.ts"
import { settings } from "../utils/workQueues.ts"

type Event = readonly [atMs: number, event: pollMode.Event]

const connected = { _tag: "Connected" } as const
const disconnected = { _tag: "Disconnected" } as const
const failed = { _tag: "Failed" } as const
const unreliable = { _tag: "Unreliable" } as const
const looked = (outcome: pollMode.Outcome, reason: pollMode.LookReason = "Poll") =>
  ({ _tag: "Looked", reason, outcome }) as const

/** Looks that find nothing, one every 100 ms from this time on. */
const empty = (fromMs: number, count: number): ReadonlyArray<Event> =>
  Array.from({ length: count }, (_, i) => [fromMs + 100 * i, looked("Empty")] as const)

/** The mode after these events, with the reason of Aggressive. */
const after = (...events: ReadonlyArray<Event>) => {
  const state = events.reduce<pollMode.State>(
    (state, [atMs, event]) => pollMode.next(state, event, atMs, settings),
    pollMode.initial(0)
  )
  return state.mode === "LongPoll" ? state.mode : `${state.mode}: ${state.reason}`
}

const table = (rows: Record<string, readonly [ReadonlyArray<Event>, string]>) => {
  for (const [name, [events, mode]] of Object.entries(rows)) {
    it(`after ${name}`, () => assert.strictEqual(after(...events), mode))
  }
}

const start: Event = [1, connected]

describe("poll mode: what enters Aggressive", () => {
  table({
    "a process polls until it has connected for the first time": [empty(0, 2_000), "Aggressive: ListenerDisconnected"],
    "once it has, it waits to be woken": [[start], "LongPoll"],
    "a connection that is lost": [[start, [10, disconnected]], "Aggressive: ListenerDisconnected"],
    "a hint that could not be sent": [[start, [10, unreliable]], "Aggressive: ChannelSendFailed"],
    "a look that failed": [[start, [10, looked("Failed", "NotifyReceived")]], "Aggressive: FetchError"],
    "a question for due times that failed": [[start, [10, failed]], "Aggressive: FetchError"],
    "a fallback look that found work": [
      [start, [300_000, looked("Found", "FallbackTimeout")]],
      "Aggressive: FallbackTimeout"
    ]
  })
})

describe("poll mode: what is a reason for one look only", () => {
  const reasons = [
    "Stored",
    "More",
    "NotifyReceived",
    "TimerFired",
    "LocksExpired",
    "Connected",
    "Filter",
    "Asked"
  ] as const
  for (const reason of reasons) {
    table({
      [`${reason}, whether it finds work or not`]: [
        [start, [10, looked("Found", reason)], [20, looked("Empty", reason)]],
        "LongPoll"
      ]
    })
  }
  table({
    "FallbackTimeout without work": [[start, [300_000, looked("Empty", "FallbackTimeout")]], "LongPoll"]
  })
})

describe("poll mode: what leaves Aggressive", () => {
  const entered: Event = [1_000, looked("Failed")]
  table({
    "five empty looks after the minimum time": [[start, entered, ...empty(61_000, 5)], "LongPoll"],
    "the looks of the minimum time count": [[start, entered, ...empty(60_600, 5)], "LongPoll"],
    "not four": [[start, entered, ...empty(61_000, 4)], "Aggressive: FetchError"],
    "not before the minimum time": [[start, entered, ...empty(1_100, 590)], "Aggressive: FetchError"],
    "work begins the count again": [
      [start, entered, ...empty(61_000, 4), [61_400, looked("Found")], ...empty(61_500, 4)],
      "Aggressive: FetchError"
    ],
    "so does a failure": [
      [start, entered, ...empty(61_000, 4), [61_400, looked("Failed")], ...empty(61_500, 4)],
      "Aggressive: FetchError"
    ],
    "failures that alternate with empty looks keep it": [
      [
        start,
        entered,
        ...empty(61_000, 100).flatMap(([atMs, event]): ReadonlyArray<Event> => [[atMs, event], [atMs + 50, entered[1]]])
      ],
      "Aggressive: FetchError"
    ],
    "a further reason begins the count again, but not the time": [
      [start, entered, ...empty(61_000, 4), [61_400, unreliable], ...empty(61_500, 5)],
      "LongPoll"
    ],
    "not while the connection is lost": [
      [start, [1_000, disconnected], ...empty(1_100, 2_000)],
      "Aggressive: ListenerDisconnected"
    ],
    "not at once when it is back": [
      [start, [1_000, disconnected], ...empty(1_100, 2_000), [201_100, connected]],
      "Aggressive: ListenerDisconnected"
    ],
    "but after five empty looks": [
      [start, [1_000, disconnected], [201_000, connected], ...empty(201_100, 5)],
      "LongPoll"
    ],
    "a connection that comes and goes keeps it": [
      [
        start,
        ...empty(1_000, 1_000).flatMap(([atMs, event]): ReadonlyArray<Event> => [
          [atMs, disconnected],
          [atMs + 10, connected],
          [atMs + 20, event]
        ])
      ],
      "Aggressive: ListenerDisconnected"
    ]
  })
})
