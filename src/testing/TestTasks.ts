/**
 * Tasks in memory and in virtual time: for orchestrations that run tasks, and for applications that create them.
 *
 * The handlers are those of the application, with their retries, pauses and timeouts. There is no queue, no outbox and
 * no database: a task begins as soon as it is due, however many there are.
 *
 * @since 0.2.0
 */
import * as Clock from "effect/Clock"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Exit from "effect/Exit"
import * as FiberSet from "effect/FiberSet"
import * as Latch from "effect/Latch"
import * as Layer from "effect/Layer"
import * as Option from "effect/Option"
import { randomUUID } from "node:crypto"
import { InBackground } from "../model/shared/inBackground.ts"
import { makeAdmission } from "../provider/driver/suspects.ts"
import { Provider } from "../provider/Provider.ts"
import { makeSuspects } from "../provider/shared/suspects.ts"
import { failedUnscheduled, servedOf } from "../tasks/shared/code.ts"
import type { Failed, Served, TaskCode } from "../tasks/shared/code.ts"
import * as failures from "../tasks/shared/failure.ts"
import * as tasksService from "../tasks/shared/service.ts"
import { TaskStore } from "../tasks/shared/taskStore.ts"
import type { Wait } from "../tasks/shared/waits.ts"
import * as Task from "../tasks/Task.ts"
import type { Caller, TaskDriver } from "../tasks/TaskDriver.ts"
import { Tasks } from "../tasks/Tasks.ts"
import type { ActivityHandlers } from "../tasks/Tasks.ts"
import * as memory from "./internal/memoryTasks.ts"
import type { MemoryTasks, Row } from "./internal/memoryTasks.ts"
import { isInside, RunningHandler, TestProcess } from "./internal/testProcess.ts"

/**
 * Serves the given tasks in the process of a `TestRuntime`. Their handlers must be provided as layers; a missing one
 * does not compile.
 *
 * **Details**
 *
 * Provides `Tasks`, and the handlers of `Tasks.activities`, so it takes the places of `Tasks.layer`,
 * `Tasks.layerActivities` and `TaskWorker.layer`. `tasks.wait` lets time pass until the task has ended.
 *
 * After `TestRuntime.restart` and `deploy` the attempts that ran are given back, and begin anew at once; after `crash`
 * they are lost, and the next ones begin when their leases have ended.
 *
 * **Gotchas**
 *
 * Limits do not hold here. `Admin.retry` of an instance that waits for a task is refused: choose an event before its
 * calls of tasks.
 *
 * `Attempt.commit` completes the task at once: whether the transaction of the handler is rolled back later is not known
 * here. A handler that never answers is `Effect.sleep(Duration.infinity)`: time waits for handlers that neither end nor
 * sleep.
 *
 * @category layers
 * @since 0.2.0
 */
export const layer = <const Served extends ReadonlyArray<Task.Any>>(options: {
  /** Each has its handler from a layer of `Task.toLayer`. */
  readonly tasks: Served
}): Layer.Layer<
  Tasks | ActivityHandlers | TaskStore,
  never,
  Provider | { readonly [I in keyof Served]: Task.Handler<Served[I]["name"]> }[number]
