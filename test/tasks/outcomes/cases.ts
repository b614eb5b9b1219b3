/**
 * Mistakes with tasks, and their outcomes: rows of docs/outcomes.md, as tests for PostgreSQL and for `TestTasks`.
 */
import { assert } from "@effect/vitest"
import { Task, Tasks } from "duroxide-prisma/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import pg from "pg"

export class Declined extends Schema.TaggedError<Declined>("test/Declined")("Declined", { code: Schema.Finite }) {}

/** Does what its payload says, in two attempts. */
export const Does = Task.make("Does", {
  payload: Schema.String,
  success: Schema.Number,
  error: Declined,
  retry: { maxAttempts: 2, schedule: Schedule.spaced("10 millis") },
  timeout: "500 millis"
})

const Picky = Task.make("Picky", { error: Declined, retry: { while: (error) => !(error instanceof Declined) } })

const Unserved = Task.make("Unserved")

/** Those that are served. */
export const served = [Does, Picky] as const

export const handlers = Layer.mergeAll(
  Does.toLayer(Effect.fnUntraced(function*(deed) {
    const { attempt } = yield* Task.Attempt
    switch (deed) {
      case "decline":
        return yield* new Declined({ code: attempt })
      case "die":
        return yield* Effect.die(new Error("broken"))
      case "reach":
        return yield* Effect.as(
          Effect.promise(() => new pg.Client("postgres://app:s3cret@127.0.0.1:1/app").connect()),
          1
        )
      case "wrong result":
        return "s3cret" as never
      case "wrong error":
        return yield* Effect.fail({ _tag: "Declined", code: "s3cret" } as never)
      case "hang":
        return yield* Effect.as(Effect.sleep(Infinity), 0)
      case "interrupt":
        return yield* Effect.interrupt
      default:
        return 1
    }
  })),
  Picky.toLayer(() => Effect.fail(new Declined({ code: 410 })))
)

type Test = (tasks: Tasks.Tasks["Service"]) => Effect.Effect<void, unknown>

/** The call is refused with an error of this kind. */
const refused = Effect.fnUntraced(function*(call: Effect.Effect<unknown, unknown>, kind: string) {
  const error = (yield* Effect.flip(call)) as Error & {
    readonly _tag: string
    readonly reason?: { readonly _tag: string }
  }
  assert.strictEqual(error.reason?._tag ?? error._tag, kind)
  assert.notInclude(error.message, "s3cret")
})

/** The task dies so, after attempts that ended so. */
const dies = (deed: string, error: object, outcomes: ReadonlyArray<string>): Test => (tasks) =>
  Effect.gen(function*() {
    const id = yield* tasks.create(Does, { payload: deed })
    const failure = yield* Effect.flip(tasks.wait(Does, id))
    assert.deepInclude(failure, error)
    assert.notInclude(failure.message, "s3cret")
    assert.deepStrictEqual((yield* tasks.attempts(id)).map(({ outcome }) => outcome), outcomes)
    assert.strictEqual((yield* tasks.status(id))._tag, "Dead")
  })

const none = "00000000-0000-4000-8000-000000000000"

