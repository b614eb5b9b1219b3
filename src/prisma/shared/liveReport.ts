/**
 * What happens in a store now, for operators who look at it every other second.
 *
 * Bounds, however large the store is: one look at an index for each status and name of instances and for each route of
 * the queues; of each of them `mostEnded` and `mostStarted` instances, or `mostWaiting` rows that are due;
 * `mostBlocked` blocked instances, `mostDead` dead tasks.
 */
import * as Effect from "effect/Effect"
import type { ProviderError } from "../../provider/ProviderError.ts"
import { Database } from "../Database.ts"
import { Prisma } from "../internal/client.ts"
import { statusesOf } from "../internal/lists.ts"

/** Due rows of a route that are read. */
export const mostWaiting = 1_000

/** The newest instances of a status and name that are asked when they ended: most of those that end now are new. */
export const mostEnded = 1_000

/** Instances of a status and name, started within the time asked for, that are counted. */
const mostStarted = 100_000

const mostBlocked = 10_000

const mostDead = 1_000

/** What instances of a name did within the time asked for. */
export interface Pace {
  readonly orchestration: string
  readonly started: number
  readonly completed: number
  readonly failed: number
  readonly cancelled: number
}

/** What is due in a queue. */
export interface Due {
  readonly kind: "orchestration" | "activity"
  readonly name: string
  /** The version that must run a turn; `>=1.0.0`: that or a newer one; null: any, and for activities. */
  readonly version: string | null
  readonly tag: string | null
  /** Rows that could be claimed. */
  readonly waiting: number
  /** Rows that a process has locked. */
  readonly running: number
  /** How long the oldest row that waits could have been claimed; null without one. */
  readonly oldestAgeMs: number | null
  /** Whether there are more rows than were read. */
  readonly isMore: boolean
  /** Whether only processes of Duroxide in Rust run it. */
  readonly isOfRust: boolean
}

export interface LiveReport {
  /** Milliseconds since the Unix epoch, by the clock of the server. */
  readonly nowMs: number
  readonly blocked: number
  /** At most `mostDead`. */
  readonly deadTasks: number
  readonly paces: ReadonlyArray<Pace>
  readonly due: ReadonlyArray<Due>
}

/** When the time begins that is asked for: `atMs` by the clock of the server, or `agoMs` ago. */
export type Since = { readonly atMs: number } | { readonly agoMs: number }

export const read = Effect.fnUntraced(function*(since: Since): Effect.fn.Return<LiveReport, ProviderError, Database> {
  const { query, schemaSql } = yield* Database
  const sinceSql = "atMs" in since
    ? Prisma.sql`to_timestamp(${since.atMs}::float8 / 1000)`
    : Prisma.sql`now() - ${since.agoMs}::float8 * interval '1 millisecond'`
  const [present] = yield* query<{ readonly nowMs: number; readonly blocked: number; readonly deadTasks: number }>(
    "readTotals",
    totalsSql(schemaSql)
  )
  return {
    ...present!,
    paces: yield* query<Pace>("readPaces", pacesSql(schemaSql, sinceSql)),
    due: [
      ...(yield* query<DueRow>("readDueMessages", messagesSql(schemaSql))).map(dueMessages),
      ...(yield* query<DueRow>("readDueActivities", activitiesSql(schemaSql))).map(dueActivities)
    ]
  }
})

/** Blocked instances of one version of an orchestration. */
export interface Blocked {
  readonly orchestration: string
  /** Null before the first turn. */
  readonly version: string | null
  readonly instances: number
}

export const countBlocked: Effect.Effect<ReadonlyArray<Blocked>, ProviderError, Database> = Effect.flatMap(
  Database,
  ({ query, schemaSql }) =>
    query<Blocked>(
      "countBlocked",
      Prisma.sql`
        SELECT orchestration_name AS orchestration, orchestration_version AS version, count(*)::float8 AS instances
        FROM (${blockedSql(schemaSql)}) AS blocked
        GROUP BY 1, 2`
    )
)

