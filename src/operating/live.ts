/**
 * One look at what happens in a store.
 */
import * as Effect from "effect/Effect"
import type { Pause } from "../model/Pause.ts"
import type { Database } from "../prisma/Database.ts"
import * as LiveReport from "../prisma/shared/liveReport.ts"
import { Admin } from "../provider/Admin.ts"
import type { InstanceCount, ProcessInfo } from "../provider/AdminDriver.ts"
import type { ProviderError } from "../provider/ProviderError.ts"
import { serversOfActivity, serversOfOrchestration } from "../provider/shared/served.ts"
import * as Counts from "./counts.ts"
import { pauseOf } from "./work.ts"

export interface Report extends LiveReport.LiveReport {
  /** The time that the paces are about. */
  readonly seconds: number
  readonly counts: ReadonlyArray<InstanceCount>
  readonly pauses: { readonly targets: ReadonlyArray<Pause>; readonly instances: number }
  readonly processes: ReadonlyArray<ProcessInfo>
}

export const read = Effect.fnUntraced(function*(
  since: LiveReport.Since
): Effect.fn.Return<Report, ProviderError, Admin | Database> {
  const admin = yield* Admin
  const live = yield* LiveReport.read(since)
  return {
    ...live,
    seconds: ("atMs" in since ? Math.max(live.nowMs - since.atMs, 1) : since.agoMs) / 1000,
    counts: yield* admin.count(),
    pauses: yield* admin.getPauses,
    processes: yield* admin.listProcesses
  }
})

export interface PerSecond {
  readonly started: number
  readonly completed: number
  readonly failed: number
  readonly cancelled: number
}

export const ended = ({ cancelled, completed, failed }: PerSecond): number => completed + failed + cancelled

export const byStatus = ({ counts }: Report) => Counts.grouped(counts, ({ status }) => status)

/** Orchestrations that run or have ended, those first that did most. */
export const activityOf = ({ counts, paces, seconds }: Report) => {
  const perSecond = new Map(paces.map(({ orchestration, ...pace }) => [
    orchestration,
    {
      started: pace.started / seconds,
      completed: pace.completed / seconds,
      failed: pace.failed / seconds,
      cancelled: pace.cancelled / seconds
    }
  ]))
  const running = counts.filter(({ status }) => status === "Running")
  const orchestrations = Counts.grouped(counts, ({ orchestrationName }) => orchestrationName).map(({ key }) => ({
    orchestration: key,
    running: Counts.sum(running.filter(({ orchestrationName }) => orchestrationName === key)),
    ...perSecond.get(key) ?? none
  }))
  return {
    orchestrations: orchestrations
      .filter((one) => one.running.instances + one.started + ended(one) > 0)
      .sort((a, b) => b.started + ended(b) - a.started - ended(a) || b.running.instances - a.running.instances),
    all: orchestrations.reduce((sum, one): PerSecond => ({
      started: sum.started + one.started,
      completed: sum.completed + one.completed,
      failed: sum.failed + one.failed,
      cancelled: sum.cancelled + one.cancelled
    }), none)
  }
}

/** What waits, then what only runs; those first that have waited longest. */
export const dueOf = ({ due, pauses, processes }: Report) =>
  due.map((one) => ({
    ...one,
    paused: !one.isOfRust && pauseOf(one, pauses.targets) !== undefined,
    servedBy: one.isOfRust ? null : one.kind === "orchestration"
      ? serversOfOrchestration(processes, one.name, one.version)
      : serversOfActivity(processes, one.name, one.tag)
  })).filter(({ running, waiting }) => waiting + running > 0)
    .sort((a, b) => (b.oldestAgeMs ?? -1) - (a.oldestAgeMs ?? -1) || b.running - a.running)

// internal

const none: PerSecond = { started: 0, completed: 0, failed: 0, cancelled: 0 }
