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
   * `crashing`: in processes that hang, ten times, so that the attempts of `poison` are used up. `running`: in a process
   * that works. `last`: in one that is killed soon after. `unclaimed`: when no process runs.
   */
  readonly starts: "crashing" | "running" | "last" | "unclaimed"
  /** Sent to instances that have come to rest, while a process runs. */
  readonly then?: ReadonlyArray<Message>
  /** Sent while no process runs. */
  readonly queued?: ReadonlyArray<Message>
  /** Sent when processes run again. */
  readonly later?: ReadonlyArray<Message>
  /** Whether it never ends; all others do. */
  readonly stays?: true
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
const soon = 4000
const step = (n: number, tag?: string) => ({ name: "Step", n, tag })
const held = { atMost: 4 } as const

export const lives: ReadonlyArray<Life> = [
  // Ended before.
  { name: "steps", orchestration: "Steps", input: (n) => n, starts: "running" },
  { name: "refused", orchestration: "Call", input: (n) => ({ name: "Refuse", n }), starts: "running" },
  { name: "failed", orchestration: "Failure", input: (n) => `number ${n}`, starts: "running" },
  { name: "cancelled", orchestration: "Errand", input: (n) => `c${n}`, starts: "running", then: cancel },
  { name: "ran", orchestration: "Errand", input: (n) => `r${n}`, starts: "running", then: answer },
  {
    name: "went-round",
    orchestration: "Rounds",
    input: () => ({ round: 0, last: 2, heard: [] }),
    starts: "running",
    then: letters("1", "2", "3")
  },
  {
    name: "raised",
    orchestration: "Parent",
    input: (n, id) => ({ child: "Steps", id: `${id}-child`, input: n }),
    starts: "running"
  },
  { name: "mourning", orchestration: "Parent", input: () => ({ child: "Failure", input: "a child" }), starts: "running" },
  { name: "detaching", orchestration: "Detaching", input: (n) => ({ name: "Steps", input: n }), starts: "running" },
  { name: "clock", orchestration: "Clock", input: () => null, starts: "running" },
  { name: "kept", orchestration: "Keys", input: () => ({ execution: 1 }), starts: "running", then: go },
  // Waiting for a client.
  { name: "asking", orchestration: "Errand", input: (n) => `a${n}`, starts: "running", later: answer },
  { name: "keeping", orchestration: "Keys", input: () => ({ execution: 1 }), starts: "running", later: go },
  {
    name: "going-round",
    orchestration: "Rounds",
    input: () => ({ round: 0, last: 3, heard: [] }),
    starts: "running",
    then: letters("1", "2"),
    later: letters("3", "4")
  },
  { name: "doomed", orchestration: "Errand", input: (n) => `d${n}`, starts: "running", later: cancel },
  {
    name: "family",
    orchestration: "Parent",
    input: (n, id) => ({ child: "Errand", id: `${id}-child`, input: `f${n}` }),
    starts: "running",
    later: to("-child", answer)
  },
  {
    name: "doomed-family",
    orchestration: "Parent",
    input: (n, id) => ({ child: "Errand", id: `${id}-child`, input: `f${n}` }),
    starts: "running",
    later: cancel
  },
  {
    name: "detached",
    orchestration: "Detaching",
    input: (n) => ({ name: "Errand", input: `e${n}` }),
    starts: "running",
    later: to("-detached", answer)
  },
  // Waiting for a time.
  { name: "asleep", orchestration: "Nap", input: () => day, starts: "running", stays: true },
  { name: "dozing", orchestration: "Nap", input: () => soon, starts: "last" },
  { name: "woken", orchestration: "Race", input: () => day, starts: "running", later: go },
  { name: "late", orchestration: "Race", input: () => soon, starts: "last" },
  // Waiting for a worker that does not run yet.
  { name: "queued", orchestration: "Call", input: (n) => step(n, "later"), starts: "running" },
  {
    name: "refused-later",
    orchestration: "Call",
    input: (n) => ({ name: "Refuse", n, tag: "later" }),
    starts: "running"
  },
  { name: "seated", orchestration: "Seated", input: (n, id) => ({ n, session: id }), starts: "running" },
  {
    name: "expecting",
    orchestration: "Parent",
    input: (n) => ({ child: "Call", input: step(n, "later") }),
    starts: "running"
  },
  // Held by a process when it was killed.
  { name: "held", orchestration: "Call", input: (n) => ({ name: "Hang", n }), starts: "last", ...held },
  { name: "stuck", orchestration: "Stuck", input: () => null, starts: "last", ...held },
  { name: "shaky", orchestration: "Call", input: (n) => ({ name: "Hang", n, tag: "shaky" }), starts: "crashing", ...held },
  {
    name: "poison",
    orchestration: "Call",
    input: (n) => ({ name: "Hang", n, tag: "poison" }),
    starts: "crashing",
    ...held
  },
  { name: "poison-turn", orchestration: "Stuck", input: () => null, starts: "crashing", ...held },
  // With messages that no process has taken.
  { name: "answered", orchestration: "Errand", input: (n) => `m${n}`, starts: "running", queued: answer },
  { name: "dismissed", orchestration: "Errand", input: (n) => `m${n}`, starts: "running", queued: cancel },
  {
    name: "posted",
    orchestration: "Rounds",
    input: () => ({ round: 0, last: 1, heard: [] }),
    starts: "running",
    queued: letters("1", "2", "3")
  },
  { name: "new", orchestration: "Steps", input: (n) => n, starts: "unclaimed" },
  {
    name: "new-answered",
    orchestration: "Errand",
    input: (n) => `n${n}`,
    starts: "unclaimed",
    queued: answer,
    later: answer
  },
  { name: "new-dismissed", orchestration: "Errand", input: (n) => `n${n}`, starts: "unclaimed", queued: cancel }
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
