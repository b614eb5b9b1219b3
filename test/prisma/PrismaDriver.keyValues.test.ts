import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as TestClock from "effect/testing/TestClock"
import type { ExecutionStatus } from "../../src/model/Instance.ts"
import type { KeyValueChange } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"

const opened = Test.opener()

const set = (key: string, value: string, lastUpdatedAtMs = 1): KeyValueChange => ({
  action: "set",
  key,
  value,
  lastUpdatedAtMs
})
const clear = (key: string): KeyValueChange => ({ action: "clear_key", key })
const clearAll: KeyValueChange = { action: "clear_all" }

/** A driver at 5000 ms, with the contents of the tables: `key=value@time`, a removed key as `key@time`. */
const open = Effect.gen(function*() {
  yield* TestClock.setTime(5000)
  const { driver, sql } = yield* opened({ clock: "effect" })
  const ack = (keyValues: ReadonlyArray<KeyValueChange>, status: ExecutionStatus | null = null, executionId = 1) =>
    Effect.flatMap(
      Test.claimed(driver, "a"),
      ({ lockToken }) =>
        driver.ackOrchestrationItems([Test.turn(lockToken, { ...Test.named, keyValues, status, executionId })])
    )
  const rows = (table: string) =>
    Effect.map(
      sql<{ text: string }>(
        `SELECT key || COALESCE('=' || value, '') || '@' || last_updated_at_ms AS text FROM ${table}
         WHERE instance_id = 'a' ORDER BY 1`
      ),
      (found) => found.map(({ text }) => text)
    )
  return { driver, sql, ack, delta: rows("kv_delta"), store: rows("kv_store") }
})

describe("key-value changes:", () => {
  it.effect("stay in the delta while the execution runs, the last change of a key counts", () =>
    Effect.gen(function*() {
      const { ack, delta, store } = yield* open
      yield* ack([set("k", "1"), set("k", "2", 0), set("empty", ""), clear("never set"), set("x", "1"), clear("x")])
      assert.deepStrictEqual(yield* delta, ["empty=@1", "k=2@0", "never set@5000", "x@5000"])
      yield* ack([set("x", "again", 9)], "Running")
      assert.deepStrictEqual(yield* delta, ["empty=@1", "k=2@0", "never set@5000", "x=again@9"])
      assert.deepStrictEqual(yield* store, [])
    }))

  it.effect("clear_all removes every key of store and delta, and those set before it in the same turn", () =>
    Effect.gen(function*() {
      const { ack, delta, sql } = yield* open
      yield* sql("INSERT INTO kv_store VALUES ('a', 'stored', '1', 1, 1), ('b', 'other', '1', 1, 1)")
      yield* ack([set("earlier", "1")])
      yield* ack([set("before", "1"), clearAll, set("after", "1")])
      assert.deepStrictEqual(yield* delta, ["after=1@1", "before@5000", "earlier@5000", "stored@5000"])
      yield* ack([set("before", "1"), clearAll, set("between", "1"), clearAll])
      assert.deepStrictEqual(yield* delta, ["after@5000", "before@5000", "between@5000", "earlier@5000", "stored@5000"])
      assert.lengthOf(yield* sql("SELECT FROM kv_delta WHERE instance_id <> 'a'"), 0)
    }))

  for (const status of ["Completed", "Failed", "ContinuedAsNew"] as const) {
    it.effect(`${status} moves them to the store, this turn's own included`, () =>
      Effect.gen(function*() {
        const { ack, delta, driver, sql, store } = yield* open
        yield* sql(
          "INSERT INTO kv_store VALUES ('a', 'kept', '1', 1, 1), ('a', 'gone', '1', 1, 1), ('a', 'new', '1', 1, 1)"
        )
        yield* ack([clear("gone"), set("new", "2", 3)], null, 2)
        yield* ack([set("last", "3", 4), clear("unknown")], status, 2)
        assert.deepStrictEqual(yield* store, ["kept=1@1", "last=3@4", "new=2@3"])
        assert.deepStrictEqual(yield* delta, [])
        assert.deepStrictEqual(yield* sql("SELECT key FROM kv_store WHERE execution_id = 2 ORDER BY 1"), [
          { key: "last" },
          { key: "new" }
        ])
        yield* driver.enqueueForOrchestrator([Test.message("a")])
        const { keyValues } = yield* Test.claimOne(driver)
        assert.sameDeepMembers([...keyValues], [
          { key: "kept", value: "1", lastUpdatedAtMs: 1 },
          { key: "last", value: "3", lastUpdatedAtMs: 4 },
          { key: "new", value: "2", lastUpdatedAtMs: 3 }
        ])
      }))
  }

  it.effect("of the running execution are not part of a claim", () =>
    Effect.gen(function*() {
      const { ack, driver } = yield* open
      yield* ack([set("k", "1")])
      const { keyValues } = yield* Test.claimed(driver, "a")
      assert.deepStrictEqual(keyValues, [])
    }))

  it.effect("of a set of turns stay with their instances", () =>
    Effect.gen(function*() {
      const { driver, sql } = yield* open
      yield* driver.enqueueForOrchestrator([Test.message("a"), Test.message("b"), Test.message("c")])
      const claimed = yield* Test.claim(driver)
      yield* driver.ackOrchestrationItems(claimed.map(({ instanceId, lockToken }) =>
        Test.turn(lockToken, {
          keyValues: instanceId === "b" ? [clearAll, set("k", "b")] : [set("k", instanceId)],
          status: instanceId === "c" ? "Completed" : null
        })
      ))
      assert.deepStrictEqual(yield* sql("SELECT instance_id, value FROM kv_delta ORDER BY 1"), [
        { instance_id: "a", value: "a" },
        { instance_id: "b", value: "b" }
      ])
      assert.deepStrictEqual(yield* sql("SELECT instance_id, value FROM kv_store"), [{ instance_id: "c", value: "c" }])
    }))

  it.effect("keep keys and values of any script, quotes and line breaks", () =>
    Effect.gen(function*() {
      const { ack, driver } = yield* open
      const odd = ["a b.c/d", "ключ", "鍵 🔑", "\"quoted\" \\ 'single'", "line\nbreak"]
      yield* ack(odd.map((text) => set(text, text)), "Completed")
      const { keyValues } = yield* Test.claimed(driver, "a")
      assert.sameMembers(keyValues.map(({ key }) => key), odd)
      for (const { key, value } of keyValues) assert.strictEqual(value, key)
    }))
})
