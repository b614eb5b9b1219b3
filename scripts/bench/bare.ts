/** Runs the activities in a bare loop with as many slots, and stores nothing: the most that any runtime can reach. */
import type { Contender, Options } from "./contender.ts"

export const open = async ({ load }: Options): Promise<Contender> => {
  let free = load.slots ?? Number.POSITIVE_INFINITY
  const waiting: Array<() => void> = []
  const activity = async () => {
    if (free > 0) free--
    else await new Promise<void>((resolve) => waiting.push(resolve))
    if (load.activityMs > 0) await new Promise((resolve) => setTimeout(resolve, load.activityMs))
    const next = waiting.shift()
    if (next === undefined) free++
    else next()
  }
  return {
    execute: async () => {
      // Also where nothing else waits, the loops leave the process room for its timers.
      await new Promise((resolve) => setTimeout(resolve, load.timerMs))
      if (!load.inARow) return void await Promise.all(Array.from({ length: load.activities }, activity))
      for (let i = 0; i < load.activities; i++) await activity()
    },
    close: () => Promise.resolve()
  }
}
