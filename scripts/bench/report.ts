/** What the windows of a side come to. */
import type { Variant } from "./scenarios.ts"
import type { Measured } from "./side.ts"
import { percentile, round, sum } from "./statistics.ts"

/** Numbers of one side in one variant; null where they are not known, or do not apply. */
export type Result = Readonly<Record<(typeof fields)[number], number | null>>

/** In the order they are printed. */
export const fields = [
  "orchestrationsPerSecond",
  "p50Ms",
  "p90Ms",
  "p99Ms",
  "statementsPerOrchestration",
  "transactionsPerOrchestration",
  "walBytesPerOrchestration",
  "nodeCpuMsPerOrchestration",
  "postgresCpuMsPerOrchestration",
  "memoryMiB",
  "roundTrips",
  "statementsPerMinute",
  "completed",
  "failed"
] as const

export const resultOf = (
  { idle, load, processes, roundTripMs }: Variant,
  { samples, seconds, server }: Measured
): Result => {
  // A timer is judged by how late it is.
  const latencies = samples.flatMap(({ latenciesMs }) => latenciesMs).map((ms) => ms - load.timerMs).sort((a, b) =>
    a - b
  )
  const completed = latencies.length
  const per = (total: number | null | undefined) =>
    total === null || total === undefined || completed === 0 ? null : round(total / completed)
  const at = (p: number) => completed === 0 ? null : round(percentile(latencies, p))
  const statements = server?.statements ?? null
  return {
    orchestrationsPerSecond: idle ? null : round(completed / seconds),
    p50Ms: at(0.5),
    p90Ms: at(0.9),
    p99Ms: at(0.99),
    statementsPerOrchestration: per(statements),
    transactionsPerOrchestration: per(server?.transactions),
    walBytesPerOrchestration: per(server?.walBytes),
    nodeCpuMsPerOrchestration: per(sum(samples.map(({ cpuMs }) => cpuMs))),
    postgresCpuMsPerOrchestration: per(server?.cpuMs),
    // Of all processes of the largest window.
    memoryMiB: round(
      Math.max(
        ...samples.map((_, i) => sum(samples.slice(i, i + processes).map(({ memoryBytes }) => memoryBytes / 2 ** 20)))
      )
    ),
    roundTrips: roundTripMs === 0 || completed === 0 ? null : round(percentile(latencies, 0.5) / roundTripMs),
    statementsPerMinute: statements === null || !idle ? null : round(60 * statements / seconds),
    completed,
    failed: sum(samples.map(({ failures }) => failures.length))
  }
}

/** How many times better ours is: more of a rate, or less of a time or count. Null when either is unknown or 0. */
export const ratioOf = (compares: (typeof fields)[number], ours: Result, peer: Result): number | null => {
  const [a, b] = compares === "orchestrationsPerSecond" ? [ours, peer] : [peer, ours]
  const [above, below] = [a[compares], b[compares]]
  return above === null || below === null || below === 0 ? null : Number((above / below).toFixed(2))
}

/** A table with one column per side. */
export const table = (sides: Readonly<Record<string, Result>>): string => {
  const names = Object.keys(sides)
  const rows = fields
    .map((field) => [words(field), ...names.map((name) => sides[name]![field])])
    .filter(([, ...values]) => values.some((value) => value !== null))
    .map((
      [field, ...values]
    ) => [String(field), ...values.map((value) => value === null ? "" : value.toLocaleString("en"))])
  return [["", ...names], ...rows]
    .map(([field = "", ...values]) => `${field.padEnd(40)}${values.map((value) => value.padStart(14)).join("")}`)
    .join("\n")
}

// internal

/** `walBytesPerOrchestration` as `WAL bytes per orchestration`. */
const words = (field: string) =>
  field
    .replace(/(?<=.)[A-Z](?![A-Z])/g, (letter) => ` ${letter.toLowerCase()}`)
    .replace(/ ms\b/, " (ms)")
    .replace(" mi b", " (MiB)")
    .replace("wal", "WAL")
    .replace("cpu", "CPU")
    .replace("postgres", "PostgreSQL")
    .replace("node", "Node")
