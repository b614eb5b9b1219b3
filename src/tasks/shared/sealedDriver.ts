/**
 * A driver of tasks whose payloads, results and failures pass through a `PayloadCodec`: plain above it, sealed below.
 */
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import { PayloadCodec } from "../../provider/PayloadCodec.ts"
import type { ProviderError } from "../../provider/ProviderError.ts"
import * as texts from "../../provider/shared/sealing.ts"
import { TaskDriver } from "../TaskDriver.ts"
import type { Claim, End, NewTask } from "../TaskDriver.ts"
import * as failures from "./failure.ts"

type Driver = TaskDriver["Service"]

/** The driver in the context; through the codec, if there is one. */
export const driver: Effect.Effect<Driver, never, TaskDriver> = Effect.gen(function*() {
  const driver = yield* TaskDriver
  const codec = yield* Effect.serviceOption(PayloadCodec)
  return Option.isNone(codec) ? driver : make(driver, codec.value)
})

type Creating = Pick<Driver, "create">

/** Creates tasks with sealed payloads. */
export const creating = (self: Creating, codec: PayloadCodec["Service"] | undefined): Creating => {
  if (codec === undefined) return self
  const seal = sealing(codec, "createTasks")
  return {
    create: (tasks, deliveries) =>
      Effect.flatMap(Effect.forEach(tasks, seal), (sealed) => self.create(sealed, deliveries))
  }
}

/** Seals the payload of a new task. */
export const sealing = (codec: PayloadCodec["Service"], operation: string) => {
  const { seal } = texts.make(codec, "task_id")
  return (task: NewTask): Effect.Effect<NewTask, ProviderError> =>
    Effect.map(seal(operation, task.id ?? "")(task.payload), (payload) => ({ ...task, payload }))
}

export const make = (driver: Driver, codec: PayloadCodec["Service"]): Driver => {
  const { open, seal } = texts.make(codec, "task_id")

  const opened = <A extends Pick<End, "error" | "result">>(
    operation: string,
    taskId: string,
    end: A
  ): Effect.Effect<A, ProviderError> =>
    Effect.gen(function*() {
      const through = open(operation, taskId)
      return {
        ...end,
        result: end.result === null ? null : yield* through(end.result),
        error: yield* openedFailure(operation, taskId, end.error)
      }
    })

  const openedFailure = (operation: string, taskId: string, error: string | null) =>
    error === null ? Effect.succeed(null) : texts.nested(error, open(operation, taskId))

  /** What cannot be opened now stays sealed: its attempt is given back. */
  const openedClaim = <A extends Claim>(claim: A): Effect.Effect<A> =>
    claim.outcome !== "Claimed"
      ? Effect.succeed(claim)
      : open("claimTasks", claim.id)(claim.payload).pipe(
        Effect.map((payload) => ({ ...claim, payload })),
        Effect.orElseSucceed(() => claim)
      )

  return {
    ...driver,
    ...creating(driver, codec),
    claim: (taskIds, serves, options) =>
      Effect.flatMap(driver.claim(taskIds, serves, options), (claims) => Effect.forEach(claims, openedClaim)),
    take: (serves) => {
      const take = driver.take(serves)
      return (lease, options) =>
        Effect.flatMap(take(lease, options), (fetched) =>
          Effect.map(
            Effect.forEach(
              fetched.taken,
              (task) => Effect.map(openedClaim(task.claimed), (claimed) => ({ ...task, claimed }))
            ),
            (taken) => ({ ...fetched, taken })
          ))
    },
    complete: (completions) =>
      Effect.flatMap(
        Effect.forEach(completions, (completion) =>
          completion.result === null
            ? Effect.succeed(completion)
            : Effect.map(
              seal("completeTasks", completion.taskId)(completion.result),
              (result) => ({ ...completion, result })
            )),
        driver.complete
      ),
    fail: (ends) =>
      Effect.flatMap(
        Effect.forEach(ends, (end) =>
          end.error === null
            ? Effect.succeed(end)
            : Effect.map(
              failures.through(end.error, seal("failTasks", end.taskId)),
              (error) => ({ ...end, error })
            )),
        driver.fail
      ),
    within: (connection) => {
      const within = driver.within(connection)
      return {
        ...within,
        complete: (taskId, attempt, result) =>
          Effect.flatMap(seal("completeTasks", taskId)(result), (result) => within.complete(taskId, attempt, result))
      }
    },
    await: (ids) =>
      Effect.flatMap(driver.await(ids), (ended) => Effect.forEach(ended, (end) => opened("awaitTasks", end.id, end))),
    join: (taskId, caller) =>
      Effect.flatMap(
        driver.join(taskId, caller),
        (end) => end === null ? Effect.succeed(null) : opened("joinTask", taskId, end)
      ),
    readTask: (taskId) =>
      Effect.flatMap(
        driver.readTask(taskId),
        (state) => state === null ? Effect.succeed(null) : opened("readTask", taskId, state)
      ),
    readAttempts: (taskId) =>
      Effect.flatMap(
        driver.readAttempts(taskId),
        (attempts) =>
          Effect.forEach(attempts, (attempt) =>
            Effect.map(openedFailure("readAttempts", taskId, attempt.error), (error) => ({ ...attempt, error })))
      ),
    readDead: (name, limit) =>
      Effect.flatMap(
        driver.readDead(name, limit),
        (dead) =>
          Effect.forEach(dead, (task) =>
            Effect.map(openedFailure("listDeadTasks", task.id, task.error), (error) => ({ ...task, error })))
      )
  }
}