> =>
  Layer.unwrap(Effect.gen(function*() {
    const served = yield* servedOf(options.tasks)
    const process = yield* TestProcess
    const tasks = storeOf(process)
    const worker = yield* makeWorker(tasks, served)
    const driver: Pick<
      TaskDriver["Service"],
      "create" | "cancel" | "join" | "recall" | "redrive" | "readTask" | "readAttempts" | "readDead"
    > = {
      create: (all) =>
        Effect.map(Clock.currentTimeMillis, (nowMs) =>
          all.map((task) => {
            const { isNew, row } = tasks.add(task, nowMs)
            if (isNew) worker.serve(row)
            return { id: row.id, isNew }
          })),
      cancel: (ids, reason, replies) =>
        Effect.forEach(ids, (id) => {
          const row = tasks.rows.get(id.toLowerCase())
          return row === undefined
            ? Effect.succeed("Missing" as const)
            : memory.hasEnded(row)
            ? Effect.succeed("Ended" as const)
            : Effect.as(worker.cancel(row, reason, replies), "Cancelled" as const)
        }),
      join: (id, caller) =>
        Effect.sync(() => {
          const row = tasks.rows.get(id)
          if (row === undefined) return missing
          if (memory.hasEnded(row)) return { status: row.status, result: row.result, error: row.error }
          const others = row.callers.filter(({ signal }) => signal !== caller.signal)
          row.callers = [...others, caller]
          return null
        }),
      recall: (id, caller) =>
        Effect.clockWith((clock) => {
          const row = tasks.rows.get(id)
          if (row === undefined) return Effect.void
          const isGivenUp = row.status === "Cancelled" && row.reply === undefined
          row.reply = caller
          if (!isGivenUp) return memory.hasEnded(row) ? worker.tell(row, [caller]) : Effect.void
          memory.runAgain(row, clock.currentTimeMillisUnsafe())
          return Effect.sync(() => worker.serve(row))
        }),
      redrive: (ids, name, limit) =>
        Effect.map(Clock.currentTimeMillis, (nowMs) =>
          tasks.redrive(ids, name, limit, nowMs).map((row) => {
            worker.serve(row)
            return row.id
          })),
      readTask: (id) => Effect.sync(() => tasks.state(id)),
      readAttempts: (id) => Effect.sync(() => tasks.attempts(id)),
      readDead: (name, limit) => Effect.sync(() => tasks.dead(name, limit))
    }
    const wait: Wait = (id) =>
      Effect.gen(function*() {
        const row = tasks.rows.get(id.toLowerCase())
        if (row === undefined) return { id, ...missing }
        const isDone = () => memory.hasEnded(row)
        yield* Effect.raceFirst(
          untilEnded(row),
          // A handler that waits for a task is asleep.
          (yield* isInside)
            ? Effect.andThen(Effect.sleep(Duration.infinity), Effect.never)
            : process.until(isDone, () => nothingDue(row, served.has(row.name)))
        )
        return { id, status: row.status, result: row.result, error: row.error }
      })
    const service = tasksService.make({
      store: driver,
      written: () => Effect.void,
      wait
    })
    return Layer.mergeAll(
      Layer.succeed(Tasks, restful(Tasks.of(service), process.rest)),
      Layer.succeed(TaskStore, driver),
      tasksService.activityHandlers({ store: driver, written: () => Effect.void })
    )
  })) as never

/**
 * An attempt for the test of a handler.
 *
 * @category models
 * @since 0.2.0
 */
export interface TestAttempt {
  /** What the handler gets, for `Effect.provideService(Task.Attempt, service)`. */
  readonly service: Task.Attempt["Service"]
  /** The results that the handler has committed. */
  readonly commits: ReadonlyArray<unknown>
}

/**
 * Makes an attempt for the test of a handler, without a worker. `commit` keeps the result and does not use the
 * connection; a second `commit`, and each `commit` and `lock` of a stale attempt, fails with `StaleAttempt`.
 *
 * @category constructors
 * @since 0.2.0
 */
export const attempt = (options: {
  /**
   * The name of the handler's task: `Resize.attempt` dies in an attempt at a task of another name. Defaults to `Test`.
   */
  readonly taskName?: string | undefined
  /** Defaults to a new UUID. It is also the idempotency key. */
  readonly taskId?: string | undefined
  /** From 1, the default. */
  readonly attempt?: number | undefined
  /** Defaults to `test`. */
  readonly workerId?: string | undefined
  /** Whether a newer attempt has begun, or the task has ended. Defaults to false. */
  readonly isStale?: boolean | undefined
} = {}): TestAttempt => {
  const { attempt = 1, isStale = false, taskId = randomUUID(), taskName = "Test", workerId = "test" } = options
  const commits: Array<unknown> = []
  const stale = new Task.StaleAttempt({ taskId, attempt })
  return {
    commits,
    service: Task.Attempt.of({
      taskName,
      taskId,
      attempt,
      idempotencyKey: taskId,
      workerId,
      commit: (_connection, result) =>
        Effect.suspend(() => {
          if (isStale || commits.length > 0) return Effect.fail(stale)
          commits.push(result)
          return Effect.void
        }),
      lock: () => isStale || commits.length > 0 ? Effect.fail(stale) : Effect.void
    })
  }
}

// internal

/** The end of a task that does not exist. */
const missing = { status: "Missing", result: null, error: null }

/** Returns the store of earlier processes, or a new one for the first process. */
const storeOf = ({ stores }: TestProcess): MemoryTasks => {
  const store = (stores.get("tasks") as MemoryTasks | undefined) ?? memory.make()
  stores.set("tasks", store)
  return store
}

const untilEnded = (row: Row): Effect.Effect<void> =>
  Effect.suspend(() => memory.hasEnded(row) ? Effect.void : Effect.andThen(row.changed.await, untilEnded(row)))

const nothingDue = ({ id, name }: Row, isServed: boolean) =>
  isServed
    ? `task ${id} ("${name}") has not ended, and nothing is due that could end it`
    : `task ${id} ("${name}") waits. No worker serves it: add it to TestTasks.layer({ tasks })`

