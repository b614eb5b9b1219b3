import { describe, it } from "@effect/vitest"
import { Tasks } from "duroxide-prisma/tasks"
import { TestRuntime } from "duroxide-prisma/testing"
import { TestTasks } from "duroxide-prisma/testing/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { handlers, sections, served } from "./cases.ts"

const App = TestRuntime.layer(
  TestTasks.layer({ tasks: served }).pipe(Layer.provide(handlers), Layer.provide(Logger.layer([])))
)

for (const [section, cases] of Object.entries(sections)) {
  describe(`${section}, in memory:`, () => {
    for (const [name, test] of Object.entries(cases)) {
      it.effect(name, () => Effect.provide(Effect.flatMap(Tasks.Tasks, test), App))
    }
  })
}
