import { assert, describe, it } from "@effect/vitest"
import * as Effect from "effect/Effect"
import * as ChildProcess from "../utils/childProcess.ts"
import * as Drivers from "../utils/driver.ts"
import * as PgServer from "../utils/PgServer.ts"
import { times } from "../utils/times.ts"

const processes = 4
const claimsInFlight = 50
const seconds = times(8)

/** Outcomes that must occur; locks that expire under their holders are among them. */
const outcomes = [
  "ackOrchestrationItems Done",
  "ackOrchestrationItems LockLost",
  "abandonOrchestrationItems Done",
  "renewOrchestrationItemLocks Done",
  "deferMessages Done",
  "ackWorkItems Done",
  "ackWorkItems LockLost",
  "abandonWorkItems Done",
  "renewWorkItemLocks Done",
  "startOrchestrations Started",
  "startOrchestrations Begun",
  "startOrchestrations AlreadyExists",
  "advanceOrchestrations Advanced",
  "advanceOrchestrations Queued",
  "handed over",
  "deleteInstances Deleted",
  "deleteInstances ChildLeftBehind",
  "deleteInstances StillRunning"
]

describe("deadlocks:", () => {
  it.live(
    `none under ${processes} processes x ${claimsInFlight} claims in flight for ${seconds} s`,
    () =>
      Effect.gen(function*() {
        const { schema, sql, url } = yield* PgServer.database
        // As many connections as the server has left, at most one for every claim.
        const [limits] = yield* sql<{ free: number }>(
          "SELECT current_setting('max_connections')::int - count(*)::int - 50 AS free FROM pg_stat_activity"
        )
        const connections = Math.max(5, Math.min(claimsInFlight, Math.floor(limits!.free / processes)))

        // Longer than it takes the server to find a deadlock, which would otherwise end as a lock timeout.
        const patiently = Drivers.patient(url)

        const running = yield* Effect.all(
          Array.from({ length: processes }, () =>
            ChildProcess.start(
              "churn",
              patiently,
              schema,
              `${seconds}`,
              `${claimsInFlight}`,
              `${connections}`,
              outcomes.join()
            )),
          { concurrency: "unbounded" }
        )
        yield* Effect.forEach(running, (process) => process.printed("counts: {"), { concurrency: "unbounded" })
        const counts: Record<string, number> = {}
        for (const process of running) {
          const all: Record<string, number> = JSON.parse(process.output().split("counts: ")[1]!)
          for (const [what, count] of Object.entries(all)) counts[what] = (counts[what] ?? 0) + count
        }

        const failures = Object.entries(counts).filter(([what]) => what.startsWith("failed"))
        assert.deepStrictEqual(failures, [], JSON.stringify(failures))
        // The server counts deadlocks when a backend ends, and per database, so the test uses its own clone.
        if (PgServer.server().template !== null) {
          const [statistics] = yield* sql(
            "SELECT deadlocks::int FROM pg_stat_database WHERE datname = current_database()"
          )
          assert.deepStrictEqual(statistics, { deadlocks: 0 })
        }

        for (const outcome of outcomes) assert.isAbove(counts[outcome] ?? 0, 2 * processes, outcome)

        // A live lock of a message is always that of its instance.
        const strays = yield* sql(
          `SELECT q.id FROM orchestrator_queue AS q
           LEFT JOIN instance_locks AS l ON l.instance_id = q.instance_id AND l.lock_token = q.lock_token
           WHERE q.locked_until > extract(epoch FROM clock_timestamp()) * 1000 AND l.lock_token IS NULL`
        )
        assert.deepStrictEqual(strays, [])
      })
  )
})
