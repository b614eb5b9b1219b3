/**
 * Stores of schedules with a clock that the test moves, in which a test says what has ended.
 */
import { FromDriver, Provider } from "duroxide-prisma/provider"
import { MemoryScheduleDriver, ScheduleDriver } from "duroxide-prisma/schedules"
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import type * as Scope from "effect/Scope"
import * as memoryDriver from "../../../src/provider/memory/driver.ts"
import * as tables from "../../../src/provider/memory/tables.ts"
import { TaskStore } from "../../../src/tasks/shared/taskStore.ts"
import * as memoryTasks from "../../../src/testing/internal/memoryTasks.ts"
import type { Topics } from "../../../src/waking/Topics.ts"

export interface Started {
  readonly id: string
  readonly payload: string
}

export interface TestStore {
  readonly services: Context.Context<ScheduleDriver.ScheduleDriver | Topics | Provider.Provider>
  /** Instances and tasks that exist, by id or key. */
  readonly started: Effect.Effect<ReadonlyArray<Started>>
  /** Those that run have ended; or the one. */
  readonly end: (id?: string) => Effect.Effect<void>
  /** Ids of instances that were asked to end, and keys of tasks that were cancelled. */
  readonly interrupted: Effect.Effect<ReadonlyArray<string>>
}

export type OpenStore = Effect.Effect<TestStore, unknown, Scope.Scope>

export const input = (text: string) =>
  (JSON.parse(text) as { StartOrchestration: { input: string } }).StartOrchestration.input

export const memory: OpenStore = Effect.gen(function*() {
  const store = tables.make()
  const tasks = memoryTasks.make()
  const now = Effect.clockWith((clock) => Effect.succeed(clock.currentTimeMillisUnsafe()))
  const taskStore = Layer.succeed(
    TaskStore,
    TaskStore.of({
      create: (all) => Effect.map(now, (ms) => all.map((task) => ({ id: tasks.add(task, ms).row.id, isNew: true }))),
      cancel: (ids, reason) =>
        Effect.map(now, (ms) =>
          ids.map((id) => {
            memoryTasks.end(tasks.rows.get(id)!, ms, "Cancelled", { error: reason })
            return "Cancelled" as const
          })),
      readTask: (id) => Effect.sync(() => tasks.state(id))
    })
  )
  const services = yield* Layer.build(
    MemoryScheduleDriver.layer().pipe(
      Layer.provide(taskStore),
      Layer.provideMerge(FromDriver.layer().pipe(Layer.provide(memoryDriver.layer(store)))),
      Layer.provide(Logger.layer([]))
    )
  )
  return {
    services,
    started: Effect.sync(() => [
      ...[...store.messages.values()].filter(({ workItem }) => workItem.startsWith(`{"StartOrchestration"`))
        .map(({ instanceId, workItem }) => ({ id: instanceId, payload: input(workItem) })),
      ...[...tasks.rows.values()].map(({ key, payload }) => ({ id: key!, payload }))
    ]),
    end: (id) =>
      Effect.sync(() => {
        for (const [instanceId, executions] of store.executions) {
          if (id !== undefined && id !== instanceId) continue
          for (const execution of executions.values()) Object.assign(execution, { status: "Completed", output: "null" })
        }
        for (const row of tasks.rows.values()) {
          if (id === undefined || row.key === id) memoryTasks.end(row, 0, "Completed", {})
        }
      }),
    interrupted: Effect.sync(() => [
      ...[...store.messages.values()].filter(({ workItem }) => workItem.includes("duroxide-prisma/interrupt"))
        .map(({ instanceId }) => instanceId),
      ...[...tasks.rows.values()].filter(({ status }) => status === "Cancelled").map(({ key }) => key!)
    ])
  }
})

export const driverOf = ({ services }: TestStore) => Context.get(services, ScheduleDriver.ScheduleDriver)