// internal

interface DueRow extends Pick<Due, "waiting" | "running" | "oldestAgeMs" | "isMore" | "tag"> {
  readonly route: string
}

const blockedSql = (schemaSql: Prisma.Sql) =>
  Prisma.sql`
    SELECT i.orchestration_name, i.orchestration_version
    FROM ${schemaSql}.blocked_instances AS b
    JOIN ${schemaSql}.instances AS i ON i.instance_id = b.instance_id
    WHERE ${schemaSql}.dx_is_blocked(b, i.current_execution_id, i.created_at)
    LIMIT ${mostBlocked}::bigint`

const totalsSql = (schemaSql: Prisma.Sql) =>
  Prisma.sql`
    SELECT
      floor(extract(epoch FROM now()) * 1000)::float8 AS "nowMs",
      (SELECT count(*)::float8 FROM (${blockedSql(schemaSql)}) AS blocked) AS blocked,
      (
        SELECT count(*)::float8
        FROM (
          SELECT FROM ${schemaSql}.queue_tasks AS t WHERE t.dead_at IS NOT NULL LIMIT ${mostDead}::bigint
        ) AS dead
      ) AS "deadTasks"`

const pacesSql = (schemaSql: Prisma.Sql, sinceSql: Prisma.Sql) =>
  Prisma.sql`
    SELECT
      g.out_name AS orchestration,
      sum(started.instances)::float8 AS started,
      COALESCE(sum(ended.instances) FILTER (WHERE g.out_status = 'Completed'), 0)::float8 AS completed,
      COALESCE(sum(ended.instances) FILTER (WHERE g.out_status = 'Failed'), 0)::float8 AS failed,
      COALESCE(sum(ended.instances) FILTER (WHERE g.out_status = 'Cancelled'), 0)::float8 AS cancelled
    FROM ${schemaSql}.dx_groups_of_instances(${statusesOf(null)}::text[], NULL) AS g
    CROSS JOIN LATERAL (
      SELECT count(*) AS instances
      FROM (
        SELECT
        FROM ${schemaSql}.instances AS i
        WHERE i.status = g.out_status AND i.orchestration_name = g.out_name AND i.created_at > ${sinceSql}
        LIMIT ${mostStarted}::bigint
      ) AS newest
    ) AS started
    CROSS JOIN LATERAL (
      SELECT count(*) FILTER (WHERE newest.updated_at > ${sinceSql}) AS instances
      FROM (
        SELECT i.updated_at
        FROM ${schemaSql}.instances AS i
        WHERE g.out_status <> 'Running' AND i.status = g.out_status AND i.orchestration_name = g.out_name
        ORDER BY i.created_at DESC
        LIMIT ${mostEnded}::bigint
      ) AS newest
    ) AS ended
    GROUP BY g.out_name`

/** The routes of a queue, in order: one look at the index that begins with the route for each. */
const routesSql = (queueSql: Prisma.Sql, conditionSql: Prisma.Sql) =>
  Prisma.sql`
    WITH RECURSIVE present AS (
      (SELECT q.route FROM ${queueSql} AS q WHERE ${conditionSql} ORDER BY q.route LIMIT 1)
      UNION ALL
      SELECT (
        SELECT q.route FROM ${queueSql} AS q
        WHERE ${conditionSql} AND q.route > present.route
        ORDER BY q.route LIMIT 1
      )
      FROM present WHERE present.route IS NOT NULL
    )`

const countsSql = Prisma.sql`
  count(*) FILTER (WHERE item.is_free)::float8 AS waiting,
  count(*) FILTER (WHERE item.is_running)::float8 AS running,
  floor(extract(epoch FROM now() - min(item.since) FILTER (WHERE item.is_free)) * 1000)::float8 AS "oldestAgeMs",
  count(*) >= ${mostWaiting}::bigint AS "isMore"`

