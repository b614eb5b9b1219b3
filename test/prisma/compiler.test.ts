import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"

describe("Prisma's query compiler", () => {
  it.live("is not loaded by statements of this package, and is there for queries of models after these", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const process = yield* ChildProcess.start("compiler", url)
      yield* process.printed("model:")
      assert.include(process.output(), "orchestration: 0\n")
      assert.include(process.output(), "model: 3 executions, 1\n")
    }).pipe(Effect.scoped))
})
