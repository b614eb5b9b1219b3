/**
 * Options of tasks, workers and consumers that cannot work are refused by name, before anything is stored.
 */
import { assert, describe, it } from "@effect/vitest"
import { Outbox } from "duroxide-prisma/outbox"
import { PrismaProvider } from "duroxide-prisma/prisma"
import { Consumer, MemoryQueue } from "duroxide-prisma/queue"
import { Delivery } from "duroxide-prisma/recipes/deliveries"
import { Task } from "duroxide-prisma/tasks"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import type * as Scope from "effect/Scope"
import { Job, open, queues } from "../tasks/utils/tasks.ts"

/** Values that only a program without types can give. */
const noDurations = [NaN, -1, {}, "abc", { seconds: NaN }, [], null] as ReadonlyArray<unknown> as ReadonlyArray<never>

const unknownId = "00000000-0000-4000-8000-000000000000"

/** The option that the error names. */
const fieldOf = Effect.fnUntraced(function*(effect: Effect.Effect<unknown, unknown, Scope.Scope>) {
  const error = yield* Effect.flip(effect)
  const { reason } = error as { readonly reason?: { readonly _tag: string; readonly field?: string } }
  return reason?._tag === "InvalidInput" ? reason.field : error
})

describe("options that cannot work:", () => {
  it.live("are refused by name", () =>
    Effect.gen(function*() {
      const app = yield* open(MemoryQueue.layer({ queues }))
      const work = (options: Parameters<typeof app.jobWorker>[1]) => app.jobWorker(() => Effect.succeed(1), options)
      const { tasks } = app
      const publisher = (options: Outbox.PublisherOptions) =>
        Layer.build(
          Outbox.publisher(options).pipe(
            Layer.provide(MemoryQueue.layer({ queues })),
            Layer.provide(PrismaProvider.layerDatabase({ url: app.url, migrate: "none" })),
            Layer.provide(Logger.layer([]))
          )
        )
      // `null` means that an option of a layer is not given.
      const given = noDurations.filter((input) => input !== null)
      const refused: ReadonlyArray<readonly [field: string, effect: Effect.Effect<unknown, unknown, Scope.Scope>]> = [
        ...[...given, "11000000 weeks" as const, Infinity].flatMap((input) => [
          ["keepEnded", work({ keepEnded: input })] as const,
          ["keepDead", work({ keepDead: input })] as const,
          ["keepSent", publisher({ keepSent: input })] as const
        ]),
        ...["", "a\0b", "\ud800", "\u00e9".repeat(513)].map((workerId) => ["workerId", work({ workerId })] as const),
        ...noDurations.flatMap((input) => [
          ["delay", tasks.create(Job, { payload: { n: 1 }, delay: input })] as const,
          ["timeout", tasks.wait(Job, unknownId, { timeout: input })] as const
        ]),
        ["delay", tasks.create(Job, { payload: { n: 1 }, delay: Infinity })]
      ]
      for (const [i, [field, effect]] of refused.entries()) {
        assert.strictEqual(yield* fieldOf(effect), field, `${i}: ${field}`)
      }
      assert.deepStrictEqual(yield* app.sql("SELECT FROM queue_tasks"), [])
    }).pipe(Effect.scoped))

  it.live("names and ids that no task can have are those of unknown tasks", () =>
    Effect.gen(function*() {
      const { tasks } = yield* open(MemoryQueue.layer({ queues }))
      for (const text of ["a\0", "", "\ud800"]) {
        assert.isFalse(yield* tasks.cancel(text, "no longer needed"))
        assert.deepStrictEqual(yield* tasks.redrive({ name: text }), [])
        assert.deepStrictEqual(yield* tasks.redrive({ ids: [text] }), [])
        assert.deepStrictEqual(yield* tasks.listDead({ name: text }), [])
      }
    }).pipe(Effect.scoped))

  it("throw a RangeError that names them, where a definition takes them", () => {
    for (const input of noDurations) {
      if (input !== null) assert.throws(() => Task.make("T", { lease: input }), RangeError, "lease")
      assert.throws(() => Task.make("T", { timeout: input }), RangeError, "timeout")
    }
    for (const delay of [...noDurations, Infinity]) {
      assert.throws(() => new Consumer.Later({ delay }), RangeError, "delay")
    }
    for (const timeout of [...noDurations.filter((input) => input !== null), 0, Infinity]) {
      assert.throws(() => Delivery.layer({ endpoints: () => Effect.succeedNone, timeout }), RangeError, "timeout")
    }
    assert.strictEqual(Duration.toMillis(new Consumer.Later({ delay: { seconds: 1 } }).delay), 1000)
    assert.strictEqual(Duration.toMillis(Task.make("T", { lease: [2, 0] }).lease), 2000)
  })
})
