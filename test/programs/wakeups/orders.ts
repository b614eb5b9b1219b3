// What the processes of a wake-up run say to each other. A lane is a database with one instance.

export interface Settings {
  readonly role: "server" | "sender"
  /** One for each lane. */
  readonly urls: ReadonlyArray<string>
  /** Whether all hints of other processes are lost on their way to this one. */
  readonly dropsHints: boolean
  /** Whether this process is woken; else it polls. */
  readonly listens: boolean
  readonly fallbackPollMs: number
}

/** To a sender. All are answered by their number. */
export type Order =
  & { readonly number: number; readonly lane: number }
  & (
    | { readonly task: "start" }
    /** Milliseconds since the Unix epoch. */
    | { readonly task: "letter" | "signal"; readonly atMs: number }
    /** Waits for a newer status than this one. */
    | { readonly task: "await"; readonly version: number; readonly timeoutMs: number }
  )

export type Answer =
  | { readonly _tag: "Ready" }
  /** `version` of the status that was waited for; `problem` of a call that failed. */
  | { readonly _tag: "Done"; readonly number: number; readonly version?: number; readonly problem?: string }
  /** Looks for work since the process was ready, by their reasons, and turns that were stored. */
  | { readonly _tag: "Looks"; readonly reasons: Readonly<Record<string, number>>; readonly turns: number }

/** Clock of the machine, which the processes share: fractions of milliseconds since the Unix epoch. */
export const now = (): number => performance.timeOrigin + performance.now()

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms))
