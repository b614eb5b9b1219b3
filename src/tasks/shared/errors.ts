/**
 * How tasks and their attempts fail; `Task` and `Tasks` export these.
 */
import * as Schema from "effect/Schema"

export class StaleAttempt
  extends Schema.TaggedError<StaleAttempt>("duroxide-prisma/tasks/StaleAttempt")("StaleAttempt", {
    taskId: Schema.String,
    attempt: Schema.Number
  })
{
  override get message() {
    return `attempt ${this.attempt} at task ${this.taskId} is stale: a newer one has begun, or the task has ended`
  }
}

export class TaskDied extends Schema.TaggedError<TaskDied>("duroxide-prisma/tasks/TaskDied")("TaskDied", {
  taskName: Schema.String,
  problem: Schema.String
}) {
  override get message() {
    return `task "${this.taskName}" died: ${this.problem}`
  }
}

export class TaskUnavailable
  extends Schema.TaggedError<TaskUnavailable>("duroxide-prisma/tasks/TaskUnavailable")("TaskUnavailable", {
    taskName: Schema.String,
    problem: Schema.String
  })
{
  override get message() {
    return `what task "${this.taskName}" needs was not available: ${this.problem}`
  }
}

export class TaskTimedOut
  extends Schema.TaggedError<TaskTimedOut>("duroxide-prisma/tasks/TaskTimedOut")("TaskTimedOut", {
    taskName: Schema.String,
    timeoutMs: Schema.Number
  })
{
  override get message() {
    return `task "${this.taskName}" did not end within its timeout of ${this.timeoutMs} ms`
  }
}

export class TaskCancelled
  extends Schema.TaggedError<TaskCancelled>("duroxide-prisma/tasks/TaskCancelled")("TaskCancelled", {
    taskName: Schema.String,
    reason: Schema.String
  })
{
  override get message() {
    return `task "${this.taskName}" was cancelled: ${this.reason}`
  }
}

export class TaskNotFound
  extends Schema.TaggedError<TaskNotFound>("duroxide-prisma/tasks/TaskNotFound")("TaskNotFound", {
    taskId: Schema.String
  })
{
  override get message() {
    return `there is no task ${this.taskId}; ended tasks are deleted after their retention`
  }
}

export class TaskWaitTimeout
  extends Schema.TaggedError<TaskWaitTimeout>("duroxide-prisma/tasks/TaskWaitTimeout")("TaskWaitTimeout", {
    taskId: Schema.String,
    timeoutMs: Schema.Number
  })
{
  override get message() {
    return `task ${this.taskId} had not ended after ${this.timeoutMs} ms; it continues`
  }
}

/** An end without a result that is not a typed failure. */
export type OfTask = TaskDied | TaskUnavailable | TaskTimedOut | TaskCancelled

export const isOfTask = (error: unknown): error is OfTask =>
  error instanceof TaskDied || error instanceof TaskUnavailable || error instanceof TaskTimedOut ||
  error instanceof TaskCancelled
