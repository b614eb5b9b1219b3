import * as Context from "effect/Context"
import type { TaskDriver } from "../TaskDriver.ts"

/**
 * What a store in memory needs of tasks, to start and cancel them.
 *
 * @internal
 */
export class TaskStore extends Context.Service<
  TaskStore,
  Pick<TaskDriver["Service"], "create" | "cancel" | "readTask">
>()("duroxide-prisma/tasks/TaskStore") {}
