import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import * as Option from "effect/Option"
import type * as Scope from "effect/Scope"
import { Approval, Box1, Decision, Flow, Letters, Ping } from "../programs/chaos/definitions.ts"
import * as LatencyProxy from "../programs/latencyProxy.ts"
import * as App from "../utils/app.ts"
import * as Fleet from "../utils/fleet.ts"
import * as PgServer from "../utils/PgServer.ts"
import { session } from "../utils/session.ts"
import { waitUntil } from "../utils/waitUntil.ts"

type Outage = (test: PgServer.TestDatabase) => Effect.Effect<void, never, Scope.Scope>

/** The table takes no new rows: each insert fails with this SQLSTATE. */
const refusing = (table: string, code: string, seconds: number): Outage => ({ sql }) =>
  Effect.gen(function*() {
    yield* sql(
      `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$
       BEGIN RAISE 'refused by the test' USING ERRCODE = '${code}'; END $$`
    )
    yield* sql(`CREATE TRIGGER refuse BEFORE INSERT ON ${table} FOR EACH ROW EXECUTE FUNCTION refuse()`)
    yield* Effect.sleep(seconds * 1_000)
    yield* sql(`DROP TRIGGER refuse ON ${table}`)
  })

/** The table takes no writes, as while an index is built on it; returns what ends that. */
const lock = Effect.fnUntraced(function*(table: string, test: PgServer.TestDatabase) {
  const run = yield* session(test)
  yield* run(`LOCK TABLE ${table} IN SHARE MODE`)
  return run("COMMIT")
})

const locking = (table: string, seconds: number): Outage => (test) =>
  Effect.gen(function*() {
    const unlock = yield* lock(table, test)
    yield* Effect.sleep(seconds * 1_000)
    yield* unlock
  })

const instances = 60

/** The store fails while activities run that would end during its first seconds. */
const results = (outage: Outage) =>
  Effect.gen(function*() {
    const test = yield* PgServer.database
    const fleet = yield* Fleet.make(Fleet.impatient(test.url))
    const processes = yield* Effect.all([fleet.worker("one", ["1.0.0"]), fleet.worker("two", ["1.0.0"])])
    yield* Effect.forEach(processes, (process) => process.printed("ready"))
    yield* Effect.gen(function*() {
      const client = yield* Client.Client
      const ids = Array.from({ length: instances }, (_, n) => ({ instanceId: `flow-${n}`, n }))
      yield* Effect.forEach(ids, ({ instanceId, n }) =>
        client.start(Flow, { instanceId, payload: { n, kind: "slow" } }), { concurrency: "unbounded" })
      yield* waitUntil(Effect.map(fleet.runs, (runs) =>
        runs.size >= 32))
      yield* outage(test)
      const answers = yield* Effect.forEach(ids, ({ instanceId }) =>
        client.wait(Flow, instanceId), {
        concurrency: "unbounded"
      })
      assert.deepStrictEqual(answers, ids.map(({ n }) => n + 5))
    }).pipe(Effect.provide(App.store(test.url)))
    const runs = yield* fleet.runs
    assert.strictEqual(runs.size, instances * 5)
    assert.deepStrictEqual(yield* fleet.repeated, [])
  }).pipe(Effect.scoped)

/**
 * The server is unreachable for longer than a lock lasts. The processes reach it again one after another: first the
 * one with most free slots, last the one that runs most. Each has claimed activities before, as one that does not
 * know of the outage takes over at once.
 */
