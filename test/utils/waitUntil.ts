import * as Effect from "effect/Effect"
import * as Schedule from "effect/Schedule"
import type { TestDatabase } from "./PgServer.ts"

/** Checks every 10 milliseconds until the condition holds; the timeout of the test is the limit. */
export const waitUntil = <E, R>(condition: Effect.Effect<boolean, E, R>): Effect.Effect<void, E, R> =>
  Effect.asVoid(Effect.repeat(condition, { until: (holds) => holds, schedule: Schedule.spaced("10 millis") }))

/**
 * Waits until a statement that contains `text` runs on another connection of the database (and waits for `waitingFor`).
 */
export const waitForStatement = ({ sql }: TestDatabase, text: string, waitingFor?: "Lock") =>
  waitUntil(
    Effect.map(
      sql(
        `SELECT FROM pg_stat_activity
         WHERE datname = current_database() AND pid <> pg_backend_pid()
           AND state = 'active' AND strpos(query, $1) > 0 AND ($2::text IS NULL OR wait_event_type = $2)`,
        [text, waitingFor ?? null]
      ),
      (rows) => rows.length > 0
    )
  )
