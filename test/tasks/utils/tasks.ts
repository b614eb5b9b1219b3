/**
 * Tasks, their handlers and processes, for tests.
 */
import { Outbox } from "duroxide-prisma/outbox"
import { Database, PrismaProvider } from "duroxide-prisma/prisma"
import { Queue } from "duroxide-prisma/queue"
import { Task, Tasks, TaskWorker } from "duroxide-prisma/tasks"
import * as Context from "effect/Context"
import * as Deferred from "effect/Deferred"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as References from "effect/References"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Scope from "effect/Scope"
import * as CountingQueue from "../../queue/utils/countingQueue.ts"
import * as PgServer from "../../utils/PgServer.ts"
import { waitUntil } from "../../utils/waitUntil.ts"

/** The queues that the servers of these tests need. */
export const queues = { tasks: {}, others: {} } as const

/** A queue server on the database of the test, or beside it. */
export type Server = Layer.Layer<Queue.Queue, unknown, PrismaProvider.DatabaseServices>

export class Declined extends Schema.TaggedError<Declined>("test/Declined")("Declined", { code: Schema.Number }) {}

/** Does what `act` says: the test decides. */
export const Job = Task.make("Job", {
  payload: { n: Schema.Number },
  success: Schema.Number,
  error: Declined,
  retry: { maxAttempts: 3, schedule: Schedule.spaced("10 millis") }
})

export type Act = (
  payload: { readonly n: number },
  attempt: Task.Attempt["Service"]
) => Effect.Effect<number, Declined>

/** A fresh database, and a server of queues that counts who publishes. `workerUrl`: that of the workers. */
export const open = Effect.fnUntraced(function*(server: Server, workerUrl: (url: string) => string = (url) => url) {
  const test = yield* PgServer.database
  const databaseLayer = PrismaProvider.layerDatabase({ url: test.url, migrate: "none", maxConnections: 5 })
  const main = yield* Layer.build(
    server.pipe(
      Layer.provideMerge(Tasks.layer),
      Layer.provideMerge(databaseLayer),
      Layer.provideMerge(Logger.layer([]))
    )
  )
  const counting = CountingQueue.make(Context.get(main, Queue.Queue))
  const tasks = Context.get(main, Tasks.Tasks)
  /** The lines of all workers. */
  const lines: Array<Readonly<Record<string, unknown>>> = []
  const logger = Logger.make(({ fiber, logLevel, message }) => {
    lines.push({ ...fiber.getRef(References.CurrentLogAnnotations), logLevel, message: String(message) })
  })

  /** What `Outbox.publisher` sends, until it is stopped. */
  const publisher = Outbox.publisher().pipe(
    Layer.provide(counting.publisher),
    Layer.provide(Layer.succeedContext(main)),
    startLayer
  )

  /** What `Tasks.sweeper` finds, until it is stopped. */
  const sweeper = startLayer(Layer.provide(Tasks.sweeper, Layer.succeedContext(main)))

  /** A worker process with connections of its own. */
  const worker = <const Served extends ReadonlyArray<Task.Any>>(
    options: TaskWorker.Options<Served>,
    handlers: Layer.Layer<any>,
    change: (queue: Queue.Queue["Service"]) => Queue.Queue["Service"] = (queue) => queue
  ) =>
    startLayer(
      (TaskWorker.layer(options) as Layer.Layer<never, unknown, Queue.Queue | PrismaProvider.DatabaseServices>).pipe(
        Layer.provide(handlers),
        Layer.provide(Layer.effect(Queue.Queue, Effect.map(Queue.Queue, change))),
        Layer.provide(counting.others),
        Layer.provide(PrismaProvider.layerDatabase({ url: workerUrl(test.url), migrate: "none", maxConnections: 5 })),
        Layer.provide(Logger.layer([logger]))
      )
    )

  return {
    ...test,
    tasks,
    /** Counts of the process that creates and waits. */
    statementCounts: Context.get(main, Database.Database).statementCounts,
    counting,
    /** Whose message contains the text. */
    linesOf: (text: string) => lines.filter(({ message }) => String(message).includes(text)),
    publisher,
    sweeper,
    worker,
    /** A worker of `Job`. */
    jobWorker: (act: Act, options: Omit<Partial<TaskWorker.Options<[]>>, "tasks"> = {}) =>
      worker(
        { gracePeriod: 0, ...options, tasks: [Job] },
        Job.toLayer((payload) => Effect.flatMap(Task.Attempt, (attempt) => act(payload, attempt)))
      ),
    statusIs: (id: string, tag: Tasks.Status["_tag"]) =>
      waitUntil(Effect.map(tasks.status(id), ({ _tag }) => _tag === tag)),
    /** The lease ends before its next heartbeat, and a sweep finds it: as if the worker were gone. */
    endLease: (id: string) =>
      Effect.andThen(
        test.sql(
          "UPDATE queue_tasks SET lease_until = 0, look_at = clock_timestamp() - interval '1 second' WHERE id = $1",
          [id]
        ),
        test.sql("SELECT FROM dx_sweep_tasks(1000, 100)")
      ),
    outcomes: (id: string) => Effect.map(tasks.attempts(id), (all) => all.map(({ outcome }) => outcome))
  }
})

/** Counts calls, and lets the test wait for them. */
export const makeCalls = <A>() => {
  const calls: Array<A> = []
  return {
    calls,
    add: (call: A) => Effect.sync(() => void calls.push(call)),
    until: (count: number) => waitUntil(Effect.sync(() => calls.length >= count))
  }
}

export const gate = () => {
  const deferred = Deferred.makeUnsafe<void>()
  return { open: Deferred.succeed(deferred, undefined), await: Deferred.await(deferred) }
}

// internal

const startLayer = Effect.fnUntraced(function*<A, E>(layer: Layer.Layer<A, E>) {
  const scope = yield* Scope.make()
  yield* Effect.addFinalizer(() => Scope.close(scope, Exit.void))
  yield* Layer.buildWithScope(layer, scope)
  /** A graceful shutdown. */
  return { stop: Scope.close(scope, Exit.void) }
})
