/**
 * Schedules in PostgreSQL: each operation is one call of one stored function.
 */
import * as Effect from "effect/Effect"
import * as interruptSignal from "../../../model/shared/interruptSignal.ts"
import * as WorkItem from "../../../model/WorkItem.ts"
import type {
  Claimed,
  Fire,
  Listed,
  NewRun,
  RunStart,
  ScheduleDriver,
  StoredRun
} from "../../../schedules/ScheduleDriver.ts"
import type { Database } from "../../Database.ts"
import { Prisma } from "../client.ts"
import { attributeRow, bigint, json, placed, workItemOf } from "../rows.ts"
import * as statements from "../statements.ts"
import { plain, timeless } from "../statements.ts"
import { taskRow } from "../tasks/driver.ts"
import { Texts } from "../texts.ts"

export const make = (database: Database["Service"], options: statements.Options): ScheduleDriver["Service"] => {
  // What starts is announced by the functions: schedules start seldom, and from processes that may serve nothing.
  const { answer } = statements.make(database, { ...options, isQuiet: false })
  return {
    store: (schedules, replaces) => {
      const texts = new Texts()
      return answer("storeSchedules", "dx_store_schedules", [
        json(schedules.map(({ payload, ...schedule }) => {
          const textAt = texts.add(payload)
          return { ...schedule, payload: placed(payload, textAt), text_at: textAt }
        })),
        texts.sql(),
        Prisma.sql`${replaces}::boolean`
      ], { items: schedules.length })
    },
    delete: (name) => answer("deleteSchedule", "dx_delete_schedule", [text(name)], { isTimeless: true }),
    pause: (name, pause) =>
      answer("pauseSchedule", "dx_pause_schedule", [
        text(name),
        Prisma.sql`${pause !== null}::boolean`,
        text(pause?.reason ?? null)
      ]),
    request: (name, request) => answer("requestRuns", "dx_request_runs", [text(name), json(request)]),
    claim: ({ codes, holdMs, limit }) =>
      answer<Claimed>("claimSchedules", "dx_claim_schedules", [
        Prisma.sql`${[...codes]}::text[]`,
        Prisma.sql`${limit}::integer`,
        bigint(holdMs)
      ], plain),
    fire: (fires) => {
      if (fires.length === 0) return Effect.succeed([])
      const { parts, texts } = partsOf(fires)
      return Effect.map(
        answer<ReadonlyArray<bigint | number>>(
          "fireSchedules",
          "dx_fire_schedules",
          [...parts.map(json), texts.sql()],
          {
            items: fires.length
          }
        ),
        (won) => {
          const settled = new Set(won.map(Number))
          return fires.map((_, index) => settled.has(index + 1))
        }
      )
    },
    list: ({ after, limit, name }) =>
      answer<{ readonly nowMs: number; readonly schedules: ReadonlyArray<Listed> }>(
        "readSchedules",
        "dx_read_schedules",
        [text(name), text(after), Prisma.sql`${limit}::integer`],
        plain
      ),
    runs: (name, limit) =>
      answer<ReadonlyArray<StoredRun>>(
        "readScheduleRuns",
        "dx_read_schedule_runs",
        [text(name), Prisma.sql`${limit}::integer`],
        timeless
      )
  }
}

// internal

const text = (value: string | null) => Prisma.sql`${value}::text`

/** The arguments of `dx_fire_schedules`. */
const partsOf = (fires: ReadonlyArray<Fire>) => {
  const texts = new Texts()
  const runs: Array<object> = []
  const starts: Array<object> = []
  const tasks: Array<object> = []
  const messages: Array<object> = []
  const cancels: Array<object> = []
  for (const [index, { interrupts, runs: settled }] of fires.entries()) {
    const fire = index + 1
    for (const run of settled) {
      const { start } = run
      if (start?._tag === "Orchestration") starts.push({ fire, ...startRow(start, texts) })
      const task = start?._tag === "Task" ? tasks.push({ fire, ...taskRow(start.task) }) : undefined
      runs.push({ fire, task, ...runRow(run) })
    }
    if (interrupts === null) continue
    const { instanceId, reason, taskId } = interrupts
    if (taskId !== null) cancels.push({ fire, task_id: taskId, reason })
    else if (instanceId !== null) messages.push({ fire, ...interruptRow(instanceId, reason) })
  }
  return { parts: [fires.map(fireRow), runs, starts, tasks, messages, cancels], texts }
}

const fireRow = ({ firedUntilMs, last, lookMs, name, nextMs, queued, requests, revision, runCount }: Fire) => ({
  name,
  revision,
  fired_until_ms: firedUntilMs,
  next_ms: nextMs,
  look_ms: lookMs,
  queued,
  requests,
  run_count: runCount,
  last
})

const runRow = ({ kind, missedSinceMs, note, number, occurrenceMs, outcome, start }: NewRun) => ({
  number,
  kind,
  occurrence_ms: occurrenceMs,
  missed_since_ms: missedSinceMs,
  outcome,
  note,
  instance_id: start?._tag === "Orchestration" ? start.start.instance : undefined
})

const startRow = ({ pinnedVersion, start }: Extract<RunStart, { _tag: "Orchestration" }>, texts: Texts) => ({
  instance_id: start.instance,
  orchestration_name: start.orchestration,
  orchestration_version: start.version,
  attributes: start.attributes === undefined
    ? undefined
    : Object.entries(start.attributes).map(([name, value]) => attributeRow({ name, value })),
  ...workItemOf(WorkItem.encode(start), texts),
  ...pinnedVersion
})

const interruptRow = (instanceId: string, reason: string) => ({
  instance_id: instanceId,
  work_item: WorkItem.encode({
    _tag: "QueueMessage",
    instance: instanceId,
    name: interruptSignal.name,
    data: interruptSignal.encode(reason)
  })
})
