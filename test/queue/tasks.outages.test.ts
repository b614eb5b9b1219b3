/**
 * Results of handlers while the database refuses what the worker sends: they are kept, and no handler runs again.
 */
import { assert, describe, it } from "@effect/vitest"
import { PgQueue, Task } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schema from "effect/Schema"
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
