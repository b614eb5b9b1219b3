import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { cp, mkdtemp, readdir, readFile, rm, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { fileURLToPath } from "node:url"
import * as Partitions from "../../src/prisma/Partitions.ts"
import * as PgServer from "../utils/PgServer.ts"
import { node } from "../utils/prismaCli.ts"

const prisma = fileURLToPath(new URL("../../prisma", import.meta.url))

/** Works even if `DATABASE_URL` may not create databases: the script then starts its own server. */
const checkDrift = (args: ReadonlyArray<string>, env: Readonly<Record<string, string>> = {}) =>
  node("scripts/prisma/checkDrift.mjs", args, { DATABASE_URL: PgServer.server().url, ...env })

const patient = 120_000

describe("of the repository's files", () => {
  it.live("the files as they are: pass", () =>
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
        const files = yield* Effect.promise(() => readdir(path.join(copy, "functions", "shared")))
        const [name = ""] = files.filter((file) => file.endsWith(".sql")).sort()
        yield* edit("schema.prisma", (text) =>
          text
            .replace("workerId ", "colour String?\n  workerId ")
            .replace(/^.*@@index\(\[sessionId\].*$/m, ""))
        yield* edit(`functions/shared/${name}`, (text) =>
          text.replace(/^(AS \$\w*\$)$/m, (start) => `${start}\n  -- changed`))

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
  it.live("a migrated database: passes", () =>
    Effect.gen(function*() {
      const { url } = yield* PgServer.database
      const { exitCode, output } = yield* checkDrift(["--url", url])
      assert.include(output, "Drift: none.")
      assert.strictEqual(exitCode, 0, output)
    }), patient)

  it.live("a partitioned history: only what nothing made differs", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* Partitions.apply({ url })
      yield* sql("CREATE INDEX of_our_own ON history (created_at)")
      const { exitCode, output } = yield* checkDrift(["--url", url])
      assert.strictEqual(exitCode, 1, output)
      assert.deepStrictEqual(output.match(/^(missing|changed|additional) .*$/gm), ["additional index of_our_own"])
      assert.notInclude(output, "history_p0")
    }), patient)

  it.live("each kind: fails and names it", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      const drifts: ReadonlyArray<readonly [string, string]> = [
        ["ALTER TABLE sessions ADD COLUMN colour text", "column `colour`"],
        ["ALTER TABLE sessions ALTER COLUMN worker_id TYPE varchar(3)", "`worker_id`"],
        [
          `DO $do$
          DECLARE v_definition text;
          BEGIN
            SELECT pg_get_functiondef(oid) INTO v_definition
            FROM pg_proc WHERE proname = 'dx_read_history' AND pronamespace = current_schema::regnamespace;
            EXECUTE regexp_replace(v_definition, '\\$(function|procedure)\\$', '$function$ /* changed */ ');
          END $do$`,
          "changed function dx_read_history("
        ],
        ["ALTER FUNCTION dx_read_key_values SET search_path FROM CURRENT", "changed function dx_read_key_values("],
        ["DROP FUNCTION dx_read_instances", "missing function dx_read_instances("],
        ["CREATE FUNCTION mine() RETURNS integer LANGUAGE sql AS 'SELECT 1'", "additional function mine()"],
        ["DROP INDEX worker_queue_session_id_idx", "missing index worker_queue_session_id_idx"],
        [
          `DROP INDEX instances_parent_instance_id_created_at_idx;
          CREATE INDEX instances_parent_instance_id_created_at_idx ON instances (parent_instance_id)
            WHERE parent_instance_id > ''`,
          "changed index instances_parent_instance_id_created_at_idx"
        ],
        ["ALTER TABLE sessions RESET (fillfactor)", "missing storage sessions"],
        [
          `CREATE TRIGGER mine BEFORE UPDATE ON sessions
          FOR EACH ROW EXECUTE FUNCTION suppress_redundant_updates_trigger()`,
          "additional trigger sessions.mine"
        ]
      ]
      for (const [change] of drifts) yield* sql(change)
      const { exitCode, output } = yield* checkDrift(["--url", url])
      for (const [, expected] of drifts) assert.include(output, expected)
      assert.strictEqual(exitCode, 1, output)
    }), patient)

  it.live("a drift that a do-nothing engine would hide: fails nevertheless", () =>
    Effect.gen(function*() {
      const { sql, url } = yield* PgServer.database
      yield* sql("ALTER TABLE sessions ADD COLUMN colour text")
      const { exitCode, output } = yield* checkDrift(["--url", url], { PRISMA_SCHEMA_ENGINE_BINARY: "/bin/true" })
      assert.include(output, "column `colour`")
      assert.strictEqual(exitCode, 1)
    }), patient)
})
