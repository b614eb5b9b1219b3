/** What the windows of a side come to. */
import type { Variant } from "./scenarios.ts"
import type { Measured } from "./side.ts"
import { percentile, round, sum } from "./statistics.ts"

/** Numbers of one side in one variant; null where they are not known, or do not apply. */
export type Result =
  & Readonly<Record<(typeof fields)[number], number | null>>
  & {
    readonly [
      /** Only where it applies. */
      Extra in (typeof extras)[number]
    ]?: number
  }

/** Names of the numbers, in the order in which they are printed. */
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
  "nodeCpuMsPerMinute",
  "postgresCpuMsPerMinute",
  "completed",
  "failed"
] as const

const extras = ["turnsPerMinuteAndSlot", "lastToFirst"] as const

export const resultOf = (
  { idle, load, processes, roundTripMs }: Variant,
  { samples, seconds, server }: Measured
): Result => {
  // A timer is judged by how late it is.
  const latencies = samples.flatMap(({ latenciesMs }) => latenciesMs).map((ms) => ms - load.timerMs).sort((a, b) =>
    a - b
  )
  const completed = latencies.length * Math.max(load.jobs, 1)
  const per = (total: number | null | undefined) =>
    total === null || total === undefined || completed === 0 ? null : round(total / completed)
  const perMinute = (total: number | null | undefined) =>
    total === null || total === undefined || !idle ? null : round(60 * total / seconds)
  const at = (p: number) => completed === 0 ? null : round(percentile(latencies, p))
  const statements = server?.statements ?? null
  const growth = samples.flatMap(({ lastToFirst }) => lastToFirst).sort((a, b) => a - b)
  // Each activity that runs alone leads to a turn, and the start to one more.
  const turns = completed * load.executions * (load.inARow ? load.activities + 1 : 2)
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
    statementsPerMinute: perMinute(statements),
    nodeCpuMsPerMinute: perMinute(sum(samples.map(({ cpuMs }) => cpuMs))),
    postgresCpuMsPerMinute: perMinute(server?.cpuMs),
    completed,
    failed: sum(samples.map(({ failures }) => failures.length)),
    ...(roundTripMs > 0 && load.slots !== undefined &&
      { turnsPerMinuteAndSlot: round(60 * turns / seconds / load.slots / processes) }),
    ...(growth.length > 0 && { lastToFirst: round(percentile(growth, 0.5)) })
  }
}

/** One minute of a long window. */
export interface Minute {
  readonly orchestrationsPerSecond: number
  readonly postgresCpuMsPerOrchestration: number | null
  readonly statementMsPerOrchestration: number | null
  /** At its end. */
  readonly deadRows: number
  /** Whether a transaction was open beside the load, in a part of it at least. */
  readonly transactionOpen: boolean
}

/** The whole minutes of a window that was read every minute. */
export const minutesOf = ({ readings, samples }: Measured): ReadonlyArray<Minute> =>
  readings.slice(1).map((reading, minute) => {
    const completed = sum(samples.map(({ completedByMinute }) => completedByMinute[minute] ?? 0))
    const before = readings[minute]!
    const per = (field: "cpuMs" | "statementMs") => {
      const [from, to] = [before[field], reading[field]]
      return from === null || to === null || completed === 0 ? null : round((to - from) / completed)
    }
    return {
      orchestrationsPerSecond: round(completed / 60),
      postgresCpuMsPerOrchestration: per("cpuMs"),
      statementMsPerOrchestration: per("statementMs"),
      deadRows: reading.deadRows,
      transactionOpen: reading.transactionOpen
    }
  })

/** Sessions at a time, by what they wait for, the most frequent wait first; without those below a hundredth. */
export const waitsOf = ({ waits }: Measured): Readonly<Record<string, number>> => {
  const { looks, seen } = waits ?? { looks: 0, seen: {} }
  return Object.fromEntries(
    Object.entries(seen)
      .map(([wait, sessions]) => [wait, Number((sessions / looks).toFixed(2))] as const)
      .filter(([, sessions]) => sessions >= 0.01)
      .sort(([, one], [, other]) => other - one)
  )
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
  const rows = [...fields, ...extras]
    .map((field) => [words(field), ...names.map((name) => sides[name]![field] ?? null)])
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
