/**
 * What operators see of a task.
 */
import { age } from "../model/shared/quantities.ts"
import type { ListedTask } from "../prisma/shared/taskReport.ts"
import * as failures from "../tasks/shared/failure.ts"

/** The part that the command line and the dashboard show alike. Payload and times are theirs. */
export const summaryOf = (task: ListedTask) => ({
  taskId: task.id,
  name: task.name,
  key: task.key,
  status: task.status,
  attempts: task.attempts,
  counted: task.counted,
  maxAttempts: task.maxAttempts,
  error: errorOf(task),
  workerId: task.workerId,
  waitsForLimit: limitOf(task)
})

/** The limit whose slot it waits for, such as `Charge/tenant-7`; null unless it waits for one. */
export const limitOf = ({ name, waitingKey }: ListedTask): string | null =>
  waitingKey === null ? null : waitingKey === "" ? name : `${name}/${waitingKey}`

/** Why its last attempt failed, or why it was cancelled; null if neither happened. */
export const errorOf = ({ error }: ListedTask): string | null => {
  if (error === null) return null
  const failure = failures.decode(error)
  switch (failure._tag) {
    case "Failed":
      return failure.error
    case "Died":
    case "Unavailable":
      return failure.problem
    case "TimedOut":
      return `timed out after ${age(failure.timeoutMs)}`
    case "Lost":
      return "its worker was lost"
    case "Cancelled":
      return failure.reason
  }
}
