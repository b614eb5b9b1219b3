/**
 * Limits of tasks: by a random model, and with other servers of queues.
 */
import { assert, it } from "@effect/vitest"
import { MemoryQueue } from "duroxide-prisma/queue"
import * as Effect from "effect/Effect"
import * as fc from "fast-check"
import * as PgServer from "../utils/PgServer.ts"
import { limitSuite } from "./utils/limitSuite.ts"
import * as model from "./utils/taskLimitsModel.ts"
import { queues } from "./utils/tasks.ts"

limitSuite("MemoryQueue", MemoryQueue.layer({ queues }))

it.live(
  "limits of tasks: none is exceeded, keys take turns, and all slots come back, in random sequences",
  () =>
    Effect.gen(function*() {
      const database = yield* PgServer.database
      const run = Effect.runPromiseWith(yield* Effect.context<never>())
      const result = yield* Effect.promise(() =>
        fc.check(
          fc.asyncProperty(
            model.runs,
            (one) => run(Effect.andThen(database.sql(model.clear), model.play(database, one)))
          ),
          { numRuns: 60 }
        )
      )
      if (result.failed) {
        assert.fail(
          `${String(result.errorInstance)}\nseed ${result.seed}\n${JSON.stringify(result.counterexample?.[0])}`
        )
      }
    })
)
