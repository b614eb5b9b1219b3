import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type * as Scope from "effect/Scope"
import { mkdtemp, readFile, rm } from "node:fs/promises"
import { tmpdir } from "node:os"
import path from "node:path"
import * as ChildProcess from "../utils/childProcess.ts"
import * as PgServer from "../utils/PgServer.ts"
import { waitForStatement } from "../utils/waitUntil.ts"
import * as Boxes from "./utils/outbox.ts"

/**
 * A publisher dies by SIGKILL between any two of its steps. Another one sends what it left, when the lease has ended:
 * nothing is lost, and only what the dead one had sent without marking it is sent twice.
 */

const open = Effect.gen(function*() {
  const box = yield* Boxes.open
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(path.join(tmpdir(), "duroxide-prisma-outbox-"))),
    (directory) => Effect.promise(() => rm(directory, { recursive: true, force: true }))
  )
  const log = path.join(directory, "published.log")
  const publisher = (dies: "beforePublish" | "afterPublish" | "never", after = 0) =>
    ChildProcess.start("queue/publisher", JSON.stringify({ url: box.url, log, dies, after }))
  /** Ends with the process; one that the server was too busy to let in is started again. */
  const untilDead = (...args: Parameters<typeof publisher>): Effect.Effect<string, never, Scope.Scope> =>
    Effect.gen(function*() {
      const process = yield* publisher(...args)
      yield* process.ended
      return process.output().includes("did not answer in time") ? yield* untilDead(...args) : process.output()
    })
  return {
    ...box,
    publisher,
    untilDead,
    /** One that nothing kills sends what is left. */
    sendRest: Effect.raceFirst(
      box.untilAllSent,
      Effect.flatMap(untilDead("never"), (output) => Effect.die(new Error(`the publisher ended: ${output}`)))
    ),
    /** How often each message was published, by `n`. */
    published: Effect.promise(async () => {
      const counts = new Map<number, number>()
      for (const line of (await readFile(log, "utf8").catch(() => "")).split("\n")) {
        if (line !== "") counts.set(Number(line), (counts.get(Number(line)) ?? 0) + 1)
      }
      return counts
    })
  }
})

const messages = 20

const twice = (counts: ReadonlyMap<number, number>) => [...counts.values()].filter((count) => count > 1).length

describe("a publisher that is killed loses nothing:", () => {
  for (
    const [name, dies, after, sentBefore] of [
      ["after its claim, before it sends", "beforePublish", 1, 0],
      ["between two messages", "beforePublish", 11, 10],
      ["after the queue has accepted a message, before it knows", "afterPublish", 5, 5],
      ["after all were sent, before it marks them", "afterPublish", messages, messages]
    ] as const
  ) {
    it.live(name, () =>
      Effect.gen(function*() {
        const { fill, published, rows, sendRest, untilDead } = yield* open
        yield* fill(messages)
        yield* untilDead(dies, after)
        assert.strictEqual((yield* published).size, sentBefore)
        assert.deepStrictEqual(
          (yield* rows).map(({ is_leased, is_sent }) => is_leased && !is_sent),
          Array.from({ length: messages }, () => true),
          "the claim is stored, no mark is"
        )
        yield* sendRest
        const counts = yield* published
        assert.strictEqual(counts.size, messages)
        assert.strictEqual(twice(counts), sentBefore)
      }).pipe(Effect.scoped))
  }

  it.live("while it marks what it has sent", () =>
    Effect.gen(function*() {
      const box = yield* open
      const { fill, publisher, published, sendRest, sql, unsent, url } = box
      yield* fill(messages)
      const first = yield* Effect.scoped(Effect.gen(function*() {
        // Claims skip a row that is locked, so it is locked when it was claimed.
        const blocker = yield* PgServer.connect(url.replace(/\?.*$/, ""))
        yield* sql(
          "CREATE FUNCTION wait_here() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(7); RETURN NEW; END $$"
        )
        yield* sql(
          `CREATE TRIGGER wait_here BEFORE UPDATE ON queue_outbox FOR EACH ROW
           WHEN (NEW.sent_at IS NOT NULL) EXECUTE FUNCTION wait_here()`
        )
        yield* Effect.promise(() => blocker.query("SELECT pg_advisory_lock(7)"))
        const first = yield* publisher("never")
        yield* waitForStatement(box, "dx_mark_sent", "Lock")
        yield* first.kill
        // The server ends the statement of a client that is gone when it has its lock, and rolls it back or commits it.
        yield* sql(
          `SELECT pg_terminate_backend(pid) FROM pg_stat_activity
           WHERE datname = current_database() AND strpos(query, 'dx_mark_sent') > 0 AND pid <> pg_backend_pid()`
        )
        return first
      }))
      yield* first.ended
      yield* sql("DROP TRIGGER wait_here ON queue_outbox")
      assert.strictEqual((yield* published).size, messages)
      assert.strictEqual(yield* unsent, messages)
      yield* sendRest
      assert.strictEqual(twice(yield* published), messages)
    }).pipe(Effect.scoped))
})
