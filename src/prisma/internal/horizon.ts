/**
 * Says in the log what keeps the dead rows of the queues: a transaction left open, a prepared one, a replication slot
 * or a standby. Vacuum cannot remove these rows, and claims read past them.
 */
import * as Clock from "effect/Clock"
import * as Effect from "effect/Effect"
import { ours } from "../../model/shared/logging.ts"
import type { Database } from "../Database.ts"
import { Prisma } from "./client.ts"

/** Fewer are normal between two vacuums, and cost a claim about a millisecond. */
export const mostDeadRows = 10_000

/** One look; warns when it finds what the look before it has found, once and then after 2, 4, 8, … times as long. */
export const makeLook = ({ query, schema, schemaSql }: Database["Service"]): Effect.Effect<void> => {
  let seen: { readonly holder: string; nextReportMs: number; pauseMs: number } | undefined
  return Effect.gen(function*() {
    const [row] = yield* query<Row>("readHorizon", Prisma.sql`SELECT * FROM ${schemaSql}.dx_read_horizon()`)
    if (row === undefined || row.out_dead_rows < mostDeadRows) return void (seen = undefined)
    const nowMs = yield* Clock.currentTimeMillis
    // A process id is that of a session, which runs one transaction after the other.
    const holder = [row.out_kind, row.out_id, row.out_since?.getTime()].join(" ")
    if (seen?.holder !== holder) return void (seen = { holder, nextReportMs: nowMs, pauseMs: firstPauseMs })
    if (nowMs < seen.nextReportMs) return
    seen.nextReportMs = nowMs + seen.pauseMs
    seen.pauseMs = Math.min(2 * seen.pauseMs, longestPauseMs)
    yield* Effect.logWarning("Database: dead rows of the queues are kept, claims get slower until their holder ends")
      .pipe(
        ours({
          schema,
          holder: row.out_kind,
          id: row.out_id,
          ...(row.out_application_name !== null && { application_name: row.out_application_name }),
          ...(row.out_since !== null && { since: row.out_since.toISOString() }),
          transactions_since: row.out_transactions,
          dead_rows: Number(row.out_dead_rows)
        })
      )
  }).pipe(Effect.catchCause((cause) => Effect.logDebug("Database: holder of dead rows not read", cause)))
}

/** Looks every five minutes: an idle process sends hardly a statement. */
export const watch = (database: Database["Service"]): Effect.Effect<never> =>
  Effect.forever(Effect.delay(makeLook(database), intervalMs))

// -----------------------------------------------------------------------------
// internal
// -----------------------------------------------------------------------------

interface Row {
  readonly out_kind: string
  readonly out_id: string
  readonly out_application_name: string | null
  readonly out_since: Date | null
  readonly out_transactions: number
  readonly out_dead_rows: bigint
}

const intervalMs = 300_000
const firstPauseMs = 2 * intervalMs
const longestPauseMs = 12 * intervalMs
