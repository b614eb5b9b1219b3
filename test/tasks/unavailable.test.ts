import { assert, describe, it } from "@effect/vitest"
import { ProviderError } from "duroxide-prisma/provider"
import { QueueError } from "duroxide-prisma/queue"
import { Task, Tasks } from "duroxide-prisma/tasks"
import { TestRuntime } from "duroxide-prisma/testing"
import { TestTasks } from "duroxide-prisma/testing/tasks"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Schema from "effect/Schema"
import * as SqlError from "effect/sql/SqlError"

const withCode = (code: string, fields: object = {}) => Object.assign(new Error("failed"), { code, ...fields })

const ofStore = (reason: ProviderError.Reason) => new ProviderError.ProviderError({ operation: "status", reason })

const ofQueue = (reason: QueueError.Reason) =>
  new QueueError.QueueError({ operation: "publish", queue: "mail", reason })

/** Error of the server, reported by `PrismaPg`. */
const ofPrisma = (originalCode: string) =>
  withCode("P2010", {
    meta: { driverAdapterError: { cause: { originalCode, originalMessage: "terminating postgres://app:s3cret@db" } } }
  })

const circular = new Error("first")
circular.cause = new Error("second", { cause: circular })

const lost = new ProviderError.ConnectionLost({ problem: "the connection was reset" })

/** What a handler dies of. */
const passing: Record<string, unknown> = {
  "an error of the store": ofStore(lost),
  "a conflict": ofStore(new ProviderError.Contention({ sqlState: "40001", problem: "conflict" })),
  "an error of a queue": ofQueue(new QueueError.Unavailable({ problem: "no answer" })),
  "an error of Effect's SQL clients": new SqlError.SqlError({
    reason: new SqlError.ConnectionError({ cause: new Error("gone"), message: "gone" })
  }),
  "a server that stops, by Prisma": ofPrisma("57P01"),
  "a database that Prisma cannot reach": withCode("P1001"),
  "a refused connection": withCode("ECONNREFUSED", { syscall: "connect" }),
  "a name that is not resolved": withCode("EAI_AGAIN", { syscall: "getaddrinfo" }),
  "a cause of another error": new TypeError("fetch failed", { cause: withCode("UND_ERR_CONNECT_TIMEOUT") }),
  "one of several addresses": new AggregateError([withCode("ECONNREFUSED")])
}

const lasting: Record<string, unknown> = {
  "a bug": new TypeError("x is not a function"),
  "a text": "broken",
  "nothing": undefined,
  "errors that are each other's cause": circular,
  "a file that is missing": withCode("ENOENT", { syscall: "open" }),
  "a constraint, by Prisma": ofPrisma("23505"),
  "a missing right": ofStore(new ProviderError.PermissionDenied({ problem: "permission denied" })),
  "an unknown queue": ofQueue(new QueueError.QueueNotFound({ queue: "mail" }))
}

/** Does not repeat what is a bug. */
const Dies = Task.make("Dies", {
  payload: Schema.String,
  retry: {
    maxAttempts: 3,
    schedule: Schedule.spaced("1 minute"),
    while: ({ _tag }) => _tag !== "TaskDied"
  }
})

const App = TestRuntime.layer(
  TestTasks.layer({ tasks: [Dies] }).pipe(
    Layer.provide(Dies.toLayer((name) => Effect.die(name in passing ? passing[name] : lasting[name]))),
    Layer.provide(Logger.layer([]))
  )
)

const failuresOf = (payload: string) =>
  Effect.gen(function*() {
    const tasks = yield* Tasks.Tasks
    const id = yield* tasks.create(Dies, { payload })
    const error = yield* Effect.flip(tasks.wait(Dies, id))
    const attempts = yield* tasks.attempts(id)
    return { error, outcomes: attempts.map(({ outcome }) => outcome), failure: Option.getOrThrow(attempts[0]!.failure) }
  }).pipe(Effect.provide(App))

describe("Task: what a handler needs is not available", () => {
  for (const name of Object.keys(passing)) {
    it.effect(`is tried again: ${name}`, () =>
      Effect.gen(function*() {
        const { error, outcomes } = yield* failuresOf(name)
        assert.strictEqual(error._tag, "TaskUnavailable")
        assert.notInclude(error.message, "s3cret")
        assert.deepStrictEqual(outcomes, ["Unavailable", "Unavailable", "Unavailable"])
      }))
  }

  for (const name of Object.keys(lasting)) {
    it.effect(`is a defect: ${name}`, () =>
      Effect.gen(function*() {
        const { error, outcomes } = yield* failuresOf(name)
        assert.strictEqual(error._tag, "TaskDied")
        assert.deepStrictEqual(outcomes, ["Died"])
      }))
  }

  it.effect("is recorded with its cause", () =>
    Effect.gen(function*() {
      const { error, failure } = yield* failuresOf("an error of the store")
      assert.deepStrictEqual(failure, { _tag: "Unavailable", problem: ofStore(lost).message })
      assert.include(error.message, lost.message)
    }))
})
