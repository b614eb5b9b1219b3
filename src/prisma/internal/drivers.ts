/**
 * The drivers of outbox, tasks and recipes on one `Database`.
 */
import * as Context from "effect/Context"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import { OutboxDriver } from "../../outbox/OutboxDriver.ts"
import { DatasetDriver } from "../../recipes/DatasetDriver.ts"
import { TriggerDriver } from "../../recipes/TriggerDriver.ts"
import { TaskDriver } from "../../tasks/TaskDriver.ts"
import { Database } from "../Database.ts"
import * as datasets from "./datasets/driver.ts"
import * as outbox from "./outbox/driver.ts"
import * as tasks from "./tasks/driver.ts"
import * as triggers from "./triggers/driver.ts"

export type Drivers = OutboxDriver | TaskDriver | DatasetDriver | TriggerDriver

export const layer = (options: outbox.Options): Layer.Layer<Drivers, never, Database> =>
  Layer.effectContext(
    Effect.map(Database, (database) =>
      Context.make(OutboxDriver, outbox.make(database, options)).pipe(
        Context.add(TaskDriver, tasks.make(database)),
        Context.add(DatasetDriver, datasets.make(database)),
        Context.add(TriggerDriver, triggers.make(database))
      ))
  )
