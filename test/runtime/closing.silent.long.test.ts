/**
 * How long a runtime takes to close while its database accepts what it sends, and never answers.
 */
import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { PrismaProvider } from "duroxide-prisma/prisma"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Scope from "effect/Scope"
import { proxyFor } from "../programs/latencyProxy.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement } from "../utils/waitUntil.ts"

const Work = Activity.make("Work")
const Job = Orchestration.make("Job")

const [, documented] = /`shutdownTimeout` \+ `activityGracePeriod` \+ (\d+) seconds/.exec(
  Docs.unwrapped(Docs.read("README.md"))
)!.map(
  Number
)

describe("Closing a runtime whose database is silent", () => {
  it.live("takes at most 10 seconds longer than its two settings, whatever its activity does", () =>
    Effect.gen(function*() {
      const { client, close, proxy } = yield* running()
      proxy.state.blackhole = true
      // Its look for work, and its renewals, get no answer either.
      yield* Effect.forkScoped(Effect.exit(client.start(Job, { instanceId: "lost" })))
      const { all, runtime } = yield* close
      assert.isAtMost(runtime, 2 + 3)
      assert.isAtMost(all, 2 + documented!)
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))

  it.live("takes no longer if both claims are under way and its activity has a session", () =>
    Effect.gen(function*() {
      const { close, proxy, test } = yield* running("s")
      const locking = yield* PgServer.connect(test.url)
      yield* Effect.promise(() => locking.query("BEGIN; LOCK TABLE orchestrator_queue, worker_queue"))
      yield* waitForStatement(test, "dx_fetch_orchestration_items", "Lock")
      yield* waitForStatement(test, "dx_fetch_work_items", "Lock")
      // Renewals, which are due a second later, get no answer from either pool.
      proxy.state.blackhole = true
      const { all } = yield* close
      assert.isAtMost(all, 2 + documented!)
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([]))))
})

/** Its activity ignores an interruption. `close` returns the seconds until the runtime is closed, and until all is. */
const running = Effect.fnUntraced(function*(sessionId?: string) {
  const test = yield* PgServer.database
  const proxy = yield* proxyFor(test.url)
  const begun = yield* Deferred.make<void>()
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  const store = yield* Layer.buildWithScope(
    Client.layer.pipe(Layer.provideMerge(PrismaProvider.layer({
      url: proxy.through(test.url),
      migrate: "none",
      longPolling: { fallbackPollInterval: "200 millis" }
    }))),
    scope
  )
  const runtimeScope = yield* Scope.fork(scope)
  yield* Layer.buildWithScope(
    Runtime.layer({ orchestrations: [Job], activities: [Work] }).pipe(
      Layer.provide([
        Work.toLayer(() =>
          Effect.uninterruptible(Effect.andThen(Deferred.succeed(begun, undefined), Effect.sleep("1 minute")))
        ),
        Job.toLayer(() => Work.with(sessionId === undefined ? {} : { sessionId }).execute()),
        RuntimeConfig.layer({
          shutdownTimeout: "1 second",
          activityGracePeriod: "1 second",
          workerLockTimeout: "2 seconds"
        })
      ]),
      Layer.provide(Layer.succeedContext(store))
    ),
    runtimeScope
  )
  const client = Context.get(store, Client.Client)
  yield* client.start(Job, { instanceId: "i" })
  yield* Deferred.await(begun)
  const close = Effect.gen(function*() {
    const startMs = performance.now()
    const seconds = () => (performance.now() - startMs) / 1000
    yield* Scope.close(runtimeScope, Exit.void)
    const runtime = seconds()
    yield* Scope.close(scope, Exit.void)
    return { runtime, all: seconds() }
  })
  return { test, proxy, client, close }
})
