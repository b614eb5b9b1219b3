/**
 * Results of handlers while the database refuses what the worker sends: they are kept, and no handler runs again.
 * Claims whose answers are lost are given back.
 */
import { assert, describe, it } from "@effect/vitest"
import { PgQueue } from "duroxide-prisma/prisma"
import { ProviderError } from "duroxide-prisma/provider"
import { Task } from "duroxide-prisma/tasks"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as TestClock from "effect/testing/TestClock"
import * as lostClaims from "../../src/tasks/internal/lostClaims.ts"
import { loginRole } from "../utils/loginRole.ts"
import { waitUntil } from "../utils/waitUntil.ts"
import { gate, makeCalls, open, queues } from "./utils/tasks.ts"

const server = PgQueue.layer({ queues })

const count = 20

const make = (maxAttempts: number, lease: "1 second" | "4 seconds") =>
  Task.make("Report", { payload: { n: Schema.Number }, success: Schema.Number, retry: { maxAttempts }, lease })

/** Handlers that run, and end while the database refuses everything. */
const outage = Effect.fnUntraced(function*(options: {
  readonly task: ReturnType<typeof make>
  readonly begin: (app: Effect.Success<ReturnType<typeof open>>) => Promise<unknown>
  readonly end: (app: Effect.Success<ReturnType<typeof open>>) => Promise<unknown>
  /** The outage lasts until this holds. */
  readonly until: (app: Effect.Success<ReturnType<typeof open>>) => Effect.Effect<boolean>
  readonly workerUrl?: (url: string) => string
}) {
  const { begin, end, task, until, workerUrl } = options
  const app = yield* open(server, workerUrl)
  const running = makeCalls<number>()
  const ends = gate()
  yield* app.publisher
  yield* app.worker(
    { tasks: [task], concurrency: count, gracePeriod: 0 },
    task.toLayer(({ n }) => Effect.andThen(running.add(n), Effect.as(ends.await, n)))
  )
  const ids = yield* app.tasks.createMany(task, Array.from({ length: count }, (_, n) => ({ payload: { n } })))
  yield* running.until(count)
  yield* Effect.promise(() => begin(app))
  yield* ends.open
  yield* waitUntil(until(app))
  yield* Effect.promise(() => end(app))
  const results = yield* Effect.forEach(ids, (id) => app.tasks.wait(task, id), { concurrency: "unbounded" })
  assert.deepStrictEqual(results, ids.map((_, n) => n))
  assert.lengthOf(running.calls, count, "no handler has run again")
  for (const id of ids) assert.deepStrictEqual(yield* app.outcomes(id), ["Completed"])
})

describe("Tasks: results are kept while the database refuses them:", () => {
  for (const maxAttempts of [20, 1]) {
    it.live(`its role may not log in, with ${maxAttempts} allowed attempts`, () =>
      Effect.scoped(Effect.gen(function*() {
        const role = yield* loginRole("secret")
        yield* outage({
          task: make(maxAttempts, "4 seconds"),
          workerUrl: (url) => role.at(url, "secret"),
          begin: role.refuse,
          end: role.admit,
          // Results and heartbeats were refused.
          until: (app) =>
            Effect.sync(() =>
              app.linesOf("not settled yet").length >= count && app.linesOf("leases not renewed yet").length >= 1
            )
        })
      })))
  }

  it.live("its role may not log in until after the end of the leases", () =>
    Effect.scoped(Effect.gen(function*() {
      const role = yield* loginRole("secret")
      yield* outage({
        task: make(1, "1 second"),
        workerUrl: (url) => role.at(url, "secret"),
        begin: role.refuse,
        end: role.admit,
        until: (app) =>
          Effect.map(
            app.sql("SELECT FROM queue_tasks WHERE lease_until < extract(epoch FROM clock_timestamp()) * 1000"),
            (rows) => rows.length === count
          )
      })
    })))

  it.live("the functions of the tasks are missing, as during a migration", () =>
    Effect.scoped(outage({
      task: make(1, "4 seconds"),
      begin: (app) =>
        Effect.runPromise(
          app.sql("ALTER FUNCTION dx_complete_tasks RENAME TO dx_complete_tasks_moved")
        ),
      end: (app) => Effect.runPromise(app.sql("ALTER FUNCTION dx_complete_tasks_moved RENAME TO dx_complete_tasks")),
      until: (app) => Effect.sync(() => app.linesOf("not settled yet").length >= count)
    })))

  it.live("each statement fails with an error that this package does not know", () =>
    Effect.scoped(outage({
      task: make(1, "4 seconds"),
      begin: (app) =>
        Effect.runPromise(
          app.sql(
            `CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'no' USING ERRCODE = 'XX000'; END $$;
             CREATE TRIGGER fail BEFORE UPDATE OF result ON queue_tasks EXECUTE FUNCTION fail()`
          )
        ),
      end: (app) => Effect.runPromise(app.sql("DROP TRIGGER fail ON queue_tasks")),
      until: (app) => Effect.sync(() => app.linesOf("not settled yet").length >= count)
    })))
})