const lockedUntil = (column: Prisma.Sql) => Prisma.sql`to_timestamp(${column}::float8 / 1000)`

const messagesSql = (schemaSql: Prisma.Sql) =>
  Prisma.sql`
    ${routesSql(Prisma.sql`${schemaSql}.orchestrator_queue`, Prisma.sql`true`)}
    SELECT present.route, NULL AS tag, ${countsSql}
    FROM present
    CROSS JOIN LATERAL (
      SELECT
        greatest(q.visible_at, q.created_at, ${lockedUntil(Prisma.sql`q.locked_until`)}, l.until) AS since,
        (l.until > now()) IS NOT TRUE AND (${lockedUntil(Prisma.sql`q.locked_until`)} > now()) IS NOT TRUE AS is_free,
        -- A pause is a lock without a token.
        l.until > now() AND l.lock_token <> '' AS is_running
      FROM (
        SELECT q.*
        FROM ${schemaSql}.orchestrator_queue AS q
        WHERE q.route = present.route AND q.visible_at <= now()
        ORDER BY q.visible_at, q.id
        LIMIT ${mostWaiting}::bigint
      ) AS q
      LEFT JOIN LATERAL (
        SELECT l.lock_token, ${lockedUntil(Prisma.sql`l.locked_until`)} AS until
        FROM ${schemaSql}.instance_locks AS l
        WHERE l.instance_id = q.instance_id
      ) AS l ON true
    ) AS item
    -- Those of instances that wait for a limit begin with ~.
    WHERE present.route <> '' AND NOT starts_with(present.route, '~')
    GROUP BY present.route`

const activitiesSql = (schemaSql: Prisma.Sql) => {
  const queueSql = Prisma.sql`${schemaSql}.worker_queue`
  // Each condition fits one index only.
  const [free, bound] = [Prisma.sql`q.session_id IS NULL`, Prisma.sql`num_nulls(q.session_id) = 0`].map((
    conditionSql
  ) =>
    Prisma.sql`
      ${routesSql(queueSql, conditionSql)}
      SELECT present.route, item.*
      FROM present
      CROSS JOIN LATERAL (
        SELECT
          q.tag,
          greatest(q.visible_at, q.created_at, ${lockedUntil(Prisma.sql`q.locked_until`)}) AS since,
          (${lockedUntil(Prisma.sql`q.locked_until`)} > now()) IS NOT TRUE AS is_free,
          ${lockedUntil(Prisma.sql`q.locked_until`)} > now() AS is_running
        FROM ${queueSql} AS q
        WHERE ${conditionSql} AND q.route = present.route AND q.visible_at <= now()
        ORDER BY q.visible_at, q.id
        LIMIT ${mostWaiting}::bigint
      ) AS item
      WHERE present.route IS NOT NULL`
  )
  return Prisma.sql`
    SELECT item.route, ${schemaSql}.dx_tag(item.tag) AS tag, ${countsSql}
    FROM ((${free!}) UNION ALL (${bound!})) AS item
    GROUP BY item.route, ${schemaSql}.dx_tag(item.tag)`
}

/** `1000.1.0 =1.0.0 Name`; as `dx_route` makes it. */
const dueMessages = ({ route, ...row }: DueRow): Due => {
  const [pinned = "", version = ""] = route.split(" ", 2)
  return {
    ...row,
    kind: "orchestration",
    name: route.slice(pinned.length + version.length + 2),
    version: version.startsWith("=") ? version.slice(1) : version.startsWith(">") ? `>=${version.slice(1)}` : null,
    isOfRust: /^\d{1,3}\./.test(pinned)
  }
}

/** `Name`, or `Name #tag`. */
const dueActivities = ({ route, ...row }: DueRow): Due => ({
  ...row,
  kind: "activity",
  name: row.tag === null ? route : route.slice(0, -` #${row.tag}`.length),
  version: null,
  isOfRust: false
})
