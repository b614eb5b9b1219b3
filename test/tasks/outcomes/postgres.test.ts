import { describe, layer } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PgServer from "../../utils/PgServer.ts"
import { handlers, sections, served } from "./cases.ts"

const App = Layer.unwrap(
  Effect.map(PgServer.PgServer, ({ url }) =>
    TaskWorker.layer({ tasks: served }).pipe(
      Layer.provide(handlers),
      Layer.merge(Outbox.publisher()),
      Layer.provide(PgQueue.layer({ queues: { tasks: {} } })),
      Layer.provideMerge(Tasks.layer),
      Layer.provide(PrismaProvider.layerDatabase({ url, migrate: "none" }))
    ))
).pipe(Layer.provide([PgServer.layer, Logger.layer([])]))

layer(App, { excludeTestServices: true })((it) => {
  for (const [section, cases] of Object.entries(sections)) {
    describe(`${section}, in PostgreSQL:`, () => {
      for (const [name, test] of Object.entries(cases)) {
        it.effect(name, () => Effect.flatMap(Tasks.Tasks, test))
      }
    })
  }
})
