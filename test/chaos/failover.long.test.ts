import { assert, describe, it } from "@effect/vitest"
import { Client } from "duroxide-prisma"
import * as Effect from "effect/Effect"
import * as Fiber from "effect/Fiber"
import * as Layer from "effect/Layer"
import * as Logger from "effect/Logger"
import * as Option from "effect/Option"
import * as Schedule from "effect/Schedule"
import * as Migrator from "../../src/prisma/Migrator.ts"
import * as PrismaProvider from "../../src/prisma/PrismaProvider.ts"
import { ProviderError } from "../../src/provider/ProviderError.ts"
import { Approval, Box1, Decision, Flow, Letters, Ping } from "../programs/chaos/definitions.ts"
import * as Fleet from "../utils/fleet.ts"
import * as ServerPair from "../utils/serverPair.ts"
import { waitUntil } from "../utils/waitUntil.ts"

// `FAILOVER_SECONDS=60` is the long form: an outage of a minute, with all settings at their defaults. With
// `FAILOVER_BY=kill` the server refuses connections meanwhile; otherwise it is frozen.
const isKilled = process.env.FAILOVER_BY === "kill"
const outageSeconds = Number(process.env.FAILOVER_SECONDS ?? 2)
const isLong = outageSeconds > 10
const settings = isLong ? {} : { lockMs: 3_000, statementTimeoutMs: 1_000 }

const kinds = ["steps", "slow", "child", "timers"] as const

/** Repeats a call that the store fails, until it is acknowledged. */
const insistently = <A, E, R>(call: Effect.Effect<A, E, R>) =>
  Effect.retry(call, { schedule: Schedule.spaced("50 millis"), while: (error) => error instanceof ProviderError })

const workers = ["one", "two"]

/** Each worker claims an orchestration and an activity; returns the seconds until all have. */
const recovery = Effect.fnUntraced(function*(round: string) {
  const client = yield* Client.Client
  const start = performance.now()
  yield* insistently(client.start(Flow, { instanceId: `first-${round}`, payload: { n: 0, kind: "steps" } }))
  const acknowledged = performance.now() - start
  yield* Effect.forEach(workers, (name) => {
    const instanceId = `ping-${round}-${name}`
    return Effect.andThen(
      insistently(client.start(Ping(name), { instanceId, ifExists: "ignore" })),
      insistently(client.wait(Ping(name), instanceId))
    )
  }, { concurrency: "unbounded" })
  const served = performance.now() - start
  console.log(
    `[failover] ${round}: a start is acknowledged after ${(acknowledged / 1000).toFixed(1)} s, ` +
      `all workers serve after ${(served / 1000).toFixed(1)} s`
  )
})

/** Approvals that wait, and flows and letters until `running` is interrupted. Acknowledged letters are noted. */
const load = Effect.gen(function*() {
  const client = yield* Client.Client
  const flows: Array<{ readonly instanceId: string; readonly n: number }> = []
  const boxes = ["box-0", "box-1", "box-2"]
  const approvals = Array.from({ length: 12 }, (_, i) => `approval-${i}`)
  const letters = new Map(boxes.map((id): [string, Array<string>] => [id, []]))

  yield* Effect.forEach(
    boxes,
    (instanceId) => client.start(Box1, { instanceId, payload: { read: [] } }),
    { concurrency: "unbounded" }
  )
  yield* Effect.forEach(
    approvals,
    (instanceId) => client.start(Approval, { instanceId, payload: 600_000 }),
    { concurrency: "unbounded" }
  )
  yield* Effect.forEach(
    approvals,
    (id) =>
      waitUntil(
        Effect.map(client.status(id), (status) =>
          status._tag === "Running" && Option.getOrNull(status.customStatus) === "asking")
      ),
    { concurrency: "unbounded" }
  )

  const starting = Effect.forever(Effect.gen(function*() {
    const n = flows.length
    const instanceId = `flow-${n}`
    flows.push({ instanceId, n })
    const start = client.start(Flow, { instanceId, payload: { n, kind: kinds[n % 4]! }, ifExists: "ignore" })
    yield* Effect.forkDetach(insistently(start))
    yield* Effect.sleep(isLong ? "500 millis" : "200 millis")
  }))
  const writing = Effect.forEach(boxes, (id) => {
    let count = 0
    return Effect.forever(Effect.gen(function*() {
      const letter = `${id}:${count++}`
      // Not repeated: after a failure the letter may be there or not.
      const sent = yield* Effect.result(client.send(Letters, id, letter))
      if (sent._tag === "Success") letters.get(id)!.push(letter)
      yield* Effect.sleep(isLong ? "500 millis" : "200 millis")
    }))
  }, { concurrency: "unbounded" })
  const running = yield* Effect.forkChild(Effect.all([starting, writing], { concurrency: "unbounded" }))
  return { approvals, boxes, flows, letters, running }
})

