/**
 * Completes the rows that duroxide-pg has written: gives queued ones their route, instances their status, and stored
 * events their type.
 *
 * Each runs before the migration that does the rest under a lock. The lock of both queues stops the renewals of
 * duroxide-pg as well: held while all rows are routed, it would outlast its locks, and all that its processes have in
 * flight would run twice. That of executions stops its turns.
 */
import * as Effect from "effect/Effect"
import * as Session from "../shared/directSession.ts"

/**
 * Sets the type of stored events: duroxide-pg writes 'Event' into every row. Updates each such row of history once.
 * Running workers never update events, so none of them waits.
 */
export const nameEventTypes = (session: Session.Session, lockTimeoutMs: number) =>
  Session.transaction(
    session,
    lockTimeoutMs,
    session.run(
      `UPDATE history
       SET event_type = substring(event_data FROM '"type":"(\\w+)"')
       WHERE event_type = 'Event'
         AND event_data ~ '"type":"\\w+"'`
    )
  )

/**
 * Routes the rows that have none, a thousand in each transaction. Rows that others have locked are left out.
 *
 * The timeout is that of `Session.transaction`, for each of them.
 */
export const routeQueued = Effect.fnUntraced(function*(session: Session.Session, lockTimeoutMs: number) {
  for (const [table, route] of queues) {
    let last: unknown = 0
    while (last !== null) {
      const [row] = yield* Session.transaction(session, lockTimeoutMs, session.run(batchOf(table, route), [last]))
      last = row!.last
    }
  }
})

/** Sets the status of instances that have ended, as `routeQueued` does it. */
export const setStatuses = Effect.fnUntraced(function*(session: Session.Session, lockTimeoutMs: number) {
  let last: unknown = ""
  while (last !== null) {
    const [row] = yield* Session.transaction(
      session,
      lockTimeoutMs,
      session.run(
        `WITH page AS MATERIALIZED (
           SELECT instance_id
           FROM instances
           WHERE instance_id > $1
           ORDER BY instance_id
           LIMIT 1000
         )
         SELECT max(instance_id) AS last, dx_set_statuses(array_agg(instance_id))::text AS done
         FROM page`,
        [last]
      )
    )
    last = row!.last
  }
})

// internal

const queues = [
  ["worker_queue", "dx_activity_route(work_item, tag, session_id)"],
  ["orchestrator_queue", "dx_message_route(instance_id, work_item)"]
] as const

/** The condition on `route` stands by itself: an index on it would be read from its beginning in each batch. */
const batchOf = (table: string, route: string) =>
  `WITH page AS MATERIALIZED (
     SELECT id
     FROM ${table}
     WHERE id > $1
     ORDER BY id
     LIMIT 1000
   ),
   batch AS (
     SELECT id, ${route} AS route
     FROM ${table}
     WHERE id = ANY (ARRAY(SELECT id FROM page))
       AND route || '' = ''
     FOR UPDATE SKIP LOCKED
   ),
   routed AS (
     UPDATE ${table} AS q
     SET route = batch.route
     FROM batch
     WHERE q.id = batch.id
       AND batch.route <> ''
   )
   SELECT max(id) AS last
   FROM page`
