import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from "node:fs/promises"
import { tmpdir } from "node:os"
import * as path from "node:path"
import { writeModule } from "../../scripts/prisma/migrationsModule.mjs"
import * as Migrator from "../../src/prisma/Migrator.ts"
import { read, releaseOf, withMigrations } from "../utils/migrations.ts"
import * as PgServer from "../utils/PgServer.ts"
import { node } from "../utils/prismaCli.ts"

const script = "scripts/prisma/buildMigration.mjs"

const createTable = "CREATE TABLE t (\n  id BIGINT NOT NULL,\n  CONSTRAINT t_pkey PRIMARY KEY (id)\n);\n"

/** A `prisma` folder with no functions yet, and verbs to work with it. */
const workshop = Effect.gen(function*() {
  const folder = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "build-migration-"))),
    (folder) => Effect.promise(() => rm(folder, { recursive: true }))
  )
  const functions = path.join(folder, "functions")
  const migrations = path.join(folder, "migrations")
  const module = path.join(folder, "migrations.generated.ts")
  yield* Effect.promise(async () => {
    await mkdir(functions)
    await mkdir(path.join(migrations, "20260101000000_tables"), { recursive: true })
    await writeFile(path.join(migrations, "20260101000000_tables", "migration.sql"), createTable)
  })
  const names = Effect.promise(async () => (await readdir(migrations)).sort())
  return {
    migrations,
    module,
    names,
    build: (...args: ReadonlyArray<string>) =>
      node(script, ["--functions", functions, "--migrations", migrations, "--module", module, ...args]),
    edit: (name: string, text: string | undefined) =>
      Effect.promise(() =>
        text === undefined
          ? rm(path.join(functions, `${name}.sql`))
          : writeFile(path.join(functions, `${name}.sql`), text)
      ),
    newest: Effect.flatMap(
      names,
      (all) => Effect.promise(() => readFile(path.join(migrations, all.at(-1)!, "migration.sql"), "utf8"))
    )
  }
})

const text = (name: string, signature: string, body: string) =>
  `-- What it does.\nCREATE OR REPLACE FUNCTION ${name}${signature} LANGUAGE sql SET search_path FROM CURRENT\nAS $$ ${body} $$\n`

it.live("the repository's migrations: hold every function as its file says", () =>
  Effect.gen(function*() {
    const { exitCode, output } = yield* node(script, ["--check"])
    assert.strictEqual(exitCode, 0, output)
  }))

it.live("build: writes new and changed functions, drops removed ones, and the database follows", () =>
  Effect.gen(function*() {
    const { build, edit, migrations, names, newest } = yield* workshop
    const { sql, url } = yield* PgServer.emptyDatabase
    const target = new URL(url)
    target.searchParams.set("schema", "built")
    yield* Effect.addFinalizer(() => sql("DROP SCHEMA IF EXISTS built CASCADE"))
    const migrate = Effect.suspend(() =>
      Migrator.migrate({ url: target.toString() }).pipe(
        withMigrations(read(migrations))
      )
    )
    const results = sql<{ name: string; result: string }>(
      `SELECT proname AS name, pg_get_function_result(oid) AS result
       FROM pg_proc WHERE pronamespace = 'built'::regnamespace ORDER BY 1`
    )

    // dx_a calls dx_z, so dx_z has to come first.
    yield* edit("dx_a", text("dx_a", "() RETURNS bigint", "SELECT dx_z()"))
    yield* edit("dx_z", text("dx_z", "() RETURNS bigint", "SELECT count(*) FROM t"))
    assert.strictEqual((yield* build("--check")).exitCode, 1)
    assert.include((yield* build("create_functions")).output, "created dx_a")
    assert.strictEqual((yield* build("--check")).exitCode, 0)
    yield* migrate
    assert.lengthOf(yield* results, 2)

    yield* edit("dx_a", text("dx_a", "() RETURNS bigint", "SELECT dx_z() + 1"))
    assert.include((yield* build("count_from_one")).output, "changed dx_a")
    assert.notInclude(yield* newest, "dx_z()\n")
    assert.notInclude(yield* newest, "DROP")
    yield* migrate
    assert.deepStrictEqual(yield* sql("SELECT built.dx_a()::integer AS a"), [{ a: 1 }])

    yield* edit("dx_a", undefined)
    yield* edit("dx_z", text("dx_z", "(p_id bigint) RETURNS text", "SELECT p_id::text"))
    const { output } = yield* build("count_no_more")
    assert.include(output, "replaced dx_z")
    assert.include(output, "dropped dx_a")
    yield* migrate
    assert.deepStrictEqual(yield* results, [{ name: "dx_z", result: "text" }])

    assert.include((yield* build("nothing")).output, "nothing to migrate")
    assert.lengthOf(yield* names, 4)
  }))

