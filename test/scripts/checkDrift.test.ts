import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as PgServer from "../utils/PgServer.ts"
import { node } from "../utils/prismaCli.ts"

const prisma = fileURLToPath(new URL("../../prisma", import.meta.url))

/** Also where `DATABASE_URL` may not create databases: the script then starts a server of its own. */
const checkDrift = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  node("scripts/prisma/checkDrift.mjs", args, { DATABASE_URL: PgServer.server().url, ...env })

const patient = 120_000

describe("of the repository's files", () => {
  it.live("none: passes", () =>
    Effect.gen(function*() {
      const { exitCode, output } = yield* checkDrift([])
      assert.include(output, "Drift: none.")
      assert.strictEqual(exitCode, 0, output)
    }), patient)

  it.live(
    "a column, a function body and a partial index that no migration made: fails and names them",
    () =>
      Effect.gen(function*() {
        const copy = yield* Effect.acquireRelease(
          Effect.promise(() => mkdtemp(path.join(tmpdir(), "drift-"))),
          (copy) => Effect.promise(() => rm(copy, { recursive: true }))
        )
        const edit = (file: string, change: (text: string) => string) =>
          Effect.promise(async () => {
            const before = await readFile(path.join(copy, file), "utf8")
            assert.notStrictEqual(change(before), before, `${file} should have changed`)
            await writeFile(path.join(copy, file), change(before))
          })
        yield* Effect.promise(() => cp(prisma, copy, { recursive: true }))
        const [name = ""] = (yield* Effect.promise(() => readdir(path.join(copy, "functions")))).sort()
        yield* edit("schema.prisma", (text) =>
          text
            .replace("workerId ", "colour String?\n  workerId ")
            .replace(/^.*@@index\(\[sessionId\].*$/m, ""))
        yield* edit(`functions/${name}`, (text) => text.replace(/^(AS \$\w*\$)$/m, (start) => `${start}\n  -- changed`))

        const { exitCode, output } = yield* checkDrift(["--prisma", copy])
        assert.strictEqual(exitCode, 1, output)
        assert.include(output, "migrations and schema.prisma differ")
        assert.include(output, "database and schema.prisma differ")
        assert.include(output, "`colour`")
        assert.include(output, "index on columns (session_id)")
        assert.include(output, `migrations lag behind ${name}`)
        assert.include(output, `changed function ${path.basename(name, ".sql")}(`)
      }),
    patient
  )
})

describe("of a database", () => {
  const drifts: ReadonlyArray<readonly [string, string, string]> = [
    ["none", "SELECT 1", "Drift: none."],
    ["an added column", "ALTER TABLE sessions ADD COLUMN colour text", "column `colour`"],
    ["a changed column type", "ALTER TABLE sessions ALTER COLUMN worker_id TYPE varchar(3)", "`worker_id`"],
    [
      "a changed function body",
      `DO $do$
      DECLARE v_definition text;
      BEGIN
        SELECT pg_get_functiondef(oid) INTO v_definition
        FROM pg_proc WHERE proname = 'dx_read_history' AND pronamespace = current_schema::regnamespace;
        EXECUTE regexp_replace(v_definition, '\\$(function|procedure)\\$', '$function$ /* changed */ ');
      END $do$`,
      "changed function dx_read_history("
    ],
    ["a dropped function", "DROP FUNCTION dx_read_history", "missing function dx_read_history("],
    ["a dropped partial index", "DROP INDEX worker_queue_session_id_idx", "missing index worker_queue_session_id_idx"],
    [
      "another predicate of a partial index",
      `DROP INDEX worker_queue_session_id_idx;
      CREATE INDEX worker_queue_session_id_idx ON worker_queue (session_id) WHERE session_id > ''`,
      "changed index worker_queue_session_id_idx"
    ],
    ["a lost storage parameter", "ALTER TABLE instance_locks RESET (fillfactor)", "missing storage instance_locks"],
    [
      "a trigger",
      `CREATE TRIGGER mine BEFORE UPDATE ON sessions FOR EACH ROW
      EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
      "additional trigger sessions.mine"
    ]
  ]
  for (const [name, change, expected] of drifts) {
    it.live(`${name}: ${name === "none" ? "passes" : "fails and names it"}`, () =>
      Effect.gen(function*() {
        const { sql, url } = yield* PgServer.database
        yield* sql(change)
        const { exitCode, output } = yield* checkDrift(["--url", url])
        assert.include(output, expected)
        assert.strictEqual(exitCode, name === "none" ? 0 : 1, output)
      }), patient)
  }
})

it.live("an engine that does nothing: cannot make the check pass", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    yield* sql("ALTER TABLE sessions ADD COLUMN colour text")
    const { exitCode, output } = yield* checkDrift(["--url", url], { PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true" })
    assert.include(output, "column `colour`")
    assert.strictEqual(exitCode, 1)
  }), patient)
