/**
 * How an orchestration runs a task: activities create and cancel it, and a signal of its own brings its end.
 *
 * An activity that creates a task twice finds the first one, by the idempotency key of its call. The name of the
 * signal contains the id of the task, which is recorded as the result of the activity.
 */
import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as Activity from "../../Activity.ts"
import { limitKeyUnsafe } from "../../model/shared/activityOptions.ts"
import type * as payloads from "../../model/shared/payload.ts"
import * as sealed from "../../model/shared/sealed.ts"
import * as taskSignal from "../../model/shared/taskSignal.ts"
import type { Instance } from "../../Orchestration.ts"
import * as Signal from "../../Signal.ts"
import { TaskCancelled, TaskDied, TaskTimedOut, TaskUnavailable } from "../shared/errors.ts"
import type { OfTask } from "../shared/errors.ts"
import * as failures from "../shared/failure.ts"
import { problemOfKey } from "./settings.ts"
import type { Settings } from "./settings.ts"

/** A text that this process could read to the last part: a sealed one would pass for a result, or another failure. */
const Opened = Schema.String.check(Schema.makeFilter((text) => {
  const [unread] = sealed.textsIn(text)
  return unread === undefined || sealed.problemOf(unread)
}))

/** What is stored of a task that has ended. */
export const End = Schema.Struct({
  status: Schema.String,
  result: Schema.NullOr(Opened),
  error: Schema.NullOr(Opened)
})
export type End = typeof End.Type

/** Until the store answers: 1 second to 1 minute. */
const untilStored = Schedule.min([Schedule.exponential("1 second"), Schedule.spaced("1 minute")])

const NewTask = {
  name: Schema.String,
  payload: Schema.String,
  queue: Schema.String,
  maxAttempts: Schema.Number,
  limitKey: Schema.optionalKey(Schema.String)
}

/** Answers with the id of the task. */
export const CreateTask = Activity.make(taskSignal.createTask, {
  payload: NewTask,
  success: Schema.String,
  retry: untilStored
})

/**
 * Creates the task of a key, unless it exists. Answers with its end, or with the signal of the call that will
 * arrive. Others may wait for it as well, so it is not cancelled with the call.
 */
export const RunTask = Activity.make(taskSignal.runTask, {
  payload: { ...NewTask, key: Schema.String },
  success: Schema.Union([End, Schema.Struct({ signal: Schema.String })]),
  retry: untilStored
})

export const CancelTask = Activity.make(taskSignal.cancelTask, {
  payload: { taskId: Schema.String },
  retry: untilStored
})

interface LimitKey<P> {
  readonly limitKey: ((payload: P) => string) | undefined
}

interface Codecs<P, A, E> {
  readonly payload: payloads.Payload<P>
  readonly success: payloads.Payload<A>
  readonly error: payloads.Payload<E>
}

export const execute = <P, A, E>(
  name: string,
  { limitKey, maxAttempts, queue }: Pick<Settings, "maxAttempts" | "queue"> & LimitKey<P>,
  codecs: Codecs<P, A, E>,
  value: P,
  key: string | undefined
): Effect.Effect<A, E | OfTask, Instance> =>
  key !== undefined ?
    shared(name, { limitKey, maxAttempts, queue }, codecs, value, key) :
    // Once the creation is under way, the task may exist: only after its id is known it can be cancelled.
    Effect.uninterruptibleMask((restore) =>
      Effect.gen(function*() {
        const payload = yield* Effect.orDie(codecs.payload.encode(value))
        const taskId = yield* CreateTask.execute({
          name,
          payload,
          queue,
          maxAttempts,
          ...limitKeyOf(name, limitKey, value)
        })
        const end = yield* restore(Signal.make(taskSignal.nameOf(taskId), { payload: End }).wait).pipe(
          Effect.onInterrupt(() => CancelTask.execute({ taskId }))
        )
        return yield* Effect.catchTag(outcomeOf(name, codecs, end), "PayloadMismatch", Effect.die)
      })
    )

const shared = Effect.fnUntraced(function*<P, A, E>(
  name: string,
  { limitKey, maxAttempts, queue }: Pick<Settings, "maxAttempts" | "queue"> & LimitKey<P>,
  codecs: Codecs<P, A, E>,
  value: P,
  key: string
): Effect.fn.Return<A, E | OfTask, Instance> {
  const problem = problemOfKey(key)
  if (problem !== undefined) return yield* Effect.die(new RangeError(`key of task "${name}" is refused: ${problem}`))
  const payload = yield* Effect.orDie(codecs.payload.encode(value))
  const answer = yield* RunTask.execute({
    name,
    payload,
    queue,
    maxAttempts,
    key,
    ...limitKeyOf(name, limitKey, value)
  })
  const end = "signal" in answer ? yield* Signal.make(answer.signal, { payload: End }).wait : answer
  return yield* Effect.catchTag(outcomeOf(name, codecs, end), "PayloadMismatch", Effect.die)
})

const limitKeyOf = <P>(name: string, limitKey: LimitKey<P>["limitKey"], value: P) =>
  limitKey === undefined ? {} : { limitKey: limitKeyUnsafe(`task "${name}"`, limitKey(value)) }

/** The result or failure of a task that has ended. */
export const outcomeOf = <A, E>(
  taskName: string,
  codecs: Pick<Codecs<never, A, E>, "success" | "error">,
  { error, result, status }: End
): Effect.Effect<A, E | OfTask | payloads.PayloadMismatch> =>
  Effect.suspend((): Effect.Effect<A, E | OfTask | payloads.PayloadMismatch> => {
    if (status === "Completed") return codecs.success.decode(result ?? "null")
    const failure = failures.decode(error)
    switch (failure._tag) {
      case "Failed":
        return Effect.flatMap(codecs.error.decode(failure.error), Effect.fail)
      case "Died":
        return Effect.fail(new TaskDied({ taskName, problem: failure.problem }))
      case "Lost":
        return Effect.fail(new TaskDied({ taskName, problem: "the worker of its last attempt was lost" }))
      case "Unavailable":
        return Effect.fail(new TaskUnavailable({ taskName, problem: failure.problem }))
      case "TimedOut":
        return Effect.fail(new TaskTimedOut({ taskName, timeoutMs: failure.timeoutMs }))
      case "Cancelled":
        return Effect.fail(new TaskCancelled({ taskName, reason: failure.reason }))
    }
  })
