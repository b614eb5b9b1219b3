/**
 * What `npm run lambda` writes, alone in a folder, called as AWS Lambda calls it.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { cpSync, mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { dirname, join } from "node:path"
import { pathToFileURL } from "node:url"
import { parse } from "yaml"
import * as Command from "../utils/command.ts"
import * as Docs from "../utils/docs.ts"
import * as PgServer from "../utils/PgServer.ts"

/** The command of the script, behind the compilation, which the tests have behind them. */
const [, command] = /^npm run -s build && (node .*)$/.exec(JSON.parse(Docs.read("package.json")).scripts.lambda)!
const written = command!.split(" ").at(-1)!

const template = parse(Docs.read("examples/lite/template.yaml"), { logLevel: "error" })

it.live("the bundle has no dependencies, and its handler creates a task", () =>
  Effect.gen(function*() {
    const { CodeUri, Handler } = template.Resources.Trigger.Properties
    assert.strictEqual(join("examples/lite", CodeUri), dirname(written))
    const [module, handler] = Handler.split(".")
    assert.strictEqual(written, join(dirname(written), `${module}.mjs`))

    const { url, sql } = yield* PgServer.database
    const environment = { PATH: process.env["PATH"]!, STATE_DATABASE_URL: url, CENSUS_CRON: "* * * * * *" }
    const build = yield* Command.start(command!.split(" "), { PATH: process.env["PATH"]! })
    assert.strictEqual(yield* build.end, 0, build.output())
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "duroxide-prisma-lambda-"))),
      (folder) => Effect.sync(() => rmSync(folder, { recursive: true }))
    )
    cpSync(dirname(written), folder, { recursive: true })

    const call = yield* Command.start([
      "node",
      "--input-type=module",
      "--eval",
      `const bundle = await import(${JSON.stringify(pathToFileURL(join(folder, `${module}.mjs`)).href)})
       while (true) {
         const { body, statusCode } = await bundle.${handler}({ schedules: "due" })
         if (JSON.parse(body).started > 0) {
           console.log("started", statusCode)
           break
         }
       }
       await bundle.runtime.dispose()`
    ], { ...environment, WEBHOOK_SECRET: "whsec_ZGV2ZWxvcG1lbnQgb25seSwgMjQgYnl0ZXM=" })
    assert.strictEqual(yield* call.end, 0, call.output())
    assert.include(call.output(), "started 200")
    const tasks = yield* sql<{ key: string }>("SELECT key FROM queue_tasks")
    assert.isAtLeast(tasks.length, 1)
    for (const { key } of tasks) assert.match(key, /^schedule\/census\//)
  }).pipe(Effect.scoped))
