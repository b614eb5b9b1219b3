import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as PgServer from "../../utils/PgServer.ts"
import { input } from "./stores.ts"
import type { OpenStore, Started } from "./stores.ts"

/** With the rights of a worker alone. */
export const prisma: OpenStore = Effect.gen(function*() {
  const { sql, workerUrl: url } = yield* PgServer.database
  const services = yield* Layer.build(
    PrismaProvider.layer({ url, migrate: "none", clock: "effect", longPolling: { enabled: false } }).pipe(
      Layer.provide(Logger.layer([]))
    )
  )
  return {
    services,
    started: Effect.map(
      sql<Started & { readonly item: string | null }>(`
        SELECT instance_id AS id, work_item AS item, NULL AS payload FROM orchestrator_queue
        WHERE work_item LIKE '{"StartOrchestration"%'
        UNION ALL
        SELECT key, NULL, payload FROM queue_tasks`),
      (rows) => rows.map(({ id, item, payload }) => ({ id, payload: item === null ? payload : input(item) }))
    ),
    end: (id) =>
      Effect.andThen(
        sql("UPDATE executions SET status = 'Completed', output = 'null' WHERE $1::text IS NULL OR instance_id = $1", [
          id ?? null
        ]),
        sql(
          "UPDATE queue_tasks SET status = 'Completed', look_at = NULL, ended_at = now() WHERE $1::text IS NULL OR key = $1",
          [id ?? null]
        )
      ),
    interrupted: Effect.map(
      sql<{ readonly id: string }>(`
        SELECT instance_id AS id FROM orchestrator_queue WHERE work_item LIKE '%duroxide-prisma/interrupt%'
        UNION ALL
        SELECT key FROM queue_tasks WHERE status = 'Cancelled'`),
      (rows) => rows.map(({ id }) => id)
    )
  }
})
