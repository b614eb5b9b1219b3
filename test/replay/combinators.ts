/**
 * Activities for the tests of combinators: as soon as they are asked, one after the other, or never.
 */
import { activity } from "./play.ts"

export const A = activity("A")
export const B = activity("B")
export const C = activity("C")

export const echo = {
  A: (value: unknown) => ({ value }),
  B: (value: unknown) => ({ value }),
  C: (value: unknown) => ({ value })
}

/** A takes 100 milliseconds, B 200, C 300. */
export const staggered = {
  A: (value: unknown) => ({ value, after: 100 }),
  B: (value: unknown) => ({ value, after: 200 }),
  C: (value: unknown) => ({ value, after: 300 })
}

export const never = { after: 1e9 }
