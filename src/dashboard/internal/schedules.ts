/**
 * What the dashboard reads of schedules.
 */
import * as Cache from "effect/Cache"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Option from "effect/Option"
import { Database } from "../../prisma/Database.ts"
import * as TaskReport from "../../prisma/shared/taskReport.ts"
import { Provider } from "../../provider/Provider.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as End from "../../provider/shared/endOf.ts"
import type { Definition, RunInfo, ScheduleInfo } from "../../schedules/Schedules.ts"
import { ScheduleNotFound, Schedules } from "../../schedules/Schedules.ts"
import { timingWords } from "../../schedules/shared/timingWords.ts"
import type * as Api from "../Api.ts"
import { storeNowMs } from "./now.ts"

type Detail = typeof Api.ScheduleDetail.Type
type Run = typeof Api.ScheduleRun.Type

/** How instances and tasks are that runs have started; undefined for those that are not there. */
export type Statuses = (runs: ReadonlyArray<RunInfo>) => Effect.Effect<
  (run: RunInfo) => Run["status"],
  ProviderError
>

/** Instances that have ended are asked for seldom: an answer has their whole result. */
export const makeStatuses: Effect.Effect<Statuses, never, Provider | Database> = Effect.gen(function*() {
  const provider = yield* Provider
  const database = yield* Database
  const instances = yield* Cache.makeWith(
    (instanceId: string): Effect.Effect<Run["status"], ProviderError> =>
      Effect.map(
        provider.readInstance(instanceId),
        Option.match({
          onNone: () => null,
          onSome: (state) => {
            const end = End.endOf(state)
            return end === undefined ? state.status : End.outcomeOf(end).status
          }
        })
      ),
    {
      capacity: 2000,
      timeToLive: (exit) =>
        Exit.isSuccess(exit) && exit.value !== null && exit.value !== "Running" ? "30 seconds" : "1 second"
    }
  )
  return Effect.fnUntraced(function*(runs) {
    const found = new Map<string, Run["status"]>()
    const taskIds = runs.flatMap(({ taskId }) => taskId === undefined ? [] : [taskId])
    for (const task of yield* Effect.provideService(TaskReport.read(taskIds), Database, database)) {
      found.set(task.id, task.status)
    }
    const instanceIds = runs.flatMap(({ instanceId }) => instanceId === undefined ? [] : [instanceId])
    yield* Effect.forEach(
      new Set(instanceIds),
      (id) => Effect.map(Cache.get(instances, id), (status) => void found.set(id, status)),
      { concurrency: "unbounded", discard: true }
    )
    return ({ instanceId, taskId }) => found.get(instanceId ?? taskId ?? "") ?? null
  })
})

export const page = Effect.fnUntraced(function*(statuses: Statuses, cursor: string | undefined) {
  const { next, schedules } = yield* (yield* Schedules).list({ after: cursor, limit: schedulesOfPage, next: 3 })
  const statusOf = yield* statuses(schedules.flatMap(({ lastRun }) => lastRun === undefined ? [] : [lastRun]))
  return { schedules: schedules.map((one) => shown(one, statusOf)), next: next ?? null }
})

/** Names of those that are overdue, among the first thousand. */
export const overdue = Effect.gen(function*() {
  const { schedules } = yield* (yield* Schedules).list({ limit: 1000, next: 0 })
  return schedules.flatMap(({ name, state }) => state === "Overdue" ? [name] : [])
})

export const detail = Effect.fnUntraced(function*(
  statuses: Statuses,
  name: string
): Effect.fn.Return<Detail, ScheduleNotFound | ProviderError, Schedules | Provider> {
  const schedules = yield* Schedules
  const found = yield* schedules.get(name, { next: 20 })
  if (Option.isNone(found)) return yield* new ScheduleNotFound({ schedule: name })
  const { createdAt, definition, isCode, updatedAt } = found.value
  const runs = yield* schedules.runs(name)
  const statusOf = yield* statuses(runs)
  return {
    schedule: shown(found.value, statusOf),
    rules: definition === undefined ? null : rulesOf(definition),
    isCode,
    createdMs: createdAt.getTime(),
    updatedMs: updatedAt.getTime(),
    runs: runs.map((run) => shownRun(run, statusOf(run))),
    nowMs: yield* storeNowMs
  }
})

// internal

const schedulesOfPage = 100

const shown = (one: ScheduleInfo, statusOf: (run: RunInfo) => Run["status"]): typeof Api.Schedule.Type => ({
  name: one.name,
  state: one.state,
  problem: one.problem ?? null,
  timing: one.definition === undefined ? null : timingOf(one.definition),
  target: one.definition === undefined ? null : targetOf(one.definition),
  pause: one.pause === undefined ? null : { sinceMs: one.pause.since.getTime(), reason: one.pause.reason ?? null },
  nextMs: one.next.map((at) => at.getTime()),
  queuedMs: one.queued?.getTime() ?? null,
  requests: one.requests,
  isRunning: one.isRunning,
  lastRun: one.lastRun === undefined ? null : shownRun(one.lastRun, statusOf(one.lastRun))
})

const timingOf = ({ timing }: Definition) => ({
  words: timingWords(timing),
  expression: timing._tag === "Cron" ? timing.expression : null,
  timeZone: timing._tag === "Cron" ? timing.timeZone : null
})

const targetOf = ({ target }: Definition) =>
  target._tag === "Task"
    ? { kind: "task" as const, name: target.name, version: null }
    : { kind: "orchestration" as const, name: target.name, version: target.version }

const rulesOf = ({ catchUp, jitterMs, overlap, timing }: Definition): Detail["rules"] => ({
  overlap,
  jitterMs,
  catchUp: catchUp._tag === "None" ? "none" : catchUp._tag === "Last" ? "last" : "within",
  withinMs: catchUp._tag === "Within" ? catchUp.ms : null,
  datesMs: timing._tag === "Dates" ? timing.at.toSorted((a, b) => a - b) : []
})

const shownRun = (run: RunInfo, status: Run["status"]): Run => ({
  number: run.number,
  kind: run.kind,
  occurrenceMs: run.occurrence.getTime(),
  sinceMs: run.since?.getTime() ?? null,
  outcome: run.outcome,
  note: run.note ?? null,
  instanceId: run.instanceId ?? null,
  taskId: run.taskId ?? null,
  settledMs: run.settledAt.getTime(),
  status
})