const creating: Record<string, Test> = {
  "create a task with a key that a task of its name has": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Does, { payload: "", key: "once" })
      assert.strictEqual(yield* tasks.create(Does, { payload: "die", key: "once" }), id)
      assert.strictEqual(yield* tasks.wait(Does, id), 1)
      assert.strictEqual(yield* tasks.create(Does, { payload: "die", key: "once" }), id)
    }),
  "create a task that no process serves": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Unserved, {})
      yield* tasks.wait(Does, yield* tasks.create(Does, { payload: "" }))
      assert.strictEqual((yield* tasks.status(id))._tag, "Pending")
    }),
  "create a task with a payload that its Schema refuses": (tasks) =>
    refused(tasks.create(Does, { payload: 1 as never }), "PayloadMismatch"),
  "create a task with a payload of more than 4 MiB": (tasks) =>
    refused(tasks.create(Does, { payload: "s3cret".repeat(1_000_000) }), "PayloadTooLarge"),
  "create a task with a key that is empty, or has NUL or more than 1,024 bytes": (tasks) =>
    Effect.forEach(
      ["", "s3cret\0", "s3cret".repeat(200)],
      (key) => refused(tasks.create(Does, { payload: "", key }), "InvalidInput"),
      { discard: true }
    ),
  "create a task with a delay that is negative, or longer than 10 years": (tasks) =>
    Effect.forEach(
      [-1, "4000 days"] as const,
      (delay) => refused(tasks.create(Does, { payload: "", delay }), "InvalidInput"),
      { discard: true }
    ),
  "wait for an unknown task": (tasks) =>
    Effect.andThen(refused(tasks.wait(Does, none), "TaskNotFound"), refused(tasks.wait(Does, "none"), "TaskNotFound")),
  "wait for a task with a timeout that is too short": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Does, { payload: "", delay: "1 hour" })
      yield* refused(tasks.wait(Does, id, { timeout: "10 millis" }), "TaskWaitTimeout")
      assert.strictEqual((yield* tasks.status(id))._tag, "Pending")
    }),
  "cancel a task that waits": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Does, { payload: "", delay: "1 hour" })
      assert.isTrue(yield* tasks.cancel(id, "not needed"))
      yield* refused(tasks.wait(Does, id), "TaskCancelled")
      assert.deepStrictEqual(yield* tasks.attempts(id), [])
    }),
  "cancel a task that has ended, or an unknown one": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Does, { payload: "" })
      yield* tasks.wait(Does, id)
      assert.isFalse(yield* tasks.cancel(id, "too late"))
      assert.isFalse(yield* tasks.cancel(none, "too late"))
      assert.strictEqual((yield* tasks.status(id))._tag, "Completed")
    }),
  "cancel a task with NUL or half a surrogate pair in the reason": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Does, { payload: "", delay: "1 hour" })
      for (const reason of ["s3cret\0", "s3cret\ud800"]) yield* refused(tasks.cancel(id, reason), "InvalidInput")
      assert.strictEqual((yield* tasks.status(id))._tag, "Pending")
    }),
  "redrive a dead task": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Does, { payload: "die" })
      yield* refused(tasks.wait(Does, id), "TaskDied")
      assert.deepStrictEqual(yield* tasks.redrive({ ids: [id] }), [id])
      yield* refused(tasks.wait(Does, id), "TaskDied")
      assert.lengthOf(yield* tasks.attempts(id), 4)
    }),
  "redrive a task that is not dead": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Does, { payload: "" })
      yield* tasks.wait(Does, id)
      assert.deepStrictEqual(yield* tasks.redrive({ ids: [id, none] }), [])
    })
}

const running: Record<string, Test> = {
  "a handler fails with an error of its Schema": dies("decline", new Declined({ code: 2 }), ["Failed", "Failed"]),
  "a handler fails with an error that `retry.while` refuses": (tasks) =>
    Effect.gen(function*() {
      const id = yield* tasks.create(Picky, {})
      assert.deepStrictEqual(yield* Effect.flip(tasks.wait(Picky, id)), new Declined({ code: 410 }))
      assert.lengthOf(yield* tasks.attempts(id), 1)
    }),
  "a handler throws or dies": dies("die", { _tag: "TaskDied", problem: "broken" }, ["Died", "Died"]),
  "a handler dies of a database, queue or network that may be back soon": dies(
    "reach",
    { _tag: "TaskUnavailable" },
    ["Unavailable", "Unavailable"]
  ),
  "a handler returns a value its Schema refuses": dies("wrong result", { _tag: "TaskDied" }, ["Died", "Died"]),
  "a handler fails with an error its Schema refuses": dies("wrong error", { _tag: "TaskDied" }, ["Died", "Died"]),
  "a handler exceeds the timeout of its task": dies(
    "hang",
    { _tag: "TaskTimedOut", timeoutMs: 500 },
    ["TimedOut", "TimedOut"]
  ),
  "a handler interrupts itself": dies(
    "interrupt",
    { _tag: "TaskDied", problem: "the handler interrupted itself" },
    ["Died", "Died"]
  )
}

/** By the headings of the page. */
export const sections: Readonly<Record<string, Readonly<Record<string, Test>>>> = {
  Tasks: creating,
  "Handlers of tasks": running
}
