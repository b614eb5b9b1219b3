/**
 * Schedules in memory and in virtual time, beside a `TestRuntime`: a year of a schedule takes milliseconds.
 *
 * @since 0.3.0
 */
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import type { Provider } from "../provider/Provider.ts"
import * as MemoryScheduleDriver from "../schedules/MemoryScheduleDriver.ts"
import type { ScheduleDriver } from "../schedules/ScheduleDriver.ts"
import type { Topics } from "../waking/Topics.ts"
import { TestProcess } from "./internal/testProcess.ts"

/**
 * What `Schedules.layer` needs, in the process of a `TestRuntime`. The schedules outlive `TestRuntime.restart`, `crash`
 * and `deploy`.
 *
 * **Details**
 *
 * Schedules that start tasks need a `TestTasks` in the context of this layer.
 *
 * **Example** (A runtime with a schedule)
 *
 * ```ts
 * const App = Layer.merge(
 *   Runtime.layer({ orchestrations: [Report], activities: [] }).pipe(Layer.provide(ReportLive)),
 *   Schedules.layer([Nightly]).pipe(Layer.provide(TestSchedules.layer))
 * )
 *
 * const Test = TestRuntime.layer(App)
 * ```
 *
 * @category layers
 * @since 0.3.0
 */
export const layer: Layer.Layer<ScheduleDriver | Topics, never, Provider> = Layer.unwrap(
  Effect.map(TestProcess, ({ stores }) => {
    const store = (stores.get("schedules") as MemoryScheduleDriver.Store | undefined) ??
      MemoryScheduleDriver.makeStore()
    stores.set("schedules", store)
    return MemoryScheduleDriver.layer(store)
  })
)
