// Random numbers from a seed: the same in every run.

export interface Chance {
  /** From 0, below 1. */
  readonly next: () => number
  /** A whole number, both ends included. */
  readonly between: (min: number, max: number) => number
  readonly one: <A>(all: ReadonlyArray<A>) => A
  readonly is: (probability: number) => boolean
}

/** Mulberry32, good enough to choose faults. */
export const random = (seed: number): Chance => {
  let state = seed >>> 0
  const next = () => {
    state = (state + 0x6d2b79f5) >>> 0
    let t = state
    t = Math.imul(t ^ (t >>> 15), t | 1)
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61)
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296
  }
  const between = (min: number, max: number) => min + Math.floor(next() * (max - min + 1))
  return {
    next,
    between,
    one: (all) => all[between(0, all.length - 1)]!,
    is: (probability) => next() < probability
  }
}
