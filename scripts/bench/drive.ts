/** Keeps a contender under load and measures one window of it. */
import type { Contender, Load, Sample } from "./contender.ts"

export interface Window {
  /** Under load before the window begins. */
  readonly warmUpMs: number
  readonly windowMs: number
  /** Each loop waits a random time up to this between a result and its next start; not in the warm-up. */
  readonly pauseMs: number
  /** Whether nothing is started: what the contender costs while it waits. */
  readonly idle: boolean
  /** Whether one orchestration is started at the beginning of a window that is idle otherwise. */
  readonly startsOne: boolean
  /** Whether nothing is started before the window, either: its warm-up is rest. */
  readonly cold: boolean
  /** Whether each loop runs two orchestrations, the first as its warm-up, and the window ends with the last. */
  readonly once: boolean
  /** Prefix of all ids. */
  readonly name: string
}

/** Resolves when everything that was started has ended. `began` and `ended` are called at the edges of the window. */
export const drive = async (
  contender: Contender,
  { inFlight }: Pick<Load, "inFlight">,
  window: Window,
  began: () => void,
  ended: (sample: Sample) => void
): Promise<void> => {
  const latenciesMs: Array<number> = []
  const lastToFirst: Array<number> = []
  const completedByMinute: Array<number> = []
  const failures: Array<string> = []
  const isEmpty = () => latenciesMs.length + failures.length === 0
  const endsAt = performance.now() + window.warmUpMs + window.windowMs
  let measuring = false
  let beganAt = 0
  let started = 0

  const execute = async () => {
    // Not in the warm-up: V8 optimizes code that has run some hundred times, which takes minutes with pauses.
    if (measuring && window.pauseMs > 0) await sleep(Math.random() * window.pauseMs)
    const begin = performance.now()
    try {
      const timing = await contender.execute(`${window.name}-${++started}`)
      if (measuring) {
        const now = performance.now()
        latenciesMs.push(timing?.ms ?? now - begin)
        if (timing?.lastToFirst !== undefined) lastToFirst.push(timing.lastToFirst)
        const minute = Math.floor((now - beganAt) / 60_000)
        completedByMinute[minute] = (completedByMinute[minute] ?? 0) + 1
      }
    } catch (error) {
      failures.push(String(error))
      await sleep(100)
    }
  }
  const loop = async () => {
    while (performance.now() < endsAt || isEmpty()) await execute()
  }
  const all = (run: () => Promise<void>) => window.idle ? [] : Array.from({ length: inFlight }, run)
  const loops = window.once || window.cold ? [] : all(loop)
  await (window.once ? Promise.all(all(execute)) : sleep(window.warmUpMs))
  beganAt = performance.now()
  const cpu = process.cpuUsage()
  measuring = true
  began()
  if (window.cold) loops.push(...all(loop))
  if (window.startsOne) loops.push(execute())
  await (window.once ? Promise.all(all(execute)) : sleep(window.windowMs))
  // A window without a result says nothing, however busy the machine is.
  while (loops.length > 0 && isEmpty()) await sleep(10)
  measuring = false
  const { system, user } = process.cpuUsage(cpu)
  const seconds = (performance.now() - beganAt) / 1000
  const memoryBytes = process.memoryUsage.rss()
  ended({ seconds, latenciesMs, lastToFirst, completedByMinute, failures, cpuMs: (user + system) / 1000, memoryBytes })
  await Promise.all(loops)
}

// internal

const sleep = (ms: number) => new Promise<void>((resolve) => setTimeout(resolve, ms))
