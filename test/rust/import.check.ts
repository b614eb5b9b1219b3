import { assert, describe, it } from "@effect/vitest"
import { SqliteImport } from "duroxide-prisma/sqlite"
import * as Context from "effect/Context"
import * as Duration from "effect/Duration"
import * as Effect from "effect/Effect"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import { mkdtempSync, rmSync } from "node:fs"
import { tmpdir } from "node:os"
import { join } from "node:path"
import * as Migrator from "../../src/prisma/Migrator.ts"
import type { Instance } from "../programs/lives.ts"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import * as Lives from "./Lives.ts"
import * as OurLives from "./ourLives.ts"
import * as Outcomes from "./outcomes.ts"
import * as Rust from "./Rust.ts"

/** `npm run test:rust -- import --instances 10000` */
const count = Number(process.env.IMPORT_INSTANCES ?? 160)
const batch = Math.ceil(count / 20)
const timeout = 60_000 + count * 100

/** A file that its processes left behind, and how its instances end there. */
class File extends Context.Service<File, {
  readonly file: string
  readonly instances: ReadonlyArray<Instance>
  readonly outcomes: Outcomes.Outcomes
  /** Those that say nothing about the import. */
  readonly refused: ReadonlySet<string>
}>()("test/File") {}

const FileLive = Layer.effect(
  File,
  Effect.gen(function*() {
    const folder = yield* Effect.acquireRelease(
      Effect.sync(() => mkdtempSync(join(tmpdir(), "duroxide-import-"))),
      (folder) => Effect.sync(() => rmSync(folder, { recursive: true }))
    )
    const file = join(folder, "file.db")
    const instances = yield* took(`made ${count} instances`, Lives.make(file, count))
    const stays = join(folder, "stays.db")
    Lives.copy(file, stays)
    const store = yield* Lives.sqlite(stays)
    yield* Lives.expire(store)
    yield* took("ended on SQLite", Lives.finish(store, instances))
    const outcomes = yield* Outcomes.read(store)
    // Duroxide on SQLite has also lost starts: neither a row nor a message was left of two of 160. That was while this
    // process held two copies of SQLite (see `SqliteFile.ts`); since then none of 10,000.
    const lost = instances.filter(({ id }) => outcomes[id] === undefined).map(({ id }) => id)
    const refused = new Set([...Outcomes.refusedBySqlite(outcomes), ...lost])
    assert.isAtMost(refused.size, count / 50, [...refused].join(", "))
    return { file, instances, outcomes, refused }
  })
)

/** Prints how long it took, in the long form. */
const took = <A, E, R>(what: string, effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.timed(effect), ([duration, value]) => {
    if (process.env.IMPORT_INSTANCES !== undefined) {
      console.log(`${what} in ${Duration.toSeconds(duration).toFixed(1)} s`)
    }
    return value
  })

const importing = (file: string, url: string, schema: string, options: object) =>
  ChildProcess.start("importing", file, url, schema, JSON.stringify({ batch, ...options }))

/** Each row is one reason why the import is not a copy of simple rows. */
const states = {
  "executions that run": "executions WHERE status = 'Running'",
  "executions that failed": "executions WHERE status = 'Failed'",
  "third executions": "executions WHERE execution_id = 3",
  "children": "instances WHERE parent_instance_id IS NOT NULL",
  "key-values of earlier executions": "kv_store",
  "keys that were cleared": "kv_delta WHERE value IS NULL",
  "turns of dead processes": "instance_locks",
  "turns delivered ten times": "orchestrator_queue WHERE attempt_count = 10",
  "activities of dead processes": "worker_queue WHERE lock_token IS NOT NULL AND attempt_count = 1",
  "activities delivered ten times": "worker_queue WHERE attempt_count = 10",
  "activities with a tag and a session": "worker_queue WHERE tag = 'later' AND session_id IS NOT NULL",
  "sessions": "sessions",
  "starts that were not claimed":
    "orchestrator_queue AS q WHERE NOT EXISTS (SELECT 1 FROM instances AS i WHERE i.instance_id = q.instance_id)",
  "timers of tomorrow": "orchestrator_queue WHERE visible_at > (unixepoch() + 3600) * 1000",
  "signals": "orchestrator_queue WHERE work_item LIKE '{\"ExternalRaised\"%'",
  "letters": "orchestrator_queue WHERE work_item LIKE '{\"QueueMessage\"%'",
  "cancellations": "orchestrator_queue WHERE work_item LIKE '{\"CancelInstance\"%'"
}

