/**
 * The storage contracts on PostgreSQL, through Prisma: of orchestrations, and of outbox, tasks, schedules and recipes.
 * The operations are in `internal`.
 *
 * @since 0.1.0
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { OutboxDriver } from "../outbox/OutboxDriver.ts"
import { ProviderDriver } from "../provider/ProviderDriver.ts"
import { DatasetDriver } from "../recipes/DatasetDriver.ts"
import { ScheduleDriver } from "../schedules/ScheduleDriver.ts"
import { TaskDriver } from "../tasks/TaskDriver.ts"
import { Notifier } from "../waking/Notifier.ts"
import { Database } from "./Database.ts"
import * as datasets from "./internal/datasets/driver.ts"
import * as driver from "./internal/driver.ts"
import * as outbox from "./internal/outbox/driver.ts"
import * as schedules from "./internal/schedules/driver.ts"
import * as tasks from "./internal/tasks/driver.ts"

/**
 * Options of the driver.
 *
 * @category options
 * @since 0.1.0
 */
export interface Options {
  /**
   * The clock that decides what is visible and which lock is live: that of the database, which all processes share, or
   * Effect's `Clock`, which tests control. Tasks and data sets always use that of the database. Defaults to `database`.
   */
  readonly clock?: "database" | "effect" | undefined
}

/**
 * The driver over an open database.
 *
 * **Details**
 *
 * Triggers notify other processes of what is stored. With a `Notifier` in the context, the triggers leave out the
 * statements of this driver, because its provider announces what they store.
 *
 * **Gotchas**
 *
 * With `clock: "effect"` the clocks of all processes must agree: a process ahead of the others takes over their locks
 * too early.
 *
 * @category constructors
 * @since 0.1.0
 */
export const make: (options?: Options) => Effect.Effect<ProviderDriver["Service"], never, Database> = Effect.fnUntraced(
  function*(options?: Options) {
    const database = yield* Database
    const notifier = yield* Effect.serviceOption(Notifier)
    return driver.make(database, { clock: options?.clock, isQuiet: Option.isSome(notifier) })
  }
)

/**
 * Provides the driver over a `Database`.
 *
 * @category layers
 * @since 0.1.0
 */
export const layer = (options?: Options): Layer.Layer<ProviderDriver, never, Database> =>
  Layer.effect(ProviderDriver, make(options))

/**
 * The storage of outbox, tasks, schedules and recipes.
 *
 * @category models
 * @since 0.2.0
 */
export type TaskDrivers = OutboxDriver | TaskDriver | DatasetDriver | ScheduleDriver

/**
 * Provides the drivers of outbox, tasks, schedules and recipes over a `Database`, such as one that wraps that of the
 * process.
 *
 * @category layers
 * @since 0.2.0
 */
export const layerTasks = (options: Options = {}): Layer.Layer<TaskDrivers, never, Database> =>
  Layer.effectContext(
    Effect.map(Database, (database) =>
      Context.make(OutboxDriver, outbox.make(database, options)).pipe(
        Context.add(TaskDriver, tasks.make(database)),
        Context.add(DatasetDriver, datasets.make(database)),
        Context.add(ScheduleDriver, schedules.make(database, options))
      ))
  )