describe("Tasks: a result that the database refuses for good", () => {
  it.live("fails its task, whose handler does not run again", () =>
    Effect.scoped(Effect.gen(function*() {
      const app = yield* open(server)
      const task = make(20, "1 second")
      const running = makeCalls<number>()
      yield* app.publisher
      yield* app.sql("ALTER TABLE queue_tasks ADD CHECK (result <> '7')")
      yield* app.worker(
        { tasks: [task], gracePeriod: 0 },
        task.toLayer(({ n }) => Effect.as(running.add(n), n)) as Layer.Layer<any>
      )
      const [refused, other] = yield* app.tasks.createMany(task, [{ payload: { n: 7 } }, { payload: { n: 8 } }])
      assert.strictEqual(yield* app.tasks.wait(task, other!), 8)
      const error = yield* Effect.flip(app.tasks.wait(task, refused!))
      assert.strictEqual(error._tag, "TaskDied")
      assert.include(error.message, "the database refuses its result")
      assert.deepStrictEqual(yield* app.outcomes(refused!), ["Died"])
      assert.deepStrictEqual([...running.calls].sort((a, b) => a - b), [7, 8])
    })))
})

describe("Tasks: claims without an answer", () => {
  const away = new ProviderError.ConnectionLost({ problem: "away" })

  /** A worker whose statements to give back claims `answer`; `asked`: in which second it asks for which claims. */
  const returning = Effect.fnUntraced(function*(answer: () => ReadonlyArray<number> | ProviderError.Reason) {
    const begin = yield* Clock.currentTimeMillis
    const asked: Array<readonly [second: number, claimIds: ReadonlyArray<number>]> = []
    const returnClaim = yield* lostClaims.make({
      returnClaims: (claimIds) =>
        Effect.flatMap(Clock.currentTimeMillis, (now) => {
          asked.push([(now - begin) / 1000, claimIds])
          const reply = answer()
          return "_tag" in reply
            ? Effect.fail(new ProviderError.ProviderError({ operation: "returnTasks", reason: reply }))
            : Effect.succeed(reply)
        }),
      topics: { announce: () => Effect.void }
    })
    return { asked, returnClaim }
  })

  const quiet = Effect.provide(Logger.layer([]))

  it.effect("are looked for together, three times, or until their tasks are found", () =>
    Effect.scoped(Effect.gen(function*() {
      let found: ReadonlyArray<number> = []
      const { asked, returnClaim } = yield* returning(() => found)
      yield* returnClaim(1)
      yield* returnClaim(2)
      yield* TestClock.adjust(0)
      found = [1]
      yield* TestClock.adjust("1 second")
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual(asked, [[0, [1, 2]], [1, [1, 2]], [11, [2]]])
    })))

  it.effect("are looked for after growing pauses while nothing answers, however many they are", () =>
    Effect.scoped(quiet(Effect.gen(function*() {
      let isAway = true
      const { asked, returnClaim } = yield* returning(() => isAway ? away : [])
      for (let claimId = 0; claimId < 120; claimId++) {
        yield* returnClaim(claimId)
        yield* TestClock.adjust("1 second")
      }
      assert.isBelow(asked.length, 22)
      asked.splice(0)
      isAway = false
      yield* TestClock.adjust("1 hour")
      assert.deepStrictEqual(asked.map(([, claimIds]) => claimIds.length), [120, 120, 120])
    }))))

  it.effect("are looked for through errors that an operator mends, but not if the database refuses the question", () =>
    Effect.scoped(quiet(Effect.gen(function*() {
      const answers: Array<ReadonlyArray<number> | ProviderError.Reason> = [
        new ProviderError.PermissionDenied({ problem: "no right" }),
        new ProviderError.SchemaMismatch({ sqlState: "42883", problem: "a migration" }),
        [7],
        new ProviderError.DataRefused({ sqlState: "22000", problem: "never" })
      ]
      const { asked, returnClaim } = yield* returning(() => answers.shift()!)
      for (const claimId of [7, 8]) {
        yield* returnClaim(claimId)
        yield* TestClock.adjust("1 minute")
      }
      assert.deepStrictEqual(asked.map(([, claimIds]) => claimIds), [[7], [7], [7], [8]])
    }))))

  it.effect("are looked for once more at a shutdown", () =>
    Effect.gen(function*() {
      const scope = yield* Scope.make()
      const { asked, returnClaim } = yield* Scope.provide(returning(() => []), scope)
      yield* returnClaim(7)
      yield* TestClock.adjust(0)
      yield* Scope.close(scope, Exit.void)
      assert.deepStrictEqual(asked, [[0, [7]], [0, [7]]])
    }))
})