it.live("build: --replace-last rewrites the newest functions migration, and no other", () =>
  Effect.gen(function*() {
    const { build, edit, names, newest } = yield* workshop
    assert.strictEqual((yield* build("--replace-last")).exitCode, 1)
    yield* edit("dx_a", text("dx_a", "() RETURNS bigint", "SELECT 1::bigint"))
    yield* build("create_functions")
    const before = yield* names
    yield* edit("dx_a", text("dx_a", "() RETURNS text", "SELECT ''"))
    yield* build("--replace-last")
    assert.deepStrictEqual(yield* names, before)
    assert.include(yield* newest, "RETURNS text")
    assert.notInclude(yield* newest, "DROP")
    assert.strictEqual((yield* build("--check")).exitCode, 0)
  }))

it.live("build: --replace-last leaves a later migration that was written by hand", () =>
  Effect.gen(function*() {
    const { build, edit, migrations, names, newest } = yield* workshop
    yield* edit("dx_a", text("dx_a", "() RETURNS bigint", "SELECT 1::bigint"))
    yield* build("create_functions")
    const trigger = path.join(migrations, "99990101000000_triggers")
    yield* Effect.promise(async () => {
      await mkdir(trigger)
      await writeFile(path.join(trigger, "migration.sql"), "CREATE TRIGGER t;\n")
    })
    yield* edit("dx_a", text("dx_a", "() RETURNS bigint", "SELECT 2::bigint"))
    assert.strictEqual((yield* build("--replace-last")).exitCode, 0)
    assert.lengthOf(yield* names, 3)
    assert.strictEqual(yield* newest, "CREATE TRIGGER t;\n")
    assert.strictEqual((yield* build("--check")).exitCode, 0)
  }))

it.live("module: contains the migrations byte for byte, and is written anew when it is stale", () =>
  Effect.gen(function*() {
    const { migrations, module } = yield* workshop
    const sql = "SELECT '\\', '\\\\n', '`', '${x}', '$${', 'ü';\n"
    const file = path.join(migrations, "20260101000000_tables", "migration.sql")
    yield* Effect.promise(() => writeFile(file, sql))
    writeModule({ migrations, module })
    const built = yield* Effect.promise(() => import(/* @vite-ignore */ module))
    assert.deepStrictEqual(built.release.migrations, releaseOf(read(migrations)).migrations)
    const written = yield* Effect.promise(() => stat(module))
    writeModule({ migrations, module })
    assert.strictEqual((yield* Effect.promise(() => stat(module))).ino, written.ino)
    yield* Effect.promise(() => writeFile(file, `${sql}-- edited\n`))
    writeModule({ migrations, module })
    assert.include(yield* Effect.promise(() => readFile(module, "utf8")), "-- edited")
  }))

it.live("build: refuses a file that breaks the rules and says which", () =>
  Effect.gen(function*() {
    const { build, edit } = yield* workshop
    const good = text("dx_a", "() RETURNS bigint", "SELECT 1::bigint")
    const cases: ReadonlyArray<readonly [string, string, string]> = [
      ["other", good, "must be named dx_"],
      ["dx_b", good, "CREATE OR REPLACE FUNCTION dx_b"],
      ["dx_a", good.replace("SET search_path FROM CURRENT", ""), "SET search_path FROM CURRENT"],
      ["dx_a", `${good};\nSELECT 1`, "must end with the function's body"],
      ["dx_a", `${good};\n${good}`, "one statement"]
    ]
    for (const [name, content, problem] of cases) {
      yield* edit(name, content)
      const { exitCode, output } = yield* build("create_functions")
      assert.strictEqual(exitCode, 1)
      assert.include(output, `${name}.sql ${problem.startsWith("must") ? problem : ""}`)
      assert.include(output, problem)
      yield* edit(name, undefined)
    }
  }))
