/**
 * How long a task worker takes to close while its database accepts what it sends, and never answers.
 */
import { assert, describe, it } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { PgQueue, PrismaProvider } from "duroxide-prisma/prisma"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import { proxyFor } from "../programs/latencyProxy.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

const Work = Task.make("Work")

/**
 * Seconds from the end of the grace period, which is a second, until the worker is closed, and until all layers are.
 */
const close = Effect.fnUntraced(function*(
  work: (begun: Effect.Effect<void>, silent: Effect.Effect<void>) => Effect.Effect<void>,
  count: number
) {
  const { url } = yield* PgServer.database
  const proxy = yield* proxyFor(url)
  const begun = yield* Deferred.make<void>()
  const silent = yield* Deferred.make<void>()
  const scope = yield* Scope.make()
  const store = yield* Layer.buildWithScope(
    Layer.merge(Tasks.layer, Outbox.publisher()).pipe(
      Layer.provideMerge(PgQueue.layer({ queues: { tasks: {} } })),
      Layer.provideMerge(PrismaProvider.layerDatabase({ url: proxy.through(url), migrate: "none" }))
    ),
    scope
  )
  const workerScope = yield* Scope.fork(scope)
  yield* Layer.buildWithScope(
    TaskWorker.layer({ tasks: [Work], gracePeriod: "1 second" }).pipe(
      Layer.provide(
        Work.toLayer(() => work(Effect.asVoid(Deferred.succeed(begun, undefined)), Deferred.await(silent)))
      ),
      Layer.provide(Layer.succeedContext(store))
    ),
    workerScope
  )
  if (count > 0) {
    yield* Effect.repeat(Context.get(store, Tasks.Tasks).create(Work, {}), { times: count - 1 })
    yield* Deferred.await(begun)
  }
  proxy.state.blackhole = true
  yield* Deferred.succeed(silent, undefined)
  const startMs = performance.now()
  yield* Scope.close(workerScope, Exit.void)
  const workerMs = performance.now() - startMs
  yield* Scope.close(scope, Exit.void)
  return { worker: workerMs / 1000 - 1, all: (performance.now() - startMs) / 1000 - 1 }
}, Effect.provide(Logger.layer([])))

const [, documented] = /and has at most (\d+) seconds more while the database does not answer/.exec(
  Docs.unwrapped(Docs.read("docs/operating.md"))
)!.map(Number)

const [, kept] = /does not take within the grace period and (\d+) seconds are dropped/.exec(
  Docs.unwrapped(Docs.read("docs/tasks.md"))
)!.map(Number)

describe.concurrent("Closing a task worker whose database is silent", () => {
  const cases = {
    "idle": [() => Effect.void, 0],
    "a handler that is interrupted": [(begun) => Effect.andThen(begun, Effect.never), 1],
    "a handler that cannot be interrupted": [
      (begun) => Effect.uninterruptible(Effect.andThen(begun, Effect.sleep("1 minute"))),
      1
    ],
    "results that wait to be stored": [(begun, silent) => Effect.andThen(begun, silent), 5]
  } satisfies Record<string, [Parameters<typeof close>[0], number]>
  for (const [name, [work, count]] of Object.entries(cases)) {
    it.live(`${name}: ends within the time that the docs name`, () =>
      Effect.gen(function*() {
        const { all, worker } = yield* close(work, count)
        assert.isAtMost(worker, 12, "the worker, which is not the process")
        if (name.startsWith("results")) {
          assert.isAtLeast(worker, kept! - 0.1, "results are kept for as long as the docs say")
        }
        assert.isAtMost(all, documented!)
      }).pipe(Effect.scoped))
  }
})

describe("A task worker that is closed", () => {
  it.live("leaves nothing behind, even if a handler that cannot be interrupted dies later", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const child = yield* ChildProcess.start("lateHandler", url)
      yield* child.printed("closed")
      yield* child.ended
      assert.deepStrictEqual(child.output().match(/attempt not settled[^{\n]*/g), [
        "attempt not settled; another one follows after its lease "
      ])
    }).pipe(Effect.scoped))
})
