import { assert, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import type { HandOver, UnclaimedTurn } from "../../src/provider/ProviderDriver.ts"
import * as Test from "../utils/driver.ts"

/**
 * One turn that leaves nothing but events and activities is stored by functions of its own: what they leave must be
 * what the functions for sets leave, which store it as part of a set.
 */

const opened = Test.opener()
const open = opened({ clock: "effect" })

const handOver: HandOver = {
  limit: 1,
  spare: 0,
  lockTimeoutMs: 5000,
  activities: ["Activity"],
  tags: { _tag: "DefaultOnly" }
}
const activities = (instanceId: string, names: ReadonlyArray<string>) =>
  names.map((name, i) => Test.activity({ instanceId, activityId: 10 + i, name }))

/** The names of its activities, and its end. */
type Plain = readonly [activities: ReadonlyArray<string>, end?: Pick<UnclaimedTurn, "status" | "output">]
const turns: Readonly<Record<string, Plain>> = {
  "one activity": [["Activity"]],
  "more activities than may be handed over": [["Activity", "Activity", "Other"]],
  "one that is not served": [["Other", "Activity"]],
  "more than eight": [Array.from({ length: 9 }, () => "Activity")],
  "none": [[]]
}
const lastTurns: typeof turns = {
  ...turns,
  "none, completed": [[], { status: "Completed", output: "o" }],
  "one, failed": [["Activity"], { status: "Failed", output: null }]
}

/** All that is stored of an instance, but for random tokens and ids. */
const rowsOf = ({ sql }: Test.Opened, instanceId: string) =>
  Effect.all(
    ["instances", "executions", "history", "worker_queue", "orchestrator_queue", "kv_delta", "kv_store"].map((table) =>
      Effect.map(
        sql<{ row: object }>(
          `SELECT to_jsonb(t) - '{id,lock_token}'::text[] || jsonb_build_object(
             'instance_id', 'it', 'locked', to_jsonb(t) ->> 'lock_token' IS NOT NULL
           ) AS row FROM ${table} AS t WHERE instance_id = $1 ORDER BY 1`,
          [instanceId]
        ),
        (rows) => ({ table, rows: rows.map(({ row }) => row) })
      )
    )
  )

const indexes = (answer: string | { readonly _tag: string }) =>
  typeof answer === "object" && "handedOver" in answer
    ? { ...answer, handedOver: (answer.handedOver as ReadonlyArray<{ index: number }>).map(({ index }) => index) }
    : answer

it.effect("a start with its first turn leaves the same alone and in a set", () =>
  Effect.gen(function*() {
    const test = yield* open
    const begin = (instanceId: string, [names]: Plain) =>
      Test.start(instanceId, {
        firstTurn: {
          turn: Test.unclaimedTurn(0, {
            ...Test.named,
            pinnedVersion: { major: 1000, minor: 2, patch: 3 },
            history: Test.events(1, 2),
            workerItems: activities(instanceId, names)
          }),
          handOver
        }
      })
    for (const [name, turn] of Object.entries(turns)) {
      const [alone] = yield* test.driver.startOrchestrations([begin("alone", turn)])
      const left = yield* rowsOf(test, "alone")
      yield* test.sql("DELETE FROM worker_queue")
      const [inSet] = yield* test.driver.startOrchestrations([begin("in set", turn), Test.start("other")])
      assert.deepStrictEqual(indexes(alone!), indexes(inSet!), name)
      assert.deepStrictEqual(left, yield* rowsOf(test, "in set"), name)
      for (const { table } of left) yield* test.sql(`DELETE FROM ${table}`)
    }
  }))

it.effect("a result with the turn it leads to leaves the same alone and in a set", () =>
  Effect.gen(function*() {
    const test = yield* open
    for (const [name, [names, end]] of Object.entries(lastTurns)) {
      const { alone, other, set } = yield* Test.waiting(test.driver, ["alone", "other", "set"])
      const next = (instanceId: string, tokens: ReadonlyArray<string>) =>
        Test.optimistic(instanceId, tokens, { ...end, workerItems: activities(instanceId, names), handOver })
      const [answer] = yield* test.driver.advanceOrchestrations!([next("alone", alone!)])
      const left = yield* rowsOf(test, "alone")
      yield* test.sql("DELETE FROM worker_queue WHERE instance_id = 'alone'")
      const [inSet] = yield* test.driver.advanceOrchestrations!([next("set", set!), Test.optimistic("other", other!)])
      assert.deepStrictEqual(indexes(answer!), indexes(inSet!), name)
      assert.deepStrictEqual(left, yield* rowsOf(test, "set"), name)
      for (const { table } of left) yield* test.sql(`DELETE FROM ${table}`)
    }
  }))