/** Calls of a test begin and return when nothing more can happen without time. */
const restful = (service: Tasks["Service"], rest: Effect.Effect<void>): Tasks["Service"] =>
  Object.fromEntries(
    Object.entries(service).map(([name, method]) => [
      name,
      (...args: ReadonlyArray<never>) => {
        const call = (method as (...args: ReadonlyArray<never>) => Effect.Effect<unknown, unknown>)(...args)
        return Effect.flatMap(isInside, (inside) => inside ? call : Effect.ensuring(Effect.andThen(rest, call), rest))
      }
    ])
  ) as never

const makeWorker = Effect.fnUntraced(function*(tasks: MemoryTasks, served: ReadonlyMap<string, Served>) {
  const process = yield* TestProcess
  const provider = yield* Provider
  const fork = yield* FiberSet.makeRuntime<never>()
  const workerId = randomUUID().slice(0, 8)

  // -- ends --------------------------------------------------------------------------------------

  const isRunning = ({ executionId, instanceId }: Caller) =>
    Effect.map(
      Effect.orDie(provider.readInstance(instanceId)),
      Option.exists((instance) => instance.executionId === executionId && instance.status === "Running")
    )

  /** The messages to the executions that wait are stored with the end. */
  const ended = (row: Row, status: "Completed" | "Dead" | "Cancelled", values: { result?: string; error?: string }) =>
    Effect.clockWith((clock) => {
      memory.end(row, clock.currentTimeMillisUnsafe(), status, values)
      const callers = row.reply === undefined ? row.callers : [row.reply, ...row.callers]
      row.callers = []
      return tell(row, callers)
    })

  const tell = ({ error, result, status }: Row, callers: ReadonlyArray<Caller>) =>
    Effect.forEach(callers, (caller) =>
      Effect.when(
        Effect.orDie(provider.enqueueForOrchestrator({
          message: {
            _tag: "QueueMessage",
            instance: caller.instanceId,
            name: caller.signal,
            data: JSON.stringify({ status, result, error })
          },
          delay: Option.none()
        })),
        isRunning(caller)
      ), { discard: true })

  const cancel = (row: Row, reason: string, replies: boolean) =>
    Effect.clockWith((clock) => {
      if (row.status === "Running") memory.endAttempt(row, clock.currentTimeMillisUnsafe(), "Cancelled")
      if (!replies) row.reply = undefined
      return ended(row, "Cancelled", { error: failures.encode({ _tag: "Cancelled", reason }) })
    })

  const isOrphaned = ({ reply }: Row) =>
    reply === undefined ? Effect.succeed(false) : Effect.map(isRunning(reply), (isRunning) => !isRunning)

  // -- attempts ----------------------------------------------------------------------------------

  /** When the suspects that run have proved themselves. */
  let provenMs: ReadonlyArray<number> = []
  let released = Latch.makeUnsafe()
  const clock = yield* Clock.Clock
  const suspects = makeSuspects(clock, (forMs) => {
    provenMs = [...provenMs, clock.currentTimeMillisUnsafe() + forMs]
  })
  /** For a further suspect, perhaps. */
  const room = (nowMs: number) => {
    provenMs = provenMs.filter((ms) => ms > nowMs)
    return Effect.raceFirst(Effect.sleep(Math.min(...provenMs) - nowMs), released.await).pipe(
      Effect.provideService(InBackground, false)
    )
  }
  const release = (key: string) => {
    if (!suspects.release(key)) return
    released.openUnsafe()
    released = Latch.makeUnsafe()
  }

  /** Until the task has ended. A process that dies leaves it as it is. */
  const serve = (row: Row): Effect.Effect<void> =>
    Effect.gen(function*() {
      while (!memory.hasEnded(row)) {
        const nowMs = yield* Clock.currentTimeMillis
        // An earlier process has left it: its lease must end.
        const dueMs = row.status === "Running" ? row.heartbeatMs + row.leaseMs + sweepMs : row.runAtMs
        if (dueMs > nowMs) {
          yield* Effect.raceFirst(Effect.sleep(dueMs - nowMs), row.changed.await).pipe(
            Effect.provideService(InBackground, false)
          )
          continue
        }
        if (yield* isOrphaned(row)) return yield* cancel(row, "its orchestration has ended", false)
        const task = served.get(row.name)
        if (task === undefined) {
          process.unserved.add(`task "${row.name}"`)
          return
        }
        const losses = memory.lossesOf(row)
        const isDead = row.attempt - losses.uncounted >= row.maxAttempts
        if (!isDead && !makeAdmission(suspects.room())(losses.lost)) {
          yield* Effect.raceFirst(room(nowMs), row.changed.await)
          continue
        }
        if (row.status === "Running") memory.endAttempt(row, nowMs, "Lost")
        if (isDead) return yield* ended(row, "Dead", { error: failures.encode({ _tag: "Lost" }) })
        Object.assign(row, losses)
        const key = `${row.id}/${row.attempt + 1}`
        suspects.lock(key, losses.lost, Infinity)
        yield* Effect.ensuring(perform(row, task), Effect.sync(() => release(key)))
      }
    })

  const perform = Effect.fnUntraced(function*(row: Row, { code, leaseMs }: Served) {
    const startedMs = yield* Clock.currentTimeMillis
    const attempt = row.attempt + 1
    Object.assign(row, { status: "Running", attempt, workerId, startedMs, heartbeatMs: startedMs, leaseMs })
    const key = `task ${row.id}/${attempt}`
    process.handlers.set(key, `task "${row.name}", ${row.id},`)
    const isNewest = () => row.status === "Running" && row.attempt === attempt
    const exit = yield* Effect.raceFirst(
      Effect.exit(code.run(row.payload, attempt - row.uncounted)).pipe(
        Effect.provideService(Task.Attempt, serviceOf(row, attempt, code, isNewest)),
        Effect.provideService(RunningHandler, key),
        Effect.provideContext(code.services)
      ),
      Effect.as(Effect.raceFirst(heartbeat(row, leaseMs), untilEnded(row)), undefined)
    ).pipe(
      Effect.ensuring(Effect.sync(() => void process.handlers.delete(key))),
      Effect.onInterrupt(() => isNewest() && !process.isDead() ? giveBack(row) : Effect.void)
    )
    // Its end is stored, unless the attempt was: by a commit, or by a cancellation.
    if (exit !== undefined && isNewest() && !process.isDead()) yield* settle(row, exit)
  })

  const serviceOf = (row: Row, attempt: number, code: TaskCode, isNewest: () => boolean) => {
    const stale = Effect.fail(new Task.StaleAttempt({ taskId: row.id, attempt }))
    return Task.Attempt.of({
      taskName: row.name,
      taskId: row.id,
      attempt,
      idempotencyKey: row.id,
      workerId,
      commit: (_connection, result) =>
        Effect.flatMap(
          code.encodeResult(result),
          (text) => isNewest() ? Effect.uninterruptible(complete(row, text)) : stale
        ),
      lock: () => Effect.suspend(() => isNewest() ? Effect.void : stale)
    })
  }

  const complete = (row: Row, result: string) =>
    Effect.clockWith((clock) => {
      memory.endAttempt(row, clock.currentTimeMillisUnsafe(), "Completed")
      return ended(row, "Completed", { result })
    })

  const settle = Effect.fnUntraced(function*(row: Row, exit: Exit.Exit<string, Failed>) {
    if (Exit.isSuccess(exit)) return yield* complete(row, exit.value)
    const reason = exit.cause.reasons.find((reason) => reason._tag === "Fail")
    const { failure, retryAfter } = reason?.error ?? failedUnscheduled("the handler interrupted itself")
    const nowMs = yield* Clock.currentTimeMillis
    const error = failures.encode(failure)
    memory.endAttempt(row, nowMs, failure._tag, error)
    if (retryAfter === undefined || row.attempt - row.uncounted >= row.maxAttempts) {
      return yield* ended(row, "Dead", { error })
    }
    Object.assign(row, { status: "Pending", error, lost: 0, runAtMs: nowMs + Math.ceil(Duration.toMillis(retryAfter)) })
  })

  const giveBack = (row: Row) =>
    Effect.clockWith((clock) =>
      Effect.sync(() => {
        const nowMs = clock.currentTimeMillisUnsafe()
        memory.endAttempt(row, nowMs, "GivenBack")
        Object.assign(row, { status: "Pending", runAtMs: nowMs, uncounted: row.uncounted + 1 })
      })
    )

  /** Until it finds that the execution that waits has ended. */
  const heartbeat = (row: Row, leaseMs: number): Effect.Effect<void> =>
    Effect.gen(function*() {
      while (true) {
        yield* Effect.sleep(leaseMs / 2)
        row.heartbeatMs = yield* Clock.currentTimeMillis
        if (yield* isOrphaned(row)) return yield* cancel(row, "its orchestration has ended", false)
      }
    }).pipe(Effect.provideService(InBackground, true), Effect.asVoid)

  const worker = {
    serve: (row: Row) => void fork(serve(row)),
    tell,
    cancel
  }
  for (const row of tasks.rows.values()) worker.serve(row)
  return worker
})

/** After the end of a lease, as the sweep of a worker. */
const sweepMs = 1_000
