import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as Test from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"

describe("durability:", () => {
  it.live("claims, renewals and deferrals commit without waiting for the disk; what they lead to waits for it", () =>
    Effect.gen(function*() {
      const test = yield* PgServer.database
      const url = new URL(test.url)
      url.searchParams.set("options", "-c synchronous_commit=on")
      // One connection: a setting that outlived its statement would show in the next.
      const { driver } = yield* Test.openOn({ ...test, url: url.toString() }, { maxConnections: 1 })
      // Every statement says under which setting it writes rows.
      yield* test.sql("CREATE TABLE written (setting text)")
      yield* test.sql(`CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$
        BEGIN
          EXECUTE format('INSERT INTO %I.written VALUES (current_setting(''synchronous_commit''))', TG_TABLE_SCHEMA);
          RETURN NULL;
        END $$`)
      for (const table of ["orchestrator_queue", "worker_queue", "instance_locks", "sessions", "history"]) {
        yield* test.sql(
          `CREATE TRIGGER note AFTER INSERT OR UPDATE OR DELETE ON ${table} FOR EACH ROW EXECUTE FUNCTION note()`
        )
      }
      const under = <A, E>(setting: "on" | "off", call: Effect.Effect<A, E>) =>
        Effect.gen(function*() {
          yield* test.sql("TRUNCATE written")
          const answer = yield* call
          const rows = yield* test.sql("SELECT DISTINCT setting FROM written")
          assert.deepStrictEqual(rows, [{ setting }])
          return answer
        })
      const session = { workerId: "w", lockTimeoutMs: 60_000 }

      yield* under("on", driver.startOrchestrations([Test.start("a"), Test.start("b")]))
      const { lockToken, messages } = yield* under("off", Test.claimOne(driver))
      yield* under("off", driver.renewOrchestrationItemLocks([{ lockToken, extendForMs: 60_000 }]))
      yield* under("off", driver.deferMessages([{ lockToken, ids: [messages[0]!.id], delayMs: 0 }]))
      yield* under("on", driver.ackOrchestrationItems([Test.turn(lockToken, { workerItems: [Test.activity()] })]))
      const other = yield* under("off", Test.claimOne(driver))
      yield* under(
        "on",
        driver.abandonOrchestrationItems([{ lockToken: other.lockToken, delayMs: null, ignoreAttempt: false }])
      )

      yield* under("on", driver.enqueueForWorker([{ ...Test.activity(), sessionId: "s" }]))
      const [work] = yield* under("off", Test.take(driver, { limit: 1, session }))
      yield* under("off", driver.renewWorkItemLocks([{ lockToken: work!.lockToken, extendForMs: 60_000 }]))
      const [bound] = yield* under("off", Test.take(driver, { limit: 1, session }))
      yield* under("off", driver.renewSessionLocks({ workerIds: ["w"], extendForMs: 60_000, idleTimeoutMs: 60_000 }))
      yield* under(
        "on",
        driver.abandonWorkItems([{ lockToken: bound!.lockToken, delayMs: null, ignoreAttempt: false }])
      )
      const completion = { instanceId: "a", workItem: "{}" }
      yield* under("on", driver.ackWorkItems([{ lockToken: work!.lockToken, completion }]))
    }))
})
