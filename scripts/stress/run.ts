/** Runs one configuration in this process, and compares what it reached with its targets. */
import { plainLoad } from "../bench/contender.ts"
import { open } from "../bench/ours.ts"
import { percentile, round } from "../bench/statistics.ts"
import type { Configuration, Target } from "./configurations.ts"

export interface Outcome {
  readonly configuration: string
  readonly started: number
  readonly completed: number
  /** Share of the started that completed, 0 to 1. */
  readonly successRate: number
  readonly elapsedSeconds: number
  readonly orchestrationsPerSecond: number
  readonly elapsedPerCompletedMs: number
  /** From the call that starts an orchestration to its result. */
  readonly p50Ms: number
  readonly p99Ms: number
  readonly firstFailure: string | null
}

/** Time for what is in flight at the end; what takes longer counts as failed. */
const graceMs = 60_000

/** Starts orchestrations for `seconds` and waits for all of them. */
export const run = async (
  configuration: Configuration,
  { schema, seconds, url }: { readonly url: string; readonly schema: string; readonly seconds: number }
): Promise<Outcome> => {
  const { activities, activityMs, connections, inFlight, name, slots } = configuration
  const contender = await open({
    url,
    schema,
    processName: name,
    load: { ...plainLoad, inFlight, activities, activityMs, slots },
    ...(connections !== undefined && { maxConnections: connections })
  })
  const latencies: Array<number> = []
  const failures: Array<string> = []
  const begin = performance.now()
  let started = 0
  const loop = async () => {
    while (performance.now() - begin < seconds * 1000) {
      const at = performance.now()
      try {
        await contender.execute(`${name}-${++started}`)
        latencies.push(performance.now() - at)
      } catch (error) {
        failures.push(String(error))
        await new Promise((resolve) => setTimeout(resolve, 100))
      }
    }
  }
  let late: NodeJS.Timeout | undefined
  await Promise.race([
    Promise.all(Array.from({ length: inFlight }, loop)),
    new Promise((resolve) => (late = setTimeout(resolve, seconds * 1000 + graceMs)))
  ])
  clearTimeout(late)
  const elapsedMs = performance.now() - begin
  latencies.sort((a, b) => a - b)
  const completed = latencies.length
  if (completed + failures.length < started) {
    failures.push(`${started - completed - failures.length} had not ended after ${graceMs / 1000} seconds`)
  }
  await contender.close()
  return {
    configuration: name,
    started,
    completed,
    successRate: started === 0 ? 0 : completed / started,
    elapsedSeconds: round(elapsedMs / 1000),
    orchestrationsPerSecond: round(completed / elapsedMs * 1000),
    elapsedPerCompletedMs: round(elapsedMs / Math.max(1, completed)),
    p50Ms: round(percentile(latencies, 0.5)),
    p99Ms: round(percentile(latencies, 0.99)),
    firstFailure: failures[0] ?? null
  }
}

/** Each part of a target in words, and whether it was reached. `others` ran before. */
export const judge = (
  target: Target,
  outcome: Outcome,
  others: ReadonlyArray<Outcome>
): ReadonlyArray<{ readonly text: string; readonly reached: boolean }> => {
  const { elapsedPerCompletedMs, orchestrationsPerSecond, success, timesFasterThan } = target
  const judged = []
  if (success === true) judged.push({ text: "100 %", reached: outcome.successRate === 1 })
  if (orchestrationsPerSecond !== undefined) {
    judged.push({
      text: `at least ${orchestrationsPerSecond}/s`,
      reached: outcome.orchestrationsPerSecond >= orchestrationsPerSecond
    })
  }
  if (elapsedPerCompletedMs !== undefined) {
    judged.push({
      text: `under ${elapsedPerCompletedMs} ms`,
      reached: outcome.completed > 0 && outcome.elapsedPerCompletedMs < elapsedPerCompletedMs
    })
  }
  if (timesFasterThan !== undefined) {
    const [name, times] = timesFasterThan
    const other = others.find(({ configuration }) => configuration === name)
    if (other !== undefined) {
      judged.push({
        text: `${times} times ${name}`,
        reached: outcome.orchestrationsPerSecond >= times * other.orchestrationsPerSecond
      })
    }
  }
  return judged
}
