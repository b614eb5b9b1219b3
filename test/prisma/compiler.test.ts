import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { withoutCompiler } from "../../src/prisma/internal/client.ts"
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

  it.effect("is given back to a version of Prisma that compiles raw statements as well", () =>
    Effect.gen(function*() {
      const config = { activeProvider: "postgresql", compilerWasm: { getRuntime: () => Promise.reject(new Error()) } }
      const engine: { config: { compilerWasm: { getRuntime: () => Promise<unknown> } } } = { config }
      const seen: Array<string> = []
      const compile = async () => {
        const { QueryCompiler } = await engine.config.compilerWasm.getRuntime() as { QueryCompiler: new() => Compiler }
        new QueryCompiler().compile()
      }
      const client: any = {
        _engine: engine,
        $queryRaw: () => (seen.push("statement"), compile()),
        $disconnect: async () => void seen.push("disconnected")
      }
      yield* withoutCompiler(client)
      assert.strictEqual(engine.config, config)
      assert.deepStrictEqual(seen, ["statement", "disconnected"])
    }))
})

interface Compiler {
  readonly compile: () => unknown
}
