/**
 * What others see of a process of its own that is killed, or ends.
 */
import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitUntil } from "../utils/waitUntil.ts"

it.live("a killed process is dead at once, and one that ends is gone", () =>
  Effect.gen(function*() {
    const { sql, url } = yield* PgServer.database
    const seen = Effect.map(
      sql<{ readonly pid: number; readonly lives: boolean }>(
        "SELECT out_pid AS pid, out_is_alive AS lives FROM dx_read_processes() WHERE out_listens"
      ),
      (rows) => new Map(rows.map(({ lives, pid }) => [pid, lives]))
    )
    const start = Effect.gen(function*() {
      const process = yield* ChildProcess.start("worker", url)
      yield* process.printed("ready")
      yield* waitUntil(Effect.map(seen, (all) => all.get(process.pid) === true))
      return process
    })
    const victim = yield* start
    const other = yield* start
    yield* victim.kill
    const killedMs = performance.now()
    yield* waitUntil(Effect.map(seen, (all) => all.get(victim.pid) === false))
    console.log(`dead after ${Math.round(performance.now() - killedMs)} ms`)
    assert.isTrue((yield* seen).get(other.pid))
    yield* other.stop
    yield* waitUntil(Effect.map(seen, (all) => !all.has(other.pid)))
    assert.deepStrictEqual([...(yield* seen).values()], [false])
  }).pipe(Effect.scoped))
