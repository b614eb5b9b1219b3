/**
 * A process with a runtime, a worker and a publisher over one pool.
 */
import { Client, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Tasks, TaskWorker } from "duroxide-prisma/tasks"
import type { Task } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import { queues } from "./tasks.ts"

type RuntimeOptions = Parameters<typeof Runtime.layer>[0]

export const process = ({ activities, handlers, orchestrations, settings, taskHandlers, tasks, url }: {
  readonly url: string
  readonly orchestrations: NonNullable<RuntimeOptions["orchestrations"]>
  readonly activities: NonNullable<RuntimeOptions["activities"]>
  /** Handlers of orchestrations and activities. */
  readonly handlers: Layer.Layer<any>
  readonly tasks: ReadonlyArray<Task.Any>
  readonly taskHandlers: Layer.Layer<any>
  readonly settings?: RuntimeConfig.Options
}) => {
  const shared = PrismaProvider.layer({ url, migrate: "none" })
  const runtime = (Runtime.layer({ orchestrations, activities: [...activities, ...Tasks.activities] }) as Layer.Layer<
    Runtime.Runtime,
    never,
    Layer.Success<typeof shared>
  >).pipe(
    Layer.provide([handlers, Tasks.layerActivities]),
    Layer.provide(RuntimeConfig.layer({ shutdownTimeout: 0, ...settings }))
  )
  const worker = TaskWorker.layer({ tasks, gracePeriod: 0 }).pipe(
    Layer.provide(taskHandlers as Layer.Layer<Task.Handler<string>>),
    Layer.merge(Outbox.publisher()),
    Layer.provide(PgQueue.layer({ queues }))
  )
  return Layer.mergeAll(runtime, worker, Client.layer, Tasks.layer).pipe(
    Layer.provideMerge(shared),
    Layer.provide(Logger.layer([]))
  )
}

export const start = Effect.fnUntraced(function*<A, E>(layer: Layer.Layer<A, E>) {
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  return { services: yield* Layer.buildWithScope(layer, scope), stop: Scope.close(scope, Exit.void) }
})