describe("a SQLite file of duroxide", () => {
  it.layer(FileLive, { excludeTestServices: true, timeout })((it) => {
    it.effect("holds every state, and on SQLite its instances end as their programs say", () =>
      Effect.gen(function*() {
        const { file, instances, outcomes, refused } = yield* File
        const { query } = yield* Lives.sqlite(file)
        for (const [state, rows] of Object.entries(states)) {
          const [found] = yield* query<{ n: number }>(`SELECT count(*) AS n FROM ${rows}`)
          assert.isAbove(found!.n, 0, state)
        }
        const sound = instances.filter(({ id }) => !refused.has(id))
        const expected = sound.map(({ id, life }) => `${id} ${life.ends === "never" ? "Running" : life.ends}`)
        const ended = sound.map(({ id }) => `${id} ${outcomes[id]?.executions.at(-1)?.status}`)
        assert.deepStrictEqual(ended, expected)
      }), timeout)

    it.effect(
      "imported by six processes, five of them killed, and run on by Rust: all end as on SQLite",
      () =>
        Effect.gen(function*() {
          const { file, instances, outcomes, refused } = yield* File
          const shared = yield* Rust.open
          yield* Effect.provide(Migrator.adopt({ url: shared.url, schema: shared.schema }), Logger.layer([]))
          for (const rounds of [0, 10, 50, 100, 300]) {
            yield* Effect.scoped(Effect.gen(function*() {
              const process = yield* importing(file, shared.url, shared.schema, { freezeAfter: { batches: 1, rounds } })
              yield* process.printed("frozen")
              yield* process.kill
            }))
          }
          const store = Lives.postgres(shared)
          assert.lengthOf(yield* store.query("SELECT FROM orchestrator_queue"), 0, "work is imported at the end")
          yield* Effect.scoped(Effect.gen(function*() {
            const process = yield* importing(file, shared.url, shared.schema, {})
            yield* took("imported", process.printed("imported"))
            assert.include(process.output(), `"resumed":true`)
          }))
          const report = yield* took("verified", SqliteImport.verify({ file, target: shared }))
          assert.isTrue(report.isEqual, SqliteImport.render(report))
          yield* took("ended on PostgreSQL", Lives.finish(store, instances))
          Outcomes.assertEqual(yield* Outcomes.read(store), outcomes, refused)
        }),
      timeout
    )

    it.effect("imported with `serve` and run on by TypeScript: all end as on SQLite", () =>
      Effect.gen(function*() {
        const { file, instances, outcomes, refused } = yield* File
        const { schema, sql, url } = yield* PgServer.database
        yield* Effect.scoped(Effect.gen(function*() {
          const process = yield* importing(file, url, schema, { serve: OurLives.served })
          yield* process.printed("imported")
        }))
        const report = yield* SqliteImport.verify({ file, target: { url, schema } })
        assert.isTrue(report.isEqual, SqliteImport.render(report))
        yield* took(
          "ended in TypeScript",
          Effect.gen(function*() {
            const store = Lives.observed(sql)
            // Signals for an instance that has not begun are lost.
            yield* Lives.resting(store)
            yield* Effect.forEach(
              instances,
              ({ id, life }) => Effect.forEach(life.later ?? [], (message) => OurLives.deliver(id, message)),
              { concurrency: 8 }
            )
            yield* Lives.done(store)
          }).pipe(Effect.provide(OurLives.app(url)))
        )
        const ours = yield* Outcomes.read({ query: sql })
        const [here, there] = [Outcomes.ofAnySide(ours), Outcomes.ofAnySide(outcomes)]
        // Duroxide runs the first turn of what was cancelled before it, and we do not; the end is the same.
        const calledOff = instances.filter(({ life }) => life.name === "new-dismissed").map(({ id }) => id)
        assert.isAbove(calledOff.length, 0)
        const ends = (all: Outcomes.Outcomes) =>
          calledOff.filter((id) => !refused.has(id)).map((id) =>
            all[id]!.executions.map(({ output, status }) => [id, status, output])
          )
        assert.deepStrictEqual(ends(here), ends(there))
        Outcomes.assertEqual(here, there, new Set([...refused, ...calledOff]))
      }), timeout)
  })
})