/** A client that fails as fast as the workers do. */
const clientOf = (url: string) =>
  Client.layer.pipe(
    Layer.provide(PrismaProvider.layer({ url, migrate: "none", statementTimeout: settings.statementTimeoutMs })),
    Layer.provide(Logger.layer([]))
  )

describe("A failover", () => {
  it.live(
    "frozen primary, promoted standby, name that leads astray: nothing is lost or doubled, and all recover",
    () =>
      Effect.gen(function*() {
        const pair = yield* ServerPair.make
        const { primary, standby } = pair
        yield* Effect.provide(Migrator.migrate({ url: primary.url }), Logger.layer([]))
        const fleet = yield* Fleet.make(pair.url)
        const processes = yield* Effect.forEach(
          workers,
          (name) => fleet.worker(name, ["1.0.0"], settings),
          { concurrency: "unbounded" }
        )
        yield* Effect.forEach(processes, (process) => process.printed("ready"))
        yield* Effect.gen(function*() {
          const client = yield* Client.Client
          const { approvals, boxes, flows, letters, running } = yield* load
          yield* waitUntil(Effect.map(fleet.runs, (runs) => runs.size >= 20))

          // The zone is gone: its connections stay open, and answer nothing.
          yield* isKilled ? primary.kill : primary.freeze
          const raising = yield* Effect.forkChild(
            Effect.forEach(approvals, (id) => insistently(client.send(Decision, id)), { concurrency: "unbounded" })
          )
          yield* Effect.sleep(outageSeconds * 1_000)
          yield* standby.sql("SELECT pg_promote()")
          pair.pointTo(standby)
          yield* recovery(isKilled ? "killed" : "half-open")

          // It comes back, first with the connections it had, then as a standby, and for a while the name leads to it.
          if (!isKilled) {
            yield* primary.thaw
            yield* recovery("thawed")
            yield* primary.kill
          }
          yield* primary.startAsStandby
          pair.pointTo(primary)
          pair.proxy.reset()
          // Every connection is one to the standby now.
          const refused = client.start(Flow, { instanceId: "astray", payload: { n: 0, kind: "steps" } })
          yield* Effect.repeat(Effect.flip(refused), {
            until: (error) =>
              error._tag === "ProviderError" && error.reason._tag === "Unavailable" &&
              error.reason.sqlState === "25006",
            schedule: Schedule.spaced("50 millis")
          })
          pair.pointTo(standby)
          yield* recovery("read-only")

          yield* Fiber.interrupt(running)
          const quiet = performance.now()
          yield* Fiber.join(raising)
          for (const id of boxes) yield* client.send(Letters, id, "close")
          const ends = yield* Effect.all({
            flows: Effect.forEach(flows, ({ instanceId }) => insistently(client.wait(Flow, instanceId)), {
              concurrency: "unbounded"
            }),
            approvals: Effect.forEach(approvals, (id) => client.wait(Approval, id), { concurrency: "unbounded" }),
            boxes: Effect.forEach(boxes, (id) => client.wait(Box1, id), { concurrency: "unbounded" })
          }, { concurrency: "unbounded" })
          assert.deepStrictEqual(ends.flows, flows.map(({ n }) => n + 5))
          assert.deepStrictEqual(ends.approvals, approvals.map(() => "approved"))
          for (const [i, id] of boxes.entries()) {
            const read = ends.boxes[i]!
            const acknowledged = new Set(letters.get(id))
            assert.deepStrictEqual(read.filter((letter) => acknowledged.has(letter)), [...acknowledged], id)
            assert.strictEqual(new Set(read).size, read.length, id)
          }
          const runs = yield* fleet.runs
          console.log(
            `[failover] ${flows.length} flows, ${
              [...letters.values()].flat().length
            } letters, ${runs.size} handlers, ` +
              `${[...runs.values()].filter((count) => count > 1).length} of them ran again; ` +
              `all ended ${((performance.now() - quiet) / 1000).toFixed(1)} s after the last start`
          )
        }).pipe(Effect.provide(clientOf(pair.url)))

        const [totals] = yield* standby.sql(
          `SELECT
             (SELECT count(*) FROM (
                SELECT FROM history GROUP BY instance_id, execution_id HAVING max(event_id) <> count(*)
              ) AS gap)::int AS gaps,
             (SELECT count(*) FROM (
                SELECT FROM history WHERE event_data::jsonb ->> 'type' = 'ActivityCompleted'
                GROUP BY instance_id, execution_id, event_data::jsonb ->> 'source_event_id' HAVING count(*) > 1
              ) AS twice)::int AS doubled,
             (SELECT count(*) FROM executions WHERE status NOT IN ('Completed', 'ContinuedAsNew'))::int AS unfinished`
        )
        assert.deepStrictEqual(totals, { gaps: 0, doubled: 0, unfinished: 0 })
      }).pipe(Effect.scoped),
    (outageSeconds + 240) * 1_000
  )
})