const goneForLongerThanALock = Effect.gen(function*() {
  const test = yield* PgServer.database
  const fleet = yield* Fleet.make(test.url)
  // The last process is back after two thirds of a lock. On a busy machine its first statements take seconds.
  const lockMs = 12_000
  const names = ["one", "two", "three"]
  const processes = yield* Effect.forEach(names, (name) =>
    Effect.gen(function*() {
      const proxy = yield* LatencyProxy.proxyFor(test.url)
      const worker = yield* fleet.worker(name, ["1.0.0"], { lockMs, url: proxy.through(test.url) })
      yield* worker.printed("ready")
      return { pid: worker.pid, proxy }
    }))
  yield* Effect.gen(function*() {
    const client = yield* Client.Client
    for (const name of names) {
      assert.strictEqual(yield* client.execute(Ping(name), { instanceId: `ping ${name}` }), name)
    }
    const ids = Array.from({ length: 24 }, (_, n) => ({ instanceId: `flow-${n}`, n }))
    yield* Effect.forEach(
      ids,
      ({ instanceId, n }) => client.start(Flow, { instanceId, payload: { n, kind: "slow" } }),
      { concurrency: "unbounded" }
    )
    yield* waitUntil(Effect.map(fleet.runs, (runs) => runs.size >= ids.length))
    for (const { proxy } of processes) {
      proxy.state.isDown = true
      proxy.reset()
    }
    const held = yield* fleet.runsOf
    const holds = ({ pid }: { readonly pid: number }) => held.get(pid) ?? 0
    yield* Effect.sleep(2 * lockMs)
    for (const { proxy } of processes.toSorted((one, other) => holds(one) - holds(other))) {
      proxy.state.isDown = false
      yield* Effect.sleep(lockMs / 3)
    }
    const answers = yield* Effect.forEach(ids, ({ instanceId }) => client.wait(Flow, instanceId), {
      concurrency: "unbounded"
    })
    assert.deepStrictEqual(answers, ids.map(({ n }) => n + 5))
    const runs = yield* fleet.runs
    assert.strictEqual(runs.size, ids.length * 5)
    assert.deepStrictEqual(yield* fleet.repeated, [])
  }).pipe(Effect.provide(App.store(test.url)))
}).pipe(Effect.scoped)

describe.concurrent("A store that fails for a while", () => {
  it.live(
    "disk full for 15 s: 60 of 60 complete, each handler ran once",
    () => results(refusing("orchestrator_queue", "53100", 15))
  )

  it.live(
    "a right missing for 15 s: 60 of 60 complete, each handler ran once",
    () => results(refusing("orchestrator_queue", "42501", 15))
  )

  it.live(
    "a table locked for 25 s: 60 of 60 complete, each handler ran once",
    () => results(locking("orchestrator_queue", 25))
  )

  it.live(
    "gone for twice as long as the locks: 24 of 24 complete, each handler ran once",
    () => goneForLongerThanALock
  )

  it.live(
    "turns not stored while timers fall due: signals keep their order, and signals in time win against their timeout",
    () =>
      Effect.gen(function*() {
        const test = yield* PgServer.database
        const fleet = yield* Fleet.make(Fleet.impatient(test.url))
        const worker = yield* fleet.worker("one", ["1.0.0"])
        yield* worker.printed("ready")
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const boxes = Array.from({ length: 10 }, (_, i) => `box-${i}`)
          const approvals = Array.from({ length: 20 }, (_, i) => `approval-${i}`)
          const letters = Array.from({ length: 60 }, (_, i) => `${i}`)
          const timeoutMs = 15_000
          yield* Effect.forEach(boxes, (instanceId) => client.start(Box1, { instanceId, payload: { read: [] } }))
          yield* Effect.forEach(approvals, (instanceId) => client.start(Approval, { instanceId, payload: timeoutMs }), {
            concurrency: "unbounded"
          })
          const asks = (id: string) =>
            Effect.map(client.status(id), (status) =>
              status._tag === "Running" && Option.getOrNull(status.customStatus) === "asking")
          yield* Effect.forEach(approvals, (id) =>
            waitUntil(asks(id)))

          const unlock = yield* lock("history", test)
          const dueMs = (yield* Clock.currentTimeMillis) + timeoutMs
          const write = Effect.fnUntraced(function*(id: string) {
            for (const letter of letters) {
              yield* client.send(Letters, id, letter)
              yield* Effect.sleep(200)
            }
          })
          const writing = yield* Effect.forkChild(
            Effect.forEach(boxes, write, { concurrency: "unbounded", discard: true })
          )
          yield* Effect.forEach(approvals, (id) => client.send(Decision, id), { concurrency: "unbounded" })
          yield* Effect.sleep(dueMs + 1_000 - (yield* Clock.currentTimeMillis))
          yield* unlock

          assert.deepStrictEqual(
            yield* Effect.forEach(approvals, (id) => client.wait(Approval, id), { concurrency: "unbounded" }),
            approvals.map(() => "approved")
          )
          yield* waitUntil(Effect.sync(() => writing.pollUnsafe() !== undefined))
          yield* Effect.forEach(boxes, (id) => client.send(Letters, id, "close"))
          assert.deepStrictEqual(
            yield* Effect.forEach(boxes, (id) => client.wait(Box1, id), { concurrency: "unbounded" }),
            boxes.map(() => letters)
          )
        }).pipe(Effect.provide(App.store(test.url)))
      }).pipe(Effect.scoped)
  )
})
