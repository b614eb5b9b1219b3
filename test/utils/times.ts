/**
 * How often a random model plays, or a test kills: enough to find what it is there for. `TIMES=5` makes it five times
 * as often, everywhere.
 */
export const times = (count: number): number => count * Number(process.env["TIMES"] ?? 1)
