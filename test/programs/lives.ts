/**
 * Lives of instances: what a store of duroxide holds when its processes die. Each is started, brought to rest, and
 * later ends, or not. The programs are in `rustLives.ts`.
 */

/** What a client does. `to` is appended to the id of the instance. */
export type Message =
  | { readonly raise: string; readonly data: unknown; readonly to?: string }
  | { readonly send: string; readonly data: unknown; readonly to?: string }
  | { readonly cancel: string; readonly to?: string }

export interface Life {
  /** Instances are `<name>-1`, `<name>-2`, …; their children have longer ids. */
  readonly name: string
  readonly orchestration: string
  readonly input: (n: number, instanceId: string) => unknown
  /**
   * `crashing`: in processes that hang, ten times, so that the attempts of `poison` are used up. `running`: in a
   * process that works. `last`: in one that is killed soon after. `unclaimed`: when no process runs.
   */
  readonly starts: "crashing" | "running" | "last" | "unclaimed"
  /** Sent to instances that have come to rest, while a process runs. */
  readonly soon?: ReadonlyArray<Message>
  /** Sent while no process runs. */
  readonly queued?: ReadonlyArray<Message>
  /** Sent when processes run again. */
  readonly later?: ReadonlyArray<Message>
  /** How it ends at last. */
  readonly ends: "Completed" | "Failed" | "never"
  /** At most so many, because a process holds them all at once. */
  readonly atMost?: number
}

const answer: ReadonlyArray<Message> = [{ raise: "Answer", data: "yes" }, { send: "Letters", data: "a letter" }]
const letters = (...texts: ReadonlyArray<string>): ReadonlyArray<Message> =>
  texts.map((data) => ({ send: "Letters", data }))
const to = (suffix: string, messages: ReadonlyArray<Message>) => messages.map((message) => ({ ...message, to: suffix }))
const go: ReadonlyArray<Message> = [{ raise: "Go", data: "now" }]
const cancel: ReadonlyArray<Message> = [{ cancel: "no longer needed" }]

const day = 86_400_000
const briefly = 4000
const step = (n: number, tag?: string) => ({ name: "Step", n, tag })
const hang = (tag?: string) => (n: number) => ({ name: "Hang", n, tag })
const few = { atMost: 4 } as const

