import { assert, describe, it } from "@effect/vitest"
import { Activity, Client, Orchestration, Runtime, RuntimeConfig } from "duroxide-prisma"
import { Provider } from "duroxide-prisma/provider"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as App from "../utils/app.ts"
import * as PgServer from "../utils/PgServer.ts"

const Work = Activity.make("Work", { success: Schema.String })
const Job = Orchestration.make("Job", { success: Schema.String })

/** A runtime of its own; `work` is what its activity does. */
const start = (work: Effect.Effect<string, never, Activity.Call>, options: RuntimeConfig.Options) =>
  Effect.gen(function*() {
    const scope = yield* Scope.make()
    yield* Runtime.layer({ orchestrations: [Job], activities: [Work] }).pipe(
      Layer.provide([Work.toLayer(() => work), Job.toLayer(() => Work.execute())]),
      Layer.provide(RuntimeConfig.layer(options)),
      Layer.buildWithScope(scope)
    )
    return { stop: Scope.close(scope, Exit.void) }
  })

const layer = Layer.unwrap(Effect.map(PgServer.PgServer, ({ url }) => App.store(url))).pipe(
  Layer.provideMerge(PgServer.layer)
)

it.layer(layer, { excludeTestServices: true })("Shutdown", (it) => {
  describe("within the shutdown timeout", () => {
    it.effect("what runs may end, and its result is stored", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const started = yield* Deferred.make<void>()
        const finish = yield* Deferred.make<string>()
        const first = yield* start(
          Effect.andThen(Deferred.succeed(started, undefined), Deferred.await(finish)),
          { shutdownTimeout: "1 minute" }
        )
        yield* client.start(Job, { instanceId: "ends" })
        yield* Deferred.await(started)
        const stopping = yield* Effect.forkChild(first.stop, { startImmediately: true })
        yield* Deferred.succeed(finish, "done by the first")
        yield* Effect.yieldNow
        const { sql } = yield* PgServer.PgServer
        yield* Effect.repeat(sql(`SELECT 1 FROM worker_queue`), { until: (rows) => rows.length === 0 })
        assert.isDefined(stopping)
        // Its orchestration may or may not have continued in the first process; the second one must not run the
        // activity.
        const second = yield* start(Effect.die("ran again"), { shutdownTimeout: 0 })
        assert.strictEqual(yield* client.wait(Job, "ends"), "done by the first")
        yield* second.stop
      }))
  })

  describe("after the shutdown timeout", () => {
    it.effect("a shutdown ends it: running work is interrupted and abandoned at once, and the delivery is not counted", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql } = yield* PgServer.PgServer
        const started = yield* Deferred.make<void>()
        let interrupted = false
        // With locks of an hour, the second process can only run an activity that was abandoned.
        const locks = { workerLockTimeout: "1 hour", orchestrationLockTimeout: "1 hour" } as const
        const first = yield* start(
          Deferred.succeed(started, undefined).pipe(
            Effect.andThen(Effect.never),
            Effect.onInterrupt(() => Effect.sync(() => interrupted = true))
          ),
          { ...locks, shutdownTimeout: 0 }
        )
        yield* client.start(Job, { instanceId: "interrupted" })
        yield* Deferred.await(started)
        yield* first.stop
        assert.isTrue(interrupted)
        assert.deepStrictEqual(
          yield* sql(`SELECT attempt_count, lock_token FROM worker_queue WHERE instance_id = 'interrupted'`),
          [{ attempt_count: 0, lock_token: null }]
        )
        assert.deepStrictEqual(yield* sql(`SELECT * FROM instance_locks`), [])
        const second = yield* start(
          Effect.map(Activity.Call, ({ deliveryNumber }) => `delivery ${deliveryNumber}`),
          locks
        )
        assert.strictEqual(yield* client.wait(Job, "interrupted"), "delivery 1")
        yield* second.stop
      }))

    it.effect("a turn under way is abandoned at once, and the delivery is not counted", () =>
      Effect.gen(function*() {
        const client = yield* Client.Client
        const { sql } = yield* PgServer.PgServer
        const provider = yield* Provider.Provider
        const storing = yield* Deferred.make<void>()
        const stuck = Provider.Provider.of({
          ...provider,
          ackOrchestrationItem: () => Effect.andThen(Deferred.succeed(storing, undefined), Effect.never)
        })
        const first = yield* start(Effect.die("is not reached"), {
          orchestrationLockTimeout: "1 hour",
          shutdownTimeout: 0
        }).pipe(Effect.provideService(Provider.Provider, stuck))
        yield* client.start(Job, { instanceId: "mid-turn" })
        yield* Deferred.await(storing)
        yield* first.stop
        assert.deepStrictEqual(yield* sql(`SELECT * FROM instance_locks`), [])
        assert.deepStrictEqual(
          yield* sql(`SELECT attempt_count, lock_token FROM orchestrator_queue WHERE instance_id = 'mid-turn'`),
          [{ attempt_count: 0, lock_token: null }]
        )
      }))
  })
})
