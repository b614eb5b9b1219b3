/**
 * Tasks in memory: their rows, and what claims and ends do to them. As the stored functions do it, without leases of
 * sets.
 */
import * as Latch from "effect/Latch"
import { randomUUID } from "node:crypto"
import { suspectGroups } from "../../provider/driver/suspects.ts"
import type { AttemptState, Caller, DeadState, NewTask, TaskState } from "../../tasks/TaskDriver.ts"

/** A row. Times are milliseconds since the Unix epoch. */
export interface Row {
  readonly id: string
  readonly name: string
  readonly key: string | undefined
  readonly payload: string
  readonly maxAttempts: number
  /** The execution whose call has created it. */
  reply: Caller | undefined
  /** Executions that wait for its end because they have called a task of its key. */
  callers: ReadonlyArray<Caller>
  status: "Pending" | "Running" | "Completed" | "Dead" | "Cancelled"
  runAtMs: number
  /** Attempts begun, and how many of them do not count. */
  attempt: number
  uncounted: number
  /** The last attempts that were lost, without another end between them. */
  lost: number
  workerId: string
  startedMs: number
  heartbeatMs: number
  leaseMs: number
  result: string | null
  /** JSON text of the last failure. */
  error: string | null
  endedMs: number
  /** Attempts that have ended. */
  readonly attempts: Array<AttemptState>
  /**
   * Opens when the task ends, and when its state has changed otherwise than by its worker; then another one is here.
   */
  changed: Latch.Latch
}

export type MemoryTasks = ReturnType<typeof make>

export const hasEnded = ({ status }: Row) => status !== "Pending" && status !== "Running"

/** Wakes those who wait for news. */
export const announce = (row: Row) => {
  row.changed.openUnsafe()
  row.changed = Latch.makeUnsafe()
}

/** The attempt that runs has ended. */
export const endAttempt = (row: Row, nowMs: number, outcome: AttemptState["outcome"], error: string | null = null) => {
  row.attempts.push({
    attempt: row.attempt,
    workerId: row.workerId,
    startedAt: new Date(row.startedMs),
    endedAt: new Date(nowMs),
    outcome,
    error
  })
}

/** The losses before the next attempt: one that runs is lost. It counts as `dx_claim_tasks` says. */
export const lossesOf = ({ lost, maxAttempts, status, uncounted }: Row) => {
  const isLost = status === "Running"
  return {
    lost: lost + Number(isLost),
    uncounted: uncounted + Number(isLost && maxAttempts > 1 && lost <= suspectGroups.length)
  }
}

export const end = (
  row: Row,
  nowMs: number,
  status: "Completed" | "Dead" | "Cancelled",
  { error = null, result = null }: { readonly result?: string | null; readonly error?: string | null }
) => {
  Object.assign(row, { status, result, error, endedMs: nowMs })
  announce(row)
}

export const make = () => {
  const rows = new Map<string, Row>()

  const add = (task: NewTask, nowMs: number) => {
    const known = [...rows.values()].find(({ id, key, name }) =>
      id === task.id || (task.key !== undefined && key === task.key && name === task.name)
    )
    if (known !== undefined) return { row: known, isNew: false }
    const row: Row = {
      id: task.id ?? randomUUID(),
      name: task.name,
      key: task.key,
      payload: task.payload,
      maxAttempts: task.maxAttempts,
      reply: task.replyTo,
      callers: [],
      status: "Pending",
      runAtMs: nowMs + (task.delayMs ?? 0),
      attempt: 0,
      uncounted: 0,
      lost: 0,
      workerId: "",
      startedMs: 0,
      heartbeatMs: 0,
      leaseMs: 0,
      result: null,
      error: null,
      endedMs: 0,
      attempts: [],
      changed: Latch.makeUnsafe()
    }
    rows.set(row.id, row)
    return { row, isNew: true }
  }

  return {
    rows,
    add,
    state: (taskId: string): TaskState | null => {
      const row = rows.get(taskId.toLowerCase())
      return row === undefined ? null : stateOf(row)
    },
    attempts: (taskId: string): ReadonlyArray<AttemptState> => {
      const row = rows.get(taskId.toLowerCase())
      if (row === undefined) return []
      const { attempt, attempts, startedMs, status, workerId } = row
      return status !== "Running" ? [...attempts] : [...attempts, {
        attempt,
        workerId,
        startedAt: new Date(startedMs),
        endedAt: null,
        outcome: "Running",
        error: null
      }]
    },
    dead: (name: string | null, limit: number): ReadonlyArray<DeadState> =>
      [...rows.values()]
        .filter((row) => row.status === "Dead" && (name === null || row.name === name))
        .sort((a, b) => b.endedMs - a.endedMs)
        .slice(0, limit)
        .map((row) => ({
          id: row.id,
          name: row.name,
          key: row.key ?? null,
          attempt: row.attempt,
          error: row.error,
          diedAt: new Date(row.endedMs)
        })),
    /** Those that are dead begin again. The execution that waited for one knows that it is dead. */
    redrive: (
      ids: ReadonlyArray<string> | null,
      name: string | null,
      limit: number,
      nowMs: number
    ): ReadonlyArray<Row> => {
      const redriven = [...rows.values()]
        .filter((row) =>
          row.status === "Dead" && (ids === null || ids.includes(row.id)) && (name === null || row.name === name)
        )
        .sort((a, b) => a.endedMs - b.endedMs)
        .slice(0, limit)
      for (const row of redriven) {
        runAgain(row, nowMs)
        row.reply = undefined
      }
      return redriven
    }
  }
}

/** It has all its attempts again. */
export const runAgain = (row: Row, nowMs: number): void => {
  Object.assign(row, { status: "Pending", runAtMs: nowMs, uncounted: row.attempt, lost: 0 })
}

// internal

const stateOf = (row: Row): TaskState => ({
  status: row.status,
  attempt: row.attempt,
  runAt: new Date(row.runAtMs),
  workerId: row.workerId,
  startedAt: new Date(row.startedMs),
  heartbeatAt: new Date(row.heartbeatMs),
  leaseUntil: new Date(row.heartbeatMs + row.leaseMs),
  result: row.result,
  error: row.error,
  endedAt: new Date(row.endedMs)
})