export const lives: ReadonlyArray<Life> = [
  // Ended before.
  { name: "steps", orchestration: "Steps", input: (n) => n, starts: "running", ends: "Completed" },
  { name: "refused", orchestration: "Call", input: (n) => ({ name: "Refuse", n }), starts: "running", ends: "Failed" },
  { name: "failed", orchestration: "Failure", input: (n) => `number ${n}`, starts: "running", ends: "Failed" },
  {
    name: "cancelled",
    orchestration: "Errand",
    input: (n) => `c${n}`,
    starts: "running",
    soon: cancel,
    ends: "Failed"
  },
  { name: "ran", orchestration: "Errand", input: (n) => `r${n}`, starts: "running", soon: answer, ends: "Completed" },
  {
    name: "went-round",
    orchestration: "Rounds",
    input: () => ({ round: 0, last: 2, heard: [] }),
    starts: "running",
    soon: letters("1", "2", "3"),
    ends: "Completed"
  },
  {
    name: "raised",
    orchestration: "Parent",
    input: (n, id) => ({ child: "Steps", id: `${id}-child`, input: n }),
    starts: "running",
    ends: "Completed"
  },
  {
    name: "mourning",
    orchestration: "Parent",
    input: () => ({ child: "Failure", input: "a child" }),
    starts: "running",
    ends: "Failed"
  },
  {
    name: "detaching",
    orchestration: "Detaching",
    input: (n) => ({ name: "Steps", input: n }),
    starts: "running",
    ends: "Completed"
  },
  { name: "clock", orchestration: "Clock", input: () => null, starts: "running", ends: "Completed" },
  {
    name: "kept",
    orchestration: "Keys",
    input: () => ({ execution: 1 }),
    starts: "running",
    soon: go,
    ends: "Completed"
  },
  // Waiting for a client.
  {
    name: "asking",
    orchestration: "Errand",
    input: (n) => `a${n}`,
    starts: "running",
    later: answer,
    ends: "Completed"
  },
  {
    name: "keeping",
    orchestration: "Keys",
    input: () => ({ execution: 1 }),
    starts: "running",
    later: go,
    ends: "Completed"
  },
  {
    name: "going-round",
    orchestration: "Rounds",
    input: () => ({ round: 0, last: 2, heard: [] }),
    starts: "running",
    soon: letters("1", "2"),
    later: letters("3"),
    ends: "Completed"
  },
  { name: "doomed", orchestration: "Errand", input: (n) => `d${n}`, starts: "running", later: cancel, ends: "Failed" },
  {
    name: "family",
    orchestration: "Parent",
    input: (n, id) => ({ child: "Errand", id: `${id}-child`, input: `f${n}` }),
    starts: "running",
    later: to("-child", answer),
    ends: "Completed"
  },
  {
    name: "doomed-family",
    orchestration: "Parent",
    input: (n, id) => ({ child: "Errand", id: `${id}-child`, input: `f${n}` }),
    starts: "running",
    later: cancel,
    ends: "Failed"
  },
  {
    name: "detached",
    orchestration: "Detaching",
    input: (n) => ({ name: "Errand", input: `e${n}` }),
    starts: "running",
    later: to("-detached", answer),
    ends: "Completed"
  },
  // Waiting for a time.
  { name: "asleep", orchestration: "Nap", input: () => day, starts: "running", ends: "never" },
  { name: "dozing", orchestration: "Nap", input: () => briefly, starts: "last", ends: "Completed" },
  { name: "woken", orchestration: "Race", input: () => day, starts: "running", later: go, ends: "Completed" },
  { name: "late", orchestration: "Race", input: () => briefly, starts: "last", ends: "Completed" },
  // Waiting for a worker that does not run yet.
  { name: "queued", orchestration: "Call", input: (n) => step(n, "later"), starts: "running", ends: "Completed" },
  {
    name: "refused-later",
    orchestration: "Call",
    input: (n) => ({ name: "Refuse", n, tag: "later" }),
    starts: "running",
    ends: "Failed"
  },
  {
    name: "seated",
    orchestration: "Seated",
    input: (n, id) => ({ n, session: id }),
    starts: "running",
    ends: "Completed"
  },
  {
    name: "expecting",
    orchestration: "Parent",
    input: (n) => ({ child: "Call", input: step(n, "later") }),
    starts: "running",
    ends: "Completed"
  },
  // Held by a process when it was killed.
  { name: "held", orchestration: "Call", input: hang(), starts: "last", ends: "Completed", ...few },
  { name: "stuck", orchestration: "Stuck", input: () => null, starts: "last", ends: "Completed", ...few },
  { name: "shaky", orchestration: "Call", input: hang("shaky"), starts: "crashing", ends: "Completed", ...few },
  { name: "poison", orchestration: "Call", input: hang("poison"), starts: "crashing", ends: "Failed", ...few },
  { name: "poison-turn", orchestration: "Stuck", input: () => null, starts: "crashing", ends: "Failed", ...few },
  // With messages that no process has taken.
  {
    name: "answered",
    orchestration: "Errand",
    input: (n) => `m${n}`,
    starts: "running",
    queued: answer,
    ends: "Completed"
  },
  {
    name: "dismissed",
    orchestration: "Errand",
    input: (n) => `m${n}`,
    starts: "running",
    queued: cancel,
    ends: "Failed"
  },
  {
    name: "posted",
    orchestration: "Rounds",
    input: () => ({ round: 0, last: 1, heard: [] }),
    starts: "running",
    queued: letters("1", "2", "3"),
    ends: "Completed"
  },
  { name: "new", orchestration: "Steps", input: (n) => n, starts: "unclaimed", ends: "Completed" },
  // A signal before the first turn is lost in duroxide, a letter is not.
  {
    name: "new-answered",
    orchestration: "Errand",
    input: (n) => `n${n}`,
    starts: "unclaimed",
    queued: answer,
    later: [{ raise: "Answer", data: "later" }],
    ends: "Completed"
  },
  {
    name: "new-dismissed",
    orchestration: "Errand",
    input: (n) => `n${n}`,
    starts: "unclaimed",
    queued: cancel,
    ends: "Failed"
  }
]

export interface Instance {
  readonly id: string
  readonly life: Life
  readonly input: unknown
}

/** About `count` instances, as many of each life as possible; children and detached ones come on top. */
export const instancesOf = (count: number): ReadonlyArray<Instance> => {
  const rest = count - lives.reduce((sum, { atMost = 0 }) => sum + atMost, 0)
  const unlimited = lives.filter(({ atMost }) => atMost === undefined)
  const each = Math.max(1, Math.round(rest / unlimited.length))
  return lives.flatMap((life) =>
    Array.from({ length: life.atMost ?? each }, (_, i) => {
      const id = `${life.name}-${i + 1}`
      return { id, life, input: life.input(i + 1, id) }
    })
  )
}
